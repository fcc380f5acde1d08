"""`dz.doctor`: what is slow about a step, at which line, what it costs, and what to write instead."""

import collections
import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Generator
from typing import Any

import torch

from denizen._arguments import whole
from denizen.errors import InputError
from denizen.perf._doctor.diagnosis import NOTE, Diagnosis, at, lowered, of_finding, order
from denizen.perf._doctor.hooks import Drawn
from denizen.perf._doctor.operations import PRODUCTS, Op
from denizen.perf._doctor.passes import LEAST, Counted, Pass, Profiled, Settle, Timed, Watched, throughout
from denizen.perf._doctor.report import DoctorReport, Facts
from denizen.perf._doctor.roofline import Roofline, roofline
from denizen.perf._doctor.rules import LAUNCH, diagnose, loaders
from denizen.perf._doctor.source import read_anew
from denizen.perf._doctor.subject import (
    Subject,
    built,
    check_make,
    device_of,
    make_takes_device,
    required,
)
from denizen.perf.simulated._alias import cuda_alias
from denizen.perf.simulated._device import gpu_or_simulated
from denizen.perf.watch import _compiler
from denizen.perf.watch._blame import unseen, users_code
from denizen.perf.watch._event_log import EventLog
from denizen.perf.watch._faults import FAULTS
from denizen.perf.watch._findings import FIRST, SET_UP, Finding, findings
from denizen.perf.watch._operations import SIMULATED

WATCHED = 5  # steps of which every operation is examined
PROFILED = 5  # of these two to warm the profiler up
HOOKS = "saved tensor hooks"  # torch.func refuses them
_COMPILER = ("graph-break", "recompile", "recompile-limit")


def doctor(
    step: Callable[..., Any] | None = None,
    /,
    *args: Any,
    make: Callable[..., Any] | None = None,
    state: Any = None,
    device: torch.device | str | None = None,
    steps: int = 12,
    rank: bool = True,
) -> DoctorReport:
    """Look at one step of a loop and say what keeps the device waiting, at which line, and what to write instead.

    ```python
    def make(device):
        model = Net().to(device)
        optimizer = torch.optim.Adam(model.parameters())

        def step(): ...

        return step


    report = dz.doctor(make=make)  # on the GPU; without one, on a simulated device
    print(report)
    ```

    Steps are taken in turn to settle (compilation, optimizer state), to be timed without any instrument, to be
    counted, to have each of their operations examined and, on CUDA, to be profiled; some findings are then taken out
    of the step to measure what they cost. Afterwards the model, the optimizer and random numbers are as they were.
    Without a GPU counts are exact and times of a GPU are not known, so none are given.

    Args:
        step: a function that does one step. One that takes a single argument, and is given none, gets its number.
        args: for `step`.
        make: builds the step instead, for the device that it is given (``def make(device): …``): so a step can be
            examined on a machine without a GPU. It returns the step, or the step and its arguments. One without an
            argument finds CUDA there if it asks for it, which is then the simulated device.
        state: what the step changes, as for `dz.tools.TrainingState`; None: what it uses by name.
        device: for `make`: ``"cuda"``, ``"cpu"`` or ``"simulated"``. None: the CUDA device, else the simulated one.
        steps: to count, at least 4. What comes every k steps is told as such where k is below that.
        rank: measure what findings cost, on devices that can be timed.

    Returns:
        A report: ``print`` it, `DoctorReport.to_dict`, `DoctorReport.save_html`.

    Raises:
        InputError: neither or both of `step` and `make`, fewer than 4 steps, a device that is not there.
        DenizenError: the step uses what cannot be examined, such as nested tensors on the simulated device.
    """
    steps = whole("doctor", "steps", steps, low=4)
    if step is not None and make is None and not args and required(step) == ["device"]:
        step, make = None, step
    if (step is None) == (make is None):
        raise InputError("doctor() takes a step, or make=, a function that builds one for a device")
    began = time.perf_counter()
    if step is not None and device is not None:
        raise InputError("doctor(device=...) is for make=; a step that is given works on the device it was built for")
    if make is not None:
        check_make(make)
    where = gpu_or_simulated(device) if make is not None else None
    # A maker that cannot be told the device asks for CUDA by name.
    by_name = make is not None and not make_takes_device(make) and where is not None and where.type == SIMULATED
    with users_code("the step of the doctor"), cuda_alias() if by_name else contextlib.nullcontext():
        if make is not None:
            assert where is not None
            with throughout(where):
                subject = built(make, where)
            where = where if make_takes_device(make) else device_of(subject)
        else:
            assert step is not None
            subject = Subject(step, args, state, made=False)
            where = device_of(subject)
        with _undone(subject):
            report = examine(subject, where, steps).report()
            if rank and report.findings and where.type != SIMULATED:
                from denizen.perf._doctor.costs import ranked

                report = ranked(report, subject, where)
    notes = [*report.notes, subject.ended] if subject.ended else report.notes
    return dataclasses.replace(report, seconds=time.perf_counter() - began, notes=notes)


