"""Recorded functions."""

import torch

from denizen.rl._recorded import Recorded


def test_one_tensor_given_twice_counts_as_two_inputs():
    function = Recorded(lambda a, b: (a + 1, b - 1))
    zero = torch.zeros(2)
    function(zero, zero)
    first, second = function(torch.full((2,), 5.0), torch.full((2,), 7.0))
    assert first.tolist() == [6.0, 6.0]
    assert second.tolist() == [6.0, 6.0]
