"""`sweep`: checks the arguments, launches every set in every world, and hands the results over."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen._arguments import folder as folder_path
from denizen._arguments import json_values, number, switch, whole
from denizen._fingerprint import describe
from denizen._launches import at_once
from denizen._printing import progress as progress_bar
from denizen._run_folder import decode, encode
from denizen.errors import InputError, nearest
from denizen.model import Clock, Intervention, Model, check_not_set, extent, interventions_of
from denizen.perf.watch import free
from denizen.rng import MAX_SEED
from denizen.run import choose_device
from denizen.sweeps import _knobs
from denizen.sweeps._designs import as_design
from denizen.sweeps._executors import ROWS, Ranks, chosen
from denizen.sweeps._folder import Again, SweepFolder
from denizen.sweeps._results import Held, Sweep
from denizen.sweeps._subject import Launch, Points, Subject, check_series

# On the CPU more agents at once are slower (16 million take twice the time of one million, agent by agent), and what a
# kill interrupts is lost.
MOST_AGENTS = {"cpu": 1 << 20, "cuda": 1 << 31}
AGENT, NUMBER = 64, 8  # bytes that a step takes for an agent, and those of a number of a series
SHARE = 0.5  # of the free memory that a launch, or all results, may take
HOUR = 3600.0  # seconds: a launch may take minutes
MOST_CALLED = 1 << 16  # rows of a call of a function
MOST_ROWS = 200_000_000  # of the table


def sweep(
    model: Model | Any,
    design: Any,
    *,
    steps: int,
    replicates: int = 16,
    seed: int = 0,
    dt: float = 1.0,
    start: Any = None,
    interventions: Sequence[Intervention] = (),
    series: Sequence[str] | None = None,
    device: torch.device | str | None = None,
    compile: bool | None = None,
    executor: Any = None,
    out: Path | str | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Sweep:
    """Run a model under many sets of parameters, each in the same worlds, with as many in a launch as memory takes.

    Set k in world i has the bits of ``simulate(model.replace(…), steps, worlds=[i], seed=seed)`` alone. All sets draw
    the same random numbers, so that differences between them are of the parameters.

    Args:
        model: what to run; its values are those of whatever is not swept. Or a `Builder`, or a function of (theta
            `[B, P]`, numbers of B worlds) that gives series `[B, steps]`, by name or one that is called ``"output"``.
        design: the sets: lists of values by name, which make a grid; a list with values by name for each set; or a
            design such as ``dz.sweeps.Latin(64, {"infect_rate": (0.01, 0.1)})``. A name is a parameter (``"R"``), an
            entry of one (``"R[2]"``), a plain field of the model, or a number of an intervention
            (``"lockdown.start"``). A number for a parameter of several entries stands for each of them.
        steps: of each run.
        replicates: worlds of each set, numbered 0 … replicates - 1.
        seed: of the worlds.
        dt: as for `dz.simulate`.
        start: as for `dz.simulate`.
        interventions: as for `dz.simulate`.
        series: those that are kept; None: all.
        device: as for `dz.simulate`.
        compile: as for `dz.simulate`.
        executor: who takes the launches, such as `dz.sweeps.Ray`; None: this process, or all that torchrun began.
        out: folder to write the sweep to while it goes on. The same call goes on where it was stopped, with the same
            bits, and of a sweep that is done it gives the results at once.
        settings: kept in the folder's manifest, for programs that build models from settings; JSON values only.
        progress: show how far it is, and how long the rest will take.

    Returns:
        A `Sweep`: ``sweep["cases"]`` is `[sets, replicates, steps]`.

    Raises:
        InputError: for an argument that does not fit, such as an unknown name, a value out of bounds, an empty design,
            or more than memory takes. Or the sweep in the folder was begun with other ones; says what differs.
        ModelError: a run failed; says in which set and world.
        StorageError: the folder could not be written, or holds something else; says what is safe.
    """
    steps, replicates = whole("sweep", "steps", steps, 1), whole("sweep", "replicates", replicates, 1)
    seed, dt = whole("sweep", "seed", seed, 0, MAX_SEED), number("sweep", "dt", dt, above=0)
    switch("sweep", "progress", progress)
    if compile is not None:
        switch("sweep", "compile", compile, " or None")
    path = None if out is None else folder_path("sweep", "out", out)
    if path is not None:
        json_values("sweep", "settings", settings or {})
    elif settings is not None:
        raise InputError("sweep: settings= is kept in the folder of the sweep; pass out= with it")
    design = as_design("sweep", design)
    subject = Subject.of(model, interventions)
    points = _points(subject, design)
    names = _series(subject, series)
    target = choose_device(device, "sweep")[0] if isinstance(subject.model, Model) else torch.device("cpu")
    _check_sets(subject, points, dt)
    _check_room(subject, points, replicates, steps, names)
    begins = Clock.of("sweep", getattr(subject.model, "time_unit", "step"), dt, start).start
    options = {"seed": seed, "dt": dt, "start": begins, "device": target, "compile": compile}
    launch = Launch(subject, points, replicates, steps, names, options)
    facts = {
        "model": subject.facts(),
        "design": _told(design),
        "replicates": replicates,
        "steps": steps,
        "seed": seed,
        "dt": dt,
        "start": begins,
        "interventions": [describe(one) for one in subject.given],
        "series": None if names is None else list(names),
        "device": target.type,
        "time_unit": getattr(subject.model, "time_unit", "step"),
        "agents": getattr(subject.model, "num_agents", None),
        "settings": dict(settings) if settings is not None else None,
    }
    return _swept(launch, facts, chosen(executor), path, progress)


def _swept(launch: Launch, facts: Mapping[str, Any], executor: Any, path: Path | None, progress: bool) -> Sweep:
    points, held = launch.points, Held(len(launch.points.rows) * launch.replicates)
    writes = not (isinstance(executor, Ranks) and executor.rank)
    folder = SweepFolder.enter(path, points, facts) if path is not None and writes else None
    with folder.working() if folder else contextlib.nullcontext():
        for rows, series in folder.parts() if folder else ():
            held.put(rows, series)
        if isinstance(executor, Ranks):
            _share(held, executor)
        size = _size(launch, -(-int((~held.done).sum()) // max(getattr(executor, "workers", 1), 1)))
        jobs = list(_jobs(launch, ~held.done, executor.least(size) if isinstance(executor, Ranks) else size))
        with _bar(held, launch.steps, progress and writes and len(jobs) > 0) as tell:
            for rows, series in executor.map(launch, jobs):
                held.put(rows, series)
                if folder:
                    folder.add(rows, series, _recorded(launch, series))
                tell(len(rows))
        if not held.done.all():
            raise InputError(
                f"sweep: executor={executor!r} gave no result of {int((~held.done).sum()):,} of {len(held.done):,} "
                f"runs; its method map must give what the function gives of every job"
            )
        found = Sweep.of(points, facts, held, _recorded(launch, held.series), path)
        if folder:
            folder.flush()
            found.write_tables(folder)
    return found


def _points(subject: Subject, design: Any) -> Points:
    names, rows = design.sets(subject.find)
    knobs = [subject.find(name) for name in names]
    for name in names:
        entry = _knobs.ENTRY.fullmatch(name)
        if entry and entry[1] in names:
            raise InputError(f"sweep: {name!r} is an entry of {entry[1]!r}, which is swept, too; sweep one of the two")
    if isinstance(subject.model, Model):
        heads = [name.partition("[")[0] for name in names]
        check_not_set("sweep", "is to be swept", heads, interventions_of("sweep", subject.model, subject.given))
    return Points(tuple(knobs), tuple(map(tuple, rows)))


def _told(design: Any) -> dict[str, Any]:
    """A design as a manifest keeps it: the points themselves are kept beside it."""
    if isinstance(design, Again):
        return design.told
    kept = {n: v for n, v in vars(design).items() if isinstance(v, bool | int | float | str)}
    return {"kind": type(design).__name__, **kept}


def _series(subject: Subject, given: Any) -> tuple[str, ...] | None:
    if given is None:
        check_series(subject.kinds or ())
        return None
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise InputError(f"sweep: series={given!r}, expected names of series, at least one, or None for all")
    for name in given:
        if subject.kinds is not None and name not in subject.kinds:
            raise InputError(f"sweep: series has {name!r}; {nearest(name, subject.kinds)}")
    check_series(given)
    return tuple(dict.fromkeys(given))


def _check_sets(subject: Subject, points: Points, dt: float) -> None:
    """Raise `InputError` where a set is none that the model can have."""
    if not isinstance(subject.model, Model):
        return
    for group in points.groups():
        try:
            if subject.builder is not None and points.fixed(group[0]):
                continue  # it is built when it runs: a large model is not built twice
            model, acting = subject.at(dict(points.fixed(group[0])))
            for one in acting:
                one.check(model)
        except InputError as error:
            raise InputError(f"sweep: set {group[0]} ({points.told(group[0])}): {error}") from error
        if type(model).fits is Model.fits:
            continue
        values = _knobs.with_rows(model, points.numbers(group))
        for place, k in enumerate(group):
            try:
                model.with_values({name: rows[place] for name, rows in values.items()}).fits(dt)
            except InputError as error:
                raise InputError(f"sweep: set {k} ({points.told(k)}): {error}") from error


def _check_room(subject: Subject, points: Points, replicates: int, steps: int, names: Sequence[str] | None) -> None:
    """Raise `InputError` where results would not fit into memory, or the table has too many rows."""
    count = len(names if names is not None else subject.kinds or [""])
    sets, rows = len(points.rows), len(points.rows) * replicates * steps
    needed, room = rows * count * NUMBER, free(torch.device("cpu"))
    product = f"{sets:,} sets × {replicates:,} replicates × {steps:,} steps"
    if rows > MOST_ROWS:
        raise InputError(
            f"sweep: {product} are {rows:,} rows, expected at most {MOST_ROWS:,}; take fewer sets, replicates or "
            f"steps, or sweep in several folders"
        )
    if room is not None and needed > SHARE * room:
        raise InputError(
            f"sweep: {product} of {count} series take {needed / 2**30:,.1f} GiB, and {room / 2**30:,.1f} GiB of memory "
            f"are free; take fewer sets, replicates or steps, or keep fewer series (series=)"
        )


def _jobs(launch: Launch, missing: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Rows of each launch: those that may go together, in order, at most so many."""
    for group in launch.points.groups():
        worlds = np.arange(launch.replicates)
        rows = (np.asarray(group, dtype=np.int64)[:, None] * launch.replicates + worlds).reshape(-1)
        rows = rows[missing[rows]]
        for first in range(0, len(rows), size):
            yield rows[first : first + size]


