"""What a step of PPO's rollout launches on an H100, counted on a machine without one; run as a script.

    python steps_without_gpu.py WORLD:WORLDS …

Prints a line of JSON for each: inductor's kernels with the numbers of their elements, the operations beside them, how
many tensors have whole rows stored at once. Nothing is launched.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "run"))

import torch
import without_gpu
from torch import Tensor
from torch.fx import GraphModule

from denizen import ops
from denizen.app._build import build
from denizen.nn import kernels
from denizen.rl import _conv_encoder, _policy, _value
from denizen.rl._ppo import PRECISIONS
from denizen.zoo.foraging import _fast, _launch


def as_on_cuda() -> None:
    """Everything that asks whether a tensor is on CUDA takes it that it is; worlds in place do nothing."""
    kernels.mlp_fits = lambda weights: True
    for module, name in (
        (_conv_encoder, "spreads"),
        (_policy, "spreads"),
        (_policy, "launches"),
        (_policy, "_pays"),
        (_value, "_fuses"),
    ):
        setattr(module, name, lambda tensor: True)
    _fast.variant = lambda device: "triton"
    _launch.step = lambda *args: [tensor.zero_() for tensor in args[6]]


def recorded(world: str, count: int) -> tuple[GraphModule, list[Tensor]]:
    """The graph of a step and its arguments, in the form that CUDA takes; constants are arguments."""
    as_on_cuda()
    policy = {} if world == "foraging" else {"hidden": "64,64", "activation": "tanh"}
    settings = {"num_envs": count, "num_steps": 8, **({"precision": "bfloat16"} if world == "foraging" else {})}
    made = build({"world_name": world, "algo": "ppo", "steps": None, "set": settings, "world": {}, "policy": policy}, 0)
    held = made.algorithm.init(made.env, made.policy, total_steps=10**9, device="cpu")
    step: Any = held.rollout._step
    with held.policy.prepared(PRECISIONS[made.algorithm.precision]):
        tensors = step._ready((held.rollout.state.parts(), held.rollout.sums()))
    graph = step.graph.graph
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    for number, node in enumerate([node for node in graph.nodes if node.op == "get_attr"]):
        with graph.inserting_after(last):
            last = graph.placeholder(f"constant_{number}")
        last.meta = dict(node.meta)
        tensors.append(getattr(step.graph, node.target))
        node.replace_all_uses_with(last)
        graph.erase_node(node)
    step.graph.recompile()
    return step.graph, tensors


def main() -> None:
    """Count."""
    with torch.no_grad():
        steps = [recorded(world, int(count)) for world, count in (word.split(":") for word in sys.argv[1:])]
        without_gpu.pretend()
        torch.cuda.get_device_properties().gcnArchName = ""  # type: ignore[misc]
        assert ops.fuse_draws()
        for graph, tensors in steps:
            code = without_gpu.written(graph, tensors)
            calls = code[code.index("def call") :]
            kernels = [one.split(",")[-1].strip() for one in re.findall(r"triton_\w+\.run\((.*), stream", calls)]
            others = re.findall(r"= (?:torch\.ops|extern_kernels)\.([\w.]+)\(", calls)
            rows = len(re.findall(r"tl\.store\(.*tl\.reshape\(tl\.join", code))
            print(json.dumps({"kernels": [int(size) for size in kernels], "others": others, "rows": rows}))


if __name__ == "__main__":
    main()
