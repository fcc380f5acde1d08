"""Memories of policies: between the body and the heads, carried from step to step, empty where a life begins.

A memory is an object with its settings, `GRU(64)`; its `make` gives the module. Modules take steps in a row, all rows
at once, and what they carry is one float32 tensor `[rows, size]`, zeros at the start of a life.
"""

import dataclasses
import math
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from denizen.errors import InputError
from denizen.rl._settings import wholes
from denizen.rl._worlds import named


class MemoryModule(Protocol):
    """What a memory's `make` gives: a module.

    Attributes:
        size: numbers that a row carries from step to step.
        width: of its features.
    """

    size: int
    width: int

    def over(self, shown: Tensor, memory: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        """Steps in a row.

        Args:
            shown: features of a body `[steps, rows, width of the body]`.
            memory: float32 `[rows, size]` before the first step.
            first: bool `[steps, rows]`: a life begins here, so what is from before does not count; None: nowhere.

        Returns:
            (features `[steps * rows, width]`, memory after the last step).
        """
        ...


class _Gated(nn.GRUCell):
    """A GRU cell; carries its state."""

    def __init__(self, features: int, size: int) -> None:
        super().__init__(features, size)
        self.size = self.width = size

    def over(self, shown: Tensor, memory: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        outputs: list[Tensor] = []
        for t, features in enumerate(shown):
            memory = _cleared(memory, first, t)
            memory = self(features, memory.to(features.dtype)).to(torch.float32)
            outputs.append(memory)
        return torch.cat(outputs), memory


class _LongShort(nn.LSTMCell):
    """An LSTM cell; carries its output and its state, side by side."""

    def __init__(self, features: int, size: int) -> None:
        super().__init__(features, size)
        self.size, self.width = 2 * size, size
        with torch.no_grad():  # it begins by keeping what it has (Jozefowicz et al., 2015)
            self.bias_ih[size : 2 * size] = 1.0

    def over(self, shown: Tensor, memory: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        outputs: list[Tensor] = []
        for t, features in enumerate(shown):
            output, state = _cleared(memory, first, t).chunk(2, dim=1)
            # Spelled out: compilers do not take torch's own.
            into = F.linear(features, self.weight_ih, self.bias_ih)
            gates = into + F.linear(output.to(into.dtype), self.weight_hh, self.bias_hh)
            enter, keep, new, leave = gates.to(torch.float32).chunk(4, dim=1)
            state = keep.sigmoid() * state + enter.sigmoid() * new.tanh()
            output = leave.sigmoid() * state.tanh()
            memory = torch.cat([output, state], 1)
            outputs.append(output)
        return torch.cat(outputs), memory


def _cleared(memory: Tensor, first: Tensor | None, t: int) -> Tensor:
    return memory if first is None else torch.where(first[t][:, None], 0.0, memory)


class _Window(nn.Module):
    """A block of a transformer over the last steps of a life; carries their entries, and which of them there are."""

    def __init__(self, features: int, size: int, window: int, heads: int) -> None:
        super().__init__()
        self.size, self.width, self._window, self._heads = (window - 1) * (size + 1), size, window, heads
        self.entry = nn.Linear(features, size)
        self.before, self.between = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query, self.key, self.value = (nn.Linear(size, size, bias=False) for _ in range(3))
        self.places = nn.Parameter(torch.zeros(heads, window))  # what an age is worth to each head
        self.mixed = nn.Linear(size, size)
        self.further = nn.Sequential(nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size))

    def over(self, shown: Tensor, memory: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        back, (steps, rows, _) = self._window - 1, shown.shape
        entry = self.entry(shown)
        old = memory.view(rows, back, -1).transpose(0, 1)
        begins = shown.new_zeros(steps, rows, dtype=torch.bool) if first is None else first
        life = begins.cumsum(0)  # a number for each life of a row, 0 for the one under way
        lives = torch.cat([torch.where(old[..., -1] > 0, 0, -1), life])
        entries = torch.cat([old[..., :-1].to(entry.dtype), entry])
        attended = self._attended(self.before(entries), _windows(lives, self._window) == life[..., None])
        mixed = entry + self.mixed(attended)
        features = mixed + self.further(self.between(mixed))
        there = (lives[-back:] == life[-1])[..., None]
        kept = torch.cat([torch.where(there, entries[-back:].to(torch.float32), 0.0), there.to(torch.float32)], -1)
        return features.flatten(0, 1), kept.transpose(0, 1).flatten(1)

    def _attended(self, entries: Tensor, open_: Tensor) -> Tensor:
        """What each step makes of the window that ends with it: `[steps, rows, width]`.

        Args:
            entries: `[window - 1 + steps, rows, width]`.
            open_: bool `[steps, rows, window]`: of the same life.
        """
        query = self.query(entries[self._window - 1 :]).unflatten(-1, (self._heads, -1))
        key, value = (  # [steps, rows, heads, width of a head, window]
            _windows(layer(entries), self._window).unflatten(2, (self._heads, -1)) for layer in (self.key, self.value)
        )
        scores = (query[..., None, :] @ key).squeeze(-2) / math.sqrt(query.shape[-1])
        scores = (scores.to(torch.float32) + self.places).masked_fill(~open_[:, :, None], -torch.inf)
        shares = scores.softmax(-1).to(value.dtype)
        return (value @ shares[..., None]).squeeze(-1).flatten(2)


def _windows(values: Tensor, window: int) -> Tensor:
    """`[…, window]`: for each step those that end with it, from `[window - 1 + steps, …]`.

    By slices, since the gradient of `unfold` adds up in any order on CUDA.
    """
    steps = values.shape[0] - window + 1
    return torch.stack([values[age : age + steps] for age in range(window)], -1)


@dataclasses.dataclass(frozen=True)
class GRU:
    """A GRU cell (Cho et al., 2014).

    Attributes:
        size: width of its state, and of its features.
    """

    size: int = 64

    def __post_init__(self) -> None:
        wholes(self, "size")

    def make(self, features: int) -> Any:
        """The module, for so many features of a body."""
        return _Gated(features, self.size)


@dataclasses.dataclass(frozen=True)
class LSTM:
    """An LSTM cell (Hochreiter and Schmidhuber, 1997), whose forget gates begin open.

    Attributes:
        size: width of its state, and of its features.
    """

    size: int = 64

    def __post_init__(self) -> None:
        wholes(self, "size")

    def make(self, features: int) -> Any:
        """The module, for so many features of a body."""
        return _LongShort(features, self.size)


@dataclasses.dataclass(frozen=True)
class Attention:
    """Attention over the last steps of a life: one block of a transformer (Vaswani et al., 2017).

    Each step sees itself and those before it within the window, and nothing from before its life began. All steps of a
    rollout are learnt at once, where cells take one after the other.

    Attributes:
        size: width of an entry, and of its features.
        window: steps that are seen, the present one among them.
        heads: which `size` divides into.
    """

    size: int = 64
    window: int = 16
    heads: int = 4

    def __post_init__(self) -> None:
        wholes(self, "size", "heads")
        wholes(self, "window", low=2)
        if self.size % self.heads:
            raise InputError(f"Attention: size={self.size} does not divide into heads={self.heads}")

    def make(self, features: int) -> Any:
        """The module, for so many features of a body."""
        return _Window(features, self.size, self.window, self.heads)


Memory = GRU | LSTM | Attention


def memory_of(memory: Any, size: int) -> Any:
    """The memory that arguments `memory` and `memory_size` mean, where one of them is given.

    Raises:
        InputError: `memory` is none, or both are given.
    """
    if memory is None:
        return GRU(size)
    if size:
        raise InputError(f"policy: memory={memory!r} and memory_size={size}; give one of them, memory_size=N is GRU(N)")
    if isinstance(memory, type) or not callable(getattr(memory, "make", None)):
        given = repr(memory) if isinstance(memory, str | int | float) else named(memory)
        raise InputError(f"policy: memory is {given}, expected an object such as dz.rl.LSTM(64)")
    return memory
