"""Stage: codes and shares behind one vocabulary, against plain Python, on random sequences of events."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils import _pytree as pytree

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.model import Stage, stage
from denizen.relax import MeanField

LEVELS = ("well", "latent", "ill", "over", "dead")
AGENTS = 6

masks = st.lists(st.integers(0, 1), min_size=AGENTS, max_size=AGENTS)
codes = st.lists(st.integers(0, len(LEVELS) - 1), min_size=AGENTS, max_size=AGENTS)
level = st.sampled_from(LEVELS)
some = st.lists(level, min_size=1, max_size=5)
leaving = st.lists(st.sampled_from(LEVELS[:-1]), min_size=1, max_size=4, unique=True)
changes = st.lists(
    st.one_of(st.tuples(st.just("move"), masks, level, level), st.tuples(st.just("advance"), masks, leaving)),
    max_size=8,
)


def mask(bits: list[int], relaxed: bool) -> Tensor:
    return torch.tensor(bits, dtype=torch.float32 if relaxed else torch.int8)


def apply(value: Stage, change: tuple[Any, ...]) -> Stage:
    if change[0] == "move":
        return value.move(mask(change[1], value.relaxed), change[2], source=change[3])
    return value.advance(mask(change[1], value.relaxed), *change[2])


def by_hand(state: list[int], change: tuple[Any, ...]) -> list[int]:
    if change[0] == "move":
        start, end = LEVELS.index(change[3]), LEVELS.index(change[2])
        return [end if c == start and e else c for c, e in zip(state, change[1], strict=True)]
    sources = [LEVELS.index(name) for name in change[2]]
    return [c + 1 if c in sources and e else c for c, e in zip(state, change[1], strict=True)]


@given(start=codes, sequence=changes)
def test_codes_and_shares_agree_with_plain_python(start: list[int], sequence: list[tuple[Any, ...]]) -> None:
    hard = Stage(torch.tensor(start, dtype=torch.int8), LEVELS)
    soft, plain = hard.relax(), start
    for change in sequence:
        hard, soft, plain = apply(hard, change), apply(soft, change), by_hand(plain, change)
        assert hard.value.dtype == torch.int8
        assert hard.value.tolist() == plain
        assert soft.value.dtype == torch.float32
        assert torch.equal(soft.value, hard.relax().value)
        assert not hard.fault()
        assert not soft.fault()


@given(start=codes, names=some, values=st.lists(st.floats(-9, 9, width=32), min_size=5, max_size=5))
def test_questions(start: list[int], names: list[str], values: list[float]) -> None:
    hard, table = Stage(torch.tensor(start, dtype=torch.int8), LEVELS), torch.tensor(values)
    soft = hard.relax()
    hit = [int(LEVELS[c] in names) for c in start]
    assert hard.is_(*names).dtype == torch.int8
    assert hard.is_(*names).tolist() == hit
    if len(set(names)) == len(names):
        assert soft.is_(*names).tolist() == hit
    assert hard.table(table).tolist() == table[start].tolist()
    torch.testing.assert_close(soft.table(table), hard.table(table))
    assert hard.counts().tolist() == [start.count(k) for k in range(5)] == soft.counts().tolist()


@given(
    start=codes, sequence=st.lists(st.tuples(st.lists(st.floats(0, 1, width=32), min_size=6, max_size=6), level, level))
)
def test_shares_are_conserved(start: list[int], sequence: list[tuple[list[float], str, str]]) -> None:
    value = Stage(torch.tensor(start, dtype=torch.int8), LEVELS).relax()
    for event, to, source in sequence:
        value = value.move(torch.tensor(event), to, source=source)
        torch.testing.assert_close(value.value.sum(dim=1), torch.ones(AGENTS))
        assert not value.fault()


def test_shares_carry_gradients() -> None:
    value = Stage(torch.tensor([0, 1, 2], dtype=torch.int8), ("a", "b", "c")).relax()
    event = torch.tensor([0.25, 0.5, 0.75], requires_grad=True)
    value.move(event, "b", source="a").move(event, "c", source="b").is_("c").sum().backward()
    # agent 0 moves on with p * p, agent 1 with p: slopes 2p and 1
    assert event.grad.tolist() == [0.5, 1.0, 0.0]


@pytest.mark.parametrize("relaxed", [False, True])
def test_worlds_together(relaxed: bool) -> None:
    values = torch.randint(0, 5, (7, AGENTS)).to(torch.int8)
    events = torch.randint(0, 2, (7, AGENTS)).to(torch.float32 if relaxed else torch.int8)
    table = torch.randn(5)

    def one(value: Tensor, event: Tensor) -> tuple[Tensor, ...]:
        s = Stage(value, LEVELS)
        s = (s.relax() if relaxed else s).move(event, "ill", source="well").advance(event, "ill", "latent")
        return s.value, s.is_("ill", "well"), s.is_("ill", "latent"), s.table(table), s.counts()

    together = torch.vmap(one)(values, events)
    for k in range(7):
        for column, alone in zip(together, one(values[k], events[k]), strict=True):
            assert torch.equal(column[k], alone)


@pytest.mark.parametrize("count", [2, 127])
def test_few_and_many_levels(count: int) -> None:
    names = tuple(f"level {k}" for k in range(count))
    every = Stage(torch.arange(count, dtype=torch.int8), names)
    for first, last in ((0, 0), (0, count - 1), (count - 1, count - 1), (count // 2, count - 1)):
        hit = every.is_(*names[first : last + 1])
        assert hit.tolist() == [int(first <= k <= last) for k in range(count)]
    ends = every.is_(names[0], names[-1])
    assert ends.tolist() == [int(k in (0, count - 1)) for k in range(count)]
    moved = every.move(torch.ones(count, dtype=torch.int8), names[-1], source=names[0])
    assert moved.value.tolist() == [count - 1, *range(1, count)]


@pytest.mark.parametrize(("value", "bad"), [([0, 4], False), ([0, 5], True), ([-1, 0], True), ([0, 127], True)])
def test_faults_of_codes(value: list[int], bad: bool) -> None:
    assert bool(Stage(torch.tensor(value, dtype=torch.int8), LEVELS).fault()) is bad


@pytest.mark.parametrize(
    ("share", "bad"), [(0.5, False), (1.0001, False), (1.1, True), (-0.1, True), (float("nan"), True)]
)
def test_faults_of_shares(share: float, bad: bool) -> None:
    assert bool(Stage(torch.tensor([[share, 1 - share]]), ("a", "b")).fault()) is bad


def test_wrong_names_and_tables() -> None:
    value = Stage(torch.zeros(2, dtype=torch.int8), LEVELS)
    event = torch.ones(2, dtype=torch.int8)
    for call in (
        lambda: value.is_("il"),
        lambda: value.move(event, "il", source="well"),
        lambda: value.code("il"),
        lambda: value.move(event, "well", source="il"),
        lambda: value.advance(event, "il"),
    ):
        with pytest.raises(ModelError, match="unknown level 'il'; did you mean 'ill'"):
            call()
    with pytest.raises(ModelError, match=r"expected \(5,\)"):
        value.table(torch.ones(4))
    with pytest.raises(ModelError, match="at least one"):
        value.is_()
    for s in (value, value.relax()):
        with pytest.raises(ModelError, match="'dead' is the last level"):
            s.advance(event, "dead")


@pytest.mark.parametrize("levels", [(), ("one",), ("a", "a"), [f"{k}" for k in range(128)], (1, 2)])
def test_wrong_declarations(levels: Any) -> None:
    with pytest.raises(InputError, match="levels"):
        stage("agents", levels=levels)


def test_is_a_tree() -> None:
    value = Stage(torch.zeros(2, dtype=torch.int8), LEVELS)
    again = pytree.tree_map(lambda leaf: leaf + 1, value)
    assert isinstance(again, Stage)
    assert again.levels == LEVELS
    assert again.value.tolist() == [1, 1]
    assert repr(value) == "Stage(well, latent, ill, over, dead; codes (2,))"


class Wanderer(dz.State):
    place: Stage = dz.stage("agents", levels=("home", "away"))


class Wandering(dz.Model):
    num_agents: int = 20
    rate: Tensor = dz.param(0.5, low=0.0)

    def init(self, rng: Any) -> Wanderer:
        return Wanderer(place=rng.bernoulli("out", 0.5))  # codes in a hard run, shares in a relaxed one

    def step(self, now: Wanderer, rng: Any) -> Wanderer:
        return now.replace(place=now.place.move(rng.event("go", self.rate), "away", source="home"))


def test_shares_are_no_codes() -> None:
    dz.simulate(Wandering(), 2)
    with pytest.raises(ModelError, match=r"place is a stage and was given torch\.float32.*now\.place\.move"):
        dz.simulate(Wandering(), 2, relax=MeanField())
