"""The value of a history field: how many steps ago something happened to each agent; hard, or relaxed to shares.

The relaxed form has one float column for each age, so that growing older copies nothing. Columns are `[agents]` each:
never, then age 1 … length; what is left to 1 happened longer ago. A step makes two new columns and hands the others on
by reference, to autograd as well. Columns may be stored in float16 or bfloat16; they are computed with in float32.

Legend: N agents, G groups, A ages of a table.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from denizen import _tree, ops
from denizen._units import fraction
from denizen.errors import ModelError

Columns = tuple[Tensor, ...]

_SELECTED = 8  # up to so many groups a sum for each and a choice is less than a gathered weight for each age


def of_codes(codes: Tensor, length: int) -> Columns:
    """Columns of ages that are known: `codes` integer `[agents]`, 0 for never."""
    return tuple((codes == age).to(torch.float32) for age in range(length + 1))


def of_shares(shares: Tensor) -> Columns:
    """Columns of stacked shares `[…, agents, length + 1]`: each age, then longer ago."""
    return (1 - shares.sum(dim=-1), *shares[..., :-1].unbind(-1))


def stacked(columns: Columns) -> Tensor:
    """float32 `[…, agents, length + 1]`: the share of each age, the last column longer ago."""
    never, *ages = (column.to(torch.float32) for column in columns)
    together = torch.stack(ages, dim=-1)
    return torch.cat([together, (1 - never - together.sum(dim=-1))[..., None]], dim=-1)


def record(columns: Columns, event: Tensor) -> Columns:
    """One step on: the share `event` of never becomes age 1, every age the next one."""
    never = columns[0].to(torch.float32)
    new = event * never  # keeps in the graph that nobody is caught twice
    return (never - new, new, *columns[1:-1])


def clear(columns: Columns, event: Tensor) -> Columns:
    """The share `event` of every age returns to never."""
    never = columns[0].to(torch.float32)
    return (never + event * (1 - never), *(column.to(torch.float32) * (1 - event) for column in columns[1:]))


def within(columns: Columns, first: int, last: int) -> Tensor:
    """float32 `[agents]`: the share of the ages `first` to `last`."""
    return _summed([column.to(torch.float32) for column in columns[first : last + 1]])


def weigh(columns: Columns, table: Tensor, group: Tensor | None) -> Tensor:
    """float32 `[agents]`: the sum over ages of share times table entry.

    Args:
        columns: never and ages.
        table: `[A]`, or `[G, A]` with `group`; entry k is for age k + 1.
        group: integer `[agents]`.
    """
    ages = [column.to(torch.float32) for column in columns[1 : table.shape[-1] + 1]]
    if not ages:
        return torch.zeros_like(columns[0], dtype=torch.float32)
    if group is None:
        return _combined(ages, table)
    if table.shape[0] > _SELECTED:
        return _summed([age * table[:, k][group.long()] for k, age in enumerate(ages)])
    out = _combined(ages, table[0])
    for row in range(1, table.shape[0]):
        out = torch.where(group == row, _combined(ages, table[row]), out)
    return out


def counts(columns: Columns, group: Tensor | None, num_groups: int) -> Tensor:
    """float32 `[G, length]`: the sum of each age's shares over the agents of each group."""
    ages = [column.to(torch.float32) for column in columns[1:]]
    if group is None:
        return torch.stack([age.sum() for age in ages])[None]
    rows = torch.arange(num_groups, dtype=group.dtype, device=group.device)
    member = (group == rows[:, None]).to(torch.float32)  # [G, N]
    return torch.stack([member @ age for age in ages], dim=-1)


def fault(columns: Columns) -> Tensor:
    """0-d bool: whether a share is out of range, those of longer ago included; rounding may exceed it."""
    wide = [column.to(torch.float32) for column in columns]
    parts = torch.stack([((part >= -1e-3) & (part <= 1 + 1e-3)).all() for part in (*wide, _summed(wide))])
    return ~parts.all()


def _combined(ages: Sequence[Tensor], row: Tensor) -> Tensor:
    """Sum of ages times the entries of a row; keeps nothing of their size for the backward pass but the columns."""
    return _summed([age * row[k] for k, age in enumerate(ages)])  # addcmul makes inductor store every row[k] * 1


def _summed(parts: Sequence[Tensor]) -> Tensor:
    out = parts[0]
    for part in parts[1:]:
        out = out + part
    return out


INT8_LENGTH = 125
MOST_LENGTH = 32000


def code_dtype(length: int) -> torch.dtype:
    """Of the codes of a history: int8 where length + 1 fits."""
    return torch.int8 if length <= INT8_LENGTH else torch.int16


def _check_length(where: str, length: int) -> None:
    if not 1 <= length <= MOST_LENGTH:
        raise ModelError(f"{where}: length={length!r}, expected 1 to {MOST_LENGTH} steps")


def _last_step(time: int, dt: float) -> int:
    """Number of steps that begin before a time."""
    return math.ceil(time / fraction(dt))


