"""Continuous space of one to three axes, open or a torus: where agents may be, and who is near whom."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import ops
from denizen._arguments import number, switch
from denizen.errors import InputError, ModelError
from denizen.rng import Rng
from denizen.space import _pair_function
from denizen.space._structure import Structure

_MOST_LENGTH = 1e30  # squares of distances stay finite
_FEW_CELLS = 64


@dataclasses.dataclass(frozen=True)
class Space(Structure):
    """A line, a rectangle or a box from 0 to `size` along each axis.

    Make it a field of a model, and positions a field of the state: ``position: Tensor = dz.real("agents", "dims")``,
    float32 `[agents, dims]`.

    Attributes:
        size: length of each axis, one to three, rounded to float32.
        torus: whether each side continues on the opposite one.

    Examples:
        >>> space = Space(size=(10.0, 10.0))
        >>> near = space.near(torch.tensor([[0.5, 5.0], [9.5, 5.0], [3.0, 5.0]]), radius=2.0)
        >>> near.count()
        tensor([1, 1, 0], dtype=torch.int32)
    """

    size: tuple[float, ...]
    torus: bool = True

    def __post_init__(self) -> None:
        given = self.size
        if isinstance(given, int | float):
            raise InputError(f"Space: size={given!r}, expected a length for each axis, such as ({given}, {given})")
        if not isinstance(given, tuple | list) or not 1 <= len(given) <= 3:
            raise InputError(f"Space: size={given!r}, expected one to three lengths, such as (100.0, 100.0)")
        lengths = [number("Space", f"size[{k}]", one, above=0, high=_MOST_LENGTH) for k, one in enumerate(given)]
        object.__setattr__(self, "size", tuple(float(np.float32(one)) for one in lengths))
        if not all(self.size):
            raise InputError(f"Space: size={given!r}, expected lengths that float32 can hold")
        object.__setattr__(self, "torus", switch("Space", "torus", self.torus))

    @property
    def dims(self) -> int:
        """Number of axes."""
        return len(self.size)

    @property
    def volume(self) -> float:
        """Product of the lengths."""
        return math.prod(self.size)

    # --- positions --------------------------------------------------------------------------------------------------

    def random(self, rng: Rng, name: str) -> Tensor:
        """Uniform positions: float32 `[agents, dims]`, one draw an agent and axis.

        Args:
            rng: of `init` or `step`.
            name: of the streams.
        """
        drawn = [rng[name].uniform(f"axis {k}", 0.0, length) for k, length in enumerate(self.size)]
        return torch.stack(drawn, dim=-1)

    def offset(self, here: Tensor, there: Tensor) -> Tensor:
        """The way from `here` to `there`, through the nearest side on a torus: `[…, dims]`."""
        self._fits("offset", here, there)
        apart = there - here
        if not self.torus:
            return apart
        lengths = self._row(apart)
        apart = torch.where(apart > lengths / 2, apart - lengths, apart)
        return torch.where(apart < -lengths / 2, apart + lengths, apart)

    def distance(self, here: Tensor, there: Tensor) -> Tensor:
        """Length of `offset`: `[…]`."""
        return torch.linalg.vector_norm(self.offset(here, there), dim=-1)

    def move(self, position: Tensor, step: Tensor) -> Tensor:
        """Positions after a step: through the side on a torus, else thrown back by it.

        Args:
            position: `[…, dims]` within the space.
            step: of the same shape, of any length.
        """
        return self.wrap(position + step) if self.torus else self.reflect(position + step)

    def wrap(self, position: Tensor) -> Tensor:
        """Positions beyond a side, as if each side continued on the opposite one; each below the axis's length."""
        self._fits("wrap", position)
        lengths = self._row(position)
        inside = position - torch.floor(position / lengths) * lengths
        inside = torch.where(inside < 0, inside + lengths, inside)  # rounding may leave the interval on either side
        return torch.where(inside >= lengths, inside * 0, inside)

    def reflect(self, position: Tensor) -> Tensor:
        """Positions beyond a side, thrown back by it as often as it takes."""
        self._fits("reflect", position)
        lengths = self._row(position)
        folded = position - torch.floor(position / (2 * lengths)) * (2 * lengths)
        folded = torch.where(folded > lengths, 2 * lengths - folded, folded)
        return torch.minimum(folded.clamp(min=0), lengths)

    def clamp(self, position: Tensor) -> Tensor:
        """Positions beyond a side, at the side."""
        self._fits("clamp", position)
        return torch.minimum(position.clamp(min=0), self._row(position))

    def inside(self, position: Tensor) -> Tensor:
        """Whether a position is within the space, its sides included, and not NaN: bool `[…]`."""
        self._fits("inside", position)
        return ((position >= 0) & (position <= self._row(position))).all(dim=-1)

    # --- neighbours -------------------------------------------------------------------------------------------------

    def near(self, position: Tensor, radius: float, rng: Rng | None = None, *, where: Tensor | None = None) -> "Near":
        """Who is within `radius` of whom, for sums over neighbours.

        Args:
            position: float32 `[agents, dims]`. Where one is NaN or outside, every sum of its world is NaN, counts are
                -1 and nearest neighbours -2; with `rng` the run stops with a message that says so.
            radius: a number, up to the longest side. Nobody is counted twice: on a torus the way through the nearest
                side counts.
            rng: of the step, for the agents' identities: sums are then the same bits in any layout of the agents.
                Nothing is drawn. Without it, as in a series, agents are told apart by their places.
            where: mask `[agents]` of those who are there; the others are nobody's neighbours and their sums are 0.
        """
        self._fits("near", position)
        if position.dim() != 2:
            raise ModelError(f"Space.near: position has shape {tuple(position.shape)}, expected (agents, {self.dims})")
        if isinstance(radius, Tensor):
            raise ModelError(
                "Space.near: radius is a tensor, expected a number, which fixes the cells; take the largest, and cut "
                "at a smaller one in reduce: torch.where(distance <= reach, …, 0)"
            )
        reach = float(np.float32(number("Space.near", "radius", radius, above=0)))
        if reach > max(self.size):
            raise ModelError(
                f"Space.near: radius={radius!r} in a space of size {self.size}, expected at most {max(self.size)}, the "
                f"longest side"
            )
        if where is not None and (not isinstance(where, Tensor) or where.shape != position.shape[:1]):
            got = tuple(where.shape) if isinstance(where, Tensor) else f"{type(where).__name__} {where!r}"
            raise ModelError(f"Space.near: where is {got}, expected ({len(position)},), one for each agent")
        counts = self._cells(reach, len(position))
        row, key = position.to(torch.float32)[None], position.new_empty(1, 0, dtype=torch.int64)
        if rng is not None:
            key = self._ids(rng, len(position), key)
        binned = ops.bin_agents(row.detach(), key, None if where is None else where[None], list(self.size), counts)
        if rng is not None:
            rng._bad.append(
                (
                    f"Space.near: a position is NaN or outside the space of size {self.size}; move agents by "
                    f"space.move, or bring them back by wrap, reflect or clamp; positions stored in 16 bits by "
                    f"precision= are rounded, also past a side: keep those in float32",
                    (binned[1][0, -1] != len(position)).to(torch.int8),
                )
            )
        return Near(self, row, reach, counts, binned)

    def _ids(self, rng: Rng, num: int, key: Tensor) -> Tensor:
        if not isinstance(rng, Rng):
            raise ModelError(f"Space.near: rng is {type(rng).__name__} {rng!r}, expected the step's rng")
        if rng._num != num:
            raise ModelError(
                f"Space.near: rng is of {rng._num} {rng._axis}, position of {num}; give rng.on(axis, {num}, ids=…)"
            )
        return key if rng._ids is None else rng._ids[None]

    def _cells(self, radius: float, num: int) -> list[int]:
        """Cells along each axis: about as many as agents at most, none shorter than the radius, no axis with two.

        Cells of the last axis are cut in up to four: along a row they cost nothing but memory, and fewer agents beyond
        the radius are looked at.
        """
        counts = [min(int(length / radius), 2**20) for length in self.size]
        counts = [count if count >= 3 else 1 for count in counts]
        while math.prod(counts) > max(_FEW_CELLS, 2 * num):
            longest = max(range(self.dims), key=lambda axis: counts[axis])
            counts[longest] = max(3, counts[longest] // 2) if counts[longest] > 3 else 1
        for cut in (4, 3, 2):
            finer = min(int(cut * self.size[-1] / radius), 2**20)
            if counts[-1] > 1 and math.prod(counts[:-1]) * finer <= 2 * num:
                return [*counts[:-1], finer]
        return counts

    def _row(self, like: Tensor) -> Tensor:
        if len(set(self.size)) == 1:
            return torch.full((), self.size[0], dtype=like.dtype, device=like.device)
        return torch.stack([torch.full((), one, dtype=like.dtype, device=like.device) for one in self.size])

    def _fits(self, method: str, *positions: Tensor) -> None:
        for one in positions:
            if not isinstance(one, Tensor) or not one.dtype.is_floating_point or one.shape[-1:] != (self.dims,):
                raise ModelError(
                    f"Space.{method}: got {_told(one)}, expected real numbers of shape (agents, {self.dims}), "
                    f"one column for each axis of {self.size}"
                )


class Near:
    """Neighbours within a radius, from `Space.near`; lives within one step.

    Sums are added up in a canonical order, by cell and id, in float32: the same bits on every device, compiled or not,
    in any batch of worlds and, with `rng`, in any layout of the agents.
    """

    def __init__(
        self, space: Space, position: Tensor, radius: float, counts: list[int], binned: tuple[Tensor, ...]
    ) -> None:
        """As `Space.near` makes it; `position` is `[1, agents, dims]`."""
        self._position, self._binned = position, binned
        self._spec = (list(space.size), counts, space.torus, radius)

    def count(self) -> Tensor:
        """Number of neighbours: int32 `[agents]`."""
        found = self.reduce(_one)
        return torch.where(found.isnan(), -1.0, found).to(torch.int32)

    def sum(self, values: Tensor) -> Tensor:
        """Sum of `values`, `[agents]` or `[agents, n]`, over neighbours: float32 of that shape."""
        return self.reduce(_theirs, values)

    def mean(self, values: Tensor) -> Tensor:
        """Mean of `values`, `[agents]` or `[agents, n]`, over neighbours, 0 for agents without any: float32."""
        total, num = self.reduce(_theirs_and_one, values)
        num = num.reshape(num.shape + (1,) * (total.dim() - 1))
        return total / torch.where(num == 0, 1.0, num)

    def reduce(self, pair: Callable[..., Any], *theirs: Tensor, own: Sequence[Tensor] = ()) -> Any:
        """Sum over neighbours of a function of the two, written for one pair in plain torch.

            def push(offset, distance, weight, reach):
                return torch.where(distance < reach, -weight * offset / distance, 0.0)

            force = near.reduce(push, now.weight, self.reach)

        Args:
            pair: function of (offset, distance, *theirs, *own): `offset` `[dims]` leads from the agent to its
                neighbour, `distance` is its length, the rest are numbers or short vectors of the neighbour and of the
                agent. It returns a number, a short vector `[n]` or a tuple of these. It is read once and becomes part
                of a kernel: arithmetic, comparisons, `torch.where` and the like, no `if` on tensors, and tensors only
                as arguments. A model's number or Python's own may stand in it; they are constants.
            *theirs: `[agents]` or `[agents, n]`, of the neighbour; a 0-d tensor is the same for all pairs.
            own: `[agents]` or `[agents, n]`, of the agent itself.

        Returns:
            For each result of `pair`, float32 `[agents]` or `[agents, n]`.
        """
        num, dims = self._position.shape[1:]
        shared, rows, mine, alone = [], [], [], 0
        for k, value in enumerate(theirs):
            if isinstance(value, Tensor) and value.dim() == 0:
                shared.append(value)
                alone |= 1 << k
            else:
                rows.append(_columns(f"*theirs[{k}]", value, num))
        for k, value in enumerate(own):
            mine.append(_columns(f"own[{k}]", value, num))
        shapes = tuple(tuple(value.shape[1:]) for value in theirs), tuple(tuple(value.shape[1:]) for value in own)
        text, outputs, several = _program(pair, dims, *shapes, alone)
        packed = [torch.cat(part, dim=1)[None] if part else self._position[:, :, :0] for part in (rows, mine)]
        numbers = torch.stack([one.to(torch.float32) for one in shared]) if shared else self._position[0, 0, :0]
        found = ops.sum_pairs(self._position, *packed, numbers[None], *self._binned, *self._spec, text)[0]
        parts, first = [], 0
        for shape in outputs:
            parts.append(found[:, first : first + shape[0]] if shape else found[:, first])
            first += math.prod(shape)
        return tuple(parts) if several else parts[0]

    def nearest(self) -> Tensor:
        """The nearest neighbour of each agent: int64 `[agents]` of places; -1 for agents without any.

        Of several at one distance it is the first in canonical order.
        """
        return ops.nearest_agent(*self._binned, *self._spec)[0]


def _program(pair: Callable[..., Any], dims: int, theirs: Any, own: Any, shared: int) -> Any:
    return _pair_function.program_of(pair, dims, theirs, own, shared)


_program._dynamo_marked_constant = True  # type: ignore[attr-defined]  # reads the function, as a constant of the graph


def _told(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r}"


def _columns(name: str, value: Tensor, num: int) -> Tensor:
    if not isinstance(value, Tensor) or value.dim() not in (1, 2) or value.shape[0] != num or value.is_complex():
        raise ModelError(
            f"Near.reduce: {name} is {_told(value)}, expected a tensor ({num},) or ({num}, n), one entry for each "
            f"agent, or a 0-d tensor for all pairs"
        )
    return value.to(torch.float32).reshape(num, -1)


def _one(offset: Tensor, distance: Tensor) -> float:
    return 1.0


def _theirs(offset: Tensor, distance: Tensor, value: Tensor) -> Tensor:
    return value


def _theirs_and_one(offset: Tensor, distance: Tensor, value: Tensor) -> tuple[Tensor, float]:
    return value, 1.0
