"""Compiling the step, or saying why it stays eager."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from denizen._garbage import uncollected
from denizen.ops import fuse_draws, variant
from denizen.perf.watch import out_of_memory
from denizen.run._chunks import CapturedSteps
from denizen.run._engine import RunState, Stepper
from denizen.run._event_log import Recorder
from denizen.run._machine import threads
from denizen.run._premises import alike, premises

# Eager time left from which compiling is worth its start: it takes 12-90 s on a CPU and 3-7 s on a GPU.
AUTO_COMPILE_SECONDS = {"cpu": 180.0, "cuda": 15.0}
NATIVE_SECONDS = 30.0  # the same for native loops on a CPU: they take 2-8 s
SEVERAL_THREADS = 200_000  # entries from which torch's own operations have several threads, and some native loops one
BACKEND = "inductor"
GRAPH_STEPS = 64  # steps in the longest CUDA graph


def try_native(stepper: Stepper, run_state: RunState) -> bool:
    """Write a hard step on the CPU as native loops, where it can be; whether it is.

    It is tried beside eager steps and has to have their bits, in the state that it was recorded in and in the next:
    what the recording took for a constant, such as entries that numpy read, differs there. What the model holds in
    Python may not change with the steps either. A backend other than inductor was put there to be used.
    """
    if stepper.setting.relax is not None or variant(run_state.step.device) != "numba" or BACKEND != "inductor":
        return False
    from denizen.run._native import NativeStep  # imports numba

    held = premises(stepper.model, stepper.setting)
    try:
        with _quiet(), torch.no_grad():
            step = NativeStep(stepper, run_state)
            if threads() > 1 and step.alone >= SEVERAL_THREADS:
                return False
            same = _alike_twice(stepper, run_state, step)
    except Exception as error:  # many types: what is not written as loops, what reads the host
        if out_of_memory(error):
            raise
        return False
    if not same or not alike(held, premises(stepper.model, stepper.setting)):
        return False
    stepper.use(step)
    return True


def _alike_twice(stepper: Stepper, run_state: RunState, step: Callable[..., Any]) -> bool:
    """Whether a step has the bits of eager steps; not where torch adds up real numbers in an order of the layout."""
    for _ in range(2):
        made, expected = (_advanced(stepper, run_state, one) for one in (step, stepper.batched_step))
        if not all(map(_same_bits, made, expected)):
            return False
        count = len(run_state.leaves)
        run_state = RunState(expected[:count], run_state.step + 1, expected[count], None)
    return True


def _advanced(stepper: Stepper, run_state: RunState, step: Callable[..., Any]) -> list[torch.Tensor]:
    """Everything that a step gives."""
    leaves, switches, records, bad = step(
        run_state.leaves, run_state.switches, stepper.keys, stepper.values, run_state.step, {}
    )
    return [*leaves, switches, *records, bad]


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    alike = one.dtype == other.dtype and one.shape == other.shape
    in_order = (each.clone(memory_format=torch.contiguous_format).reshape(-1) for each in (one, other))
    return alike and torch.equal(*(each.view(torch.uint8) for each in in_order))


def try_compile(stepper: Stepper, run_state: RunState, answers: dict[str, Any]) -> str:
    """Compile the step and try it on a copy of the state; returns the path taken, ``"compiled"`` or ``"eager"``.

    A machine without a C++ compiler, or one that torch cannot use, gives one warning and the eager path, whose results
    are the same.
    """
    if not _compiles(run_state.step.device):
        return "eager"
    try:
        with _quiet():
            stepper.compile(BACKEND)
            fuse_draws()
            stepper.advance(run_state, answers)
    except Exception as error:  # torch raises many types here; all mean: this machine cannot compile
        stepper.eager()
        if out_of_memory(error):  # eager steps need more of it, not less
            raise
        _say(error)
        return "eager"
    return "compiled"


def try_capture(stepper: Stepper, run_state: RunState, log: Recorder | None = None) -> CapturedSteps | None:
    """Compile the step on CUDA and make it ready for CUDA graphs; None, with one warning, where that fails."""
    if not _compiles(run_state.step.device):
        return None
    try:
        with _quiet():
            fuse_draws()
            return CapturedSteps(stepper, run_state, GRAPH_STEPS, BACKEND, log)
    except Exception as error:  # as above
        if out_of_memory(error):
            raise
        _say(error)
        return None


def _compiles(device: torch.device) -> bool:
    """Whether to try: on a GPU the compiler needs what the ops need, and those have said it where it is missing.

    The simulated device is there to hear each operation.
    """
    return device.type == "cpu" or (device.type == "cuda" and variant(device) == "triton")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that torch gives about itself while it compiles; as errors they would end the compile."""
    with warnings.catch_warnings(), uncollected():
        warnings.simplefilter("ignore")
        yield


def _say(error: Exception) -> None:
    error = getattr(error, "inner_exception", error)  # what torch wraps when a backend fails
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    warnings.warn(f"the step could not be compiled and runs eagerly, with equal results: {reason}", stacklevel=3)
