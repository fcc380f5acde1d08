"""Benchmarks of a step: by batch size, variant and implementation, side by side in one run."""

import contextlib
import dataclasses
import inspect
import platform
import statistics
import sys
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch

from denizen._arguments import whole
from denizen.errors import InputError, expect_function
from denizen.perf._bench.measure import counts_of, interval, peak_of, phases_of, round_of, steps_per_round
from denizen.perf._bench.report import BenchCase, BenchReport, Ratio
from denizen.perf._bench.variant import Variant
from denizen.perf._doctor.subject import make_takes_device
from denizen.perf._equivalent.compare import Verdict
from denizen.perf._equivalent.sides import Weights
from denizen.perf._equivalent.steps import equivalent_steps
from denizen.perf.state._training_state import TrainingState
from denizen.perf.watch._blame import users_code
from denizen.perf.watch._memory import clean, out_of_memory, wait, without_frames
from denizen.perf.watch._timing import Timing

SIZES = ("batch", "batch_size", "size", "n")  # names of a maker's argument


def bench(
    make: Callable[..., Callable[[], Any]],
    *,
    versus: Callable[..., Callable[[], Any]] | None = None,
    batch: Sequence[int] | int | None = None,
    variants: Sequence[str | Variant] = ("eager",),
    weights: Weights = None,
    verdict: Verdict | None = None,
    device: torch.device | str | None = None,
    warm_up: int = 3,
    rounds: int = 20,
    names: tuple[str, str] = ("A", "B"),
) -> BenchReport:
    """Time a step and count what it does; with `versus`, two of them side by side, if they compute the same.

    ```python
    def make(batch_size, device):
        model = Net().to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.randn(batch_size, 64, device=device)

        def step():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step


    report = dz.perf.bench(make, batch=[8, 16, 32, 64], variants=["eager", "compile", "bf16"])
    ```

    Makers are called several times for each batch size and variant, from the same seed. All variants of a batch size
    are timed in turn, round by round, so that what else the machine does meets all of them. Forward, backward and
    optimizer are told apart by hooks, in a pass of their own.

    Args:
        make: builds a step; takes a batch size (as ``batch`` or ``batch_size``) and a ``device``, or either, or none.
        versus: builds another step, to be compared with the first.
        batch: sizes; None where the makers take none.
        variants: see `Variant.of`: ``"eager"``, ``"compile"``, ``"compile:max-autotune"``, ``"bf16"``…
        weights: from the weights of the one to those of the other, as in `equivalent`.
        verdict: of `equivalent`, in place of comparing some steps here.
        device: None takes the current CUDA device where there is one, else the CPU.
        warm_up: steps before anything is measured.
        rounds: to take the median of; at least 5.
        names: of both implementations.

    Returns:
        The report: `print` it with rich, `to_json`, `plot`, `against` an earlier one.

    Raises:
        InputError: a maker returns no function, needs a batch size and gets none, or the other way round.
    """
    sizes = _sizes(batch)
    warm_up, rounds = whole("bench", "warm_up", warm_up, low=1), whole("bench", "rounds", rounds, low=5)
    place = torch.device(device) if device is not None else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ways = [Variant.of(text) for text in ([variants] if isinstance(variants, str) else variants)]
    if not ways:
        raise InputError("variants=[]: expected at least one, such as 'eager'")
    makers = [(names[0], make)] + ([(names[1], versus)] if versus is not None else [])
    cases, ratios, drifts = [], [], []
    with users_code("a step of bench"), TrainingState([0.0]).kept():  # the global generators
        for size in sizes:
            trials = [_Trial(name, maker, size, way, place) for way in ways for name, maker in makers]
            for trial in trials:
                trial.count(warm_up)
            for trial in trials:
                if not trial.failure:
                    trial.start(warm_up)
            drifts.append(_time(trials, rounds))
            cases += [trial.case() for trial in trials]
            ratios += _ratios(trials, ways, names, versus is not None)
            if versus is not None:
                ratios = _judged(ratios, trials[0], trials[1], weights, verdict)
            del trials, trial
            clean(place)
    return BenchReport(cases, ratios, statistics.median(drifts), str(place), _facts(place))


