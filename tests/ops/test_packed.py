"""Codes packed into bits, in every form that comes off a device."""

from typing import Any

import pytest
import torch

from denizen import ops


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("shape", [(1,), (3, 17), (2, 3, 64), (5, 4099), (0,), (2, 0)])
def test_packed_codes(tools: Any, shape: tuple[int, ...], bits: int) -> None:
    codes = torch.randint(0, 1 << bits, shape, dtype=torch.int8)

    def packed(codes: torch.Tensor) -> torch.Tensor:
        out = torch.empty(*shape[:-1], -(-shape[-1] * bits // 8), dtype=torch.uint8, device=codes.device)
        ops.pack(codes, bits, out)
        return out

    out = tools.both(packed, codes).to(torch.int64)
    for place in range(shape[-1]):
        byte, rank = divmod(place, 8 // bits)
        assert torch.equal(out[..., byte] >> rank * bits & (1 << bits) - 1, codes[..., place].to(torch.int64))
    tools.both(packed, codes.movedim(0, -1).contiguous().movedim(-1, 0))
