"""A step marked in a script: examined while the script runs under `denizen doctor`, nothing otherwise."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from contextlib import ContextDecorator, ExitStack
from typing import Any

import torch

from denizen.errors import ConfigError
from denizen.perf._doctor.doctor import HOOKS, Examination
from denizen.perf._doctor.passes import LEAST, Pass, throughout
from denizen.perf._doctor.report import DoctorReport
from denizen.perf.simulated._alias import cuda_alias
from denizen.perf.simulated._device import gpu_or_simulated
from denizen.perf.watch._operations import SIMULATED

_session: "Session | None" = None


class Region(ContextDecorator):
    """See `region`."""

    def __enter__(self) -> "Region":
        if _session is not None:
            _session.enter()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if _session is not None:
            _session.leave(failed=kind is not None)


def region() -> Region:
    """Mark one step of a loop for ``denizen doctor -- python train.py``.

    ```python
    for batch in loader:
        with dz.perf.region():
            train_step(batch)
    ```

    A step then lasts from the end of the region to its next end, so that drawing the batch belongs to it. Also a
    decorator of the function that does a step. Without the doctor it does nothing.
    """
    return Region()


class Enough(BaseException):
    """The doctor has seen enough of a script; not an error, and not to be caught as one."""


class Session:
    """The passes, driven by the region of a script."""

    def __init__(self, device: torch.device, steps: int, fixed: bool) -> None:
        self.examined = Examination.of(device, steps)
        self._steps, self._fixed = steps, fixed
        self.entered = 0
        self._passes = iter(self.examined.passes)
        self._stage: Pass | None = None
        self._open = ExitStack()
        self._thread: int | None = None
        self._depth = 0

    def enter(self) -> None:
        """The region begins."""
        if self._thread is None:
            self._thread = threading.get_ident()
        if self._thread != threading.get_ident():
            return
        self._depth += 1
        if self._stage is None and self._depth == 1:
            self._next()

    def leave(self, failed: bool) -> None:
        """The region ends, and with it a step.

        Raises:
            Enough: it was the last one needed.
        """
        if self._thread != threading.get_ident():
            return
        self._depth -= 1
        if self._depth or failed or self._stage is None:
            return
        self.entered += 1
        self.examined.end(self._stage)
        if self._stage.enough:
            self._open.close()
            self._next()
        else:
            self.examined.begin(self._stage)

    def _next(self) -> None:
        if self._stage is self.examined.settle and not self._fixed:
            self._settled()
        self._stage = next(self._passes, None)
        if self._stage is None:
            raise Enough
        self._open.enter_context(self._stage.open())
        self.examined.begin(self._stage)

    def _settled(self) -> None:
        """A script that asks for no GPU is examined on the CPU, where it works."""
        before, heard = self.examined, self.examined.compiler
        if before.device.type == SIMULATED and heard is not None and not heard.ops:
            self.examined = Examination.of(torch.device("cpu"), self._steps)
            self.examined.compiler, self.examined.taken = heard, before.taken
            self._passes = iter(self.examined.passes[1:])

    def close(self) -> None:
        """The script ended."""
        self._stage = None
        self._open.close()


def examine_script(
    run: Callable[[], object], steps: int = 12, device: str | None = None, name: str = "script.py"
) -> DoctorReport:
    """Run a script and look at the steps that it marks; it is stopped when enough of them were seen.

    Args:
        run: runs the script.
        steps: to count.
        device: that it works on; None: the CUDA device, else the simulated one, else, where it asks for none, the CPU.
        name: of its file, for messages.

    Raises:
        ConfigError: it marks no step, or too few.
    """
    try:
        return _examined(run, steps, device, name, hooked=True)
    except RuntimeError as error:
        if HOOKS not in str(error):
            raise
        return _examined(run, steps, device, name, hooked=False)


def _examined(run: Callable[[], object], steps: int, device: str | None, name: str, hooked: bool) -> DoctorReport:
    global _session
    began, where = time.perf_counter(), gpu_or_simulated(device)
    session = Session(where, steps, fixed=device is not None)
    session.examined.watched.hooked = hooked
    aliased = cuda_alias() if where.type == SIMULATED else contextlib.nullcontext()
    with throughout(where) as compiler, aliased:
        session.examined.compiler = compiler
        _session = session
        try:
            with contextlib.suppress(Enough):
                run()
        except SystemExit as stop:
            if stop.code not in (None, 0):
                raise ConfigError(
                    f"the script ended with exit code {stop.code} after {session.entered} steps"
                ) from stop
        finally:
            _session = None
            session.close()
    if not session.entered:
        raise ConfigError(
            "the script marks no step: put `with dz.perf.region():` (import denizen as dz) around what one round of "
            f"its loop does, or name a function that builds the step: denizen doctor {name}:make"
        )
    if session.examined.watched.done < LEAST:
        raise ConfigError(
            f"the script did {session.entered} steps; {sum(p.most for p in session.examined.passes)} are needed (fewer "
            "with --steps)"
        )
    return dataclasses.replace(session.examined.report(), seconds=time.perf_counter() - began)
