"""`resume`: go on with the run of a folder, bit for bit as if it had never stopped."""

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from denizen._arguments import folder, whole
from denizen._atomic import refuse_locked
from denizen._device import VARIABLE, choose_device
from denizen._fingerprint import differences, fingerprint
from denizen._run_folder import content, decode, versions
from denizen.errors import DataError, InputError, ModelError
from denizen.model import Clock, Intervention, Model, Setting, bind
from denizen.rng import Relax
from denizen.run import _event_files, _manifest, _saved, _simulate
from denizen.run._engine import RunState
from denizen.run._event_log import EventLog
from denizen.run._manifest import Manifest, Setup
from denizen.run._narrow import Form
from denizen.run._run import Run
from denizen.run._simulate import model_to_run
from denizen.run._simulation_folder import SimulationFolder, leaf_names, narrow_fields, setup_of
from denizen.run._snapshots import Snapshots
from denizen.run._zarr import StoredSnapshots


def resume(
    path: Path | str,
    model: Model,
    steps: int | None = None,
    *,
    device: torch.device | str | None = None,
    record: Mapping[str, Callable[..., Tensor]] | None = None,
    interventions: Sequence[Intervention] = (),
    log: EventLog | None = None,
    relax: Relax | None = None,
    compile: bool | None = None,
    progress: bool = False,
) -> Run:
    """Go on with the run of a folder, from the last state that was saved.

    Series, state and snapshots equal those of a run that was never stopped, bit for bit on the same kind of device, and
    for models whose draws go through `rng.event`, on another kind, too.
    Seed, replicates, dt, start, snapshots and parameters per replicate are read from the folder; what is code is given
    again and compared with what the run was begun with.

    Args:
        path: the folder.
        model: the model that the run was begun with.
        steps: further steps; None runs those that are missing from what was asked for, 0 only loads.
        device: where to run, also another kind of device than before; default: what ``DENIZEN_DEVICE`` says, else the
            kind of device of the run so far.
        record: as it was given to `simulate`.
        interventions: as they were given to `simulate`.
        log: as it was given to `simulate`; its capacity may differ.
        relax: as it was given to `simulate`.
        compile: as in `simulate`.
        progress: as in `simulate`.

    Returns:
        The run, with its series from the first step on. It keeps writing to the folder.

    Raises:
        DataError: not a run folder, or a damaged one.
        InputError: the model, or one of the other arguments, is not the one of the run; says what differs. Or the model
            does not go with steps of the run's length.
        StorageError: another run is writing to the folder.
    """
    path = folder("resume", "path", path)
    if steps is not None:
        steps = whole("resume", "steps", steps, 0)
    manifest, data = _manifest.read_manifest_and_bytes(path)
    model_to_run("resume", model)
    refuse_locked(path)
    setup = manifest.setup
    acting = _simulate._interventions(model, interventions, Clock(setup.dt, model.time_unit, setup.start))
    _same_model(path, manifest, bind(model, acting))
    model.fits(setup.dt)
    model = bind(model, acting)
    _simulate._options("resume", relax, compile, progress)
    target, reason = _choose(device, setup.device)
    inputs = decode(content(path, manifest.inputs), str(path / manifest.inputs.file))
    setting = Setting(
        dt=setup.dt,
        relax=relax,
        interventions=acting,
        record=_simulate._records(record or {}, model),
        custom_ids="ids" in inputs,
        kind_ids={n.removeprefix("ids."): ids.to(target) for n, ids in inputs.items() if n.startswith("ids.")},
        precision=narrow_fields(content(path, manifest.checkpoint)),
        start=setup.start,
        log=_simulate._log("resume", log, relax, path),
    )
    keys = torch.tensor([[setup.seed, world] for world in setup.worlds], dtype=torch.int64, device=target)
    params = {name.removeprefix("param."): value for name, value in inputs.items() if name.startswith("param.")}
    taken = manifest.snapshots
    fields = {name: form.wanted for name, form in zip(taken.fields, taken.forms, strict=True)} if taken else {}
    run = Run._begin(
        model,
        setting,
        keys,
        _simulate._ids(inputs.get("ids"), model, target),
        _simulate._values(params, model, len(keys), target),
        Snapshots(taken.every, fields, taken.slots) if taken else None,
        compile,
        None,
        reason,
        None if log is None else log.capacity,
    )
    run._vouched = setup.vouched
    _same_setup(path, setup, setup_of(run))
    _warn_of_versions(path, manifest)
    moved = dataclasses.replace(manifest, setup=dataclasses.replace(setup, device=run.device.type))
    _restore(run, SimulationFolder(path, moved, data))
    return run.extend(_missing(manifest, steps), progress=progress) if steps != 0 else run


