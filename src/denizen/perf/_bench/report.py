"""What a benchmark found: a table, a plot, JSON, and what became worse since an earlier one."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from denizen._figures import colour, figure, name_ends, plain_axis, save_figure, titled
from denizen._notebook import InNotebook
from denizen.errors import DataError
from denizen.perf.watch._memory import size
from denizen.perf.watch._timing import Timing

VERSION = 1
COUNTS = {
    "host_reads": "the host waits for the device more often: .item(), if tensor:, print, nonzero",
    "transfers": "more copies between host and device",
    "transfer_bytes": "more bytes between host and device",
    "graphs": "torch.compile makes more graphs: a branch, a read or a print breaks them",
    "recompiles": "torch.compile compiles again at each step: a changing Python number or shape",
    "kernels": "more launches",
    "ops": "more operations",
    "bytes_moved": "more memory traffic",
    "allocations": "more allocations",
}
SLACK = {"bytes_moved": 1.01, "transfer_bytes": 1.01}  # padding and the like
EXACT = ("float64", "float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")  # from costly to cheap


@dataclasses.dataclass(frozen=True)
class BenchCase:
    """One implementation, batch size and variant.

    Attributes:
        name: of the implementation.
        batch: samples in a step; None where the maker takes none.
        variant: such as ``"eager"``.
        step: milliseconds of a step, in rounds that are not interrupted.
        phases: milliseconds of forward (everything but the others), backward and optimizer, timed apart.
        samples_per_second: None without a batch size.
        peak_bytes: that a step holds at most beyond what was held before.
        counts: what a step does; see `docs/guides/bench.md`.
        first_seconds: of the first step: compilation, plans, optimizer state.
        failure: why there are no numbers; "" where there are.
    """

    name: str
    batch: int | None
    variant: str
    step: Timing | None = None
    phases: dict[str, Timing] = dataclasses.field(default_factory=dict)
    samples_per_second: float | None = None
    peak_bytes: int | None = None
    counts: dict[str, Any] = dataclasses.field(default_factory=dict)
    first_seconds: float | None = None
    failure: str = ""

    @property
    def key(self) -> str:
        """For people, and to find it again."""
        return ", ".join([self.name, *([f"batch {self.batch}"] if self.batch is not None else []), self.variant])


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Time of one case over that of another, from rounds side by side.

    Attributes:
        of: key of the case.
        to: key of the case that it is divided by.
        value: median over rounds; below 1 is faster.
        low: end of the 95 % interval.
        high: end of the 95 % interval.
        verdict: level of the equivalence check; None where none was made (variants: other numbers are meant).
        valid: whether it compares what computes the same.
        why: where they first differ, or why there is no verdict.
    """

    of: str
    to: str
    value: float
    low: float
    high: float
    verdict: str | None = None
    valid: bool = True
    why: str = ""

    def __str__(self) -> str:
        gain = 1 / self.value - 1
        text = f"{self.of} takes {self.value:.3f} ({self.low:.3f} to {self.high:.3f}) of {self.to}"
        text += f", throughput {100 * gain:+.1f} %"
        if not self.valid:
            return f"INVALID: {text}; {self.verdict or 'no verdict'}: {self.why}"
        return f"{text}, {self.verdict}" if self.verdict else text


@dataclasses.dataclass(frozen=True)
class Regression:
    """Something that became worse.

    Attributes:
        case: its key.
        what: such as ``"graphs"`` or ``"matmuls"``.
        before: earlier value.
        now: value of now.
        why: likely cause.
    """

    case: str
    what: str
    before: Any
    now: Any
    why: str

    def __str__(self) -> str:
        return f"{self.case}: {self.what} {_shown(self.before)} -> {_shown(self.now)}: {self.why}"


