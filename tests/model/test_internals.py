"""What no public name shows on a machine without a GPU."""

import pytest
import torch

import denizen as dz
from denizen.model._stage import selected

AGENTS = 50


@pytest.mark.parametrize("size", [1, 2, 6])
def test_choosing_between_entries_equals_looking_up(size: int) -> None:
    codes = torch.randint(0, size, (AGENTS,)).to(torch.uint8)
    slopes = []
    for function in (selected, dz.model.lookup):
        table = torch.arange(1.0, size + 1).requires_grad_()
        out = function(table, codes)
        assert torch.equal(out, codes + 1.0)
        slopes.append(torch.autograd.grad((out * torch.arange(AGENTS)).sum(), table)[0])
    assert torch.equal(*slopes)
