"""`simulate`: checks the arguments and starts a `Run`."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import folder, json_values, number, switch, whole
from denizen._device import choose_device
from denizen.errors import InputError, expect_function, nearest, need
from denizen.model import (
    SERIES_FORMS,
    Clock,
    Env,
    Intervention,
    Model,
    Setting,
    bind,
    ids_of,
    interventions_of,
    series_takes,
)
from denizen.rng import MAX_SEED, Relax, weighs
from denizen.run import _event_files
from denizen.run._event_log import EventLog
from denizen.run._machine import check_room
from denizen.run._precision import Precision, approved
from denizen.run._run import Run
from denizen.run._snapshots import Snapshots


def model_to_run(caller: str, model: Any) -> None:
    """A model that takes its steps by itself: an instance, and no environment."""
    if isinstance(model, type) and issubclass(model, Model):
        name = model.__name__
        raise InputError(f"{caller}: model is the class {name}, expected an instance of a dz.Model: {name}(…)")
    if not isinstance(model, Model):
        raise InputError(f"{caller}: model is {type(model).__name__}, expected an instance of a dz.Model")
    if isinstance(model, Env):
        raise InputError(
            f"{caller}: model is {type(model).__name__}, an environment, and its step needs actions; dz.train and "
            "dz.rl.evaluate run it under a policy, dz.rl.Worlds under actions of your own"
        )


MOST_SLOTS = 1024  # buffers of snapshots


def simulate(
    model: Model,
    steps: int,
    *,
    replicates: int = 1,
    worlds: Sequence[int] | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    dt: float = 1.0,
    start: Any = None,
    params: Mapping[str, Any] | None = None,
    record: Mapping[str, Callable[..., Tensor]] | None = None,
    interventions: Sequence[Intervention] = (),
    snapshots: Snapshots | None = None,
    log: EventLog | None = None,
    relax: Relax | None = None,
    precision: Mapping[str, torch.dtype] | Precision | None = None,
    ids: Tensor | Mapping[str, Tensor] | None = None,
    compile: bool | None = None,
    progress: bool = False,
    out: Path | str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """Run a model.

    Args:
        model: what to run.
        steps: number of steps; more can follow with `run.extend`.
        replicates: independent worlds, numbered 0 … replicates - 1; they differ in their random numbers.
        worlds: run exactly these world numbers instead. World i gives the same bits in any batch. A number may stand
            more than once: its rows draw the same random numbers, which is how sets of `params` are compared, for
            example ``worlds=[0, 1, 0, 1], params={"infect_rate": [0.05, 0.05, 0.06, 0.06]}``.
        seed: 0 … 2**32 - 1.
        device: where to run; None takes the environment variable ``DENIZEN_DEVICE`` where it is set, else CUDA where
            torch sees a device that works, else the CPU. `run.plan()` says which, and why.
        dt: length of a step in the model's `time_unit`; hazards are per unit of time. What counts steps, such as
            histories, schedules and ``During(20, 40)``, does not follow; models that would be wrong refuse it
            (`Model.fits`).
        start: the day of the first step: an ISO text such as ``"2020-03-01"``, or a date of Python, NumPy, pandas or
            polars. Interventions with dates need it, and tables and pictures show dates then.
        params: parameter values for each replicate: arrays with a leading axis of replicates, for example
            ``{"infect_rate": [0.02, 0.05, 0.1]}``.
        record: further series by name: functions of (now), a level after each step, of (before, now), a flow from the
            state that the step found to the one that it left, or of (events), a flow of what `rng.record` noted, such
            as ``lambda events: events["campaign/doses"].sum()``.
        interventions: what switches on and off; see `denizen.model`.
        snapshots: which states to keep.
        log: which of the events that `rng.record` notes get a row for each agent to whom they happen, such as
            ``EventLog("caught")``; ``run.events("caught")`` has them. See docs/guides/events.md.
        relax: makes the run differentiable; see `denizen.relax`.
        precision: fields to store in 16 bits, computed with in float32, for example ``{"wealth": torch.bfloat16}``:
            curves are compared first (`denizen.run.check_precision`), which costs 32 worlds, and the run is refused
            where one moves. Pass the result of that function to check once for many runs, and where
            `params` are given.
        ids: int64 `[agents]` identities, for agents laid out in another order; default 0, 1, …. Of several kinds of
            agents by axis: ``{"sheep": …, "wolves": …}``.
        compile: True compiles the step, False never does, None does where the run is long enough to pay. On a CPU it
            becomes native loops where it can, else torch compiles it; `run.stats()["path"]` says which.
        progress: show a progress bar.
        out: folder to write the run to; must not exist yet, or be empty. It is written while the run goes on, also
            where Ctrl-C ends it; `denizen.run.resume` goes on from it.
        settings: kept in the folder's manifest, for programs that build models from settings; JSON values only.

    Returns:
        A `Run`: ``run["cases"]`` is `[replicates, steps]`.

    Raises:
        InputError: for an argument that does not fit.
        ModelError: where the model breaks a rule, or a check on the device failed.
        CapacityError: memory ran out; says what takes it and what to lower.
        StorageError: the folder could not be written; says what is safe on disk. Its attribute `run` is the run, from
            which nothing is lost: ``error.run.save("another folder")``.
    """
    model_to_run("simulate", model)
    numbers = _world_numbers(replicates, worlds)
    steps, seed = whole("simulate", "steps", steps, 0), whole("simulate", "seed", seed, 0, MAX_SEED)
    clock = Clock.of("simulate", model.time_unit, number("simulate", "dt", dt, above=0), start)
    dt = clock.dt
    _options("simulate", relax, compile, progress)
    if weighs(relax):
        _of_notes(relax, out, numbers, _interventions(model, interventions, clock))
    if out is not None:
        folder("simulate", "out", out)
        json_values("simulate", "settings", settings or {})
    elif settings is not None:
        raise InputError("simulate: settings= is kept in the folder of the run; pass out= with it")
    logs = _log("simulate", log, relax, out)
    model.fits(dt)
    target, reason = choose_device(device)
    compared = {"seed": seed, "device": target, "dt": dt, "start": start, "record": record}
    compared["interventions"] = interventions
    if params and isinstance(precision, Mapping):
        raise InputError(
            "simulate: precision={…} compares curves for the model's own parameters, and params= gives others; compare "
            "with those first: precision=dz.run.check_precision(model, {…}, steps, replicates=…, params=…)"
        )
    fields = approved(precision, model, steps, {**compared, "relax": relax, "compile": compile})
    acting = _interventions(model, interventions, clock)
    own_ids, others = _by_kind(ids, target)
    model = bind(model, acting)
    setting = Setting(
        dt=dt,
        relax=relax,
        interventions=acting,
        record=_records(record or {}, model),
        custom_ids=own_ids is not None,
        kind_ids=others,
        precision=fields,
        start=clock.start,
        log=logs,
    )
    identities = _ids(own_ids, model, target)
    check_room(model, len(numbers), target)
    keys = torch.tensor([[seed, world] for world in numbers], dtype=torch.int64, device=target)
    run = Run._begin(
        model,
        setting,
        keys,
        identities,
        _values(params or {}, model, len(numbers), target),
        _snapshots(snapshots, model.num_agents),
        compile,
        out,
        reason,
        None if log is None else log.capacity,
    )
    run._settings = settings
    if fields:
        run._vouched = precision.steps if isinstance(precision, Precision) else steps
    return run.extend(steps, progress=progress)


def _options(caller: str, relax: Any, compile: Any, progress: Any) -> None:
    if relax is not None and (isinstance(relax, type) or not callable(getattr(relax, "draw", None))):
        raise InputError(f"{caller}: relax={relax!r}, expected an object such as dz.relax.MeanField()")
    if relax is not None:
        expect_function(f"{caller}: relax.draw", relax.draw, "prob", "hard")
    if compile is not None:
        switch(caller, "compile", compile, " or None")
    switch(caller, "progress", progress)


def _log(
    caller: str, log: EventLog | None, relax: Relax | None, out: Any = None
) -> tuple[tuple[str, Callable[..., Any] | None], ...]:
    """What is logged, as the run's setting has it."""
    if log is None:
        return ()
    if not isinstance(log, EventLog):
        raise InputError(f"{caller}: log={log!r}, expected dz.run.EventLog('caught')")
    if relax is not None:
        raise InputError(
            f"{caller}: log= with relax={relax!r}: a relaxed run has shares of events; leave one of the two out"
        )
    named = log.named(caller)
    if out is not None:
        need("polars", "tables", _event_files.PURPOSE)
        _event_files.stems(list(named))
    return tuple(named.items())


