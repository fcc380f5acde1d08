"""Dict and Tuple: spaces of several parts, nested; and what holds for every space by its leaves.

Values are dicts and tuples of tensors. Where many rows are stored they are bytes: the leaves of a row one behind the
other, each from a multiple of eight bytes on. One tensor then holds a row, whatever its parts are, without loss.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from denizen.errors import InputError, ModelError
from denizen.model._spaces import Box, Discrete, MultiBinary, MultiDiscrete, encoded, random_values

_ALIGNED = 8  # bytes: the widest number begins where it may, and rows are gathered eight bytes at a time

Leaf = Discrete | MultiDiscrete | MultiBinary | Box


class Tree:
    """Base of spaces of several parts."""

    def items(self) -> list[tuple[Any, "Space"]]:
        """(key, space) of each part."""
        raise NotImplementedError

    def built(self, parts: list[Any]) -> Any:
        """A value from those of the parts."""
        raise NotImplementedError

    def leaves(self) -> list[tuple[str, "Leaf"]]:
        """(path, space) of each leaf."""
        return [(f"[{key!r}]{path}", leaf) for key, part in self.items() for path, leaf in leaves(part)]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a stored row: its bytes."""
        return (sum(_width(leaf) for _, leaf in self.leaves()),)

    @property
    def dtype(self) -> torch.dtype:
        """Of a stored row."""
        return torch.uint8

    @property
    def factors(self) -> tuple[int, ...]:
        """How many choices there are of each factor of all leaves; an action mask has them side by side."""
        return tuple(size for _, leaf in self.leaves() for size in leaf.factors)


@dataclasses.dataclass(frozen=True)
class Dict(Tree):
    """Parts by name, which may be spaces of several parts themselves; a value is a dict of tensors.

    Attributes:
        spaces: space of each part; the order counts in masks and distributions.
    """

    spaces: Mapping[str, "Space"]

    def __post_init__(self) -> None:
        given = self.spaces
        if not isinstance(given, Mapping) or not given:
            raise InputError(f"Dict(spaces={given!r}): expected spaces by name, such as {{'at': dz.rl.Discrete(3)}}")
        for name, space in given.items():
            if not isinstance(name, str):
                raise InputError(f"Dict: the name {name!r} is {type(name).__name__}, expected a string")
            _check_part(f"Dict[{name!r}]", space)
        object.__setattr__(self, "spaces", dict(given))

    def __hash__(self) -> int:
        return hash(tuple(self.spaces.items()))

    def __getitem__(self, name: str) -> "Space":
        return self.spaces[name]

    def items(self) -> list[tuple[Any, "Space"]]:
        """(name, space) of each part."""
        return list(self.spaces.items())

    def built(self, parts: list[Any]) -> dict[str, Any]:
        """A value from those of the parts."""
        return dict(zip(self.spaces, parts, strict=True))


@dataclasses.dataclass(frozen=True)
class Tuple(Tree):
    """Parts in order, which may be spaces of several parts themselves; a value is a tuple of tensors.

    Attributes:
        spaces: space of each part.
    """

    spaces: tuple["Space", ...]

    def __post_init__(self) -> None:
        given = self.spaces
        if not isinstance(given, Sequence) or isinstance(given, str) or not given:
            raise InputError(f"Tuple(spaces={given!r}): expected spaces, for example (dz.rl.Discrete(3),)")
        for place, space in enumerate(given):
            _check_part(f"Tuple[{place}]", space)
        object.__setattr__(self, "spaces", tuple(given))

    def __getitem__(self, place: int) -> "Space":
        return self.spaces[place]

    def items(self) -> list[tuple[Any, "Space"]]:
        """(place, space) of each part."""
        return list(enumerate(self.spaces))

    def built(self, parts: list[Any]) -> tuple[Any, ...]:
        """A value from those of the parts."""
        return tuple(parts)


Space = Leaf | Dict | Tuple


def _check_part(what: str, space: Any) -> None:
    if not isinstance(space, Space):
        raise InputError(f"{what} is {space!r}, expected a space of dz.rl, such as dz.rl.Discrete(3)")


def check_spaces(env: Any) -> None:
    """Raise `ModelError` where an environment declares something else than spaces, or roles that are none."""
    from denizen.model._roles import check_roles

    check_roles(env)
    name = type(env).__name__
    for attribute in ("action_space", "observation_space"):
        space = getattr(env, attribute)
        if not isinstance(space, Space):
            raise ModelError(
                f"{name} has {attribute} {space!r}; expected dz.rl.Discrete(n) or dz.rl.Box(low, high, shape), or "
                f"another space of dz.rl"
            )


# --- leaves -----------------------------------------------------------------------------------------------------------


def leaves(space: Space) -> list[tuple[str, Leaf]]:
    """(path, space) of each leaf, such as ``("['hand'][0]", Discrete(n=3))``; a space without parts is its own leaf."""
    return space.leaves() if isinstance(space, Tree) else [("", space)]


