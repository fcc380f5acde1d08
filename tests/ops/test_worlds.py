"""One call for all worlds against a loop over worlds: every op under vmap, with each argument batched or shared."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from denizen import ops
from denizen.errors import ModelError

WORLDS, AGENTS = 3, 41


def over_worlds(tools: Any, function: Callable[..., Any], batched: tuple[Any, ...], shared: tuple[Any, ...]) -> None:
    """`function` of (batched…, shared…) for every choice of what is batched: vmap equals a loop in every bit."""
    for choice in itertools.product((0, None), repeat=len(batched)):
        if set(choice) == {None}:
            continue
        rows = [b if dim == 0 else s for b, s, dim in zip(batched, shared, choice, strict=True)]
        together = torch.vmap(function, in_dims=choice)(*rows)
        alone = [
            function(*(r[w] if dim == 0 else r for r, dim in zip(rows, choice, strict=True))) for w in range(WORLDS)
        ]
        if isinstance(together, tuple):
            for k, column in enumerate(together):
                tools.assert_same_bits(column, torch.stack([row[k] for row in alone]))
        else:
            tools.assert_same_bits(together, torch.stack(alone))


def many(values: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """(one for each world, one for all)."""
    return torch.stack([values() for _ in range(WORLDS)]), values()


@pytest.fixture(params=[False, True], autouse=True)
def _variant(request: pytest.FixtureRequest) -> Any:
    if request.param:
        with ops.reference_only():
            yield
    else:
        yield


@pytest.mark.parametrize("with_ids", [False, True])
def test_draws(tools: Any, with_ids: bool) -> None:
    ids = many(lambda: torch.randperm(AGENTS))
    key = many(lambda: torch.randint(0, 2**32, (2,)))
    values = many(lambda: torch.rand(AGENTS))
    if with_ids:
        over_worlds(
            tools, lambda i, k: ops.draw_words(i[None], AGENTS, k[None], tools.step, 3)[0], *zip(ids, key, strict=True)
        )
    else:
        over_worlds(
            tools, lambda k: ops.draw_words(tools.empty, AGENTS, k[None], tools.step, 3)[0], *zip(key, strict=True)
        )
    for hazard in (True, False):

        def draw(v: Tensor, k: Tensor, i: Tensor, hazard: bool = hazard) -> tuple[Tensor, Tensor]:
            drawn, bad = ops.draw_mask(v[None], hazard, i[None] if with_ids else tools.empty, k[None], tools.step, 3)
            return drawn[0], bad[0]

        over_worlds(tools, draw, *zip(values, key, ids, strict=True))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums(tools: Any, direction: str, masked: bool, weighted: bool) -> None:
    g = tools.random_graph(AGENTS, 200, weighted=weighted)
    arrays = (g.in_ptr, g.in_idx, g.out_ptr, g.out_idx)
    where = many(lambda: torch.randint(0, 2, (AGENTS,)).to(torch.int8))
    counts = many(lambda: torch.randint(-3, 4, (AGENTS,)).to(torch.int8))
    reals = many(lambda: torch.randn(AGENTS))

    def masked_or_not(row: Tensor) -> Tensor | None:
        return row[None] if masked else None

    over_worlds(
        tools, lambda v, w: ops.sum_counts(v[None], masked_or_not(w), *arrays)[0], *zip(counts, where, strict=True)
    )
    rest = (g.weight, *arrays, g.out_edge)
    over_worlds(tools, lambda v, w: ops.sum_real(v[None], masked_or_not(w), *rest)[0], *zip(reals, where, strict=True))
    over_worlds(
        tools, lambda v, w: ops.sum_fixed(v[None], masked_or_not(w), *rest, 36, 8.0)[0], *zip(reals, where, strict=True)
    )


def test_weights_that_differ_between_worlds_are_refused_in_words(tools: Any) -> None:
    g = tools.random_graph(AGENTS, 200, weighted=True)
    weights = torch.rand(WORLDS, g.num_edges)
    values = torch.rand(AGENTS)
    for bound in (None, 4.0):
        with pytest.raises(ModelError, match="scale whole layers"):
            torch.vmap(lambda w, bound=bound: g.with_weight(w, max=1.0).sum(values, max=bound))(weights)


@pytest.mark.parametrize("grouped", [False, True])
def test_tables(tools: Any, grouped: bool) -> None:
    groups = 3 if grouped else 1
    table = many(lambda: torch.randn(groups, 6))
    codes = many(lambda: torch.randint(0, 6, (AGENTS,)).to(torch.int8))
    group = many(lambda: torch.randint(0, 3, (AGENTS,)).to(torch.uint8))

    def row(g: Tensor) -> Tensor | None:
        return g[None] if grouped else None

    over_worlds(tools, lambda t, c, g: ops.lookup(t[None], c[None], row(g))[0], *zip(table, codes, group, strict=True))
    over_worlds(tools, lambda c, g: ops.histogram(c[None], row(g), groups, 6)[0], *zip(codes, group, strict=True))


def test_worlds_within_worlds(tools: Any) -> None:
    """vmap of vmap: an ensemble of ensembles."""
    keys = torch.randint(0, 2**32, (2, 3, 2))
    values, ids = torch.rand(2, AGENTS), torch.stack([torch.randperm(AGENTS) for _ in range(2)])

    def draw(k: Tensor, v: Tensor, i: Tensor) -> Tensor:
        return ops.draw_mask(v[None], True, i[None], k[None], tools.step, 3)[0][0]

    together = torch.vmap(torch.vmap(draw, in_dims=(0, None, None)))(keys, values, ids)
    for a, b in itertools.product(range(2), range(3)):
        tools.assert_same_bits(together[a, b], draw(keys[a, b], values[a], ids[a]))
