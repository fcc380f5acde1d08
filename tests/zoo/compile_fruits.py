"""Compiles the kernel of fruit catchers for an H100 on a machine without one; run as a script, prints its name."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))

import compile_kernels
import torch

import denizen as dz
from denizen.zoo.fruits import _fast, fruits


def main() -> None:
    """As the benchmark runs it, and with everything else that it knows."""
    cases = ({}, {"raw": True, "clock": True, "stop_at_thresholds": True, "max_fruits": 5, "width": 33})
    begun = [dz.rl.Worlds(fruits(**options), 544, max_resets=0, device="cpu").begin()[0] for options in cases]
    compile_kernels.pretend()
    _fast.variant = lambda device: "triton"
    for options, run_state in zip(cases, begun, strict=True):
        *leaves, age, waiting, clock, faults, waited = run_state.tensors()
        books = [tensor.contiguous() for tensor in (age, waiting, faults, waited)]
        keys = torch.ones(544, 2, dtype=torch.int64)
        leaves = [leaf.contiguous() for leaf in leaves]
        fruits(**options).in_place(age.device, 0).advance(leaves, books, clock, keys, age.clone())
    print(json.dumps(sorted(compile_kernels.compiled)))


if __name__ == "__main__":
    main()