def _of_notes(relax: Relax, out: Any, numbers: Sequence[int], acting: Sequence[Intervention]) -> None:
    """Refuse what does not go with a relaxation that weighs hard runs."""
    if out is not None:
        raise InputError(
            f"simulate: out= with relax={relax!r}: what it notes of draws is kept nowhere; leave out= away"
        )
    if len(set(numbers)) < len(numbers):
        raise InputError(
            f"simulate: worlds has a number twice with relax={relax!r}, whose worlds have to be independent; give "
            f"different ones"
        )
    for one in acting:
        if type(one).answers is not Intervention.answers:
            raise InputError(f"simulate: intervention {one.name!r} asks the host, which relax={relax!r} cannot repeat")


def _world_numbers(replicates: int, worlds: Sequence[int] | None) -> Sequence[int]:
    replicates = whole("simulate", "replicates", replicates, 1)
    if worlds is None:
        return range(replicates)  # not a list: it may be absurdly long
    if isinstance(worlds, str) or not hasattr(worlds, "__iter__"):
        raise InputError(f"simulate: worlds={worlds!r}, expected a list of world numbers")
    numbers = [whole("simulate", "worlds", world, 0, MAX_SEED) for world in worlds]
    if not numbers:
        raise InputError("simulate: worlds=[], expected world numbers, at least one")
    if replicates not in (1, len(numbers)):
        raise InputError(f"simulate: replicates={replicates} and {len(numbers)} worlds: give one of the two")
    return numbers


