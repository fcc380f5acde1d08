"""Masks from codes and codes that count steps: fast variants equal the reference, vmap equals a loop."""

import pytest
import torch

from denizen import ops

pytestmark = pytest.mark.usefixtures("tools")
SHAPES = [(0,), (1,), (7,), (1000,), (3, 50)]


def draw(shape, dtype, top):
    return torch.randint(0, top, shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
@pytest.mark.parametrize("shape", SHAPES)
def test_variants_agree(shape, dtype):
    codes, event = draw(shape, dtype, 12), draw(shape, torch.int8, 2)
    for low, high in ((0, 0), (3, 3), (2, 9), (0, 12)):
        with ops.reference_only():
            expected = ops.in_range(codes, low, high)
        assert torch.equal(ops.in_range(codes, low, high), expected)
        assert torch.equal(expected, ((codes >= low) & (codes <= high)).to(torch.int8))
    with ops.reference_only():
        expected = ops.grow(codes, event, 11)
    assert torch.equal(ops.grow(codes, event, 11), expected)
    assert expected.dtype == dtype
    if codes.numel():
        assert int(expected.max()) <= 11


def test_grow_counts_steps():
    codes = torch.tensor([0, 0, 1, 5, 6], dtype=torch.int8)
    event = torch.tensor([0, 1, 1, 0, 0], dtype=torch.int8)
    assert ops.grow(codes, event, 6).tolist() == [0, 1, 2, 6, 6]


def test_vmap_equals_a_loop():
    codes, event = draw((4, 33), torch.int8, 9), draw((33,), torch.int8, 2)
    batched = torch.vmap(lambda c: ops.grow(c, event, 8))(codes)
    assert torch.equal(batched, torch.stack([ops.grow(c, event, 8) for c in codes]))
    batched = torch.vmap(lambda c: ops.in_range(c, 2, 5), in_dims=1)(codes)
    assert torch.equal(batched, torch.stack([ops.in_range(c, 2, 5) for c in codes.T]))


def test_not_contiguous():
    codes = draw((10, 6), torch.int8, 9).T
    assert torch.equal(ops.in_range(codes, 1, 4), ops.in_range(codes.contiguous(), 1, 4))
