"""The value of a stage field: which of several named levels each agent is in; and table look-ups by code."""

from typing import Any

import torch
from torch import Tensor

from denizen import _tree, ops
from denizen.errors import ModelError, nearest

_SELECTED = 16  # entries, at most, of a table that is differentiated by choosing


def lookup(table: Tensor, codes: Tensor) -> Tensor:
    """One value per agent from a small table, differentiable in the table.

    Args:
        table: float32 `[codes]`, for example one susceptibility per age group.
        codes: int8, uint8 or int16 `[agents]`, each a position in the table.

    Returns:
        float32 `[agents]`.
    """
    if table.dim() != 1 or codes.dim() != 1 or codes.dtype.is_floating_point:
        raise ModelError(
            f"lookup: table {tuple(table.shape)} and codes {codes.dtype} {tuple(codes.shape)}; expected (codes,) and "
            f"integers (agents,)"
        )
    if table.requires_grad and torch.is_grad_enabled() and codes.is_cuda and table.shape[0] <= _SELECTED:
        return selected(table.to(torch.float32), codes)
    return ops.lookup(table.to(torch.float32)[None, None], codes[None], None)[0]


def selected(table: Tensor, codes: Tensor) -> Tensor:
    """`lookup` by choosing between the entries, whose gradients are then plain sums over agents.

    Scattered additions would come in any order on CUDA, with other last bits in every run, and millions of agents
    would queue for a few addresses.
    """
    out = table[0].expand(codes.shape)
    for code in range(1, table.shape[0]):
        out = torch.where(codes == code, table[code], out)
    return out


class Stage:
    """Levels of agents, hard (a code each) or relaxed (a share of each level).

    Attributes:
        value: int8 `[agents]` codes, or float32 `[agents, levels]` shares.
        levels: names of the levels.
    """

    __slots__ = ("levels", "value")

    def __init__(self, value: Tensor, levels: tuple[str, ...]) -> None:
        self.value, self.levels = value, levels

    @property
    def relaxed(self) -> bool:
        """Whether shares are held instead of codes."""
        return self.value.dtype.is_floating_point

    def code(self, level: str) -> int:
        """Position of a level's name."""
        if level not in self.levels:
            raise ModelError(f"stage: unknown level {level!r}; {nearest(level, self.levels)}")
        return self.levels.index(level)

    def is_(self, *levels: str) -> Tensor:
        """Mask `[agents]` of those in any of the levels: int8, or float32 shares."""
        if not levels:
            raise ModelError(f"stage.is_: expected at least one level; valid: {', '.join(self.levels)}")
        codes = sorted({self.code(level) for level in levels})
        if self.relaxed:
            return (self.value * self._among(codes)).sum(dim=-1)
        if codes == list(range(codes[0], codes[-1] + 1)):
            return ops.in_range(self.value, codes[0], codes[-1])
        return sum((self.is_(self.levels[code]) for code in codes), torch.zeros_like(self.value))

    def move(self, event: Tensor, to: str, *, source: str) -> "Stage":
        """Those of `source` for whom `event` is 1 go to level `to`; all others stay.

        Args:
            event: mask `[agents]`: whether it happens to an agent *given* that it is in `source` (values elsewhere do
                not matter), as drawn by `rng.event`.
            to: level to go to.
            source: level to leave.
        """
        start, end = self.code(source), self.code(to)
        if event.is_floating_point() and not self.relaxed:  # shares move in a relaxed run that starts from codes
            return self.relax().move(event, to, source=source)
        if not self.relaxed:
            moved = self.is_(source) * event.to(torch.int8)
            return self._with(self.value + moved * (end - start))
        moved = self.value[..., start] * event
        code = self._codes()
        shift = (code == end).to(moved.dtype) - (code == start).to(moved.dtype)
        return Stage(self.value + moved[..., None] * shift, self.levels)

    def advance(self, event: Tensor, *levels: str) -> "Stage":
        """Those in any of `levels` for whom `event` is 1 go to the level after their own; all others stay.

        Args:
            event: mask `[agents]`: whether it happens to an agent *given* that it is in one of `levels`, as in `move`.
            levels: levels to leave, not the last one.
        """
        codes = [self.code(level) for level in levels]
        if len(self.levels) - 1 in codes:
            raise ModelError(f"stage.advance: {self.levels[-1]!r} is the last level, there is none after it")
        if event.is_floating_point() and not self.relaxed:
            return self.relax().advance(event, *levels)
        if not self.relaxed:
            return self._with(self.value + self.is_(*levels) * event.to(torch.int8))
        moved = self.value * self._among(codes) * event[..., None]
        return Stage(self.value - moved + torch.nn.functional.pad(moved[..., :-1], (1, 0)), self.levels)

    def _with(self, codes: Tensor) -> "Stage":
        """Other codes of the same agents."""
        return Stage(codes, self.levels)

    def _codes(self) -> Tensor:
        return torch.arange(len(self.levels), device=self.value.device)  # made on the device: a list would be copied

    def _among(self, codes: list[int]) -> Tensor:
        """float32 `[levels]`: 1 for the given codes."""
        here = self._codes()
        return sum(((here == code).to(torch.float32) for code in codes), torch.zeros_like(here, dtype=torch.float32))

    def table(self, values: Tensor) -> Tensor:
        """Look up one value per level: `values` `[levels]` -> `[agents]` (shares weigh the values when relaxed)."""
        if values.shape != (len(self.levels),):
            raise ModelError(f"stage.table: values have shape {tuple(values.shape)}, expected ({len(self.levels)},)")
        if self.relaxed:
            return self.value @ values.to(self.value.dtype)
        return lookup(values, self.value)

    def counts(self) -> Tensor:
        """Number of agents in each level: `[levels]`."""
        if self.relaxed:
            return self.value.sum(dim=0)
        return ops.histogram(self.value[None], None, 1, len(self.levels))[0, 0]

    def relax(self) -> "Stage":
        """The same levels as shares."""
        if self.relaxed:
            return self
        codes = torch.arange(len(self.levels), dtype=torch.int8, device=self.value.device)
        return Stage((self.value[..., None] == codes).to(torch.float32), self.levels)

    def fault(self) -> Tensor:
        """0-d bool: whether a code or a share is out of range."""
        if self.relaxed:
            shares = self.value.to(torch.float32)  # in bfloat16 1.001 is 1
            return ~((shares > -1e-3) & (shares < 1 + 1e-3)).all()
        return (self.value < 0).any() | (self.value >= len(self.levels)).any()

    def __eq__(self, other: object) -> bool:
        raise ModelError(
            f"stage == {other!r}: a stage has no ==, which would be one truth value for all agents; write "
            f"stage.is_({self.levels[0]!r}), valid: {', '.join(self.levels)}"
        )

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Stage({', '.join(self.levels)}; {'shares' if self.relaxed else 'codes'} {tuple(self.value.shape)})"


