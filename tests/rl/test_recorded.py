"""Recorded functions."""

import operator

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from denizen.rl._recorded import Recorded
from denizen.run import _trace
from denizen.run._recorder import record


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


@pytest.mark.parametrize("in_place", [False, True])
def test_one_mode_of_fake_tensors_serves_all_nodes(in_place):
    """Each has Python's whole stack, which took a third of the time of a recording."""
    step = Recorded(lambda x: (x + 1) * x.sum() - torch.arange(3), in_place=in_place)
    step(torch.ones(3))
    values = [node.meta["val"] for node in step.graph.graph.nodes if node.op != "output" and "val" in node.meta]
    assert len(values) > 4
    assert len({id(value.fake_mode) for value in values}) == 1


WEIGHT = torch.nn.Parameter(torch.arange(3.0))


def of_every_kind(x, y):
    """Constants, parts of several results, writes, lists, vmap, a cast by autocast, and operations made of others."""
    held = torch.tensor([1.0, 2.0, 3.0])
    held[1] += x[0]
    values, places = torch.vmap(lambda row: torch.sort(row + WEIGHT))(torch.stack([x, held]))
    with torch.autocast("cpu", torch.bfloat16):
        product = values @ y
    steps = int(torch.tensor(2) + 1)  # of a constant alone
    return [torch.einsum("ij,j->i", values, x), places, product, torch.cat([x] * steps), WEIGHT, x]


def written(root, graph):
    """Each node with its target, arguments and form, and constants with their values, whatever they are called."""
    graph.eliminate_dead_code()
    place = {node: f"node {number}" for number, node in enumerate(graph.nodes)}
    lines = []
    for node in graph.nodes:
        given = torch.fx.node.map_arg((node.args, node.kwargs), place.__getitem__)
        constant = node.op == "get_attr"
        what = getattr(root, node.target).tolist() if constant else node.op if node.op == "placeholder" else node.target
        forms = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda value: (value.shape, value.stride(), value.dtype, value.device), node.meta.get("val")
        )
        lines.append((node.op, what, str(given), forms))
    return lines


def test_the_graph_is_the_one_that_make_fx_records():
    given = torch.tensor([3.0, 1.0, 2.0]), torch.ones(3, 2)
    root, graph = record(of_every_kind, given, {})
    made = make_fx(of_every_kind)(*given)
    assert operator.getitem in {node.target for node in graph.nodes}
    assert written(root, graph) == written(made, made.graph)


def test_what_the_recorder_refuses_is_recorded_by_make_fx(monkeypatch):
    refused = torch.ops.aten.mul.Tensor
    monkeypatch.setattr(_trace, "record", lambda *given: record(*given[:2], {refused: lambda *_: 1 / 0}))
    step, quick = Recorded(lambda x: x * x), Recorded(lambda x: x + x)
    assert step(torch.full((2,), 3.0)).tolist() == [9.0, 9.0]
    assert step(torch.full((2,), 4.0)).tolist() == [16.0, 16.0]
    assert quick(torch.ones(2)).tolist() == [2.0, 2.0]


def test_a_value_that_differs_from_call_to_call_is_not_burnt_in():
    with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
        Recorded(lambda x: x * float(x.sum()))(torch.ones(2))
    with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
        Recorded(lambda x: x * float(torch.tensor(1.0).add_(x.sum())))(torch.ones(2))
