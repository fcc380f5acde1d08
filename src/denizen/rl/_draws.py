"""Random numbers of learning: actions, shuffles, minibatches; pure functions of (seed, replica, stream, step)."""

import math

import torch
from torch import Tensor

from denizen import ops
from denizen.rng import stream_number


class Draws:
    """Counter-based draws for rows of a batch; a replayed graph never repeats them, since the step is on the device.

    Attributes:
        keys: int64 `[rows, 2]` (seed, replica).
    """

    def __init__(self, seed: int, replicas: Tensor) -> None:
        """Args:
        seed: of the run.
        replicas: int64 `[rows]`: numbers that tell rows apart.
        """
        self.keys = torch.stack([torch.full_like(replicas, seed), replicas], dim=1)

    def uniform(self, stream: str, step: Tensor, num: int) -> Tensor:
        """Uniform on (0, 1), never 0 or 1: float32 `[rows, num]`."""
        return ((self.words(stream, step, num) >> 9).to(torch.float32) + 0.5) * 2.0**-23

    def words(self, stream: str, step: Tensor, num: int) -> Tensor:
        """Whole numbers from 0 to 2**32 - 1: int64 `[rows, num]`."""
        return ops.draw_words(self.keys.new_empty(0), num, self.keys, step, stream_number(f"learn/{stream}"))


class Shuffles:
    """Random orders, as pure functions of (seed, group, number of the shuffle)."""

    def __init__(self, seed: int, device: torch.device, group: int = 0) -> None:
        """Args:
        seed: of the run.
        device: where orders are made.
        group: of worlds that are shuffled by themselves.
        """
        self._key = torch.tensor([[seed, group]], device=device)

    def order(self, step: Tensor, num: int) -> Tensor:
        """A random order of 0 … num - 1: int64 `[num]`; `step` int64 `[]` is the number of the shuffle."""
        return _orders(self._key, step, num)[0]


def _orders(keys: Tensor, step: Tensor, num: int) -> Tensor:
    """A random order for each key: int64 `[keys, num]`."""
    words = ops.draw_words(keys.new_empty(0), num, keys, step, stream_number("learn/shuffle"))
    return torch.argsort((words - 2**31).to(torch.int32), dim=1, stable=True)  # half the bits to sort by, same order


class Minibatches:
    """Rows of a rollout in random order, in equal parts.

    Worlds may be shuffled in groups, each of which gives every minibatch an equal part: then it does not matter whether
    a group has a process of its own.
    """

    def __init__(self, seed: int, device: torch.device, groups: range, minibatches: int) -> None:
        """Args:
        seed: of the run.
        device: where orders are made.
        groups: numbers of the groups that are here; worlds are split among them in order.
        minibatches: parts.
        """
        self._keys = torch.tensor([[seed, group] for group in groups], device=device)
        self._minibatches = minibatches

    def parts(self, step: Tensor, times: int, rows: int) -> list[Tensor]:
        """Indices of each minibatch among `times * rows` entries, `rows` innermost."""
        groups = len(self._keys)
        width = rows // groups
        where = _orders(self._keys, step, times * width)
        if groups > 1:
            first = torch.arange(groups, device=where.device)[:, None] * width
            where = where // width * rows + first + where % width
        return [part.flatten() for part in where.chunk(self._minibatches, dim=1)]


def cut(field: Tensor, segments: int) -> Tensor:
    """`[steps, rows, …]` as segments side by side: `[steps / segments, segments * rows, …]`, rows innermost."""
    return field if segments == 1 else field.unflatten(0, (segments, -1)).transpose(0, 1).flatten(1, 2)


def picked(part: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a minibatch is made of, one row for each step: `[rows, …]`; `memory` is that before the first step."""
    fields = {name: field for name, field in part.items() if name not in ("rows", "memory")}
    memory = part.get("memory")
    if "rows" in part:
        axis = 0 if memory is None else 1
        fields = {name: _selected(field, axis, part["rows"]) for name, field in fields.items()}
    if memory is None:
        return {**fields, "memory": part["observation"].new_zeros(1, 0, dtype=torch.float32)}
    memory = memory.index_select(1, part["rows"]) if "rows" in part else memory
    return {**{name: field.flatten(0, 1) for name, field in fields.items()}, "memory": memory[0]}


def _selected(field: Tensor, axis: int, rows: Tensor) -> Tensor:
    """`index_select`, of bytes eight at a time where they can: compiled for CUDA, one thread takes one entry."""
    shape = field.shape[axis + 1 :]
    if field.dtype != torch.uint8 or math.prod(shape) % 8 or not field.is_contiguous():
        return field.index_select(axis, rows)
    wide = field.flatten(axis + 1).view(torch.int64).index_select(axis, rows)
    return wide.view(torch.uint8).unflatten(axis + 1, shape)
