"""Rounding to 16 bits by the bits."""

import pytest
import torch

from denizen.ops._rounding import on_grid


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_by_bits_is_the_cast(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=generator).to(torch.int32)
    largest = torch.finfo(dtype).max
    edges = torch.tensor(
        [0.0, 65504.0, 65519.99, 65520.0, 2.0**-14, 2.0**-24, 2.0**-25, 2.0**-25 * 1.0001, 1e-40, largest]
    )
    values = torch.cat([bits.view(torch.float32), torch.randn(1000, generator=generator), edges, -edges])
    values = torch.cat([values, torch.tensor([torch.inf, -torch.inf, torch.nan])])
    there, truth = on_grid(values, dtype), values.to(dtype).to(torch.float32)
    assert torch.equal(there.isnan(), truth.isnan())
    assert torch.equal(there.nan_to_num().view(torch.int32), truth.nan_to_num().view(torch.int32))
