"""Which rows come first, and sums backwards in time: both variants, against plain loops."""

from typing import Any

import pytest
import torch

from denizen.nn import kernels


@pytest.mark.parametrize("rows", [1, 7, 1024, 8192, 8193, 20_001])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9, 1.0])
def test_first_flagged(tools: Any, rows: int, share: float) -> None:
    flags = torch.rand(rows) < share
    for count in {1, -(-rows // 8), rows}:
        found, slots = tools.both(kernels.first_flagged, flags, count)
        flagged, others = flags.nonzero()[:, 0], (~flags).nonzero()[:, 0]
        assert found.tolist() == torch.cat([flagged, others])[:count].tolist()
        expected = torch.full((rows,), -1, dtype=torch.int32)
        expected[flagged[:count]] = torch.arange(len(flagged[:count]), dtype=torch.int32)
        assert torch.equal(slots, expected)


@pytest.mark.parametrize("shape", [(1, 1), (5, 33), (128, 70), (3, 4, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_backward_sums(tools: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = torch.randn(shape, dtype=dtype)
    factors = torch.rand(shape, dtype=dtype) * (torch.rand(shape) < 0.9)
    found = tools.both(kernels.backward_sums, values, factors)
    later = torch.zeros(shape[1:], dtype=torch.float64)
    for t in range(shape[0] - 1, -1, -1):
        later = values[t].double() + factors[t].double() * later
        close = 1e-5 if dtype == torch.float32 else 1e-13
        torch.testing.assert_close(found[t].double(), later, rtol=close, atol=close)


def test_traced_and_compiled(tools: Any) -> None:
    flags, values = torch.rand(300) < 0.2, torch.randn(9, 300)

    def function(flags: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, slots = kernels.first_flagged(flags, 40)
        sums = kernels.backward_sums(values, values.clamp(0, 1))
        return rows + 1, slots - 1, sums[:, rows]

    tools.assert_same_bits(tools.compiled(function)(flags, values), function(flags, values))
