"""The folder that a simulation writes itself to while it runs: a run folder, and what a simulation adds.

    drawing.safetensors         places and a small network, beside snapshots
    inputs.safetensors          identities and parameters per replicate, where they were given
    metrics/*.safetensors       series, `[replicates, steps, …]` each; a part is never written again
    checkpoints/*.safetensors   the state after the last safe step; the one before is removed afterwards
    events/*.parquet            rows of logged events, a file for each event and save; never written again either
    snapshots/                  Zarr arrays

The rest is as in every run folder, see `denizen._run_folder`.
"""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from denizen._atomic import TEMPORARY, digest, locked
from denizen._device import device_failed
from denizen._fingerprint import describe, fingerprint
from denizen._results import check_names
from denizen._run_folder import (
    NAME,
    Part,
    RunFolder,
    check_free,
    commit,
    encode,
    no_folder,
    now,
    take_new,
    versions,
    write,
)
from denizen.errors import StorageError, need
from denizen.model import series_kinds, tensors
from denizen.run import _drawing, _event_files, _manifest, _zarr
from denizen.run._blocks import PURPOSE
from denizen.run._manifest import Drawing, Manifest, Series, Setup, Taken

if TYPE_CHECKING:
    from denizen.run._run import Run
    from denizen.run._snapshots import SnapshotStore

RESERVE, RESERVED = f".reserve{TEMPORARY}", 16 << 10  # a file, and its bytes


def _reason(error: OSError) -> str:
    """What the system said."""
    cause = error.__cause__ if isinstance(error, StorageError) and isinstance(error.__cause__, OSError) else error
    return f"{cause.strerror or cause}"