def _by_kind(ids: Any, device: torch.device) -> tuple[Any, dict[str, Tensor]]:
    """Identities of the axis `agents`, and those of other kinds of agents by axis."""
    if not isinstance(ids, Mapping):
        return ids, {}
    others = {axis: _distinct(f"ids[{axis!r}]", one, None, device) for axis, one in ids.items() if axis != "agents"}
    return ids.get("agents"), others


def _ids(ids: Tensor | None, model: Model, device: torch.device) -> Tensor:
    usual = ids_of(model, device)
    return usual if ids is None else _distinct("ids", ids, len(usual), device)


def _distinct(name: str, ids: Any, num: int | None, device: torch.device) -> Tensor:
    """Identities on a device: different, none negative and, where `num` is known, as many."""
    wanted = f"{'' if num is None else f'{num} '}different int64"
    if not isinstance(ids, Tensor):
        raise InputError(f"simulate: {name} is {type(ids).__name__}, expected a tensor of {wanted}")
    sized = ids.dim() == 1 if num is None else ids.shape == (num,)
    if ids.dtype != torch.int64 or not sized or bool((ids < 0).any()) or ids.unique().numel() != ids.numel():
        raise InputError(f"simulate: {name} is {ids.dtype} {tuple(ids.shape)}, expected {wanted}, none negative")
    return ids.to(device)


def _values(params: Mapping[str, Any], model: Model, worlds: int, device: torch.device) -> dict[str, Tensor]:
    values = {}
    if not isinstance(params, Mapping):
        raise InputError(f"simulate: params={params!r}, expected values by name, such as {{'rate': [0.1, 0.2]}}")
    for name, given in params.items():
        if name not in model.params:
            raise InputError(f"simulate: params has {name!r}; {nearest(name, model.params)}")
        given = model.params[name].number(given, f"simulate: params[{name!r}]")
        try:
            value = torch.as_tensor(given, dtype=torch.float32, device=device)
        except (TypeError, ValueError, RuntimeError) as error:
            wanted = "expected numbers, one for each replicate"
            raise InputError(f"simulate: params[{name!r}]={given!r}, {wanted}") from error
        expected = (worlds, *getattr(model, name).shape)
        if tuple(value.shape) != expected:
            raise InputError(f"simulate: params[{name!r}] has shape {tuple(value.shape)}, expected {expected}")
        model.params[name].check(value, f"simulate: params[{name!r}]")
        values[name] = value
    return values


def _records(
    record: Mapping[str, Callable[..., Tensor]], model: Model
) -> tuple[tuple[str, tuple[str, ...], Callable[..., Tensor]], ...]:
    out = []
    if not isinstance(record, Mapping):
        raise InputError(f"simulate: record={record!r}, expected functions by name, such as {{'ill': lambda now: …}}")
    for name, function in record.items():
        if not isinstance(name, str) or not callable(function):
            raise InputError(f"simulate: record[{name!r}]={function!r}, expected a name and a function")
        if name in model.all_series:
            raise InputError(f"simulate: record has {name!r}, which the model records itself; choose another name")
        given = series_takes(function)
        if given is None:
            raise InputError(f"simulate: record[{name!r}] is {function!r}, expected a function of {SERIES_FORMS}")
        out.append((name, given, function))
    return tuple(out)


def _interventions(model: Model, more: Sequence[Intervention], clock: Clock) -> tuple[Intervention, ...]:
    if not isinstance(more, list | tuple):
        raise InputError(f"simulate: interventions={more!r}, expected a list of interventions")
    return tuple(intervention.timed(clock) for intervention in interventions_of("simulate", model, more))


def _snapshots(snapshots: Snapshots | None, agents: int) -> Snapshots | None:
    if snapshots is not None:
        if not isinstance(snapshots, Snapshots):
            raise InputError(f"simulate: snapshots={snapshots!r}, expected Snapshots(every=…)")
        every = whole("simulate", "snapshots.every", snapshots.every, 1)
        snapshots = dataclasses.replace(snapshots, every=every)
        if snapshots.slots is not None:
            whole("simulate", "snapshots.slots", snapshots.slots, 1, MOST_SLOTS)
        if snapshots.places is not None:
            given = snapshots.places if isinstance(snapshots.places, tuple | list) else (snapshots.places,)
            if [getattr(part, "shape", None) for part in given] != [(agents,)] * 2:
                told = ", ".join(str(list(p.shape)) if isinstance(p, Tensor) else repr(p)[:40] for p in given)
                raise InputError(f"simulate: snapshots.places is {told}; expected x and y, [{agents}] each")
            x, y = (torch.as_tensor(part) for part in given)
            snapshots = dataclasses.replace(snapshots, places=(x, y))
    return snapshots