def by_step(table: Tensor, dt: float) -> Tensor:
    """A table by age, with an entry for each unit of time, as one with an entry for each step: `[…, ages / dt]`.

    Numbers become the mean over the time that a step covers, so that sums over time are the same at any `dt`; whole
    numbers, such as stages, are those in which a step begins.

    Args:
        table: `[…, ages]`, entry k from k to k + 1 units of time.
        dt: length of a step, `now.time.dt`.
    """
    if dt == 1:
        return table
    size = fraction(dt)
    fine = table[..., None].expand(*table.shape, size.denominator).reshape(*table.shape[:-1], -1)
    if not table.dtype.is_floating_point:
        return fine[..., :: size.numerator]
    padded = torch.nn.functional.pad(fine, (0, -fine.shape[-1] % size.numerator))
    return padded.reshape(*table.shape[:-1], -1, size.numerator).mean(-1)


class History:
    """Steps since an event, whatever their length, hard (a code each) or relaxed (a share of each age).

    In the step after the one that recorded it an event is 1 step old. Ages above `length` count as long ago.

    Attributes:
        length: ages told apart.
        columns: relaxed: a float `[agents]` for never and for each age 1 … length; None in the hard form.
    """

    __slots__ = ("_codes", "_kept", "_never", "columns", "length")

    def __init__(self, value: Tensor | Sequence[Tensor], length: int) -> None:
        """A history of codes or shares, see `value`; or of columns, as `columns` holds them."""
        _check_length("History", length)
        self.length = length
        self.columns: Columns | None = None
        self._codes: Tensor | None = None
        if not isinstance(value, Tensor):
            self.columns = tuple(value)
        elif value.dtype.is_floating_point:
            if value.shape[-1] != length + 1:  # a relaxed draw, of which every agent would become an age
                raise ModelError(
                    f"History: {value.dtype} of shape {tuple(value.shape)}, expected shares of {length + 1} ages for "
                    f"each agent; start from whole numbers and record a draw: "
                    f"History.start(ages, length={length}).record(event)"
                )
            self.columns = of_shares(value)
        else:
            self._codes = value
        self._never: Tensor | None = None  # both are kept, since several parts of one step ask for them
        self._kept: tuple[Tensor | None, Tensor] | None = None

    @classmethod
    def start(cls, elapsed: Tensor, *, length: int, dt: float = 1.0) -> "History":
        """A history from ages: 0 for never, k for k steps before the first step.

        Args:
            elapsed: any integer dtype, `[agents]`.
            length: ages that are told apart.
            dt: where `elapsed` and `length` are in units of time, the length of a step, `rng.dt` in `init`. What
                happened one unit ago is in its first step then, as if it had happened just before that unit began.
        """
        if elapsed.dtype.is_floating_point:
            raise ModelError(f"History.start: elapsed is {elapsed.dtype}, expected whole numbers of steps")
        elapsed = elapsed.to(torch.int64)
        if dt != 1:
            size, length = fraction(dt), _last_step(length, dt)
            later = 1 - ((1 - elapsed) * size.denominator) // size.numerator
            elapsed = torch.where(elapsed > 0, later, elapsed)
        _check_length("History.start", length)
        codes = elapsed.clamp(-1, length + 1)  # -1 stays a fault
        return cls(codes.to(code_dtype(length)), length)

    @property
    def relaxed(self) -> bool:
        """Whether shares are held instead of codes."""
        return self.columns is not None

    @property
    def value(self) -> Tensor:
        """The history as one tensor.

        Hard: int8 or int16 `[agents]`: 0 never, 1 … length the age, length + 1 longer ago. Relaxed, put together now:
        float32 `[agents, length + 1]`: the share of each age, the last column longer ago; the rest never.
        """
        if self.columns is not None:
            return stacked(self.columns)
        assert self._codes is not None
        return self._codes

    def tensors(self) -> list[Tensor]:
        """What is stored: the codes, or every column."""
        held = self.columns if self._codes is None else (self._codes,)
        return list(held or ())

    def never(self) -> Tensor:
        """Mask `[agents]`: 1 where nothing has happened yet."""
        if self.columns is not None:
            return self.columns[0].to(torch.float32)
        if self._never is None:
            self._never = ops.in_range(self.value, 0, 0)
        return self._never

    def within(self, first: int, last: int, dt: float = 1.0) -> Tensor:
        """Mask `[agents]`: 1 where it happened `first` to `last` steps ago; ages beyond `length` are not told apart.

        With `dt`, the length of a step (`now.time.dt`), both are in units of time: a step counts where it begins within
        them, so ``within(1, 7, dt)`` is 14 steps of 1/2.
        """
        if dt != 1:
            first, last = _last_step(first - 1, dt) + 1, _last_step(last, dt)
        if not 1 <= first <= last <= self.length:
            raise ModelError(
                f"History.within: {first} to {last}, expected 1 <= first <= last <= {self.length}; 1 is the latest"
            )
        if self.columns is not None:
            return within(self.columns, first, last)
        return ops.in_range(self.value, first, last)

    def count_never(self) -> Tensor:
        """Number of agents to whom nothing has happened yet: 0-d."""
        if self.columns is not None or self.value.is_cuda:
            return self.never().sum()
        kept = self._kept
        counts = self._counts(kept[0], *kept[1].shape) if kept else self._counts(None, 1, self.length + 2)
        return counts[:, 0].sum()

    def record(self, event: Tensor) -> "History":
        """The history one step on: ages grow by one, and `event` makes those to whom it never happened 1 step old.

        Args:
            event: mask `[agents]`: whether it happens to an agent *given* that nothing happened before (values
                elsewhere do not matter), as drawn by `rng.event`.
        """
        if event.is_floating_point() and not self.relaxed:  # shares move in a relaxed run that starts from ages
            return self.relax().record(event)
        if self.columns is not None:
            return History(record(self.columns, event), self.length)
        return History(ops.grow(self.value, event, self.length + 1), self.length)

    def clear(self, event: Tensor) -> "History":
        """Those for whom `event` is 1 return to never."""
        if event.is_floating_point() and not self.relaxed:
            return self.relax().clear(event)
        if self.columns is not None:
            return History(clear(self.columns, event), self.length)
        return History(self.value * (1 - event), self.length)

    def weigh(self, table: Tensor, group: Tensor | None = None) -> Tensor:
        """Look up a value by age: `[agents]`, 0 for never and for ages beyond the table.

        Args:
            table: `[ages]`, entry k the value at age k + 1; or `[groups, ages]`.
            group: integer `[agents]` row of the table for each agent.
        """
        if self.columns is not None:
            return weigh(self.columns, self._fitting(table, group), group)
        table = self._padded(table, group)
        rows = table[None] if group is None else table
        return ops.lookup(rows[None], self.value[None], None if group is None else group[None])[0]

    def total(self, table: Tensor, group: Tensor | None = None) -> Tensor:
        """Sum of `weigh(table, group)` over agents: float32 0-d, added up in float64 in the hard form."""
        if self.columns is not None:
            table = self._fitting(table, group)
            if self.columns[0].is_cuda:  # one pass, as below
                return weigh(self.columns, table, group).sum()
            rows = table if group is not None else table[None]
            return (self._counts(group, rows.shape[0], self.length)[:, : rows.shape[1]] * rows).sum()
        padded = self._padded(table, group)
        rows = padded if group is not None else padded[None]
        return (self._counts(group, *rows.shape) * rows.to(torch.float64)).sum().to(torch.float32)

    def _counts(self, group: Tensor | None, num_groups: int, num_codes: int) -> Tensor:
        """Number of agents by group and code; relaxed, by group and age."""
        kept = self._kept
        if kept is None or kept[0] is not group or kept[1].shape != (num_groups, num_codes):
            if self.columns is not None:
                kept = self._kept = (group, counts(self.columns, group, num_groups))
                return kept[1]
            row = None if group is None else group[None]
            kept = self._kept = (group, ops.histogram(self.value[None], row, num_groups, num_codes)[0])
        return kept[1]

    def _padded(self, table: Tensor, group: Tensor | None) -> Tensor:
        """The table with an entry for each code."""
        table = self._fitting(table, group)
        return torch.nn.functional.pad(table, (1, self.length + 1 - table.shape[-1]))

    def _fitting(self, table: Tensor, group: Tensor | None) -> Tensor:
        expected = 1 if group is None else 2
        if table.dim() != expected or table.shape[-1] > self.length:
            raise ModelError(
                f"History.weigh: the table has shape {tuple(table.shape)}, expected "
                f"{'(ages,)' if group is None else '(groups, ages)'} with at most {self.length} ages"
            )
        device = self.value.device if self.columns is None else self.columns[0].device
        if table.device != device:
            raise ModelError(
                f"History.weigh: the table is on {table.device}, the agents on {device}; keep it as an attribute of "
                f"the model, which moves with it, or make it there: torch.tensor(..., device=...)"
            )
        return table

    def relax(self) -> "History":
        """The same history as shares."""
        if self.relaxed:
            return self
        return History(of_codes(self.value, self.length), self.length)

    def fault(self) -> Tensor:
        """0-d bool: whether a code or a share is out of range."""
        if self.columns is not None:
            return fault(self.columns)
        return (self.value < 0).any() | (self.value > self.length + 1).any()

    def __eq__(self, other: object) -> bool:
        raise ModelError(
            f"history == {other!r}: a history has no ==, which would be one truth value for all agents; write "
            f"history.within(1, 1) for the step before, history.never() for those to whom nothing happened"
        )

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        shape = tuple(self.tensors()[0].shape)
        return f"History(length={self.length}; {'shares' if self.relaxed else 'ages'} {shape})"


def _unflatten(children: list[Any], context: tuple[int, bool]) -> History:
    length, relaxed = context
    history = object.__new__(History)  # children may be placeholders
    history.length, history._never, history._kept = length, None, None
    history.columns = tuple(children) if relaxed else None
    history._codes = None if relaxed else children[0]
    return history


_tree.register(History, lambda history: (history.tensors(), (history.length, history.relaxed)), _unflatten)