@dataclasses.dataclass(frozen=True)
class BenchReport(InNotebook):
    """What `bench` measured; print it with rich.

    Attributes:
        cases: in order.
        ratios: of the second implementation to the first, and of variants to the first variant.
        drift: time of the last rounds over that of the first ones; far from 1, the machine was not quiet.
        device: where it ran.
        facts: versions and the like.
    """

    cases: list[BenchCase]
    ratios: list[Ratio]
    drift: float
    device: str
    facts: dict[str, str]

    @property
    def valid(self) -> bool:
        """Whether every comparison of implementations has a passed verdict."""
        return all(ratio.valid for ratio in self.ratios)

    def against(self, earlier: "BenchReport") -> list[Regression]:
        """What became worse since: counts, precision of matrix products, and ratios of one run. Times never count.

        Raises:
            DataError: the two have no case in common.
        """
        known = {case.key: case for case in earlier.cases if not case.failure}
        pairs = [(known[case.key], case) for case in self.cases if case.key in known]
        if not pairs:
            raise DataError(f"no case in common: earlier {list(known)}, now {[case.key for case in self.cases]}")
        found = [worse for before, now in pairs for worse in _worse(before, now)]
        ratios = {(ratio.of, ratio.to): ratio for ratio in earlier.ratios}
        for ratio in self.ratios:
            before = ratios.get((ratio.of, ratio.to))
            if before is not None and ratio.low > before.high:
                found.append(Regression(ratio.of, "ratio", before.value, ratio.value, f"slower beside {ratio.to}"))
            if before is not None and before.valid and not ratio.valid:
                found.append(Regression(ratio.of, "verdict", before.verdict, ratio.verdict, ratio.why))
        return found

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"version": VERSION} | dataclasses.asdict(self)

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def read(cls, path: Path | str) -> "BenchReport":
        """From a file with what `to_json` gave.

        Raises:
            DataError: it is not such a file.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            if data.pop("version") != VERSION:
                raise DataError(f"{path} is of another version of denizen; measure again")
            cases = [_case(item) for item in data.pop("cases")]
            return cls(cases=cases, ratios=[Ratio(**item) for item in data.pop("ratios")], **data)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path} is no result of denizen bench --json") from error

    def __rich__(self) -> Any:
        from rich import box
        from rich.console import Group
        from rich.text import Text

        from denizen._printing import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        heads = ("case", "ms", "10-90 %", "fwd", "bwd", "opt", "samples/s", "peak", "launches")
        for head in heads:
            if head == "case":
                table.add_column(head, overflow="fold")  # where names are cut off, two may look alike
            else:
                table.add_column(head, justify="right", no_wrap=True)
        for case in self.cases:
            if case.step is None:
                table.add_row(case.key, case.failure)
                continue
            phases = [_ms(case.phases.get(name)) for name in ("forward", "backward", "optimizer")]
            rate = "" if case.samples_per_second is None else f"{case.samples_per_second:,.0f}"
            peak = "" if case.peak_bytes is None else size(case.peak_bytes)
            spread = f"{_number(case.step.low)}-{_number(case.step.high)}"
            launches = f"{case.counts.get('kernels', 0):,}"
            table.add_row(case.key, _ms(case.step), spread, *phases, rate, peak, launches)
        lines = [Text(str(ratio), style="" if ratio.valid else "bold red") for ratio in self.ratios]
        note = (
            f"{self.device}, torch {self.facts.get('torch', '')}; last rounds took {self.drift:.2f} of the first ones"
        )
        if self.device == "cpu":
            note += "; launches and bytes are those of eager code"
        return Group(table, *lines, Text(note, style="dim"))

    def plot(self, path: Path | str | None = None) -> Any:
        """Throughput (or time, without batch sizes) of each implementation and variant; needs matplotlib."""
        timed = [(case, case.step) for case in self.cases if case.step is not None]
        lines = list(dict.fromkeys((case.name, case.variant) for case, _ in timed))
        batches = any(case.batch is not None for case, _ in timed)
        made = figure(6.4, 4 if batches else 1.2 + 0.4 * len(lines), "draw a benchmark")
        axis = made.subplots()
        plain_axis(axis)
        ends = []
        for number, line in enumerate(lines):
            mine = [(case, step) for case, step in timed if (case.name, case.variant) == line]
            around = [(max(0.0, s.median - s.low), max(0.0, s.high - s.median)) for _, s in mine]
            middle, reach = [s.median for _, s in mine], list(zip(*around, strict=True))
            looks: Any = {"marker": "o", "color": colour(number), "capsize": 3}
            if batches:
                axis.errorbar([str(case.batch) for case, _ in mine], middle, reach, **looks)
                ends.append((", ".join(line), middle[-1], colour(number)))
            else:
                axis.errorbar(middle, [number] * len(mine), xerr=reach, linestyle="none", **looks)
        if batches:
            titled(axis, "", "batch size", "ms per step (median, 10 % to 90 %)")
            axis.set_ylim(bottom=0)
            name_ends(axis, ends)
        else:
            titled(axis, "", "ms per step (median, 10 % to 90 %)")
            axis.set_yticks(range(len(lines)), [", ".join(line) for line in lines])
            axis.set(ylim=(len(lines) - 0.5, -0.5), xlim=(0, None))
            axis.grid(axis="x", color="#e6e6e6", linewidth=0.7)
        if path is not None:
            save_figure(made, path)
        return made


def _worse(before: BenchCase, now: BenchCase) -> list[Regression]:
    if now.failure:
        return [Regression(now.key, "failure", "", now.failure, "it ran before")]
    found = [Regression(now.key, what, *pair, why) for what, pair, why in _counts(before.counts, now.counts)]
    old, new = before.counts.get("matmuls", {}), now.counts.get("matmuls", {})
    if old and new and _coarseness(new) < _coarseness(old):
        why = "matrix products in a costlier precision: mixed precision (AMP) or TF32 is off"
        found.append(Regression(now.key, "matmuls", old, new, why))
    if before.peak_bytes and now.peak_bytes and now.peak_bytes > 1.05 * before.peak_bytes:
        found.append(Regression(now.key, "peak_bytes", before.peak_bytes, now.peak_bytes, "more memory at once"))
    return found


def _counts(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, tuple[Any, Any], str]]:
    found = []
    for what, why in COUNTS.items():
        old, new = before.get(what, 0), now.get(what, 0)
        if new > old * SLACK.get(what, 1):
            found.append((what, (old, new), why))
    phases = now.get("phases", {})
    old, new = before.get("phases", {}).get("optimizer", 0), phases.get("optimizer", 0)
    if new > old:
        found.append(("operations of the optimizer", (old, new), "one that is not fused: pass fused=True"))
    return found


def _coarseness(matmuls: Mapping[str, int]) -> float:
    """Mean place of the products on the scale from costly to cheap."""
    known = {name: count for name, count in matmuls.items() if name in EXACT}
    total = sum(known.values())
    return sum(EXACT.index(name) * count for name, count in known.items()) / total if total else 0.0


def _case(data: dict[str, Any]) -> BenchCase:
    step = Timing(**data.pop("step")) if data.get("step") is not None else data.pop("step")
    phases = {name: Timing(**values) for name, values in data.pop("phases").items()}
    return BenchCase(step=step, phases=phases, **data)


def _ms(timing: Timing | None) -> str:
    return "" if timing is None else _number(timing.median)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{count} {name}" for name, count in value.items()) or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}" if isinstance(value, float) else str(value)
