"""Codes packed into bits, in every form that comes off a device."""

from typing import Any

import pytest
import torch

from denizen import ops


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("shape", [(1,), (3, 17), (2, 3, 64), (5, 4099), (0,), (2, 0)])
def test_packed_codes(tools: Any, shape: tuple[int, ...], parts: int, bits: int) -> None:
    codes = torch.randint(0, 1 << bits, (parts, *shape), dtype=torch.int8)

    def packed(codes: torch.Tensor) -> torch.Tensor:
        out = torch.empty(parts, *shape[:-1], -(-shape[-1] * bits // 8), dtype=torch.uint8, device=codes.device)
        assert ops.pack(list(codes), bits, out) is None
        return out

    out = tools.both(packed, codes).to(torch.int64)
    for place in range(shape[-1]):
        byte, rank = divmod(place, 8 // bits)
        assert torch.equal(out[..., byte] >> rank * bits & (1 << bits) - 1, codes[..., place].to(torch.int64))
    tools.both(packed, codes.movedim(1, -1).contiguous().movedim(-1, 1))


@pytest.mark.cuda
def test_packed_within_a_graph() -> None:
    codes = torch.randint(0, 4, (5, 2, 37_519), dtype=torch.int8, device="cuda")
    out = torch.zeros(5, 2, 9380, dtype=torch.uint8, device="cuda")
    expected = torch.empty_like(out)
    ops.pack(list(codes), 2, expected)  # compiled before the graph is recorded
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        late = ops.pack([part + 0 for part in codes], 2, out)
    assert late is not None
    late()
    for _ in range(3):
        graph.replay()
        assert torch.equal(out, expected)
        codes.copy_(3 - codes)
        ops.pack(list(codes), 2, expected)
