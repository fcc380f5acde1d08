"""The columns of a relaxed history against one stacked tensor, the textbook form: values, gradients, references."""

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import ModelError
from denizen.model import History, faults, tensors

AGENTS, LENGTH, STEPS = 50, 4, 9


class Stacked:
    """Shares `[agents, length + 1]`, rebuilt in every step; the last column is longer ago."""

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def never(self) -> Tensor:
        return 1 - self.value.sum(dim=-1)

    def within(self, first: int, last: int) -> Tensor:
        return self.value[:, first - 1 : last].sum(dim=-1)

    def record(self, event: Tensor) -> "Stacked":
        old = torch.cat([self.value[:, :-2], self.value[:, -2:].sum(dim=-1, keepdim=True)], dim=-1)
        return Stacked(torch.cat([(event * self.never())[:, None], old], dim=-1))

    def clear(self, event: Tensor) -> "Stacked":
        return Stacked(self.value * (1 - event)[:, None])

    def weigh(self, table: Tensor, group: Tensor | None) -> Tensor:
        weights = table if group is None else table[group.long()]
        return (self.value[:, : table.shape[-1]] * weights).sum(dim=-1)

    def total(self, table: Tensor, group: Tensor | None) -> Tensor:
        return self.weigh(table, group).sum()


def course(history: History | Stacked, rate: Tensor, table: Tensor, group: Tensor | None, draws: Tensor) -> Tensor:
    """Nine steps in which every method takes part; exact 0/1 shares where `draws` are."""
    out = []
    for step in range(STEPS):
        pressure = history.weigh(table, group).sum() / AGENTS
        event = draws[step] * (1 - torch.exp(-rate * (pressure + 0.1)))
        history = history.record(event)
        if step == 5:
            history = history.clear(0.5 * draws[0])
        out += [history.total(table, group), history.never().sum(), history.within(2, 3).sum()]
    return torch.stack(out)


@pytest.mark.parametrize("groups", [0, 3, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_equal_one_stacked_tensor(groups: int, dtype: torch.dtype) -> None:
    gen = torch.Generator().manual_seed(groups)
    start = History.start(torch.randint(0, 7, (AGENTS,), generator=gen), length=LENGTH).relax()
    group = torch.randint(0, groups, (AGENTS,), generator=gen).to(torch.uint8) if groups else None
    draws = torch.rand(STEPS, AGENTS, generator=gen)
    weight = torch.rand((groups, 3) if groups else (3,), generator=gen)
    results = []
    for history in (start, Stacked(start.value.to(dtype))):
        kind = dtype if isinstance(history, Stacked) else torch.float32
        rate, table = torch.tensor(0.7, dtype=kind, requires_grad=True), weight.to(kind).requires_grad_()
        out = course(history, rate, table, group, draws.to(kind))
        slopes = torch.autograd.grad((out * torch.arange(1, len(out) + 1)).sum(), (rate, table))
        results.append([out, *slopes])
    for mine, reference in zip(*results, strict=True):
        torch.testing.assert_close(mine, reference.to(torch.float32), rtol=2e-6, atol=2e-6)


def test_growing_older_copies_nothing() -> None:
    old = History.start(torch.tensor([0, 1, 2, 9]), length=3).relax()
    new = old.record(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    assert old.columns is not None
    assert new.columns is not None
    assert [a is b for a, b in zip(new.columns[2:], old.columns[1:], strict=False)] == [True, True]
    assert new.value.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_columns_are_computed_with_in_float32(dtype: torch.dtype) -> None:
    wide = History.start(torch.tensor([0, 0, 1, 2, 3]), length=3).relax()
    narrow = History([column.to(dtype) for column in wide.tensors()], 3)
    table, event = torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.0, 0.0, 0.0, 0.0])
    for a, b in zip(
        (wide.weigh(table), wide.total(table), wide.never(), wide.within(1, 2), wide.record(event).never()),
        (narrow.weigh(table), narrow.total(table), narrow.never(), narrow.within(1, 2), narrow.record(event).never()),
        strict=True,
    ):
        assert b.dtype == torch.float32
        assert torch.equal(a, b)
    assert not narrow.fault()


class Remembers(dz.State):
    wealth: Tensor = dz.real("agents")
    caught: History = dz.history("agents", length=3)


def test_states_hold_every_column() -> None:
    state = Remembers(wealth=torch.ones(2), caught=History.start(torch.tensor([0, 2]), length=3).relax())
    assert [len(tensors(value)) for value in (state.wealth, state.caught)] == [1, 4]
    assert not any(bool(bad) for _, bad in faults(state))
    with pytest.raises(ModelError, match="a relaxed value is never narrowed silently"):
        Remembers.kinds["caught"].form(state.caught, "Remembers.caught", False)