class SimulationFolder(RunFolder):
    """A simulation's folder. Its lock is held by the block of `session`; what another process writes is refused.

    Attributes:
        manifest: what is safe on disk.
        sink: where snapshots are written; None where none are kept.
    """

    KIND, FORMAT = _manifest.KIND, _manifest.FORMAT
    SECONDS, LATER = 2.0, 0.02

    manifest: Manifest
    sink: _zarr.ZarrSnapshots | None

    def __init__(self, path: Path, manifest: Manifest, data: bytes) -> None:
        super().__init__(path, manifest, data)
        taken = manifest.snapshots
        forms = dict(zip(taken.fields, taken.forms, strict=True)) if taken else {}
        self.sink = _zarr.ZarrSnapshots(path, forms, self._explain, taken.digests) if taken else None
        self._tidy = False  # whether nothing lies in the folder that the manifest does not name

    @classmethod
    def create(
        cls, path: Path | str, run: "Run", settings: Mapping[str, Any] | None = None, wanted: int = 0
    ) -> "SimulationFolder":
        """Make the folder and save the run to it.

        Args:
            path: must be free, see `check_free`.
            run: the run, at whatever step it is.
            settings: kept in the manifest; JSON values only.
            wanted: steps that the run is asked for.

        Raises:
            StorageError: the folder holds something already, or cannot be written.
            MissingExtra: there are snapshots, and zarr is not installed.
        """
        path = Path(path)
        check_names(run.series_names)
        if run._snapshots is not None:
            need("zarr", "storage", PURPOSE)
        check_free(path)
        made: list[Path] = []
        lock = take_new(path)
        try:
            return cls._create(path, run, settings, wanted, made)
        except BaseException as error:
            for what in made:  # so that another attempt finds the folder empty
                shutil.rmtree(what, ignore_errors=True)
                with contextlib.suppress(OSError):
                    what.unlink()
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise StorageError(no_folder(path, error)) from error
            raise
        finally:
            lock.release()

    @classmethod
    def _create(
        cls, path: Path, run: "Run", settings: Mapping[str, Any] | None, wanted: int, made: list[Path]
    ) -> "SimulationFolder":
        for name in ("metrics", "checkpoints", *(["events"] if run._log else [])):
            (path / name).mkdir()
            made.append(path / name)
        made.extend(
            path / name for name in ("inputs.safetensors", "drawing.safetensors", _zarr.FOLDER, "log.txt", NAME)
        )
        inputs = write(path, "inputs.safetensors", 0, 0, _inputs(run))
        checkpoint = Part("", 0, 0, 0, "")  # replaced by the save below
        manifest = _first_manifest(run, wanted, inputs, checkpoint, settings)
        if run._snapshots is not None:
            arrays = _drawing.arrays(run)
            file = write(path, "drawing.safetensors", 0, 0, encode(arrays)) if arrays else None
            manifest = dataclasses.replace(manifest, drawing=Drawing(_drawing.levels(run), file))
        folder = cls(path, manifest, b"")
        folder._tidy = True
        folder.log(f"created: {manifest.model['class']}, {manifest.model['agents']} agents")
        store = run._snapshots
        if store is not None:
            folder.sink = _zarr.ZarrSnapshots(path, store.forms, lambda error: no_folder(path, error))
            store.copy_to(folder.sink, run.steps)
            folder.sink.explain = folder._explain
        folder._write(run, "running" if run.steps == 0 else "finished", None, forced=True)
        made.clear()
        if store is not None and folder.sink is not None:
            store.keep_in(folder.sink)
        return folder

    def _remove_leftovers(self) -> None:
        """Remove what a killed process wrote and no save includes."""
        events = [part.file for event in self.manifest.events or () for part in event.parts]
        listed = {self.manifest.checkpoint.file, *(part.file for part in self.manifest.metrics), *events}
        with contextlib.suppress(OSError):  # leftovers that cannot be removed are in nobody's way
            for path in [file for name in ("metrics", "checkpoints", "events") for file in self.path.glob(f"{name}/*")]:
                if path.relative_to(self.path).as_posix() not in listed:
                    path.unlink()
            for path in [*self.path.glob(f".*{TEMPORARY}"), *self.path.glob("snapshots/**/*.partial")]:
                path.unlink()
        if self.sink is not None and self.manifest.snapshots is not None:
            self.sink.trim(len(self.manifest.snapshots.steps))
        self.log(f"resumed after step {self.manifest.steps}")

    @contextlib.contextmanager
    def session(self, run: "Run", wanted: int) -> Generator[None]:
        """While the block runs the folder is this run's; saved at its end, also where it ends with an error."""
        with self._locked():
            with self._explained():
                if not self._tidy:
                    self._remove_leftovers()
                    self._tidy = True
                self._commit(status="running", error=None, wanted=wanted)
            try:
                with self._reserve():
                    yield
                self.save(run, "finished")
            except StorageError as error:
                if self.manifest.status == "running":  # a snapshot could not be written; a save has said so itself
                    self._mark("failed", _reason(error))
                raise
            except BaseException as error:
                self._save_at_last(run, error)
                raise

    def _save_at_last(self, run: "Run", error: BaseException) -> None:
        """Save what can be saved of a run that ends with an error, which stays the one that is raised."""
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        message = f"{type(error).__name__}: {error}".strip(": ")
        lost: BaseException | None = error if device_failed(error) else None
        if lost is None:
            try:
                self.save(run, status, message)
            except StorageError as failure:
                error.add_note(str(failure))
            except Exception as failure:  # the state cannot be read: the device is gone
                lost = failure
        if lost is not None:  # nothing on the device can be read any more
            self._mark(status, message)
            why = "" if lost is error else f" (what came after them could not be read: {str(lost)[:200]})"
            error.add_note(
                f"{self._safe()}{why}. Go on in a new process: denizen.run.resume({str(self.path)!r}, model)"
            )

    @contextlib.contextmanager
    def _reserve(self) -> Generator[None]:
        """Keep some room for the last manifest of a run that fills the disk."""
        path = self.path / RESERVE
        with contextlib.suppress(OSError):
            path.write_bytes(bytes(RESERVED))
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()

    def _mark(self, status: str, message: str) -> None:
        """Say in the manifest what ended the run, where the disk still takes that little; nothing else is saved."""
        with contextlib.suppress(OSError):
            (self.path / RESERVE).unlink(missing_ok=True)
            self._commit(status=status, error=message)
        self.log(f"{status}, {self.manifest.steps} steps safe: {message}")

    def save_if_due(self, run: "Run") -> None:
        """Save where the last save is a while ago; called after every chunk of steps."""
        if self.due():
            self.save(run, "running")

    def save(self, run: "Run", status: str, error: str | None = None) -> None:
        """Write what is new; called with the lock held.

        Raises:
            StorageError: says what is safe on disk. The run in memory is as it was and can be saved again.
        """
        with self._saving():
            try:
                self._write(run, status, error)
            except OSError as failure:
                self._mark("interrupted" if status == "interrupted" else "failed", _reason(failure))
                raise

    def save_now(self, run: "Run") -> None:
        """Save outside a session."""
        with self._locked():
            self.save(run, "finished" if run.steps >= self.manifest.wanted else "interrupted")

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        with self._explained(), contextlib.ExitStack() as opening:
            opening.enter_context(locked(self.path))
            if digest((self.path / NAME).read_bytes()) != self._known:
                raise StorageError(
                    f"run folder {self.path} was changed by another run since this one last wrote to it; "
                    f"run.save('another folder') keeps this one"
                )
            held = opening.pop_all()
        with held:
            yield

    def _write(self, run: "Run", status: str, error: str | None, forced: bool = False) -> None:
        old, steps = self.manifest, run.steps
        changes: dict[str, Any] = {}
        if steps > old.steps or forced:
            file = f"checkpoints/step-{steps:08d}.safetensors"
            changes["checkpoint"] = write(self.path, file, steps, steps, checkpoint_of(run))
        if steps > old.steps:
            file = f"metrics/part-{len(old.metrics):05d}.safetensors"
            changes["metrics"] = (
                *old.metrics,
                write(self.path, file, old.steps + 1, steps, _metrics(run, old.steps)),
            )
            changes["series"] = stored_series(run)
            if run._log is not None:
                changes["events"] = _event_files.write(self.path, old, run)
        if run._snapshots is not None:
            changes["snapshots"] = self._save_snapshots(run._snapshots, steps)
        changes |= {"status": status, "error": error, "updated": now(), "steps": steps}
        self._commit(**changes, wanted=max(old.wanted, steps))
        if old.checkpoint.file not in ("", self.manifest.checkpoint.file):
            with contextlib.suppress(OSError):
                (self.path / old.checkpoint.file).unlink()
        if steps > old.steps or status != "running":
            self.log(f"{status}, {steps} steps safe{f': {error}' if error else ''}")

    def _save_snapshots(self, store: "SnapshotStore", steps: int) -> Taken:
        """Wait until the snapshots are on the disk; what counts of them."""
        assert self.sink is not None
        if store.sink is self.sink:  # else all of them have just been copied there
            store.flush()
        taken = tuple(range(0, steps + 1, store.every))
        return Taken(
            store.every,
            tuple(store.forms),
            tuple(store.forms.values()),
            taken,
            tuple(self.sink.digests[: len(taken)]),
            store.ring.wanted,
        )

    def _changed(self, changes: Mapping[str, Any]) -> Manifest:
        return dataclasses.replace(self.manifest, **changes)

    def _encoded(self, manifest: Manifest) -> bytes:
        return manifest.encode()

    def _explain(self, error: OSError) -> str:
        kept = " (snapshots that are safe are not kept in memory: leave them there)" if self.sink is not None else ""
        return (
            f"run folder {self.path} could not be written: {error.strerror or error}. {self._safe()}. Nothing is lost "
            f"in memory{kept}: make room and call run.save(), or call run.save('another folder')"
        )

    def _safe(self) -> str:
        """What counts by now."""
        safe = self.manifest
        taken = f", {len(safe.snapshots.steps)} snapshots" if safe.snapshots else ""
        what = f"every series up to step {safe.steps}, the state after it{taken}" if safe.steps else "the initial state"
        return f"Safe on disk: {what}"


