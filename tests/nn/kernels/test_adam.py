"""Adam over a flat buffer: torch's own, and both variants, over several steps."""

import os
from typing import Any

import pytest
import torch

from denizen import ops
from denizen.nn import kernels


@pytest.mark.parametrize("size", [1, 1000, 300_001])
@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_adam(tools: Any, inside: Any, size: int, max_norm: float | None) -> None:
    if os.environ.get("TRITON_INTERPRET") == "1" and size > 1000:  # two blocks to a program again, of few programs
        size = 5_001
        inside.programs_of_adam(4)
    start, rate = torch.randn(size), torch.tensor(3e-3)
    theirs = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.Adam([theirs], lr=3e-3, eps=1e-5)
    held = {way: [start.clone(), torch.zeros(size), torch.zeros(size), torch.zeros(())] for way in ("fast", "plain")}
    options = {"max_norm": max_norm, "betas": (0.9, 0.999), "eps": 1e-5}
    for number in range(6):
        skip = torch.tensor(number == 3)
        grad = torch.randn(size) * 10.0 ** (number - 4)
        norms = []
        for way, (weight, mean, square, step) in held.items():
            if way == "plain":
                with ops.reference_only():
                    norms.append(kernels.adam(weight, grad, mean, square, step, rate, skip, **options))
            else:
                norms.append(kernels.adam(weight, grad, mean, square, step, rate, skip, **options))
        torch.testing.assert_close(norms[0], norms[1], rtol=1e-5, atol=0)
        torch.testing.assert_close(norms[0], grad.norm(), rtol=1e-5, atol=0)
        if not skip:
            theirs.grad = grad.clone()
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_([theirs], max_norm)
            optimizer.step()
        for fast, plain in zip(held["fast"], held["plain"], strict=True):
            torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(held["plain"][0], theirs.detach(), rtol=1e-5, atol=1e-6)
    assert held["fast"][3] == 5
