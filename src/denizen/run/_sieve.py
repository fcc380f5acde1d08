"""Runs whose rows go on from one another's states, as particles of a filter do.

Row k keeps its world number, and with it its own random numbers: they follow (seed, world, step), so that copies of
one state draw apart from the next step on. What is chosen, and when, says a `Sieve`; it sees what steps recorded and
answers on the device, so the host waits for nothing.

Captured steps have their state in buffers of their own: there only the rows that move are copied. Other steps give
tensors that may be the model's own, so of those all rows are gathered.
"""

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from denizen._device import on_its_device
from denizen.run._checks import Bounds, held
from denizen.run._engine import RunState

if TYPE_CHECKING:
    from denizen.run._run import Run


class Sieve(Protocol):
    """Says after which steps rows are chosen, and which."""

    def due(self, step: int) -> bool:
        """Whether rows are chosen after so many steps."""
        ...

    def see(self, step: int, records: Mapping[str, Tensor]) -> Tensor | None:
        """What the steps up to `step` recorded, since the last call: `[worlds, steps, …]` by name.

        Returns:
            int64 `[worlds]`: from whose state each row goes on; None where all stay. A row from which others go on
            stays itself, since rows are copied in place. Unused where nothing is due.
        """
        ...


def pieces(start: int, stop: int, sieve: Sieve) -> Iterator[tuple[int, int]]:
    """(first step, step after the last) of what is run between two choices."""
    for step in range(start + 1, stop + 1):
        if step == stop or sieve.due(step):
            yield start, step
            start = step


def chosen(run_state: RunState, rows: Tensor) -> RunState:
    """The run's state with row k as row `rows[k]` was. Failed checks stay with whom they happened to."""
    leaves = [_picked(leaf, rows) for leaf in run_state.leaves]
    return RunState(leaves, run_state.step, run_state.switches.index_select(0, rows), run_state.bad)


def _picked(leaf: Tensor, rows: Tensor) -> Tensor:
    """Rows of a leaf, laid out as it is: a compiled step may keep worlds innermost."""
    if leaf.dim() > 1 and leaf.stride(0) == 1 and not leaf.is_contiguous():
        return leaf.movedim(0, -1).index_select(-1, rows).movedim(-1, 0)
    return leaf.index_select(0, rows)


def sift(run: "Run", steps: int, sieve: Sieve, later: int = 0, progress: bool = False) -> None:
    """Further steps of a run through a sieve; its series are not kept, since rows change their past.

    Args:
        run: as `simulate` with 0 steps, `again` or `branch` gives it.
        steps: how many.
        sieve: chooses rows.
        later: steps that will follow by further calls; compiling may pay for those.
        progress: show a progress bar.
    """
    run._sieve, run._later = sieve, later
    try:
        run.extend(steps, progress=progress)
    finally:
        run._sieve, run._later = None, 0


@on_its_device
def again(run: "Run", worlds: Sequence[int], values: Mapping[str, Tensor]) -> None:
    """Begin a run anew, in its own buffers: what was compiled and captured for it stays.

    Args:
        run: keeps its seed and its number of rows.
        worlds: number of each row.
        values: of the same parameters as before, `[worlds, …]` each, within their bounds.
    """
    stepper, before = run._stepper, run._run_state
    labels = stepper.checks  # of a step: captured steps do not make them again
    run._keys[:, 1] = torch.tensor(worlds, device=run.device)
    run.worlds = list(worlds)
    revalue(run, values)
    state = stepper.start()
    run._run_state = state
    run._read_checks(state, 0)
    state.bad = None if before.bad is None or not run._timed_steps else torch.zeros_like(before.bad)
    stepper._world.checks = labels
    run._steps, run._answered = 0, (-1, {})
    run._chunks = {name: [] for name in run.series_names}


def revalue(run: "Run", values: Mapping[str, Tensor]) -> None:
    """Other values `[worlds, …]` from the next step on, within bounds, of parameters that were given at first."""
    for name, value in values.items():
        run._stepper.values[name].copy_(value)
    run._bounds.vouch(run._stepper.values)


@on_its_device
def take_over(run: "Run", rows: Tensor, other: "Run") -> None:
    """Let a run that has taken no step go on from states of another one; its series begin with its first step.

    Args:
        run: stays as it is.
        rows: int64 `[rows]` on its device: from whose state each row goes on.
        other: of a model with the same fields, whose first interventions are those of `run`; its worlds' numbers must
            not be those of `run`, which would repeat what it draws in steps to come.
    """
    state = dataclasses.replace(chosen(run._run_state, rows), step=run._run_state.step.clone(), bad=None)
    known, wanted = state.switches, other._run_state.switches
    state.switches = torch.cat([known, torch.zeros_like(wanted[:, known.shape[1] :])], dim=1)
    other._run_state, other._steps = state, run._steps


@on_its_device
def branch(run: "Run", rows: Tensor, worlds: Sequence[int]) -> "Run":
    """A run of its own that goes on from states of another one; its series begin with its first step.

    Args:
        run: stays as it is.
        rows: int64 `[rows]` on its device: from whose state each row goes on.
        worlds: number of each new row; those of `run` would repeat what it draws in steps to come.
    """
    other = copy.copy(run)
    seed = torch.full((len(worlds),), run.seed, device=run.device)
    other._keys, other.worlds = torch.stack([seed, torch.tensor(worlds, device=run.device)], dim=1), list(worlds)
    values = {name: value.index_select(0, rows) for name, value in run._stepper.values.items()}
    other._stepper = run._stepper.with_rows(other._keys, values)
    other._bounds = Bounds(run.model)
    other._bounds.vouch({**held(run.model), **values})
    other._run_state = dataclasses.replace(chosen(run._run_state, rows), step=run._run_state.step.clone(), bad=None)
    other._chunks = {name: [] for name in run.series_names}
    other._snapshots = other._folder = other._out = other._capture = other._switches = None
    other._path, other._answered, other._timed_steps = "eager", (-1, {}), 0
    other._times = dict.fromkeys(run._times, 0.0)
    return other
