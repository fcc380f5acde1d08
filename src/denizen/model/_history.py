"""The value of a history field: how many steps ago something happened to each agent."""

from typing import Any

import torch
from torch import Tensor

from denizen import _tree, ops
from denizen.errors import ModelError

INT8_LENGTH = 125


class History:
    """Steps since an event, hard (a code each) or relaxed (a share of each age).

    In the step after the one that recorded it an event is 1 step old. Ages above `length` count as long ago.

    Attributes:
        value: hard: int8 or int16 `[agents]`: 0 never, 1 … length the age, length + 1 longer ago. Relaxed: float32
            `[agents, length + 1]`: the share of each age, the last column longer ago; the rest never.
        length: ages told apart.
    """

    __slots__ = ("_kept", "_never", "length", "value")

    def __init__(self, value: Tensor, length: int) -> None:
        self.value, self.length = value, length
        self._never: Tensor | None = None  # both are kept, since several parts of one step ask for them
        self._kept: tuple[Tensor | None, Tensor] | None = None

    @classmethod
    def start(cls, elapsed: Tensor, *, length: int) -> "History":
        """A history from ages: 0 for never, k for k steps before the first step; any integer dtype, `[agents]`."""
        if elapsed.dtype.is_floating_point:
            raise ModelError(f"History.start: elapsed is {elapsed.dtype}, expected whole numbers of steps")
        if not 1 <= length <= 32000:
            raise ModelError(f"History.start: length={length}, expected 1 to 32000 steps")
        dtype = torch.int8 if length <= INT8_LENGTH else torch.int16
        return cls(elapsed.to(torch.int64).clamp(-1, length + 1).to(dtype), length)  # -1 stays a fault

    @property
    def relaxed(self) -> bool:
        """Whether shares are held instead of codes."""
        return self.value.dtype.is_floating_point

    def never(self) -> Tensor:
        """Mask `[agents]`: 1 where nothing has happened yet."""
        if self._never is None:
            self._never = 1 - self.value.sum(dim=-1) if self.relaxed else ops.in_range(self.value, 0, 0)
        return self._never

    def within(self, first: int, last: int) -> Tensor:
        """Mask `[agents]`: 1 where it happened `first` to `last` steps ago; ages beyond `length` are not told apart."""
        if not 1 <= first <= last <= self.length:
            raise ModelError(f"History.within: {first} to {last}, expected 1 <= first <= last <= {self.length}")
        return self.value[..., first - 1 : last].sum(dim=-1) if self.relaxed else ops.in_range(self.value, first, last)

    def count_never(self) -> Tensor:
        """Number of agents to whom nothing has happened yet: 0-d."""
        if self.relaxed or self.value.is_cuda:
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
        if self.relaxed:
            old = torch.cat([self.value[..., :-2], self.value[..., -2:].sum(dim=-1, keepdim=True)], dim=-1)
            new = event * self.never()  # keeps in the graph that nobody is caught twice
            return History(torch.cat([new[..., None], old], dim=-1), self.length)
        return History(ops.grow(self.value, event, self.length + 1), self.length)

    def clear(self, event: Tensor) -> "History":
        """Those for whom `event` is 1 return to never."""
        if event.is_floating_point() and not self.relaxed:
            return self.relax().clear(event)
        keep = 1 - event
        return History(self.value * (keep[..., None] if self.relaxed else keep), self.length)

    def weigh(self, table: Tensor, group: Tensor | None = None) -> Tensor:
        """Look up a value by age: `[agents]`, 0 for never and for ages beyond the table.

        Args:
            table: `[ages]`, entry k the value at age k + 1; or `[groups, ages]`.
            group: integer `[agents]` row of the table for each agent.
        """
        table = self._padded(table, group)
        if self.relaxed:
            weights = table if group is None else table[group.long()]
            return (self.value[..., : self.length] * weights[..., 1 : self.length + 1]).sum(dim=-1)
        rows = table[None] if group is None else table
        return ops.lookup(rows[None], self.value[None], None if group is None else group[None])[0]

    def total(self, table: Tensor, group: Tensor | None = None) -> Tensor:
        """Sum of `weigh(table, group)` over agents: float32 0-d, added up in float64 in the hard form."""
        if self.relaxed:
            return self.weigh(table, group).sum()
        if self.value.is_cuda:  # one reduction, which the compiler fuses with its neighbours
            return self.weigh(table, group).to(torch.float64).sum().to(torch.float32)
        padded = self._padded(table, group)
        rows = padded if group is not None else padded[None]
        return (self._counts(group, *rows.shape) * rows.to(torch.float64)).sum().to(torch.float32)

    def _counts(self, group: Tensor | None, num_groups: int, num_codes: int) -> Tensor:
        """Number of agents by group and code."""
        kept = self._kept
        if kept is None or kept[0] is not group or kept[1].shape != (num_groups, num_codes):
            row = None if group is None else group[None]
            kept = self._kept = (group, ops.histogram(self.value[None], row, num_groups, num_codes)[0])
        return kept[1]

    def _padded(self, table: Tensor, group: Tensor | None) -> Tensor:
        expected = 1 if group is None else 2
        if table.dim() != expected or table.shape[-1] > self.length:
            raise ModelError(
                f"History.weigh: the table has shape {tuple(table.shape)}, expected "
                f"{'(ages,)' if group is None else '(groups, ages)'} with at most {self.length} ages"
            )
        return torch.nn.functional.pad(table, (1, self.length + 1 - table.shape[-1]))

    def relax(self) -> "History":
        """The same history as shares."""
        if self.relaxed:
            return self
        ages = torch.arange(1, self.length + 2, dtype=self.value.dtype, device=self.value.device)
        return History((self.value[..., None] == ages).to(torch.float32), self.length)

    def fault(self) -> Tensor:
        """0-d bool: whether a code or a share is out of range."""
        if self.relaxed:
            return ~((self.value > -1e-3) & (self.value < 1 + 1e-3)).all()
        return (self.value < 0).any() | (self.value > self.length + 1).any()

    def __eq__(self, other: object) -> bool:
        raise ModelError(
            f"history == {other!r}: a history has no ==, which would be one truth value for all agents; write "
            f"history.within(1, 1) for the step before, history.never() for those to whom nothing happened"
        )

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"History(length={self.length}; {'shares' if self.relaxed else 'ages'} {tuple(self.value.shape)})"


def _flatten(history: History) -> tuple[list[Any], Any]:
    return [history.value], history.length


_tree.register(History, _flatten, lambda children, length: History(children[0], length))
