"""Kinds of state fields: what a field holds, on which axes, how narrow it is stored and how it looks when relaxed.

Hard forms are int8 (mask, stage, history; int16 for a long history), int32 (count) or float32 (real). Relaxed forms are
float32 throughout: shares in place of 0/1, one column per level in place of a code. A relaxed value is never narrowed.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import number, whole
from denizen.errors import InputError, ModelError
from denizen.model._history import MOST_LENGTH, History, code_dtype
from denizen.model._stage import Stage

MOST_LEVELS = 127  # the codes of an int8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """Base of the kinds; one of your own has a `name`, a `dtype` and a `fault`.

    A field of it is declared by `dataclasses.field(metadata={"kind": MyKind(axes=…)})`.

    Attributes:
        axes: names of the field's axes; fields that name the same axis have the same size on it.
    """

    axes: tuple[str, ...]

    name = "field"
    dtype = torch.float32

    def form(self, value: Any, where: str, relaxed: bool, before: Any = None) -> Any:
        """The value in the form that a step sees, converted without loss.

        Args:
            value: what the author returned.
            where: how messages call the field.
            relaxed: whether the run is relaxed.
            before: the field as it was; None after `init`. Its own levels or length count, not the declared ones.

        Raises:
            ModelError: where that would lose something, or the value is of another shape.
        """
        tensor = self._tensor(value, where)
        if relaxed:
            return tensor.to(torch.float32)
        if tensor.dtype == self.dtype:
            return tensor
        if tensor.dtype.is_floating_point:
            raise ModelError(
                f"{where} is a {self.name} and was given {tensor.dtype} values, which {self.dtype} would cut off: "
                f"compute it from masks, events and whole numbers, or convert it yourself with .to({self.dtype})"
            )
        return _narrow(tensor, self.dtype, where)

    def _tensor(self, value: Any, where: str) -> Tensor:
        if not isinstance(value, Tensor):
            raise ModelError(f"{where} is {type(value).__name__} {value!r}, expected a tensor over {self.axes}")
        if value.dim() != len(self.axes):
            raise ModelError(
                f"{where} has shape {tuple(value.shape)}, expected {len(self.axes)} "
                f"{'axis' if len(self.axes) == 1 else 'axes'}: {', '.join(self.axes) or '(none)'}"
            )
        return value

    def fault(self, value: Any) -> Tensor:
        """0-d bool, on the device: whether the value breaks what the kind promises."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mask(Kind):
    """0 or 1: int8."""

    name = "mask"
    dtype = torch.int8

    def fault(self, value: Tensor) -> Tensor:
        return _outside(value, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alive(Mask):
    """A mask of who is alive on its axis, which the engine knows: fields of the others hold nothing."""

    def form(self, value: Any, where: str, relaxed: bool, before: Any = None) -> Tensor:
        if relaxed:
            raise ModelError(
                f"{where}: who is alive is not differentiable; run without relax=, or declare a dz.mask "
                f"and multiply by it yourself"
            )
        return super().form(value, where, relaxed, before)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Count(Kind):
    """Whole numbers from 0 to `max`: int32."""

    max: int = 2**31 - 1

    name = "count"
    dtype = torch.int32

    def fault(self, value: Tensor) -> Tensor:
        return _outside(value, self.max)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Real(Kind):
    """Real numbers, finite and, where `max` is given, at most that in size: float32."""

    max: float | None = None

    name = "real"

    def form(self, value: Any, where: str, relaxed: bool, before: Any = None) -> Tensor:
        return self._tensor(value, where).to(torch.float32)

    def fault(self, value: Tensor) -> Tensor:
        return ~(
            value.to(torch.float32).abs() <= (self.max if self.max is not None else torch.finfo(torch.float32).max)
        ).all()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageKind(Kind):
    """One of several named levels: int8 codes, or float32 shares with a column per level."""

    levels: tuple[str, ...] = ()

    name = "stage"
    dtype = torch.int8

    def form(self, value: Any, where: str, relaxed: bool, before: Stage | None = None) -> Stage:
        levels = self.levels if before is None else before.levels
        if isinstance(value, Stage):
            value, levels = value.value, tuple(value.levels)
            if before is None and levels != self.levels:
                _check_levels(levels, where)
            shares = isinstance(value, Tensor) and value.shape[len(self.axes) :] == (len(levels),)
            if shares and value.dtype.is_floating_point:
                return _same_form(Stage(value, levels), where, relaxed)
        if isinstance(value, Tensor) and value.dtype.is_floating_point:  # what a relaxed draw gives
            moved = f"now.{where.rpartition('.')[2]}.move(…)"
            raise ModelError(
                f"{where} is a stage and was given {value.dtype} values of shape {tuple(value.shape)}, which are no "
                f"codes; move agents instead: {moved} in step, Stage(codes, levels).move(event, to, source=…) in init"
            )
        stage = Stage(super().form(value, where, False), levels)
        return stage.relax() if relaxed else stage

    def fault(self, value: Stage) -> Tensor:
        return value.fault()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HistoryKind(Kind):
    """Steps since something happened: int8 or int16 codes, or float32 shares with a column per step."""

    length: int = 0

    name = "history"

    def form(self, value: Any, where: str, relaxed: bool, before: History | None = None) -> History:
        if not isinstance(value, History):
            length = self.length if before is None else before.length
            if length == 0:
                raise ModelError(
                    f"{where} has no length; write dz.history({', '.join(map(repr, self.axes))}, length=…) or give "
                    f"History.start(elapsed, length=…)"
                )
            value = History.start(self._tensor(value, where), length=length)
        codes = self._tensor(value.tensors()[0], where)
        if not value.relaxed and codes.dtype != (dtype := code_dtype(value.length)):
            value = History(_narrow(codes, dtype, where), value.length)
        return _same_form(value, where, relaxed)

    def fault(self, value: History) -> Tensor:
        return value.fault()


def _narrow(tensor: Tensor, dtype: torch.dtype, where: str) -> Tensor:
    """Whole numbers in a narrower dtype; the guard of a first step looks at the cast and reads `where`."""
    narrow = tensor.to(dtype)
    return torch.where(narrow == tensor, narrow, -1)  # what did not fit is found as a fault: 256 is no 0


def _check_levels(levels: tuple[Any, ...], where: str) -> None:
    """Refuse levels that `init` made and that codes cannot tell apart."""
    if not 1 <= len(levels) <= MOST_LEVELS or not all(isinstance(level, str) for level in levels):
        raise ModelError(f"{where} has {len(levels)} levels, expected 1 to {MOST_LEVELS} names")
    if len(set(levels)) != len(levels):
        twice = next(level for level in levels if levels.count(level) > 1)
        raise ModelError(f"{where} has two levels called {twice!r}; give each a name of its own")


def _outside(value: Tensor, high: float) -> Tensor:
    """Whether a value lies outside 0 … high; shares may exceed it by rounding."""
    slack = 1e-3 if value.is_floating_point() else 0
    value = value.to(torch.float32) if slack else value  # float16 cannot be compared with a bound beyond its own
    return ~((value >= -slack) & (value <= high + slack)).all()


def _same_form(value: Any, where: str, relaxed: bool) -> Any:
    """A stage or a history in the form of the run; shares are never narrowed to codes."""
    if value.relaxed and not relaxed:
        raise ModelError(
            f"{where} holds shares in a run without relax=; a relaxed value is never narrowed silently: move it by "
            f"masks and events, not by real numbers"
        )
    return value.relax() if relaxed else value


def _field(kind: Kind) -> Any:
    return dataclasses.field(metadata={"kind": kind})


def _axes(axes: Sequence[str]) -> tuple[str, ...]:
    for axis in axes:
        if not isinstance(axis, str) or not axis.isidentifier():
            raise InputError(f"axis {axis!r}: expected a name such as 'agents'")
    return tuple(axes)


def mask(*axes: str) -> Any:
    """A field of 0 and 1 on the given axes: int8, or float32 shares when relaxed."""
    return _field(Mask(axes=_axes(axes)))


def alive(axis: str) -> Any:
    """A mask of who of a kind of agents is alive: int8. The engine knows it and gives each of them an identity.

    Fields on the axis hold nothing for the dead and for free places, whatever a step leaves there: masks, counts and
    reals are 0, histories at never, and a stage is in none of its levels. So the dead reach nobody by sums over
    neighbours, are not counted, and the newborn start clean. `denizen.model.births` and `deaths` change it.

    Args:
        axis: name of the kind's axis, such as ``"sheep"``; random numbers are drawn by ``rng.on("sheep")``.
    """
    return _field(Alive(axes=_axes((axis,))))


def count(*axes: str, max: int = 2**31 - 1) -> Any:
    """A field of whole numbers from 0 to `max`: int32, or float32 when relaxed."""
    return _field(Count(axes=_axes(axes), max=whole("count", "max", max, 1, 2**31 - 1)))


def real(*axes: str, max: float | None = None) -> Any:
    """A field of finite real numbers, with |value| <= `max` where given: float32."""
    if max is not None and max != float("inf"):
        number("real", "max", max, above=0)
    return _field(Real(axes=_axes(axes), max=max))


def stage(*axes: str, levels: Sequence[str]) -> Any:
    """A field that is in one of the named levels; its value in a step is a `Stage`.

    Args:
        axes: names of axes.
        levels: names of the levels, up to 127; a code in `init` is a position in this list.
    """
    if isinstance(levels, str):
        raise InputError(f"stage: levels={levels!r}, expected a list of names, such as ('well', 'ill')")
    named = all(isinstance(level, str) for level in levels)
    if not named or not 2 <= len(levels) <= MOST_LEVELS or len(set(levels)) != len(levels):
        raise InputError(f"stage: levels={list(levels)}, expected 2 to 127 different names")
    return _field(StageKind(axes=_axes(axes), levels=tuple(levels)))


def history(*axes: str, length: int = 0) -> Any:
    """A field that remembers how many steps ago something happened; its value in a step is a `History`.

    Args:
        axes: names of axes.
        length: steps to tell apart; what is older counts as long ago. 0 leaves it to `init`, which then gives a
            `History.start(elapsed, length=…)`.
    """
    return _field(HistoryKind(axes=_axes(axes), length=whole("history", "length", length, 0, MOST_LENGTH)))
