"""Two linear layers of few rows in one operation."""

import os
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from denizen.nn import kernels

# Triton's interpreter multiplies the bits of bfloat16 as if they were whole numbers.
HALF = torch.float16 if os.environ.get("TRITON_INTERPRET") == "1" else torch.bfloat16


def numbers(*shape: int) -> torch.Tensor:
    """Multiples of 1/8, of which products and short sums are exact."""
    return torch.randint(-8, 9, shape) / 8


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize(
    ("rows", "inputs", "width", "count"), [(1, 1, 1, 1), (70, 300, 130, 8), (5, 1000, 512, 24), (600, 9, 5, 2)]
)
def test_two_layers_are_torchs_own(
    tools: Any, rows: int, inputs: int, width: int, count: int, dtype: torch.dtype
) -> None:
    x, weight, bias = numbers(rows, inputs).to(dtype), numbers(width, inputs).to(dtype), numbers(width).to(dtype)
    top, top_bias = numbers(count, width).to(dtype), numbers(count).to(dtype)
    shown, out = kernels.two_layers(x, weight, bias, top, top_bias)
    exact = F.linear(x.double(), weight.double(), bias.double()).to(dtype).relu()
    assert torch.equal(shown, exact)  # sums of few multiples of 1/64 are exact, whatever their order
    further = F.linear(exact.double(), top.double(), top_bias.double())
    close = {"rtol": 2e-2, "atol": 1e-2} if dtype == HALF else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(out.double(), further, **close)
    assert out.dtype == dtype


def test_two_layers_hand_on_what_is_not_a_number(tools: Any) -> None:
    x = torch.ones(3, 4, dtype=HALF)
    x[1, 2] = torch.nan
    shown, out = kernels.two_layers(
        x,
        torch.ones(5, 4, dtype=HALF),
        torch.zeros(5, dtype=HALF),
        torch.ones(2, 5, dtype=HALF),
        torch.zeros(2, dtype=HALF),
    )
    assert shown.isnan().all(1).tolist() == out.isnan().all(1).tolist() == [False, True, False]
