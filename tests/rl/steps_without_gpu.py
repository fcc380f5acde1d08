"""What a step of PPO's rollout launches on an H100, counted on a machine without one; run as a script.

    python steps_without_gpu.py WORLD WORLDS

Prints JSON: inductor's kernels with the numbers of their elements, and the operations beside them. Nothing is launched.
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


def recorded(world: str, count: int) -> tuple[GraphModule, list[Tensor]]:
    """The graph of a step and its arguments, in the form that CUDA takes; constants are arguments."""
    ops.fits = lambda weights: True
    policy = {"hidden": "64,64", "activation": "tanh"}
    settings = {"num_envs": count, "num_steps": 8}
    made = build({"world_name": world, "algo": "ppo", "steps": None, "set": settings, "world": {}, "policy": policy}, 0)
    held = made.algorithm.init(made.env, made.policy, total_steps=10**9, device="cpu")
    step: Any = held.collector._step
    tensors = step._ready((held.memo.parts(), held.rollout.sums(count)))
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
        graph, tensors = recorded(sys.argv[1], int(sys.argv[2]))
        without_gpu.pretend()
        torch.cuda.get_device_properties().gcnArchName = ""  # type: ignore[misc]
        assert ops.fuse_draws()
        code = without_gpu.written(graph, tensors)
    calls = code[code.index("def call") :]
    kernels = [one.split(",")[-1].strip() for one in re.findall(r"triton_\w+\.run\((.*), stream", calls)]
    others = re.findall(r"= (?:torch\.ops|extern_kernels)\.([\w.]+)\(", calls)
    print(json.dumps({"kernels": [int(size) for size in kernels], "others": others}))


if __name__ == "__main__":
    main()