def _size(launch: Launch, most: int) -> int:
    """Rows of a launch: as many as memory takes."""
    model = launch.subject.model
    if not isinstance(model, Model):
        return max(1, min(most, MOST_CALLED))
    device = launch.options["device"]
    fit, room = at_once(model, MOST_AGENTS.get(device.type, MOST_AGENTS["cpu"])), free(device)
    if room is not None:
        series = len(launch.names if launch.names is not None else model.all_series)
        row = AGENT * extent(model)[0] + NUMBER * launch.steps * series
        fit = min(fit, int(SHARE * room) // max(row, 1))
    return max(1, min(most, fit))


def _recorded(launch: Launch, series: Mapping[str, Tensor]) -> dict[str, Any]:
    """What the series are, for who reads them without the model; in their order, which no file keeps."""
    kinds = launch.subject.kinds or dict.fromkeys(sorted(series), "flow")
    names = kinds if launch.names is None else launch.names
    return {n: {"kind": kinds[n], "about": launch.subject.about(n)} for n in names if n in series}


def _share(held: Held, executor: Ranks) -> None:
    """What the first process read of a folder, in all of them."""
    known = {ROWS: torch.as_tensor(np.flatnonzero(held.done)), **{n: s[held.done] for n, s in held.series.items()}}
    data = executor.shared(encode(known))
    if executor.rank:
        found = decode(data, "what the first process read")
        held.put(found.pop(ROWS).numpy(), found)


@contextlib.contextmanager
def _bar(held: Held, steps: int, show: bool) -> Generator[Callable[[int], None]]:
    if not show:
        yield lambda count: None
        return
    with progress_bar(memory=HOUR) as bar:
        task = bar.add_task("sweep", total=len(held.done) * steps, completed=int(held.done.sum()) * steps, rate="")
        bar.advance(task, 0)  # from here on, so that the first launch tells how long the others will take

        def tell(count: int) -> None:
            bar.advance(task, count * steps)
            speed = bar.tasks[task].speed
            bar.update(task, rate=f"{speed / steps:,.1f} runs/s" if speed else "")

        yield tell
