"""What is kept of each operation, and where it belongs: its memory, its user's lines."""

import dataclasses
import sys
from typing import Any

import torch
from torch import Tensor

from denizen.perf.watch._faults import METHODS
from denizen.perf.watch._places import USER, Place, is_user, locate, role


@dataclasses.dataclass(slots=True)
class Op:
    """One operation.

    Attributes:
        step: its number.
        name: with overload; `schema` is without.
        place: the user's line.
        site: the innermost line of the user's stack that lies in a loop of its function, if any.
        part: ``"backward"``, ``"optimizer"`` or ``""``.
        numel: elements of its largest result.
        shape: of its first result.
        bytes: read and written; each distinct element once.
        double: of these, in float64.
        new: bytes of the memory that it took.
        flops: of matrix products and convolutions.
        dtype: of its first result, if that lies on the device.
        sources: dtypes of the tensors of the device that it took.
        autocast: whether it ran under autocast.
        fast: whether products of float32 might use tensor cores then.
        grads: gradients that it filled with zeros.
        off: whether gradients were off, outside of backward passes and optimizers.
        weights: whether it copied a parameter.
        weight: the memory of the parameter that it took, 0 without one.
        loaded: whether it took a batch of a loader from the host.
        pointwise: whether each element of the result comes from one of each argument.
        tracked: whether it became part of a graph.
        again: whether it joined something that its line had joined, or made, when it last ran.
        order: number of its step's operations before it.
        at: place of the user's instruction in its code, which tells several on a line apart.
    """

    step: int
    name: str
    schema: str
    place: Place
    part: str
    numel: int = 0
    shape: tuple[int, ...] = ()
    bytes: int = 0
    double: int = 0
    new: int = 0
    flops: int = 0
    dtype: torch.dtype | None = None
    sources: tuple[torch.dtype, ...] = ()
    autocast: bool = False
    fast: bool = False
    grads: int = 0
    off: bool = False
    weights: bool = False
    weight: int = 0
    loaded: bool = False
    pointwise: bool = False
    tracked: bool = False
    again: bool = False
    order: int = 0
    at: int = 0
    site: Place | None = None

    @property
    def line(self) -> tuple[str, int]:
        """File and line."""
        return self.place.file, self.place.line


@dataclasses.dataclass(slots=True)
class Copied:
    """A clone, until it can be told whether it was needed."""

    op: Op
    source: Tensor | None  # it shares its version with what it is a view of; let go at the end of the step
    made: Any  # weak reference
    versions: tuple[int, int]
    needed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix that a line worked on.

    Attributes:
        place: the line.
        rows: of it.
        columns: of it.
        share: of its values other than 0.
        weight: whether it is a parameter.
        relates: whether it met its rows or columns, in a product or one by one, as a grid does not.
        derived: whether it says which of all pairs' distances count.
    """

    place: Place
    rows: int
    columns: int
    share: float
    weight: bool
    relates: bool
    derived: bool


def memory(tensor: Tensor) -> int:
    """Of the block that a tensor's values lie in."""
    block = getattr(tensor, "_block", None)
    if block is not None:
        return id(block)
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse
        return id(tensor)


def owner(tensor: Tensor) -> Any:
    """What lives as long as a tensor's memory."""
    return getattr(tensor, "_block", None) or tensor


def is_dense(tensor: Tensor) -> bool:
    """Whether its elements lie one by one; a wrapper cannot be asked where rows are compressed."""
    return getattr(tensor, "_real", tensor).layout is torch.strided


def values(tensor: Tensor) -> Tensor:
    """A tensor of torch's own with the values."""
    return getattr(tensor, "_real", tensor).detach()


def caller(thread: int | None = None) -> Place:
    """The user's line that called a model: the innermost one outside of `forward` methods."""
    frames = user_frames(thread)
    return next((place for place in frames if place.function not in ("forward", "__call__")), frames[-1])


def user_frames(thread: int | None = None) -> list[Place]:
    """The user's lines of the stack, innermost first, up to the doctor."""
    frame: Any = sys._getframe(1)
    frames = []
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_take_step":
            break
        if role(code.co_filename) == USER and is_user(code):
            frames.append(Place(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return frames or [locate(METHODS, thread)]
