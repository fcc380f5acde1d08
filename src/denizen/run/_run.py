"""`Run`: a simulation that has been started; holds its series and can go on."""

import contextlib
import dataclasses
import inspect
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from denizen._arguments import folder, switch, whole
from denizen._atomic import uninterrupted
from denizen._device import on_its_device
from denizen._progress import progress_bar
from denizen._results import Results, Rows
from denizen.errors import InputError, StorageError, nearest
from denizen.model import Intervention, Model, Setting, series_kinds, series_names
from denizen.model import guard as first_step_guard
from denizen.perf.watch import graphs_compiled
from denizen.rng import weighs
from denizen.run._checks import Bounds, held, keep_form, read_checks, when
from denizen.run._compile import AUTO_COMPILE_SECONDS, NATIVE_SECONDS, try_capture, try_compile, try_native
from denizen.run._cuda_graph import NotCapturedError, warn_not_captured
from denizen.run._engine import RunState, Stepper
from denizen.run._event_log import FullError, Recorder, joined
from denizen.run._machine import busy_threads, calm_threads, explained_room, give_back, noted_threads
from denizen.run._premises import alike, premises
from denizen.run._sieve import Sieve, chosen, pieces
from denizen.run._snapshots import Snapshots, SnapshotStore, SnapshotView
from denizen.run._torch_switches import TorchSwitches

if TYPE_CHECKING:
    from denizen._results import EventTable, Shown
    from denizen.run._chunks import CapturedSteps
    from denizen.run._simulation_folder import SimulationFolder
    from denizen.run._stats import Counted

CHUNK = 32  # steps between looks at the device's checks, at most
LEAP = 1024  # likewise, where all of them are one call: a look takes as long as forty steps of a small world
CAPTURED_CHUNK = 4096  # a look takes as long as several captured steps, and the device idles until the host goes on
MOST_LOOPS = 4  # times that loops are written, for a model that is changed between steps
CHUNK_SECONDS = 0.5  # of slow steps a chunk holds fewer, so that progress shows and saving is not held up
TRIAL = 4  # steps after the first that tell how long the others take
# What seconds are kept of; "later": steps without the first.
PHASES = ("load", "init", "compile", "capture", "steps", "later", "snapshot")


