"""History: ages and shares of ages behind one vocabulary, against plain Python, on random sequences of events."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from denizen.errors import InputError, ModelError
from denizen.model import History, by_step, history

AGENTS = 5
masks = st.lists(st.integers(0, 1), min_size=AGENTS, max_size=AGENTS)
sequences = st.lists(st.tuples(st.sampled_from(["record", "clear"]), masks), max_size=12)


def by_hand(ages: list[int], length: int, kind: str, event: list[int]) -> list[int]:
    if kind == "clear":
        return [0 if e else a for a, e in zip(ages, event, strict=True)]
    return [min(a + 1, length + 1) if a else e for a, e in zip(ages, event, strict=True)]


@given(
    length=st.sampled_from([1, 2, 3, 7, 125, 126, 300]),
    start=st.lists(st.integers(0, 400), min_size=5, max_size=5),
    sequence=sequences,
)
def test_ages_and_shares_agree_with_plain_python(
    length: int, start: list[int], sequence: list[tuple[str, list[int]]]
) -> None:
    hard = History.start(torch.tensor(start), length=length)
    soft, ages = hard.relax(), [min(a, length + 1) for a in start]
    assert hard.value.dtype == (torch.int8 if length <= 125 else torch.int16)
    for kind, event in sequence:
        never = hard.never()
        bits = torch.tensor(event, dtype=torch.int8)
        hard, soft = (
            (hard.clear(bits), soft.clear(bits.float()))
            if kind == "clear"
            else (hard.record(bits), soft.record((bits * never).float()))
        )
        ages = by_hand(ages, length, kind, event)
        assert hard.value.tolist() == ages
        assert torch.equal(soft.value, hard.relax().value)
        assert hard.never().tolist() == soft.never().tolist() == [int(a == 0) for a in ages]
        assert int(hard.count_never()) == int(soft.count_never()) == ages.count(0)
        for first, last in ((1, 1), (1, length), (min(2, length), min(3, length))):
            within = [int(first <= a <= last) for a in ages]
            assert hard.within(first, last).tolist() == soft.within(first, last).tolist() == within
        assert not hard.fault()
        assert not soft.fault()


@given(
    length=st.integers(1, 9),
    ages=st.lists(st.integers(0, 12), min_size=AGENTS, max_size=AGENTS),
    size=st.integers(0, 9),
    grouped=st.booleans(),
    seed=st.integers(0, 99),
)
def test_weigh_and_total(length: int, ages: list[int], size: int, grouped: bool, seed: int) -> None:
    size = min(size, length)
    gen = torch.Generator().manual_seed(seed)
    table = torch.randn((3, size) if grouped else (size,), generator=gen)
    group = torch.randint(0, 3, (AGENTS,), generator=gen).to(torch.uint8) if grouped else None
    hard = History.start(torch.tensor(ages), length=length)
    rows = table if grouped else table[None]
    expected = [
        rows[int(group[k]) if grouped else 0, a - 1].item() if 1 <= a <= size else 0.0 for k, a in enumerate(ages)
    ]
    for value in (hard, hard.relax()):
        assert value.weigh(table, group).dtype == torch.float32
        torch.testing.assert_close(value.weigh(table, group), torch.tensor(expected))
        torch.testing.assert_close(value.total(table, group), torch.tensor(expected).sum())
    hard.total(table, group)
    assert int(hard.count_never()) == ages.count(0)  # whichever histogram was kept before


def test_totals_kept_for_one_grouping_are_not_used_for_another() -> None:
    value = History.start(torch.tensor([1, 1, 2, 0]), length=3)
    one, two = torch.tensor([0, 0, 1, 1]).to(torch.uint8), torch.tensor([1, 0, 0, 0]).to(torch.uint8)
    table = torch.tensor([[1.0, 10.0], [100.0, 1000.0]])
    assert value.total(table, one) == 1 + 1 + 1000
    assert value.total(table, two) == 100 + 1 + 10
    assert value.total(table[0]) == 1 + 1 + 10
    three = torch.tensor([[0.0], [1.0], [5.0]])
    assert value.total(three, two) == 1.0  # more groups than before, with the same group of each agent
    assert value.total(table, two) == 111


@given(start=st.lists(st.integers(0, 3), min_size=5, max_size=5), seed=st.integers(0, 99))
def test_shares_are_conserved(start: list[int], seed: int) -> None:
    value, gen = History.start(torch.tensor(start), length=3).relax(), torch.Generator().manual_seed(seed)
    for _ in range(6):
        value = value.record(value.never() * torch.rand(AGENTS, generator=gen))
        torch.testing.assert_close(value.value.sum(dim=1) + value.never(), torch.ones(AGENTS))
        assert not value.fault()


@pytest.mark.parametrize("relaxed", [False, True])
def test_gradients_of_tables(relaxed: bool) -> None:
    value = History.start(torch.tensor([0, 1, 1, 2, 3, 9]), length=3)
    value = value.relax() if relaxed else value
    group = torch.tensor([0, 0, 1, 1, 1, 0]).to(torch.uint8)
    expected = [[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    for question in (lambda t: value.weigh(t, group).sum(), lambda t: value.total(t, group)):
        table = torch.zeros(2, 3, requires_grad=True)
        question(table).backward()
        assert table.grad.tolist() == expected


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("own_groups", [False, True])
def test_worlds_together(relaxed: bool, own_groups: bool) -> None:
    ages, events = torch.randint(0, 6, (4, AGENTS)), torch.randint(0, 2, (4, AGENTS)).to(torch.int8)
    table, group = torch.randn(3, 4), torch.randint(0, 3, (4, AGENTS)).to(torch.uint8)

    def one(age: Tensor, event: Tensor, group: Tensor) -> tuple[Tensor, ...]:
        h = History.start(age, length=4)
        h = h.relax() if relaxed else h
        h = h.record(event * h.never())
        return h.value, h.never(), h.weigh(table, group), h.total(table, group), h.weigh(table[0]), h.total(table[1])

    together = torch.vmap(one, in_dims=(0, 0, 0 if own_groups else None))(
        ages, events, group if own_groups else group[0]
    )
    for k in range(4):
        alone = one(ages[k], events[k], group[k if own_groups else 0])
        for column, value in zip(together, alone, strict=True):
            torch.testing.assert_close(column[k], value, rtol=1e-6, atol=1e-6)


def test_wrong_uses() -> None:
    with pytest.raises(ModelError, match=r"elapsed is torch.float32, expected whole numbers"):
        History.start(torch.ones(3), length=3)
    with pytest.raises(ModelError, match=r"expected shares of 4 ages .*record\(event\)"):
        History(torch.ones(5), 3)  # a relaxed draw, not shares of ages
    value = History.start(torch.tensor([0, 1]), length=3)
    for table, group in (
        (torch.ones(4), None),
        (torch.ones(2, 3), None),
        (torch.ones(3), torch.zeros(2).to(torch.uint8)),
    ):
        for question in (value.weigh, value.total, value.relax().weigh, value.relax().total):
            with pytest.raises(ModelError, match=r"History\.weigh: the table has shape"):
                question(table, group)
    for length in (-1, 32001):
        with pytest.raises(InputError, match=f"length={length}"):
            history("agents", length=length)
    for length in (0, -1, 32001):
        with pytest.raises(ModelError, match=f"length={length}"):
            History.start(torch.tensor([0, 1]), length=length)
    with pytest.raises(ModelError, match="groups"):
        value.weigh(torch.ones(2, 3), torch.tensor([0, 2]).to(torch.uint8))  # a group that the table does not have


@pytest.mark.parametrize(("code", "bad"), [(0, False), (4, False), (5, True), (-1, True)])
def test_faults(code: int, bad: bool) -> None:
    assert bool(History(torch.tensor([0, code], dtype=torch.int8), 3).fault()) is bad
    shares = torch.zeros(2, 4)
    shares[1, 0] = 1.5 if bad else 0.5
    assert bool(History(shares, 3).fault()) is bad


def test_shares_of_events_make_shares() -> None:
    """A relaxed value is never narrowed silently: it relaxes the history, and a hard run then refuses it."""
    hard, event = History.start(torch.tensor([0, 1, 0]), length=3), torch.tensor([0.5, 0.5, 0.0])
    for value in (hard.record(event), hard.clear(event)):
        assert value.relaxed
    torch.testing.assert_close(hard.record(event).never(), torch.tensor([0.5, 0.0, 1.0]))
    torch.testing.assert_close(hard.clear(event).never(), torch.tensor([1.0, 0.5, 1.0]))


@pytest.mark.parametrize("dt", [1.0, 0.5, 0.25, 1 / 3, 2.0])
@pytest.mark.parametrize("relaxed", [False, True])
def test_ages_in_units_of_time(dt: float, relaxed: bool) -> None:
    history = History.start(torch.arange(8), length=6, dt=dt)  # 0 for never, and up to 7 days ago
    history = history.relax() if relaxed else history
    for day in range(5):
        now = torch.tensor([0.0, *[age - 1 + day for age in range(1, 8)]])  # time since the end of the day it was in
        ever = torch.arange(8) > 0
        steps = (now / dt).ceil() * dt  # seen at the beginning of a step
        found = history.within(2, 4, dt)
        told = ever & (steps >= 1) & (steps < 4)
        assert found.tolist() == told.tolist(), (day, dt)
        for _ in range(round(1 / dt) or 1):
            history = history.record(0 * found)
        if dt > 1:
            break


def test_tables_by_step() -> None:
    table = torch.tensor([[1.0, 3.0, 5.0], [0.0, 2.0, 2.0]])
    assert by_step(table, 1.0) is table
    assert by_step(table, 0.5).tolist() == [[1, 1, 3, 3, 5, 5], [0, 0, 2, 2, 2, 2]]
    assert by_step(table, 2.0).tolist() == [[2.0, 2.5], [1.0, 1.0]]
    assert by_step(table[0], 1.5).tolist() == pytest.approx([(1 + 1.5) / 1.5, (1.5 + 5) / 1.5])
    assert by_step(torch.tensor([1, 1, 2, 2, 2, 3]), 2.0).tolist() == [1, 2, 2]
    assert by_step(torch.tensor([1, 2]), 1 / 3).tolist() == [1, 1, 1, 2, 2, 2]
    for dt in (0.5, 0.25, 2.0, 0.75, 1 / 3):
        assert torch.allclose(dt * by_step(table, dt).sum(1), table.sum(1))


def test_a_history_in_time_refuses_what_one_in_steps_does() -> None:
    with pytest.raises(ModelError, match=r"History.within: 1 to 20, expected 1 <= first <= last <= 12"):
        History.start(torch.tensor([1]), length=6, dt=0.5).within(1, 10, 0.5)
    with pytest.raises(ModelError, match="expected 1 to 32000 steps"):
        History.start(torch.tensor([1]), length=6, dt=1e-4)
