"""What a rollout step of GRPO launches on an H100, counted on a machine without one; run as a script, prints JSON."""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "run"))

import torch
import without_gpu

import denizen as dz
from denizen import ops
from denizen.zoo.fruits import fruits
from denizen.zoo.fruits.network import original_policy


def main() -> None:
    """The benchmark's step but for its width: 544 worlds, bfloat16."""
    env = fruits()
    algorithm = dz.GRPO(precision="bfloat16")
    held = algorithm.init(env, original_policy(env, 256), total_steps=10**6, device="cpu")
    step, sums = held.rollout._step, held.rollout.sums()
    with held.policy.prepared(torch.bfloat16):
        step.bound(held.rollout.state.parts(), sums)
        graph, tensors = step.graph, step._ready((held.rollout.state.parts(), sums))
    last = [node for node in graph.graph.nodes if node.op == "placeholder"][-1]
    for node in [node for node in graph.graph.nodes if node.op == "get_attr"]:  # constants are on the CPU: give them
        tensors = [*tensors, getattr(graph, node.target)]
        with graph.graph.inserting_after(last):
            last = given = graph.graph.placeholder(f"given_{node.name}")
        node.replace_all_uses_with(given)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    without_gpu.pretend()
    torch.cuda.get_device_properties().gcnArchName = "none"  # what a torch without CUDA takes for the name of a GPU
    assert ops.fuse_draws()
    code = without_gpu.written(graph, tensors)
    called = code[code.index("def call") :]
    products = re.findall(r"extern_kernels\.\w+", called)
    operations = re.findall(r"= torch\.ops\.(\w+\.\w+)", called)
    print(json.dumps({"kernels": called.count(".run("), "products": products, "operations": operations}))


if __name__ == "__main__":
    main()