def _choose(device: torch.device | str | None, before: str) -> tuple[torch.device, str]:
    if device is not None or os.environ.get(VARIABLE, "").strip():
        return choose_device(device, "resume")
    if before == "cuda" and not torch.cuda.is_available():
        raise InputError(
            "resume: the run was made on CUDA, and torch sees no CUDA device here; device='cpu' goes on on the CPU, "
            "with the same bits for models whose draws go through rng.event"
        )
    return choose_device(before, "resume")[0], "as before"


def _missing(manifest: Manifest, steps: int | None) -> int:
    return max(manifest.wanted - manifest.steps, 0) if steps is None else steps


def _restore(run: Run, folder: SimulationFolder) -> None:
    path, manifest = folder.path, folder.manifest
    where = str(path / manifest.checkpoint.file)
    tensors = decode(content(path, manifest.checkpoint), where)
    keeping = {f"kept.{one.name}.": one for one in run._stepper.setting.interventions}
    kept: dict[str, dict[str, Tensor]] = {}
    for name in list(tensors):
        begins = [begin for begin in keeping if name.startswith(begin)]
        if begins:  # of "ask" and "ask.again" the longer one has it
            begin = max(begins, key=len)
            kept.setdefault(begin, {})[name.removeprefix(begin)] = tensors.pop(name)
    for begin, found in kept.items():
        keeping[begin].restore(found)
    run_state = _run_state(run, tensors, where)
    if int(run_state.step) != manifest.steps:
        raise DataError(f"{where} is of step {int(run_state.step)}, the manifest says {manifest.steps}")
    names = [entry.name for entry in manifest.series]
    if names and names != run.series_names:
        raise DataError(f"{path}: the manifest lists the series {names}, the model records {run.series_names}")
    series = {name: values.to(run.device) for name, values in _saved.series(path, manifest).items()}
    if manifest.snapshots is not None:
        stored = StoredSnapshots(path, manifest.snapshots, len(run.worlds))
        _same_forms(path, stored.forms, run._snapshots.forms if run._snapshots else {})
        stored.verify()
    try:
        run._restore(run_state, series, folder)
        run._events |= {event.name: [_event_files.read(path, event)] for event in manifest.events or ()}
    except ModelError as error:
        raise DataError(f"{where} holds a state that the model cannot have: {error}") from error


def _same_forms(path: Path, there: Mapping[str, Form], here: Mapping[str, Form]) -> None:
    """Refuse to go on in another form than a folder's: early versions packed stages by their declared levels."""
    for name, form in there.items():
        if form != here.get(name):
            raise DataError(
                f"{path}: its snapshots of {name!r} are stored as {form.stored}, which cannot hold the values of this "
                f"field; an early version of denizen wrote them, and those levels are lost. Series and state are "
                f"whole: read them with denizen.run.load, and run again for snapshots"
            )


def _run_state(run: Run, tensors: dict[str, Tensor], where: str) -> RunState:
    """The state of a checkpoint, where it has the form of the run's own."""
    fresh = run._run_state
    wanted = dict(zip(leaf_names(run), fresh.leaves, strict=True)) | {
        "switches": fresh.switches,
        "step": fresh.step,
    }
    if set(tensors) != set(wanted):
        raise DataError(f"{where} holds {sorted(tensors)}, expected {sorted(wanted)}")
    for name, tensor in tensors.items():
        if (tensor.shape, tensor.dtype) != (wanted[name].shape, wanted[name].dtype):
            raise DataError(
                f"{where}: {name} is {tensor.dtype} {list(tensor.shape)}, expected {wanted[name].dtype} "
                f"{list(wanted[name].shape)}"
            )
    moved = {name: tensor.to(run.device) for name, tensor in tensors.items()}
    step, switches = moved.pop("step"), moved.pop("switches")
    return RunState([moved[name] for name in leaf_names(run)], step, switches, None)


def _same_model(path: Path, manifest: Manifest, model: Model) -> None:
    found = differences(manifest.model, fingerprint(model))
    if found:
        more = f" (and {len(found) - 4} more)" if len(found) > 4 else ""
        raise InputError(
            f"resume: the model is not the one that {path} was begun with: {'; '.join(found[:4])}{more}; what it has "
            f"is read by dz.run.load, and goes on with the model as it was"
        )


def _same_setup(path: Path, saved: Setup, given: Setup) -> None:
    for what in ("interventions", "record", "log", "relax"):
        there, here = getattr(saved, what), getattr(given, what)
        if there != here:
            raise InputError(
                f"resume: {what}= differs from what {path} was begun with: it was {there or 'not given'}, here it is "
                f"{here or 'not given'}"
            )


def _warn_of_versions(path: Path, manifest: Manifest) -> None:
    now = versions()
    for what in ("denizen", "torch"):
        if manifest.versions.get(what) != now[what]:
            warnings.warn(
                f"{path} was begun with {what} {manifest.versions.get(what)}, here is {now[what]}; from here on "
                f"results may differ in the last bits from those of a run that was never stopped",
                stacklevel=3,
            )
