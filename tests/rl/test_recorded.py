"""Recorded functions."""

import pytest
import torch

from denizen.rl._recorded import Recorded


def test_one_tensor_given_twice_counts_as_two_inputs():
    function = Recorded(lambda a, b: (a + 1, b - 1))
    zero = torch.zeros(2)
    function(zero, zero)
    first, second = function(torch.full((2,), 5.0), torch.full((2,), 7.0))
    assert first.tolist() == [6.0, 6.0]
    assert second.tolist() == [6.0, 6.0]


def written_through_a_view(x):
    made = torch.tensor([0.0, 0.0])
    made[0] = x.sum()
    return made


def written_in_another_dtype(x):
    return torch.tensor([1.0, 2.0]).double().add_(x.sum())


def handed_on(x):
    return torch.tensor([1.0, 2.0])


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("function", [written_through_a_view, written_in_another_dtype, handed_on])
def test_constants_stay_what_they_are(function, in_place):
    step, x = Recorded(function, in_place=in_place), torch.ones(3)
    step(x).add_(100)  # what a caller does with a result
    assert torch.equal(step(x), function(x))


def test_a_constant_that_is_only_read_is_not_copied_at_each_call():
    step = Recorded(lambda x: x * torch.tensor([1.0, 2.0]).double())
    step(torch.ones(2))
    assert [node.target for node in step.graph.graph.nodes if node.op == "call_function"] == [torch.ops.aten.mul.Tensor]
