"""Snapshots: chosen fields of the state every k steps."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from denizen.errors import InputError, nearest
from denizen.model import State, plain


@dataclasses.dataclass(frozen=True)
class Snapshots:
    """What to keep of the states along a run.

    Attributes:
        every: steps between snapshots; the first is the initial state.
        fields: names of fields, or None for all. Fewer fields make smaller files.
    """

    every: int
    fields: Sequence[str] | None = None


class SnapshotStore:
    """The snapshots taken so far."""

    def __init__(self, wanted: Snapshots, state: State) -> None:
        """Checks the names against the state and keeps the first snapshot."""
        names = list(wanted.fields) if wanted.fields is not None else list(state.kinds)
        for name in names:
            if name not in state.kinds:
                raise InputError(f"snapshots: unknown field {name!r}; {nearest(name, state.kinds)}")
        self.every, self.names = wanted.every, names
        self.taken: list[tuple[int, dict[str, Tensor]]] = []
        self.extend([(0, self.copy(state))])

    def due(self, step: int) -> bool:
        """Whether a snapshot is kept after `step` steps."""
        return step % self.every == 0

    def copy(self, state: State) -> dict[str, Tensor]:
        """Copies of the chosen fields, `[worlds, …]` each: later steps cannot change them."""
        return {name: plain(getattr(state, name)).detach().clone() for name in self.names}

    def extend(self, taken: list[tuple[int, dict[str, Tensor]]]) -> None:
        """Keep further snapshots."""
        self.taken.extend(taken)

    def tensors(self) -> dict[str, Tensor]:
        """Every field `[worlds, snapshots, …]`, and ``"step"`` int64 `[snapshots]`."""
        out = {name: torch.stack([fields[name] for _, fields in self.taken], dim=1) for name in self.names}
        out["step"] = torch.tensor([step for step, _ in self.taken])
        return out