# --- what is kept of a run --------------------------------------------------------------------------------------------


def setup_of(run: "Run") -> Setup:
    """What fixes the run besides its model."""
    setting = run._stepper.setting
    kinds = series_kinds(run.model, setting)
    return Setup(
        seed=run.seed,
        worlds=tuple(run.worlds),
        dt=setting.dt,
        time_unit=run.model.time_unit,
        device=run.device.type,
        relax=None if setting.relax is None else describe(setting.relax),
        interventions={i.name: describe(i) for i in setting.interventions},
        record={name: f"{kinds[name]} {describe(function)}" for name, _, function in setting.record},
        vouched=run._vouched,
        start=setting.start,
        log={name: "" if function is None else describe(function) for name, function in setting.log} or None,
    )


def _first_manifest(
    run: "Run", wanted: int, inputs: Part, checkpoint: Part, settings: Mapping[str, Any] | None
) -> Manifest:
    """The manifest before anything but the inputs is safe."""
    return Manifest(
        status="running",
        error=None,
        created=now(),
        updated=now(),
        steps=0,
        wanted=max(wanted, run.steps),
        setup=setup_of(run),
        model=fingerprint(run.model),
        series=(),
        inputs=inputs,
        checkpoint=checkpoint,
        metrics=(),
        snapshots=None,
        versions=versions(),
        commit=commit(),
        settings=dict(settings) if settings else None,
    )