class _Trial:
    """One implementation at one batch size in one variant."""

    def __init__(self, name: str, make: Any, size: int | None, way: Variant, place: torch.device) -> None:
        self.name, self.make, self.size, self.way, self.place = name, make, size, way, place
        self.rounds: list[float] = []
        self.phases: dict[str, list[float]] = {}
        self.counts: dict[str, Any] = {}
        self.peak: int | None = None
        self.first: float | None = None
        self.failure, self.inner = "", 1
        self.step: Any = None
        self.key = BenchCase(name, size, way.name).key

    def build(self) -> Callable[[], Any]:
        """From the maker, with the seed of all."""
        torch.manual_seed(0)
        return built(self.make, self.size, self.place)

    def ready(self, warm_up: int) -> Callable[[], Any]:
        """Built, compiled and warmed up."""
        step = self.way.applied(self.build())
        began = time.perf_counter()
        with self.way.active(self.place):
            for number in range(warm_up):
                step()
                wait(self.place)
                self.first = time.perf_counter() - began if number == 0 and self.first is None else self.first
        return step

    def count(self, warm_up: int) -> None:
        """Counts and memory, of a step of its own, whose compiled code is forgotten afterwards."""
        from denizen.perf.watch._compiler import graphs_compiled

        with _caught(self):
            before = graphs_compiled()
            step = self.ready(warm_up)
            graphs = graphs_compiled() - before
            self.counts = counts_of(step, self.way, self.place, graphs)
            self.peak = peak_of(step, self.way, self.place)
            del step
            if graphs and "torch._dynamo" in sys.modules:
                torch._dynamo.reset()  # so that the next one is counted alone

    def start(self, warm_up: int) -> None:
        """Get ready for timing."""
        with _caught(self):
            self.step = self.ready(warm_up)
            self.inner = steps_per_round(self.step, self.way, self.place)

    def round(self) -> None:
        """One more round."""
        with _caught(self):
            self.rounds.append(round_of(self.step, self.way, self.place, self.inner))

    def case(self) -> BenchCase:
        """What came out."""
        if self.failure:
            return BenchCase(self.name, self.size, self.way.name, failure=self.failure)
        step = _timing(self.rounds)
        rate = None if self.size is None else 1e3 * self.size / max(step.median, 1e-9)
        phases = {name: _timing(times) for name, times in self.phases.items() if name}
        return BenchCase(
            self.name,
            self.size,
            self.way.name,
            step,
            phases if len(phases) > 1 else {},
            rate,
            self.peak,
            self.counts,
            self.first,
        )


@contextlib.contextmanager
def _caught(trial: _Trial) -> Generator[None]:
    """Out of memory ends a trial, not the benchmark."""
    try:
        yield
        return
    except Exception as error:
        if not out_of_memory(error):
            raise
        without_frames(error)
    trial.failure, trial.step = "out of memory", None  # out here the error has let go of the step's tensors
    clean(trial.place)


