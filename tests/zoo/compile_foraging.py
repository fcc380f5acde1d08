"""Compiles the kernels of foraging for an H100 on a machine without one; run as a script, prints their names."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))

import compile_kernels
import torch

import denizen as dz
from denizen.zoo.foraging import _fast, foraging


def main() -> None:
    """Every path: all lives begin anew or some, in one program or in several, in their world or in a fresh one."""
    one = dz.rl.Worlds(foraging(), 1, device="cpu").begin()[0]
    compile_kernels.pretend()
    _fast.variant = lambda device: "triton"
    for lifetime, mode, count, most in (
        ("persist", "ground_truth_handhold", 192, 64),
        ("persist", "proxy", 1500, 1500),
        ("persist", "proxy", 2100, 2100),
        ("persist", "proxy", 17_000, 9),
        ("life", "ground_truth_handhold", 600, 1),
        ("life", "proxy", 1, 1),
    ):
        *leaves, age, waiting, _, faults, waited = [
            tensor.expand(count, *tensor.shape[1:]).contiguous() if tensor.dim() else tensor for tensor in one.tensors()
        ]
        fast = foraging(mode, grid_lifetime=lifetime).in_place(age.device, most)
        keys = torch.ones(count, 2, dtype=torch.int64)
        fast.advance(leaves, [age, waiting, faults, waited], one.clock, keys, age.clone())
    print(json.dumps(sorted(compile_kernels.compiled)))


if __name__ == "__main__":
    main()