def stored_series(run: "Run") -> tuple[Series, ...]:
    """How each series is stored."""
    kinds = run.kinds
    return tuple(
        Series(
            name, kinds[name], str(run[name].dtype).removeprefix("torch."), tuple(run[name].shape[2:]), run.about(name)
        )
        for name in run.series_names
    )


def _metrics(run: "Run", done: int) -> bytes:
    """The series after step `done`."""
    return encode({name: run[name][:, done:] for name in run.series_names})


def _inputs(run: "Run") -> bytes:
    """Identities and parameters per replicate, where they were given."""
    held = {f"param.{name}": value for name, value in run._stepper.values.items()}
    if run._custom_ids:
        held["ids"] = run._stepper.ids
    held |= {f"ids.{axis}": ids for axis, ids in run._stepper.setting.kind_ids.items()}
    return encode(held)


def checkpoint_of(run: "Run") -> bytes:
    """State, switches and step, and what interventions keep on the host."""
    leaves = dict(zip(leaf_names(run), run._run_state.leaves, strict=True))
    kept = {
        f"kept.{one.name}.{name}": value
        for one in run._stepper.setting.interventions
        for name, value in one.kept().items()
    }
    return encode({**leaves, "switches": run._run_state.switches, "step": run._run_state.step, **kept})


def leaf_names(run: "Run") -> list[str]:
    """A name for each tensor of the state: that of its field, numbered where a field has several."""
    names, state = [], run.state
    for field in state.kinds:
        parts = tensors(getattr(state, field))
        names += [f"state.{field}"] if len(parts) == 1 else [f"state.{field}.{k}" for k in range(len(parts))]
    names += [f"state.ids.{axis}" for axis in run._stepper.identified]
    return [*names, "state.id"] if run._stepper.setting.custom_ids else names


def narrow_fields(data: bytes) -> dict[str, torch.dtype]:
    """Fields that a checkpoint holds in float16 or bfloat16; a damaged one is found when it is decoded."""
    dtypes = {"F16": torch.float16, "BF16": torch.bfloat16}
    try:
        entries = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        found = {name: dtypes.get(entry.get("dtype")) for name, entry in entries.items()}
    except (ValueError, AttributeError):
        return {}
    return {name.split(".")[1]: dtype for name, dtype in found.items() if dtype and name.startswith("state.")}