class Run(Results):
    """A run of a model; made by `denizen.simulate`.

    `run["cases"]` is a series, `[replicates, steps]`; `run.state` the present state of all replicates.

    Attributes:
        model: the model that runs.
        worlds: world number of each replicate.
        seed: the seed.
    """

    model: Model
    worlds: list[int]
    seed: int
    _stepper: Stepper
    _run_state: RunState
    _snapshots: SnapshotStore | None
    _folder: "SimulationFolder | None"
    _out: Path | str | None
    _settings: Mapping[str, Any] | None = None  # for the manifest of the folder
    _capture: "CapturedSteps | None" = None
    _switches: TorchSwitches | None = None  # since the step is compiled
    _callers: TorchSwitches  # torch's switches as they are for who runs it, and for what interventions ask
    _custom_ids: bool
    _tried_loops: int  # how often
    _premises: list[Any] | None = None  # of the native loops
    _answered: tuple[int, dict[str, Tensor]]
    _given: dict[int, dict[str, Tensor]]  # by step, in a chunk whose events may find no room
    _bounds: Bounds  # of parameters, which may change in place
    _asked: Bounds  # of those that interventions decide on the host
    _keys: Tensor
    _device_reason: str
    _relaxed: bool
    _vouched: int | None = None  # steps over which narrow fields were compared with wide ones
    _compile: bool | None
    _times: dict[str, float]
    _timed_steps: int
    _looks: int  # at the checks made on the device
    _graphs: int  # compiled by torch
    _recompiles: int  # of these, after the first step and after the step was compiled
    _counted: "Counted | None"
    _noted: list[Tensor]  # of draws, `[worlds, steps, …]` of each chunk, where the relaxation does so
    _weighed: dict[str, Tensor]  # series that it has given slopes
    _sieve: Sieve | None = None  # chooses rows on the way
    _later: int = 0  # steps that will follow by further calls
    _log: Recorder | None = None  # gathers events
    _events: dict[str, list[Rows]]  # of each logged event the rows of each chunk

    @classmethod
    def _begin(
        cls,
        model: Model,
        setting: Setting,
        keys: Tensor,
        ids: Tensor,
        values: dict[str, Tensor],
        snapshots: Snapshots | None,
        compile: bool | None,
        out: "Path | str | None",
        reason: str,
        capacity: int | None = None,
    ) -> "Run":
        run = cls()
        run._folder, run._out = None, out  # the folder is made by `extend`, which knows how many steps are wanted
        if out is not None:
            from denizen._run_folder import check_free

            check_free(Path(out))  # before any work
        run.model, run._compile = model, compile
        run._keys, run._device_reason, run._relaxed = keys, reason, setting.shares
        run.seed, run.worlds = int(keys[0, 0]), keys[:, 1].tolist()
        run._times = dict.fromkeys(PHASES, 0.0)
        run._looks = run._graphs = run._recompiles = 0
        run._counted = None
        run._path, run._custom_ids, run._tried_loops = "eager", setting.custom_ids, 0
        run._answered, run._given = (-1, {}), {}
        run._callers = TorchSwitches(grad=torch.is_grad_enabled())
        run._bounds, run._asked = Bounds(model), Bounds(model)
        run._bounds.check(held(model))
        run._steps, run._timed_steps = 0, 0  # done; done by this process
        run._events = {name: [] for name, _ in setting.log}
        if setting.log:
            with explained_room(run, "for the log of events"):
                run._log = Recorder(list(run._events), capacity, len(keys), keys.device)
        with explained_room(run, "in init"):
            run._draw(setting, keys, ids, values, snapshots)
        return run

    @on_its_device
    def _draw(
        self, setting: Setting, keys: Tensor, ids: Tensor, values: dict[str, Tensor], snapshots: Snapshots | None
    ) -> None:
        """Move the model to the device and draw the initial state."""
        began = time.perf_counter()
        self.model = self.model.to(self.device)
        loaded = time.perf_counter()
        self._stepper = Stepper(self.model, setting, keys, ids, values)
        self._bounds.vouch({**held(self.model), **values})
        with first_step_guard(self.model, "init"):
            self._run_state = self._stepper.start()
        self._read_checks(self._run_state, 0)
        self._run_state.bad = None
        self._chunks = {name: [] for name in self.series_names}
        self._noted, self._weighed = [], {}
        store = SnapshotStore(snapshots, self._stepper.state(self._run_state)) if snapshots else None
        if store is not None:
            store.check(lambda: "in init")
        self._snapshots = store
        self._times |= {"load": loaded - began, "init": time.perf_counter() - loaded}

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the model's class."""
        return type(self.model).__name__

    @property
    def series_names(self) -> list[str]:
        """Names of the series."""
        return series_names(self.model, self._stepper.setting)

    @property
    def steps(self) -> int:
        """Steps done."""
        return self._steps

    @property
    def dt(self) -> float:
        """Length of a step in the model's unit of time."""
        return self._stepper.setting.dt

    @property
    def time_unit(self) -> str:
        """The model's unit of time."""
        return self.model.time_unit

    @property
    def start(self) -> str | None:
        """The day of the first step, an ISO date; None where the run has none."""
        return self._stepper.setting.start

    @property
    def kinds(self) -> dict[str, str]:
        """``"flow"`` or ``"level"`` for each series."""
        return series_kinds(self.model, self._stepper.setting)

    def about(self, name: str) -> str:
        """The sentence with which the model documents a series."""
        lines = (inspect.getdoc(getattr(self.model, name, None)) or "").strip().splitlines()
        return lines[0] if lines and name in self.model.all_series else ""

    @property
    def folder(self) -> Path | None:
        """The folder that the run writes itself to."""
        return None if self._folder is None else self._folder.path

    @property
    def device(self) -> torch.device:
        """Where the run lives."""
        return self._keys.device

    _device = device

    @property
    def state(self) -> Any:
        """The present state of all replicates: every field `[replicates, …]`."""
        return self._stepper.state(self._run_state)

    def __getitem__(self, name: str) -> Tensor:
        """A series by name: `[replicates, steps, …]`, on the run's device."""
        if name not in self._chunks:
            raise InputError(f"run[{name!r}]: no such series; {nearest(name, self._chunks)}")
        chunks = self._chunks[name]
        if not chunks:
            return torch.zeros(len(self.worlds), 0, device=self.device)
        if len(chunks) > 1:
            chunks[:] = [torch.cat(chunks, dim=1)]
        if not self._stepper.setting.weighs:
            return chunks[0]
        if not self._weighed:
            self._weighed = self._weigh()
        return self._weighed[name]

    @on_its_device
    def _weigh(self) -> dict[str, Tensor]:
        """The series with the slopes that the relaxation makes of what it noted."""
        relax, noted = self._stepper.setting.relax, torch.cat(self._noted, dim=1)
        assert weighs(relax)
        flips = relax.flips(noted[:, -1])
        series = {name: torch.cat(chunks, dim=1) for name, chunks in self._chunks.items()}
        others = {} if flips is None else self._second(flips)
        wide = {name: values.to(torch.float32) for name, values in series.items()}
        return {name: relax.weigh(values, noted, others.get(name)) for name, values in wide.items()}

    def _second(self, flips: Tensor) -> dict[str, Tensor]:
        """The series of a second, hard run, in which one draw of each world comes out otherwise."""
        setting = dataclasses.replace(self._stepper.setting, relax=None)
        keys = torch.cat([self._keys, flips], dim=1)
        stepper = Stepper(self.model, setting, keys, self._stepper.ids, self._stepper.values)
        run_state, rows = stepper.start(), []
        run_state.bad = None
        for _ in range(self._steps):
            run_state, records = stepper.advance(run_state, {})
            rows.append([record.to(torch.float32) for record in records])
        values = {**held(self.model), **stepper.values}
        read_checks(run_state, stepper.state(run_state), stepper.checks, 0, values)
        columns = (torch.stack(column, dim=1) for column in zip(*rows, strict=True))
        return dict(zip(self.series_names, columns, strict=True))

    def events(self, name: str) -> "EventTable":
        """The rows of a logged event, one for each agent and step in which it happened to the agent.

        Raises:
            InputError: the run does not log it.
        """
        self._is_logged(name, self._events)
        self._events[name] = [joined(self._events[name])] if self._events[name] else []
        return self._event_table(name, joined(self._events[name]))

    @property
    def snapshots(self) -> SnapshotView:
        """Kept fields `[replicates, snapshots, …]` by name, on the CPU, and ``"step"`` `[snapshots]`.

        A field is read when it is asked for: a run with a folder keeps no snapshots in memory. `run.snapshots.at(step)`
        reads one snapshot.
        """
        if self._snapshots is None:
            raise InputError("run.snapshots: none were asked for; pass snapshots=Snapshots(every=…) to simulate")
        return self._snapshots.view(self._steps)

    # --- going on -----------------------------------------------------------------------------------------------------

    @on_its_device
    def extend(self, steps: int, *, progress: bool = False) -> "Run":
        """Run further steps; returns the run itself.

        Raises:
            InputError: for an argument that does not fit; more steps than `precision` was checked over.
            ModelError: where a check on the device failed. Chunks before it are kept.
            CapacityError: memory ran out; says what takes it. Chunks before it are kept, and the run can go on.
            StorageError: the folder could not be written; says what is safe, and holds the run.
        """
        steps = whole("extend", "steps", steps, 0)
        switch("extend", "progress", progress)
        if self._vouched is not None and self._steps + steps > self._vouched:
            raise InputError(
                f"extend: steps={steps}: fields in 16 bits were compared over {self._vouched} steps, and the run would "
                f"have {self._steps + steps}; begin it with as many, or with dz.run.check_precision over as many"
            )
        if self._out is not None:
            from denizen.run._simulation_folder import SimulationFolder

            self._folder, self._out = SimulationFolder.create(self._out, self, self._settings, steps), None
        self._callers = TorchSwitches(grad=torch.is_grad_enabled())
        saving = self._folder.session(self, self._steps + steps) if self._folder else contextlib.nullcontext()
        writing = self._snapshots.at_work() if self._snapshots else contextlib.nullcontext()
        room = explained_room(self, "in its steps")
        bar = progress_bar(steps, progress, type(self.model).__name__, len(self.worlds))
        try:
            with saving, room, writing, bar as advance_bar:
                for count in self._chunk_sizes(steps):
                    self._run_chunk(count)
                    advance_bar(count)
                    if self._folder is not None:
                        self._folder.save_if_due(self)
        except StorageError as error:
            error.run = self  # who called `simulate` has no other hold of it
            raise
        return self

    def _chunk_sizes(self, steps: int) -> Iterator[int]:
        """Sizes of the chunks; decides before each whether compiling what remains would pay."""
        done = 0
        while done < steps:
            cost = self._step_cost()
            worth = AUTO_COMPILE_SECONDS.get(self.device.type, AUTO_COMPILE_SECONDS["cpu"])
            asked = self._compile is True and self._timed_steps > 0  # the first step is eager: it is watched
            left = 0.0 if cost is None else (steps - done + self._later) * cost
            if done == 0 and self._path == "native" and not self._as_written():
                self._stepper.eager()
                self._path, self._switches = "eager", None
            if self._path == "eager" and self._compile is not False:
                with explained_room(self, "while its step was compiled"):
                    if asked or (self.device.type == "cpu" and left > NATIVE_SECONDS):
                        self._write_loops()
                    if self._path == "eager" and (asked or left > worth):
                        self._compile_now()
            # The first step is a chunk of its own: it is watched, and it includes what is set up once.
            most = LEAP if self._stepper.takes_several else CHUNK
            most = most if self._capture is None else CAPTURED_CHUNK
            size = TRIAL if cost is None else min(most, int(CHUNK_SECONDS / cost) + 1)
            size = size if self._timed_steps else 1
            if self._capture is not None and self._snapshots is not None and size < steps - done:
                size = self._snapshots.whole_groups(self._steps, size)
            if self._log is not None:
                size = min(size, self._log.most or size)
            size = min(size, steps - done)
            yield size
            done += size

    def _step_cost(self) -> float | None:
        """Seconds of a step, without the first; None before there is one to go by."""
        return self._times["later"] / (self._timed_steps - 1) if self._timed_steps > 1 else None

    def save(self, path: Path | str | None = None, *, settings: Mapping[str, Any] | None = None) -> "Run":
        """Write the run to a folder, from which `denizen.run.load` and `denizen.run.resume` read it.

        Args:
            path: must not exist yet, or be empty; further steps are written there too. None saves to the folder that
                the run has already.
            settings: kept in the manifest, for programs that build models from settings; JSON values only. Default:
                those of the folder that the run has already.

        Raises:
            StorageError: the folder cannot be written; the message says what is safe on disk.
        """
        from denizen.run._simulation_folder import SimulationFolder

        if self._stepper.setting.weighs:
            raise InputError(f"run.save: what relax={self._stepper.setting.relax!r} notes of draws is kept nowhere")
        if path is not None:
            path = folder("run.save", "path", path)
        if path is None or (self._folder is not None and Path(path).absolute() == self._folder.path.absolute()):
            if self._folder is None:
                raise InputError("run.save: the run has no folder yet; give a path")
            self._folder.save_now(self)
        else:
            kept = self._folder.manifest.settings if self._folder else None
            self._folder = SimulationFolder.create(path, self, settings if settings is not None else kept)
        return self

    def _compile_now(self) -> None:
        began, graphs = time.perf_counter(), graphs_compiled()
        answers = self._answers(self._steps)
        setting = self._stepper.setting
        self._switches = TorchSwitches(
            grad=setting.relax is not None, threads=busy_threads(self._stepper.ids.numel() * len(self.worlds))
        )
        with self._as_compiled():
            if self._run_state.step.is_inference():  # steps before were taken in inference mode, those to come not
                self._run_state = self._run_state.clone()
            if self.device.type == "cuda" and not setting.shares:
                # What asks the host cannot be captured, nor what has slopes, and hard steps compile safely only as
                # `CapturedSteps` does it: see run/_passes.py.
                captured = not self._asking and setting.relax is None
                self._capture = try_capture(self._stepper, self._run_state, self._log) if captured else None
                self._path = "eager" if self._capture is None else "captured"
                if self._capture is not None and self._snapshots is not None:
                    self._snapshots.gather(self._capture.longest)
            else:
                self._path = try_compile(self._stepper, self._run_state, answers)
        if self._path == "eager":
            self._compile, self._switches = False, None
        self._times["compile"] += time.perf_counter() - began
        self._graphs += graphs_compiled() - graphs

    def _write_loops(self) -> None:
        """Go on in native loops where the step can be written so."""
        if self._asking or self._tried_loops >= (1 if self._premises is None else MOST_LOOPS):
            return
        began, self._tried_loops = time.perf_counter(), self._tried_loops + 1
        threads = busy_threads(self._stepper.ids.numel() * len(self.worlds))
        self._switches = TorchSwitches(grad=False, threads=threads)
        with self._as_compiled():
            if self._run_state.step.is_inference():
                self._run_state = self._run_state.clone()
            if try_native(self._stepper, self._run_state):
                self._path, self._premises = "native", premises(self.model, self._stepper.setting)
            else:
                self._switches = self._premises = None
        self._times["compile"] += time.perf_counter() - began

    def _as_written(self) -> bool:
        """Whether the model and the interventions hold what they held when the loops were written."""
        assert self._premises is not None
        return alike(self._premises, premises(self.model, self._stepper.setting))

    @property
    def _asking(self) -> list[Intervention]:
        """The interventions that ask the host."""
        return [i for i in self._stepper.setting.interventions if type(i).answers is not Intervention.answers]

    @contextlib.contextmanager
    def _as_compiled(self) -> Iterator[None]:
        """Around steps: torch's switches as they were when the step was compiled; before that few threads alone."""
        agents = self._stepper.ids.numel() * len(self.worlds)
        with noted_threads(), calm_threads(agents) if self._switches is None else self._switches.held():
            yield

    def _run_chunk(self, count: int) -> None:
        try:
            self._run_whole(count)
        except FullError as error:  # the events of half as many steps may find room
            assert self._log is not None
            if count == 1:
                raise self._log.full(error, self._steps + 1, self.worlds[error.world]) from None
            self._log.most = count // 2
            self._run_chunk(count // 2)
            self._run_chunk(count - count // 2)

    def _run_whole(self, count: int) -> None:
        self._bounds.check({**held(self.model), **self._stepper.values})
        began, graphs = time.perf_counter(), graphs_compiled()
        captured = self._capture.seconds if self._capture else 0.0
        store = self._snapshots
        putting = store.seconds if store else 0.0
        with self._whole_or_dropped(), self._as_compiled():
            if self._log is not None:
                self._log.begin()
            run_state, records = self._take(self._run_state, self._steps, self._steps + count, store)
            self._read_checks(run_state, self._steps)
            events = {} if self._log is None else self._log.take()
            if store is not None:
                store.check(lambda: when(self._steps, run_state))
        with uninterrupted():  # Ctrl-C finds a run with this chunk or without it, never with half of it
            self._run_state = run_state
            self._steps += count
            self._given = {step: given for step, given in self._given.items() if step >= self._steps}
            if self._sieve is None:
                if self._stepper.setting.weighs:
                    self._noted.append(records.pop())
                    self._weighed = {}
                for name, values in zip(self.series_names, records, strict=True):
                    self._chunks[name].append(values)
                for name, rows in events.items():
                    self._events[name].append(rows)
        give_back(self.device, self._stepper.ids.numel() * len(self.worlds))
        compiled = graphs_compiled() - graphs
        self._graphs += compiled
        self._recompiles += compiled if self._timed_steps else 0
        captured = self._capture.seconds - captured if self._capture else 0.0
        self._times["capture"] += captured
        self._times["snapshot"] += store.seconds - putting if store else 0.0
        seconds = time.perf_counter() - began
        self._times["steps"] += seconds
        self._times["later"] += seconds - captured if self._timed_steps else 0.0  # by this chunks are sized
        self._timed_steps += count

    @contextlib.contextmanager
    def _whole_or_dropped(self) -> Iterator[None]:
        """Take back the snapshots of a chunk that did not come to its end."""
        try:
            yield
        except BaseException:
            if self._snapshots is not None:
                self._snapshots.drop(self._steps)
            raise

    def _take(
        self, run_state: RunState, start: int, stop: int, store: SnapshotStore | None = None
    ) -> tuple[RunState, list[Tensor]]:
        """Steps `start` to `stop`: the state after them, each record `[worlds, steps, …]`; snapshots to a store."""
        if self._sieve is None:
            return self._walk(run_state, start, stop, store)
        records: list[Tensor] = []
        spans = list(pieces(start, stop, self._sieve))
        if self._capture is not None and self._capture.holds(spans):
            try:
                return self._capture.sift(run_state, spans, self._sieve, self.series_names)
            except NotCapturedError as error:
                self._give_up_capture(error)
        for begin, end in spans:
            run_state, records = self._walk(run_state, begin, end)
            rows = self._sieve.see(end, dict(zip(self.series_names, records, strict=True)))
            run_state = run_state if rows is None else chosen(run_state, rows)
        return run_state, records

    def _walk(
        self, run_state: RunState, start: int, stop: int, store: SnapshotStore | None = None
    ) -> tuple[RunState, list[Tensor]]:
        if self._capture is not None:
            try:
                return self._capture.run(run_state, stop - start, start, store)
            except NotCapturedError as error:
                self._give_up_capture(error)
                if store is not None:
                    store.drop(start)
        if self._log is None and not self._asking and self._timed_steps and self._stepper.takes_several:
            return self._leap(run_state, start, stop, store)
        rows = []
        for step in range(start, stop):
            with first_step_guard(self.model) if step == 0 and not self._timed_steps else contextlib.nullcontext():
                before, (run_state, records) = run_state, self._stepper.advance(run_state, self._answers(step))
            if self._log is not None:
                count = len(records) - self._stepper.num_logged
                self._log.append(records[count:], self._stepper.logged, before.step)
                del records[count:]
            keep_form(records, rows, self._chunks, step)
            rows.append(records)
            if store is not None and store.due(step + 1):
                store.put(step + 1, self._stepper.state(run_state))
        return run_state, [torch.stack(column, dim=1) for column in zip(*rows, strict=True)]

    def _leap(
        self, run_state: RunState, start: int, stop: int, store: SnapshotStore | None
    ) -> tuple[RunState, list[Tensor]]:
        """The same in as few calls as there are snapshots."""
        parts = []
        while start < stop:
            end = next((step for step in range(start + 1, stop) if store is not None and store.due(step)), stop)
            try:
                run_state, records = self._stepper.advance_several(run_state, end - start)
            except Exception:
                self._raise_in_torch(run_state, start, end)
                raise
            parts.append(records)
            start = end
            if store is not None and store.due(end):
                store.put(end, self._stepper.state(run_state))
        return run_state, [
            column[0] if len(column) == 1 else torch.cat(column, dim=1) for column in zip(*parts, strict=True)
        ]

    def _raise_in_torch(self, run_state: RunState, start: int, stop: int) -> None:
        """Take steps in torch until one raises the model's own error, or a check does that failed before it."""
        looked = self._steps
        with self._stepper.in_torch():
            for step in range(start, stop):
                if (step - start) % CHUNK == 0:
                    self._read_checks(run_state, looked)
                    looked = step
                run_state, _ = self._stepper.advance(run_state, {})

    def _give_up_capture(self, error: NotCapturedError) -> None:
        warn_not_captured("steps", error)
        self._capture, self._path, self._compile = None, "eager", False

    def _answers(self, step: int) -> dict[str, Tensor]:
        if self._answered[0] == step:  # asked when the step was compiled
            return self._answered[1]
        if step in self._given:  # of a chunk that is repeated in halves
            return self._given[step]
        answers: dict[str, Tensor] = {}
        for intervention in self._asking:
            with self._callers.held():
                given = intervention.answers(step)
            self._asked.check(given, f"the intervention {intervention.name!r} gave it for step {step}")
            answers.update({name: value.to(self.device) for name, value in given.items()})
        self._answered = (step, answers)
        if self._log is not None:
            self._given[step] = answers
        return answers

    def _read_checks(self, run_state: RunState, step: int) -> None:
        """Read the checks made on the device since the last look; raise where one failed."""
        self._looks += 1
        values = {**held(self.model), **self._stepper.values}
        read_checks(run_state, self._stepper.state(run_state), self._stepper.checks, step, values)

    def _restore(self, run_state: RunState, series: dict[str, Tensor], folder: "SimulationFolder") -> None:
        """Go on from what a folder holds."""
        self._read_checks(run_state, int(run_state.step))
        self._run_state, self._steps, self._folder = run_state, int(run_state.step), folder
        self._chunks = {name: [series[name]] if name in series else [] for name in self.series_names}
        if self._snapshots is not None and folder.sink is not None:
            self._snapshots.keep_in(folder.sink)

    def __repr__(self) -> str:
        worlds = f"{len(self.worlds)} replicate{'s' if len(self.worlds) > 1 else ''}"
        return f"Run({self.name}: {worlds} × {self.steps} steps, seed {self.seed}, {self.device}, {self._path})"

    # --- looking at it ------------------------------------------------------------------------------------------------

    @on_its_device
    def plan(self, *, kernels: bool = False) -> "Shown":
        """What runs, and how: device, path, fields, series, interventions, memory; print it.

        Args:
            kernels: also list what a step launches, in order; found by running a few steps of a copy.
        """
        from denizen.run._plan import plan

        return plan(self, kernels)

    @on_its_device
    def stats(self, *, count: bool = False) -> dict[str, Any]:
        """What the run did: sizes, seconds per phase, rates, the path taken, graphs, and what steps were counted to do.

        The keys are the same on every device; docs/guides/counters.md says what each means.

        Args:
            count: run a few steps of a copy under instruments and fill in launches, host reads, transfers, allocations,
                bytes and shares, which are None otherwise. The run itself stays as it is; the result is kept until the
                run goes on.
        """
        from denizen.run._stats import stats

        return stats(self, count)