class LivingStage(Stage):
    """Levels of a kind of agents of whom the engine knows who is alive: the others are in no level.

    Attributes:
        value: int8 `[agents]` codes; 0 for who is not alive.
        levels: names of the levels.
        alive: mask int8 `[agents]`.
    """

    __slots__ = ("alive",)

    def __init__(self, value: Tensor, levels: tuple[str, ...], alive: Tensor) -> None:
        super().__init__(value, levels)
        self.alive = alive

    def is_(self, *levels: str) -> Tensor:
        """Mask `[agents]` of the living in any of the levels: int8."""
        return super().is_(*levels) * self._alive()

    def table(self, values: Tensor) -> Tensor:
        """Look up one value per level: `values` `[levels]` -> `[agents]`; 0 for who is not alive."""
        return super().table(values) * self._alive()

    def counts(self) -> Tensor:
        """Number of the living in each level: int64 `[levels]`."""
        return torch.stack([self.is_(level).sum() for level in self.levels])

    def _with(self, codes: Tensor) -> Stage:
        return LivingStage(codes, self.levels, self.alive)

    def _alive(self) -> Tensor:
        return self.alive.reshape(*self.alive.shape, *[1] * (self.value.dim() - self.alive.dim()))


def _flatten(stage: Stage) -> tuple[list[Any], Any]:
    return [stage.value], stage.levels


_tree.register(Stage, _flatten, lambda children, levels: Stage(children[0], levels))
_tree.register(
    LivingStage,
    lambda stage: ([stage.value, stage.alive], stage.levels),
    lambda children, levels: LivingStage(children[0], levels, children[1]),
)
