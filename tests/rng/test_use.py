"""Streams, scopes and axes; what is refused; the same draws in any order, batch or thread."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from denizen import ops
from denizen.errors import InputError, ModelError
from denizen.rng import Rng
from inside import Inside

NUM = 257
DRAWS: dict[str, Callable[[Rng, str], Tensor]] = {
    "event": lambda rng, name: rng.event(name, 0.6),
    "bernoulli": lambda rng, name: rng.bernoulli(name, 0.4),
    "uniform": lambda rng, name: rng.uniform(name, -1.0, 3.0),
    "normal": lambda rng, name: rng.normal(name),
    "exponential": lambda rng, name: rng.exponential(name, 2.0),
    "gamma": lambda rng, name: rng.gamma(name, 2.0),
    "poisson": lambda rng, name: rng.poisson(name, 4.0),
    "integers": lambda rng, name: rng.integers(name, 0, 1000),
    "categorical": lambda rng, name: rng.categorical(name, torch.tensor([0.1, 0.2, 0.3, 0.4])),
    "permutation": lambda rng, name: rng.permutation(name),
}
NAMES = list(DRAWS)


def make(
    num: int = NUM, seed: int = 3, world: int = 1, step: int = 2, ids: Tensor | None = None, **options: object
) -> Rng:
    return Rng(torch.tensor([seed, world]), torch.tensor(step), num=num, ids=ids, **options)  # type: ignore[arg-type]


# --- what fixes a draw ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_draw_is_a_function_of_its_key(name: str) -> None:
    draw = DRAWS[name]
    first = draw(make(), "x")
    assert torch.equal(first, draw(make(), "x"))
    others = [
        draw(make(), "y"),
        draw(make(seed=4), "x"),
        draw(make(world=2), "x"),
        draw(make(step=3), "x"),
        draw(make(phase="init"), "x"),
        draw(make()["scope"], "x"),
        draw(make()["scope", 2], "x"),
        draw(make()["scope", 3], "x"),
        draw(make().on("edges", NUM), "x"),
    ]
    everything = [first, *others]
    for k, left in enumerate(everything):
        for right in everything[k + 1 :]:
            assert not torch.equal(left, right)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "permutation"])
def test_fewer_or_more_agents_draw_the_same(name: str) -> None:
    draw, most = DRAWS[name], DRAWS[name](make(), "x")
    for num in (0, 1, 2, 3, 4, 5, 63, 200):
        assert torch.equal(draw(make(num=num), "x"), most[:num])


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**20))
def test_agents_in_another_order_draw_the_same(name: str, seed: int) -> None:
    order = torch.from_numpy(np.random.default_rng(seed).permutation(NUM))
    drawn, moved = DRAWS[name](make(), "x"), DRAWS[name](make(ids=order), "x")
    if name == "permutation":
        assert torch.equal(order[moved], drawn)  # the same agents in the same random order
    else:
        assert torch.equal(moved, drawn[order])


@pytest.mark.parametrize("name", NAMES)
def test_worlds_together_draw_what_each_draws_alone(name: str) -> None:
    keys = torch.tensor([[3, world] for world in range(5)])
    together = torch.vmap(lambda key: DRAWS[name](Rng(key, torch.tensor(2), num=NUM), "x"))(keys)
    for world in range(5):
        assert torch.equal(together[world], DRAWS[name](make(world=world), "x"))


@pytest.mark.parametrize("name", NAMES)
def test_variants_and_threads_draw_the_same(name: str, inside: Inside) -> None:
    drawn = DRAWS[name](make(), "x")
    with ops.reference_only():
        assert torch.equal(DRAWS[name](make(), "x"), drawn)
    inside.threads_from(1)
    torch.set_num_threads(2)
    try:
        assert torch.equal(DRAWS[name](make(), "x"), drawn)
    finally:
        torch.set_num_threads(1)


def test_common_random_numbers() -> None:
    """Under a larger hazard or probability the same agents fire, and further ones."""
    for low, high in ((0.1, 0.2), (0.5, 3.0)):
        assert (make().event("x", low) <= make().event("x", high)).all()
    assert (make().bernoulli("x", 0.3) <= make().bernoulli("x", 0.4)).all()
    assert (make().poisson("x", 3.0) <= make().poisson("x", 3.5)).all()
    assert (make().gamma("x", 2.0) < make().gamma("x", 2.2)).all()


def test_the_step_length_scales_hazards() -> None:
    assert torch.equal(make(dt=0.5).event("x", 1.0), make().event("x", 0.5))
    assert torch.equal(make(dt=0.5).event("x", 1.0, dt=2.0), make().event("x", 2.0))
    assert torch.equal(make(dt=0.5).event("x", torch.ones(NUM, dtype=torch.int8)), make().event("x", 0.5))


def test_arguments_for_each_agent_equal_one_for_all() -> None:
    for name, value in (("event", 0.6), ("bernoulli", 0.4), ("gamma", 2.0), ("poisson", 4.0), ("exponential", 2.0)):
        one = getattr(make(), name)("x", value)
        for tensor in (torch.tensor(value), torch.full((NUM,), value), torch.full((NUM,), value, dtype=torch.float64)):
            assert torch.equal(getattr(make(), name)("x", tensor).to(one.dtype), one)


# --- streams, scopes, axes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", NAMES)
def test_a_stream_used_twice_is_refused(first: str) -> None:
    rng = make()
    DRAWS[first](rng, "x")
    for second in NAMES:
        with pytest.raises(ModelError, match=r"step/x@agents.*twice.*another name"):
            DRAWS[second](rng, "x")
        DRAWS[second](rng["again", first, second], "x")


def test_scopes_share_the_record_of_uses() -> None:
    rng = make()
    rng["layer", 1].event("x", 0.5)
    rng["layer", 2].event("x", 0.5)
    rng["layer"].event("x", 0.5)
    rng.on("edges", 9).event("x", 0.5)
    for again in (rng["layer", 1], rng["layer"][1], rng["layer"]["1"], rng["layer"]):
        with pytest.raises(ModelError, match="twice"):
            again.event("x", 0.5)
    with pytest.raises(ModelError, match="x@edges"):
        rng.on("edges", 9).event("x", 0.5)


def test_other_axes() -> None:
    edges = make().on("edges", 1000)
    assert edges.uniform("x").shape == (1000,)
    assert edges["deep"].uniform("x").shape == (1000,)
    assert make()["deep"].on("cells", 7).uniform("x").shape == (7,)
    ids = torch.tensor([40, 2, 999])
    assert torch.equal(make().on("edges", 3, ids=ids).uniform("x"), make().on("edges", 1000).uniform("x")[ids])
    moved = make(ids=torch.randperm(NUM))
    assert torch.equal(moved.on("edges", 10).uniform("x"), make().on("edges", 10).uniform("x"))  # ids are the agents'


NUMBERS = {
    "event": ("hazard", "dt"),
    "bernoulli": ("prob",),
    "uniform": ("low", "high"),
    "normal": ("mean", "std"),
    "exponential": ("rate",),
    "gamma": ("shape", "scale"),
    "poisson": ("mean",),
}


@pytest.mark.parametrize(("name", "argument"), [(name, one) for name, several in NUMBERS.items() for one in several])
@pytest.mark.parametrize("shape", [(NUM + 1,), (1,), (NUM, 1), (2, NUM)])
def test_values_of_another_shape_are_refused(name: str, argument: str, shape: tuple[int, ...]) -> None:
    given = {NUMBERS[name][0]: 0.5, argument: torch.full(shape, 0.5)}
    told = rf"rng\.{name}\('x'\): {argument} has shape {re.escape(str(shape))}, expected a number for all or \(257,\)"
    with pytest.raises(ModelError, match=told):
        getattr(make(), name)("x", **given)


@pytest.mark.parametrize("shape", [(), (0,), (NUM + 1, 3), (3, NUM, 2)])
def test_categories_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="categories"):
        make().categorical("x", torch.ones(shape))


@pytest.mark.parametrize(("low", "high"), [(0, 0), (3, 2), (0, 2**31 + 1)])
def test_integers_refuses_empty_and_huge_ranges(low: int, high: int) -> None:
    with pytest.raises(ModelError, match=f"low={low}, high={high}"):
        make().integers("x", low, high)


@pytest.mark.parametrize("value", ["0.5", None, [0.5] * NUM, np.full(NUM, 0.5), 1j])
@pytest.mark.parametrize(
    ("name", "argument"),
    [
        *(("event", "hazard"), ("event", "dt"), ("bernoulli", "prob"), ("exponential", "rate")),
        *(("normal", "mean"), ("gamma", "shape"), ("poisson", "mean"), ("uniform", "low")),
    ],
)
def test_what_is_no_number_is_refused(name: str, argument: str, value: Any) -> None:
    given = {"hazard": 0.5, argument: value} if name == "event" else {argument: value}
    if argument == "dt" and value is None:
        return
    with pytest.raises(ModelError, match=rf"rng\.{name}\('x'\): {argument} is .*expected a number for all or a tensor"):
        getattr(make(), name)("x", **given)


def test_categories_and_whole_numbers_of_other_types_are_refused() -> None:
    with pytest.raises(ModelError, match=r"probs is list \[0\.5, 0\.5\], expected a tensor"):
        make().categorical("x", [0.5, 0.5])  # pyrefly: ignore
    with pytest.raises(InputError, match=r"high=2\.5, expected a whole number"):
        make().integers("x", 0, 2.5)  # pyrefly: ignore


def test_identities_that_do_not_fit_are_refused() -> None:
    """A kernel reads as many as there are agents, and takes none for negative."""
    for wrong in (torch.arange(3), torch.zeros(5), torch.arange(5)[None], list(range(5))):
        with pytest.raises(ModelError, match=r"rng\.on\('x'\): ids is .*, expected torch\.int64 \(5,\)"):
            make().on("x", 5, ids=wrong)  # pyrefly: ignore
    for num in (-3, 3.0, True):
        with pytest.raises(InputError, match=r"rng\.on\('x', …\): num=.*expected a whole number, at least 0"):
            make().on("x", num)  # pyrefly: ignore
    for first, flag in ((-1, 1), (0, 0)):
        rng = make()
        rng.on("x", 5, ids=torch.arange(first, first + 5))
        assert [(label, int(bad)) for label, bad in rng._bad] == [("rng.on('x'): ids, an identity is negative", flag)]


def test_lengths_of_a_step_for_each_agent() -> None:
    half = torch.full((NUM,), 0.5)
    for dt in (0.5, half, half[0], half.to(torch.float64)):
        assert torch.equal(make().event("x", 1.0, dt), make().event("x", 0.5))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("event", [-0.1, NAN, -INF], [0.0, 5.0, INF]),
        ("bernoulli", [-0.1, 1.1, NAN, INF], [0.0, 1.0]),
        ("gamma", [0.0, -1.0, NAN, INF], [0.05, 1e4]),
        ("exponential", [-1.0, NAN], [0.0, 3.0]),
        ("poisson", [-1.0, NAN, INF, 1e12], [0.0, 1e6]),
    ],
)
def test_values_out_of_range_are_flagged(name: str, wrong: list[float], right: list[float]) -> None:
    for values, flag in ((wrong, 1), (right, 0)):
        for value in values:
            for given_as in (value, torch.tensor(value), torch.tensor([0.5] * (NUM - 1) + [value])):
                rng = make()
                getattr(rng, name)("x", given_as)
                assert [(label, int(bad)) for label, bad in rng._bad] == [(f"rng.{name}('x')", flag)]


@pytest.mark.parametrize(
    ("probs", "flag"),
    [([0.5, 0.5], 0), ([0.0, 2.0], 0), ([0.0, 0.0], 1), ([-0.1, 1.0], 1), ([NAN, 1.0], 1), ([INF, 1.0], 1)],
)
def test_categories_out_of_range_are_flagged(probs: list[float], flag: int) -> None:
    for table in (torch.tensor(probs), torch.cat([torch.ones(NUM - 1, 2), torch.tensor([probs])])):
        rng = make()
        drawn = rng.categorical("x", table)
        assert int(rng._bad[0][1]) == flag
        assert ((drawn >= 0) & (drawn < 2)).all()


# --- to whom it can happen --------------------------------------------------------------------------------------------

GIVEN = {
    "event": lambda rng, value, **where: rng.event("x", value, **where),
    "bernoulli": lambda rng, value, **where: rng.bernoulli("x", value, **where),
}


class Kept:
    """A relaxation that keeps the probabilities that it is asked to draw with, and draws as a hard run does."""

    prob: Tensor

    def draw(self, prob: Tensor, hard: Callable[[], Tensor]) -> Tensor:
        self.prob = prob
        return hard().to(prob.dtype)


@pytest.mark.parametrize("draw", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.int64, torch.float32])
@pytest.mark.parametrize("each", [False, True])
def test_who_is_masked_out_draws_nothing_and_the_others_the_same(
    draw: Callable, dtype: torch.dtype, each: bool
) -> None:
    mask = (torch.arange(NUM) % 3 == 0).to(torch.int8)
    value = torch.linspace(0.0, 1.0, NUM) if each else 0.4
    everybody, some = draw(make(), value), draw(make(), value, where=mask.to(dtype))
    assert some.dtype == torch.int8
    assert torch.equal(some, everybody * mask)
    assert torch.equal(some, draw(make(), mask * value))  # the same bits as a gated value
    assert everybody.sum() > some.sum() > 0


@pytest.mark.parametrize("draw", GIVEN.values(), ids=GIVEN)
def test_shares_gate_nothing_in_a_relaxed_run_and_masks_without_a_derivative_do(draw: Callable) -> None:
    mask = torch.arange(NUM) % 3 == 0
    for where, gated in ((mask.float(), False), (mask, True), (mask.to(torch.int8), True)):
        relax = Kept()
        out = draw(make(relax=relax), 0.4, where=where)
        assert bool((relax.prob[~mask] == 0).all()) == gated
        assert (relax.prob[mask] > 0).all()
        assert torch.equal(out, (draw(make(), 0.4) * (mask if gated else 1)).float())


def test_masks_under_vmap_are_each_world_s() -> None:
    keys, step = torch.tensor([[3, 0], [3, 1]]), torch.tensor(2)
    masks = torch.stack([torch.arange(NUM) % 2, torch.arange(NUM) % 3]).to(torch.int8)
    both = torch.vmap(lambda key, mask: Rng(key, step, num=NUM).event("x", 0.6, where=mask))(keys, masks)
    for world in range(2):
        assert torch.equal(both[world], Rng(keys[world], step, num=NUM).event("x", 0.6, where=masks[world]))


@pytest.mark.parametrize("where", [torch.ones(NUM - 1), torch.ones(()), torch.ones(2, NUM), True, [1] * NUM])
@pytest.mark.parametrize("draw", GIVEN.values(), ids=GIVEN)
def test_masks_of_another_shape_are_refused(draw: Callable, where: object) -> None:
    with pytest.raises(ModelError, match=rf"rng\.\w+\('x'\): where is .*expected a mask \({NUM},\)"):
        draw(make(), 0.4, where=where)