@contextlib.contextmanager
def _undone(subject: Subject) -> Generator[None]:
    """What the steps change is put back, unless the step was built here."""
    if subject.made:
        yield
        return
    kept = subject.snapshot()
    try:
        yield
    finally:
        kept.restore()


@dataclasses.dataclass
class Examination:
    """The passes over a step and what they show; driven by whoever takes the steps.

    Attributes:
        device: that the step works on.
        passes: in order.
    """

    device: torch.device
    settle: Settle
    timed: Timed
    counted: Counted
    watched: Watched
    profiled: Profiled | None
    compiler: EventLog | None = None
    taken: int = 0
    plain: int | None = None  # of these before operations were examined, for which torch may compile anew

    @classmethod
    def of(cls, device: torch.device, steps: int, parameters: Callable[[], list[torch.Tensor]] = list) -> "Examination":
        """All passes, for a device."""
        read_anew()
        plain = 5 if device.type == SIMULATED else 20  # times of a stand-in tell of loaders only
        profiled = Profiled(PROFILED, device=device) if device.type == "cuda" else None
        return cls(
            device,
            Settle(3),
            Timed(plain, 2.0, device=device),
            Counted(steps, 20.0, device=device),
            Watched(WATCHED, 30.0, device=device, parameters=parameters),
            profiled,
        )

    @property
    def passes(self) -> list[Pass]:
        """In order."""
        return [self.settle, self.timed, self.counted, self.watched, *([self.profiled] if self.profiled else [])]

    def begin(self, stage: Pass) -> None:
        """A step of a pass begins."""
        assert self.compiler is not None
        if stage is self.watched and self.plain is None:
            self.plain = self.taken
        self.compiler.begin(self.taken, True)
        stage.begin()

    def end(self, stage: Pass) -> None:
        """A step of a pass ended."""
        stage.end()
        self.taken += 1

    def report(self) -> DoctorReport:
        """The verdict."""
        found, once = _heard(self.counted)
        found += diagnose(self.watched)
        rest = LAUNCH * self.watched.operations_a_step if self.device.type == SIMULATED else None
        found += loaders(self.timed.drawn, self.timed.host, list(range(self.timed.done)), rest)
        found += self._compiler()
        found = _merged(found, self.watched)
        operations = self.watched.operations
        roof = roofline(self.device, operations, self.timed.step, self.profiled)
        found += _by_launches(roof, operations.ops) if not any(one.kind == "launch-bound" for one in found) else []
        return DoctorReport(
            device=self.device,
            findings=sorted(found, key=order),
            once=once,
            step_seconds=self.timed.step if self.device.type != SIMULATED else None,
            host_seconds=self.timed.host if self.device.type != SIMULATED else [],
            counts=_counts(self.counted, self.watched),
            steps=self.counted.done,
            roofline=roof,
            notes=_notes(self),
            seconds=0.0,
            facts=_facts(self) if operations.ops else None,
            elsewhere=0 if operations.ops else -(-operations.host_ops // max(1, self.watched.done)),
        )

    def _compiler(self) -> list[Diagnosis]:
        """Breaks cost in each call of what was compiled; recompilations only where they do not come to an end."""
        assert self.compiler is not None
        plain = self.taken if self.plain is None else self.plain
        events = [event for event in self.compiler.events if event.kind in _COMPILER]
        events = [event for event in events if event.step is None or event.step < plain]
        found = []
        for one in findings(events, list(range(plain))):
            if one.reason is not None or (one.kind == "recompile" and max(one.steps, default=0) < 2 * plain // 3):
                limit = any(event.kind == "recompile-limit" for event in events)
                if one.kind == "recompile" and limit and one.reason is None:
                    found.append(dataclasses.replace(of_finding(one), period="every step", level="warning"))
                continue
            every = one.kind in ("graph-break", "recompile-limit") or len(one.steps) > 2
            period = "every step" if every else one.period
            found.append(dataclasses.replace(of_finding(one), period=period, level=lowered("warning", period)))
        return found


def examine(subject: Subject, device: torch.device, steps: int) -> Examination:
    """Take the steps of all passes."""
    examined = Examination.of(device, steps, subject.parameters)
    with throughout(device) as compiler:
        examined.compiler = compiler
        for stage in (examined.settle, examined.timed, examined.counted):
            _run(stage, subject, examined)
        _watch(subject, examined)
        if examined.profiled is not None:
            _run(examined.profiled, subject, examined)
    return examined


def _watch(subject: Subject, examined: Examination) -> None:
    """The pass that reaches deepest; what it cannot be run under is told, and the other passes stand."""
    for hooked in (True, False):
        watched = examined.watched = dataclasses.replace(examined.watched, hooked=hooked, error="")
        try:
            return _run(watched, subject, examined)
        except Exception as error:
            known = unseen(error)
            watched.error = (
                f"could not look at {known}" if known else f"{type(error).__name__}: {error}".partition("\n")[0]
            )
            if not hooked or HOOKS not in str(error):
                return


def _run(stage: Pass, subject: Subject, examined: Examination) -> None:
    """Take a pass's steps; a step that runs out of data is built anew where that is possible."""
    with stage.open():
        while not stage.enough:
            if subject.spent:
                subject.rebuild()
                _take_step(subject)
            examined.begin(stage)
            try:
                _take_step(subject)
            except Exception as error:
                if not subject.exhausted(error):
                    raise
                if stage.done >= LEAST:
                    return
                continue
            examined.end(stage)


def _take_step(subject: Subject) -> None:  # lines of the user's end here, going up the stack
    subject()


def _heard(counted: Counted) -> tuple[list[Diagnosis], list[Finding]]:
    """What counts, and what happened in the first steps only or is allowed."""
    kept, once = [], []
    for one in findings(counted.event_log.events, counted.steps):
        if one.kind in ("async-copy", *_COMPILER) or not one.limits:
            continue
        if one.reason is not None or one.period in (FIRST, SET_UP):
            once.append(one)
        else:
            kept.append(of_finding(one))
    return kept, once


def _merged(found: list[Diagnosis], watched: Watched) -> list[Diagnosis]:
    """Without what says the same twice."""
    loaded = {op.line for op in watched.operations.ops if op.loaded}
    out: dict[tuple[str, str, int], Diagnosis] = {}
    for one in found:
        if (one.file, one.line) in loaded and one.kind in ("h2d-fresh", "h2d-pageable"):
            one = dataclasses.replace(one, kind="loader-pin", fix=FAULTS["loader-pin"].fix)
        out.setdefault((one.kind, one.file, one.line), one)
    if watched.flags:  # anomaly detection reads what it checks
        out = {key: one for key, one in out.items() if one.kind != "host-sync-bool" or "autograd" not in one.via}
    copied = {(one.file, one.line) for one in out.values() if one.kind == "state-copy"}
    return [one for one in out.values() if not (one.kind == "alloc-churn" and (one.file, one.line) in copied)]


def _by_launches(roof: Roofline | None, ops: list[Op]) -> list[Diagnosis]:
    """A step that launching takes the time of, without a loop that could be blamed: a note at its busiest line."""
    lines = collections.Counter(op.line for op in ops if not op.part)
    if roof is None or not roof.launch_bound or not lines:
        return []
    (line, count), last = lines.most_common(1)[0], ops[-1].step
    place = next(op.place for op in ops if op.line == line)
    evidence = [f"{roof.launches} launches take most of the step, kernels run {roof.busy or 0:.0%} of it"]
    fix = "more work in each: a larger batch; fewer of them: torch.compile, or capture the step in a CUDA graph"
    return [at("launch-bound", place, count // (last + 1), "every step", evidence, level=NOTE, fix=fix)]


def _counts(counted: Counted, watched: Watched) -> dict[str, int]:
    from denizen.perf._budget.report import measure

    if counted.device.type != "cpu":
        return measure(counted.event_log, counted.steps, None)
    new = sum(op.new > 0 for op in watched.operations.ops) // max(1, watched.done)
    return {"ops": watched.operations_a_step, "new_allocations": new}  # nothing is read or carried on one device


def _facts(examined: Examination) -> Facts:
    """For the checklist, of the last step whose operations were examined."""
    operations, watched = examined.watched.operations, examined.watched
    last = operations.steps[-1] if operations.steps else -1
    ops = [op for op in operations.ops if op.step == last]
    products: collections.Counter[str] = collections.Counter()
    for op in ops:
        if op.schema in PRODUCTS and op.flops:
            products[str(op.dtype).removeprefix("torch.")] += op.flops
    return Facts(
        device_ops=len(ops),
        host_ops=operations.host_ops // max(1, len(operations.steps)),
        loaders=[_loader(drawn) for drawn in examined.timed.drawn],
        products=dict(products),
        autocast=any(op.autocast for op in ops),
        graphs=_compiler.graphs_compiled(),
        backwards=sum(call.step == last for call in watched.graphs.backwards),
        without_gradients=any(op.off for op in ops),
        elements=round(statistics.median(op.numel for op in ops)) if ops else 0,
    )


def _loader(drawn: Drawn) -> dict[str, Any]:
    loader = drawn.loader
    seen = {
        name: getattr(loader, name, getattr(loader, f"_{name}", None))
        for name in ("num_workers", "pin_memory", "persistent_workers", "batch_size")
    }
    return seen | {"line": drawn.place.line, "wait_seconds": statistics.median(drawn.wait) if drawn.wait else 0.0}


def _notes(examined: Examination) -> list[str]:
    watched, notes = examined.watched, []
    if watched.error:
        notes.append(f"operations were not looked at one by one: {watched.error}")
    for kind in sorted(watched.operations.unseen):
        notes.append(f"could not look at {kind}: their operations are not among those that are told")
    if examined.device.type == "cpu":
        notes.append(
            "the step works on the CPU, where nothing waits for a device: pass make=, a function of a device that "
            "builds the step, to be told what would keep a GPU waiting"
        )
    if not watched.operations.ops and examined.device.type != "cpu":
        notes.append(f"no operation ran on {examined.device}: build model and data there, on the device that is given")
    return notes
