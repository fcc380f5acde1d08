"""What a run takes of its machine: memory, and words where there is too little; threads; and freed memory given back.

Tensors on a CPU are aligned blocks, and glibc (2.36) does not always put one where another of the same size was: its
heap grows with the steps although nothing is held, to many times what lives in tensors (docs/log.md).
"""

import contextlib
import ctypes
import functools
import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from denizen import _tree
from denizen.errors import CapacityError, InputError
from denizen.model import extent
from denizen.perf.watch import free, free_on_host, out_of_memory

if TYPE_CHECKING:
    from denizen.run._run import Run

BYTES = 12  # for each agent and world: the old and the new state at a byte a field, and two float32 at a time
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50, "EiB": 1 << 60}
ASKED = re.compile(r"allocate ([\d.]+) (bytes|[KMGTPE]iB)")  # in the words of torch and of NumPy


def check_room(
    model: Any,
    worlds: int,
    device: torch.device,
    caller: str = "simulate",
    rows: str = "replicates",
    others: str = " and run the others later with worlds=",
) -> None:
    """Raise `InputError` where even a small model could not run; says how much is needed and what to lower.

    Args:
        model: what would run.
        worlds: rows at once.
        device: where.
        caller: for the message.
        rows: what the caller calls them.
        others: what becomes of those that do not fit.
    """
    (agents, kind), room = extent(model), free(device)
    moved = sum(leaf.nbytes for leaf in _tree.tensors(model) if leaf.device.type != device.type)
    needed = BYTES * agents * worlds + moved
    if room is not None and needed > room:
        graphs = f" and {moved / 2**30:,.1f} GiB for the model's own data" if moved > needed // 10 else ""
        raise InputError(
            f"{caller}: {agents:,} {kind} × {worlds:,} {rows} need at least {needed / 2**30:,.1f} GiB{graphs}, and "
            f"{room / 2**30:,.1f} GiB are free on {device}; lower {rows} "
            f"(about {max(1, (room - moved) // max(BYTES * agents, 1)):,} fit){others}"
        )


@contextlib.contextmanager
def explained_room(run: "Run", doing: str) -> Iterator[None]:
    """Turn an error of memory into a `CapacityError` that says what takes it and what to lower.

    What the failed work held is let go, so that the run can go on with what it has.
    """
    try:
        yield
    except CapacityError:
        raise
    except Exception as error:
        if not out_of_memory(error):
            raise
        message = _message(run, doing, error)  # before anything is freed
        traceback.clear_frames(error.__traceback__)
        if run.device.type == "cuda":
            torch.cuda.empty_cache()
        raise CapacityError(message) from error


def _message(run: "Run", doing: str, error: BaseException) -> str:
    from denizen.run._plan import size

    memory, device, worlds = _memory(run), run.device, len(run.worlds)
    asked, room = _asked(error), free(device)
    held = torch.cuda.memory_allocated(device) if device.type == "cuda" else sum(memory.values())
    more = f": {size(asked)} more were asked for" if asked else ""
    left = f", {size(room)} are free" if room is not None else ""
    takes = ", ".join(f"{name} {size(count)}" for name, count in memory.items() if count)
    return (
        f"{run.name}: out of memory on {device} {doing}{more}{left}. It needs about {size(held + asked)}: {takes}. "
        f"{_advice(run, memory, worlds, _fitting(worlds, memory['model'], held, asked, room))}"
    )


def _memory(run: "Run") -> dict[str, int]:
    from denizen.run import _plan

    if _started(run):
        return _plan._memory(run)
    (agents, _), worlds = extent(run.model), len(run.worlds)
    return {"model": sum(leaf.nbytes for leaf in _tree.tensors(run.model)), "state (guessed)": BYTES * agents * worlds}


