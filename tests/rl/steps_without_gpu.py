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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "run"))

import pytest
import torch
import without_gpu
from torch import Tensor
from torch.fx import GraphModule

import denizen as dz
from as_on_cuda import as_on_cuda, foraging_in_place
from denizen import ops
from denizen.nn import kernels


def recorded(world: str, count: int) -> tuple[GraphModule, list[Tensor]]:
    """The graph of a step and its arguments, in the form that CUDA takes; constants are arguments."""
    patch = pytest.MonkeyPatch()
    patch.setattr(kernels, "mlp_fits", lambda weights: True)
    as_on_cuda(patch)
    foraging_in_place(patch)
    env = dz.zoo.entry(world).build()
    planes = world == "foraging"
    policy = dz.rl.conv(env, head=dz.rl.PopArt) if planes else dz.rl.mlp(env, (64, 64))
    precision = "bfloat16" if planes else "float32"
    algorithm = dz.PPO(num_envs=count, num_steps=8, num_minibatches=1, precision=precision)
    held = algorithm.init(env, policy, total_steps=10**9, device="cpu")
    step: Any = held.rollout._step
    with held.policy.prepared(getattr(torch, precision)):
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