def at(path: str) -> str:
    """Where a leaf is, for messages."""
    return f" at {path}" if path else ""


def values(space: Space, value: Any, path: str = "") -> list[Any]:
    """What a value has at each leaf; raises `InputError` where it is built otherwise."""
    if not isinstance(space, Tree):
        return [value]
    keys = [key for key, _ in space.items()]
    if isinstance(space, Dict):
        fits = isinstance(value, Mapping) and value.keys() == set(keys)
        wanted = f"a dict with the keys {', '.join(map(repr, keys))}"
    else:
        fits, wanted = isinstance(value, tuple | list) and len(value) == len(keys), f"a tuple of {len(keys)}"
    if not fits:
        has = f" with the keys {', '.join(map(repr, value))}" if isinstance(value, Mapping) else ""
        has = f" of {len(value)}" if isinstance(value, tuple | list) else has
        raise InputError(f"is a {type(value).__name__}{has}{at(path)}, expected {wanted}")
    return [one for key, part in space.items() for one in values(part, value[key], f"{path}[{key!r}]")]


def built(space: Space, parts: Sequence[Any]) -> Any:
    """A value of a space from what it has at each leaf."""
    rest = iter(parts)

    def of(space: Space) -> Any:
        return space.built([of(part) for _, part in space.items()]) if isinstance(space, Tree) else next(rest)

    return of(space)


def mapped(space: Space, function: Callable[[Tensor, Leaf], Any], value: Any) -> Any:
    """A value with a function of (tensor, space) applied at each leaf."""
    if not isinstance(space, Tree):
        return function(value, space)
    parts = zip(values(space, value), leaves(space), strict=True)
    return built(space, [function(tensor, leaf) for tensor, (_, leaf) in parts])


# --- rows of bytes ----------------------------------------------------------------------------------------------------


def _width(leaf: Leaf) -> int:
    return -(-math.prod(leaf.shape) * leaf.dtype.itemsize // _ALIGNED) * _ALIGNED


def packed(space: Space, value: Any) -> Tensor:
    """Values `[*lead, …]` as they are stored: `[*lead, *space.shape]`."""
    if not isinstance(space, Tree):
        return value
    columns = []
    for tensor, (_, leaf) in zip(values(space, value), leaves(space), strict=True):
        lead = tensor.shape[: tensor.dim() - len(leaf.shape)]
        column = tensor.to(leaf.dtype).reshape(*lead, -1).contiguous()
        if column.stride(-1) != 1:  # one number that stands for a batch of one counts as contiguous, with stride 0
            column = column.clone(memory_format=torch.contiguous_format)
        column = column.view(torch.uint8)
        columns.append(F.pad(column, (0, _width(leaf) - column.shape[-1])))
    return torch.cat(columns, -1)


def unpacked(space: Space, stored: Any) -> Any:
    """The inverse of `packed`; a value that is not packed stays as it is."""
    if not isinstance(space, Tree) or not isinstance(stored, Tensor):
        return stored
    parts, widths = [], [_width(leaf) for _, leaf in leaves(space)]
    for column, (_, leaf) in zip(stored.split(widths, -1), leaves(space), strict=True):
        flat = column[..., : math.prod(leaf.shape) * leaf.dtype.itemsize]
        # Inductor compiles no numbers that are looked at as flags.
        flat = flat != 0 if leaf.dtype == torch.bool else flat.view(leaf.dtype)
        parts.append(flat.reshape(*stored.shape[:-1], *leaf.shape))
    return built(space, parts)


def form(space: Space) -> tuple[Any, ...]:
    """What two spaces must share for a policy to be of use in both: all but the bounds of boxes."""
    return tuple(
        (path, type(leaf), leaf.shape, leaf.dtype, leaf.factors, getattr(leaf, "start", 0))
        for path, leaf in leaves(space)
    )


# --- what an engine does with any space -------------------------------------------------------------------------------


def network_inputs(space: Space, value: Any) -> Any:
    """Values, stored or not, as float32 for a network: a tensor, or a tree of them; see `encoded`."""
    return mapped(space, lambda tensor, leaf: encoded(leaf, tensor), unpacked(space, value))


def idle(space: Space, lead: tuple[int, ...], device: torch.device) -> Any:
    """A value of a space, `[*lead, …]`: the one nearest to 0."""
    zero = torch.zeros((), device=device)
    return built(space, [leaf.nearest(zero.to(leaf.dtype).expand((*lead, *leaf.shape))) for _, leaf in leaves(space)])


def drawn(space: Space, lead: tuple[int, ...], reach: float, generator: torch.Generator) -> Any:
    """A random value of a space, `[*lead, …]`; see `random_values`."""
    return built(space, [random_values(leaf, lead, reach, generator) for _, leaf in leaves(space)])