def _fitting(worlds: int, fixed: int, held: int, asked: int, free: int | None) -> int:
    """Replicates that would fit: what one takes, by what was held and asked for, into what there is; a tenth spare.

    Half of them where that cannot be told: also where there was room for what was asked for, but not in one piece, or
    where what failed has let go of its own already.
    """
    if not asked or free is None or asked <= free:
        return worlds // 2
    each = max(held + asked - fixed, 1) / worlds
    return max(0, min(worlds - 1, int(0.9 * (free + held - fixed) / each)))


def _advice(run: "Run", memory: dict[str, int], worlds: int, fit: int) -> str:
    lower = []
    if worlds > 1:
        number = f"replicates={fit} may fit" if fit else "fewer"
        lower.append(f"lower replicates ({number}) and run the others later with worlds=")
    if any(name.startswith("snapshots") for name in memory):
        kept = ", or write them to a folder (out=)" if run.folder is None and run.device.type == "cpu" else ""
        lower.append(f"keep fewer or narrower snapshots (every=, fields=, slots=){kept}")
    if run._relaxed:
        lower.append("run fewer steps, since a relaxed run keeps what the backward pass needs of each")
    lower.append("store fields in a narrower precision")
    if worlds == 1:
        lower.append("run fewer agents, or on a device with more memory")
    safe = f" The {run.steps} steps before it are kept, and the run can go on" if _started(run) else ""
    return f"What helps: {'; '.join(lower)}.{safe}"


def _started(run: "Run") -> bool:
    return hasattr(run, "_snapshots")  # the last that is set up


def _asked(error: BaseException | None) -> int:
    while error is not None:
        found = ASKED.search(str(error))
        if found:
            return int(float(found[1]) * UNITS[found[2]])
        error = error.__cause__ or error.__context__
    return 0


# --- the host while steps run -----------------------------------------------------------------------------------------

WORTH_THREADS = 500_000  # agents times worlds from which a second thread was measured to pay for itself


_wanted: ContextVar[int | None] = ContextVar("threads", default=None)


def busy_threads(elements: int) -> int:
    """As many as so many agents times worlds keep busy."""
    return max(1, elements // (WORTH_THREADS // 2))


@contextlib.contextmanager
def calm_threads(elements: int) -> Iterator[None]:
    """As many threads as a population keeps busy, one for a small one; restored afterwards.

    OpenMP's workers spin between small operations, which on a busy machine costs many times what the step itself takes
    (docs/log.md).
    """
    wanted = torch.get_num_threads()
    busy = busy_threads(elements)
    if wanted <= busy:
        yield
        return
    torch.set_num_threads(busy)
    try:
        yield
    finally:
        torch.set_num_threads(wanted)


@contextlib.contextmanager
def noted_threads() -> Iterator[None]:
    """Within it `threads` are as many as torch has now, whatever torch itself is left."""
    given = _wanted.set(threads())
    try:
        yield
    finally:
        _wanted.reset(given)


def threads() -> int:
    """Of native loops, which wait for each other without spinning for long: as many as were set for torch."""
    return _wanted.get() or torch.get_num_threads()


SPARE = 1 << 28  # bytes that the process may grow by in any case,
EACH = 64  # more for each agent of a world, since a step comes and goes with as much,
SHARE = 4  # or the free memory by this: to take again what was given back costs time, as much as a few steps

_kept: int | None = None  # of memory when it was given back last, by whichever run


def give_back(device: torch.device, agents: int) -> None:
    """Give free memory back where the process has grown by so much that it matters; between two chunks of steps.

    Args:
        device: where steps run; on another one than the CPU nothing piles up.
        agents: of all worlds together.
    """
    global _kept
    trim, held = (_trim(), _held()) if device.type == "cpu" else (None, None)
    if trim is None or held is None:
        return
    if _kept is None or held < _kept:
        _kept = held
    grown = held - _kept
    if grown > SPARE + EACH * agents and grown > (free_on_host() or 0) // SHARE:
        trim(0)
        _kept = _held()


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """What glibc calls `malloc_trim`; None with another C library."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def _held() -> int | None:
    """Bytes of memory that the process takes."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError, IndexError):
        return None
