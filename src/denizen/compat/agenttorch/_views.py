"""Read-only views of a simulation under AgentTorch's keys: configuration, state, trajectory. Values on demand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from denizen.errors import InputError, nearest
from denizen.run import Run


class View(Mapping[str, Any]):
    """A mapping whose values are computed when read."""

    def __init__(self, name: str, entries: Mapping[str, Callable[[], Any]]) -> None:
        """Args:
        name: of the mapping, for messages.
        entries: key -> function of no arguments that gives the value.
        """
        self._name, self._entries = name, dict(entries)

    def __getitem__(self, key: str) -> Any:
        if key not in self._entries:
            raise KeyError(f"{self._name} has no {key!r}; {nearest(key, self._entries)}")
        return self._entries[key]()

    def __setitem__(self, key: str, value: Any) -> None:
        raise InputError(
            f"{self._name}[{key!r}] cannot be written; sizes and seeds are arguments of Executor, values of parameters "
            f"go through runner.set_parameters"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"{self._name}: {', '.join(self._entries)}"


def constant_view(name: str, values: Mapping[str, Any]) -> View:
    """A view of a nested dictionary of constants and views."""

    def entry(key: str, value: Any) -> Callable[[], Any]:
        nested = isinstance(value, Mapping) and not isinstance(value, View)
        shown = constant_view(f"{name}[{key!r}]", value) if nested else value
        return lambda: shown

    return View(name, {key: entry(key, value) for key, value in values.items()})


def padded(run: Run, name: str, known: int, length: int) -> Tensor:
    """The first `known` values of a series and zeros after them: float32 `[length]`, with graph."""
    values = run[name][0, :known].to(torch.float32) if known else torch.zeros(0, device=run.device)
    return torch.nn.functional.pad(values, (0, max(length, known) - known))


class Trajectory(Sequence[list[View]]):
    """Entry 0 holds the initial state, each further entry one record per substep of a recorded step."""

    def __init__(self) -> None:
        """Starts empty."""
        self._entries: list[list[View]] = []
        self.kept_bytes = 0

    def add(self, entry: list[View], kept_bytes: int) -> None:
        """Append an entry that holds this many bytes of its own."""
        self._entries.append(entry)
        self.kept_bytes += kept_bytes

    @overload
    def __getitem__(self, index: int) -> list[View]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[View]]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int) and not -len(self._entries) <= index < len(self._entries):
            raise IndexError(f"state_trajectory[{index}]: it has {len(self._entries)} entries")
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Trajectory({len(self)} entries, {sum(map(len, self._entries))} records)"