def _time(trials: list[_Trial], rounds: int) -> float:
    """Rounds of all trials in turn, forwards and backwards; returns last over first rounds."""
    for number in range(rounds):
        for trial in trials if number % 2 == 0 else reversed(trials):
            if not trial.failure:
                trial.round()
    for trial in trials:
        if not trial.failure:
            with _caught(trial):
                graphs = trial.counts.get("graphs", 0)
                trial.phases = phases_of(trial.step, trial.way, trial.place, max(rounds, 10), compiled=graphs > 0)
    part = max(1, rounds // 4)
    sides = [statistics.median(t.rounds[-part:]) / statistics.median(t.rounds[:part]) for t in trials if not t.failure]
    return statistics.median(sides) if sides else 1.0


def _ratios(trials: list[_Trial], ways: list[Variant], names: tuple[str, str], both: bool) -> list[Ratio]:
    """The second implementation to the first in each variant; variants to the first one of their own."""
    by = {(trial.name, trial.way.name): trial for trial in trials}
    pairs = [(by[names[0], way.name], by[names[1], way.name]) for way in ways] if both else []
    kept = {trial.name for trial in trials}
    pairs += [(by[name, ways[0].name], by[name, way.name]) for name in sorted(kept) for way in ways[1:]]
    out = []
    for base, other in pairs:
        if not base.failure and not other.failure:
            out.append(Ratio(other.key, base.key, *interval(base.rounds, other.rounds)))
    return out


def _judged(ratios: list[Ratio], a: _Trial, b: _Trial, weights: Weights, verdict: Verdict | None) -> list[Ratio]:
    """Mark ratios between implementations at this batch size with the verdict."""
    why, level = "", None
    if verdict is None:
        try:
            verdict = equivalent_steps(a.build, b.build, weights)
        except InputError as error:
            why = str(error)
    if verdict is not None:
        level = verdict.level if verdict.compared else None
        first = verdict.first
        why = f"first difference: {first.name}, step {first.step}" if first is not None else why
        why = why or ("" if level else "the steps return no tensor and use no module by name: pass verdict=")
    passed = verdict is not None and verdict.passed

    def mark(ratio: Ratio) -> Ratio:
        crosses = ratio.of.partition(",")[0] == b.name and ratio.to.partition(",")[0] == a.name
        mine = crosses and ratio.verdict is None and not ratio.why
        return dataclasses.replace(ratio, verdict=level, valid=passed, why=why) if mine else ratio

    return [mark(ratio) for ratio in ratios]


def built(make: Callable[..., Any], size: int | None, place: torch.device) -> Callable[[], Any]:
    """The step of a maker.

    Raises:
        InputError: it returns no function, or a batch size is missing or unasked for.
    """
    name = getattr(make, "__name__", "make")
    key = _size_key(make)
    if size is not None and key is None:
        raise InputError(f"{name}() takes no batch size: give it an argument batch_size, or leave batch= out")
    given: dict[str, Any] = {} if size is None or key is None else {key: size}
    if key is not None and size is None and inspect.signature(make).parameters[key].default is inspect.Parameter.empty:
        raise InputError(f"{name}({key}) needs a batch size: batch=[8, 16, 32, 64], or --batch 8,16,32,64")
    if make_takes_device(make):
        given["device"] = place
    wanted = "a function of batch_size and device, of either, or without arguments"
    expect_function(f"bench: {name}", make, named=given, wanted=wanted)
    step = make(**given)
    if not callable(step):
        raise InputError(
            f"{name}() returned {type(step).__name__}; expected a function that does one step, as in "
            f"def {name}(batch_size, device): ...; def step(): ...; return step"
        )
    expect_function(f"bench: what {name}() returned", step)
    return step


def _size_key(make: Callable[..., Any]) -> str | None:
    try:
        names = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return None
    return next((name for name in SIZES if name in names), None)


def _sizes(batch: Any) -> list[int | None]:
    if batch is None:
        return [None]
    sizes = [batch] if isinstance(batch, int) else list(batch)
    if not sizes:
        raise InputError(f"bench: batch={batch!r}, expected whole numbers, such as [8, 16, 32, 64]")
    return list(dict.fromkeys(whole("bench", "batch", size, low=1) for size in sizes))


def _timing(times: list[float]) -> Timing:
    return Timing.of(times, len(times), sum(times))


def _facts(place: torch.device) -> dict[str, str]:
    from denizen._version import __version__

    card = torch.cuda.get_device_name(place) if place.type == "cuda" else platform.processor() or platform.machine()
    return {"denizen": __version__, "torch": torch.__version__, "python": platform.python_version(), "card": card}
