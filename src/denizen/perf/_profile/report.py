"""What a profile found, as data, text, JSON and a plot."""

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import torch

from denizen._figures import COLOURS, figure, save_figure
from denizen._notebook import InNotebook
from denizen.errors import StorageError
from denizen.perf._profile.gaps import CAUSES, REMEDIES
from denizen.perf._profile.measure import Measured, measured
from denizen.perf._profile.trace import Trace
from denizen.perf.watch._memory import size

SHOWN = 10  # operators, kernels
WORTH = 0.05  # of the time: less of a cause needs no advice
LONGEST = 1000  # gaps written to JSON
NAME = 44  # characters of a kernel's name


@dataclasses.dataclass(frozen=True)
class ProfileReport(Measured, InNotebook):
    """A profile; print it.

    Busy time is the length of the union of the kernels' intervals, never a sum of durations; gaps are the rest of the
    window, so that both together are the window. On the CPU, where no device works beside the host, operators stand for
    kernels and a gap is a time in which no operator ran.

    Attributes:
        device: what was examined, such as ``"cuda:0 NVIDIA H100"`` or ``"cpu"``.
        steps: that were recorded; 0 where the trace does not tell steps.
        step_times: seconds of each recorded step on the host; the last one may end on the device later.
        plain_times: seconds of steps before, without the profiler; empty for a trace that was read.
        sampled: counters of the device, (nanoseconds, value) by name; empty without nvidia-ml-py.
        trace: file that holds the trace; None where it was not kept.
    """

    device: str
    steps: int
    step_times: list[float]
    plain_times: list[float]
    sampled: dict[str, list[tuple[int, float]]]
    trace: Path | None

    @classmethod
    def of(cls, trace: Trace, kept: Path | None = None) -> "ProfileReport":
        """The report of a trace, such as `read_trace` gives."""
        return cls(
            **vars(measured(trace)),
            device=_device(trace),
            steps=len(trace.steps),
            step_times=[step.duration / 1e9 for step in trace.steps],
            plain_times=trace.facts.get("denizen", {}).get("plain_times", []),
            sampled={name: values for name, values in trace.counters.items() if name.startswith("GPU ")},
            trace=kept,
        )

    @property
    def busy_share(self) -> float | None:
        """Of the window, 0 to 1; None where nothing was recorded."""
        return self.busy / self.window if self.window else None

    @property
    def on_device(self) -> bool:
        """Whether a device worked; else the host's operators were examined."""
        return self.device != "cpu"

    def to_dict(self) -> dict[str, Any]:
        """For JSON; all times in seconds but those of gaps and samples, which are nanoseconds of the trace's clock.

        Of the gaps the longest thousand are given, and the number of all.
        """
        longest = sorted(self.gaps, key=lambda gap: -gap.duration)[:LONGEST]
        plain = dataclasses.asdict(dataclasses.replace(self, gaps=longest)) | {"gap_count": len(self.gaps)}
        plain["trace"] = str(self.trace) if self.trace is not None else None
        if not self.sampled:
            del plain["sampled"]
        return plain | {"busy_share": self.busy_share}

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON; also written to a file where one is named.

        Raises:
            StorageError: the file cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1)
        if path is not None:
            try:
                Path(path).write_text(text, encoding="utf-8")
            except OSError as error:
                raise StorageError(f"to_json(path={str(path)!r}): {error.strerror or error}") from error
        return text

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the time line, idle time by cause, memory and the device's counters; needs the extra `plot`.

        Raises:
            MissingExtra: matplotlib is not installed.
            StorageError: the file cannot be written.
        """
        return draw(self, path)

    def __str__(self) -> str:
        if self.busy_share is None:
            return f"{self.device}: nothing was recorded: no operator ran in the recorded steps"
        lines = [*self._head(), "", *self._idle(), "", *self._operators()]
        lines += ["", *self._kernels()] if self.device_ops else []
        lines += ["", *self._rest()]
        return "\n".join(lines).rstrip()

    def _head(self) -> list[str]:
        share, steps = self.busy_share or 0.0, max(1, self.steps)
        what = "busy" if self.on_device else "in operators"
        times = f"{self.steps} steps, {_ms(statistics.median(self.step_times))} ms each" if self.steps else "the trace"
        head = f"{self.device}: {what} {share:.1%} of {times}"
        if self.plain_times and self.step_times:
            head += f" ({_ms(statistics.median(self.plain_times))} ms without the profiler)"
        work = "kernels" if self.on_device else "operators"
        lines = [head, f"  {self.kernels / steps:,.0f} {work} {'a step' if self.steps else 'in all'}"]
        if self.on_device:
            exposed = f"{self.exposed_copies / self.window:.1%} of the time with no kernel beside"
            lines.append(f"  copies {self.copies / self.window:.1%} of the time, {exposed}")
        else:
            lines.append("  on the CPU nothing works beside the host: gaps are Python, loading and waiting")
        if self.queue is not None:
            latency = f", {1e6 * self.queue.latency:.0f} µs to start then" if self.queue.latency is not None else ""
            lines.append(
                f"  queue: {self.queue.mean:.1f} launches deep on average, {self.queue.most} at most; "
                f"{self.queue.empty:.0%} of {self.queue.launches} launches found it empty{latency}"
            )
        return lines

    def _idle(self) -> list[str]:
        lines = [f"idle {1 - (self.busy_share or 0):.1%} of the time:"]
        for idle in self.idle:
            longest = f", longest {_ms(idle.longest)} ms" if idle.gaps else ""
            at = f" [{idle.at}]" if idle.at and idle.at not in idle.evidence else ""
            share = idle.seconds / self.window
            lines.append(f"  {share:6.1%}  {idle.cause:16}  {idle.gaps:5} gaps{longest}: {idle.evidence}{at}")
            lines += [f"{'':28}-> {REMEDIES[idle.cause]}"] if share >= WORTH else []
        return lines if self.idle else [f"{lines[0]} nothing"]

    def _operators(self) -> list[str]:
        device = f" {'device ms':>10}" if self.on_device else ""
        lines = [f"{'operator, by self time':36} {'calls':>7} {'host ms':>9}{device}  shapes (all steps)"]
        for op in self.operators[:SHOWN]:
            device = f" {_ms(op.device):>10}" if self.on_device else ""
            lines.append(f"{op.name[:36]:36} {op.calls:7} {_ms(op.host):>9}{device}  {op.shapes}".rstrip())
        return lines

    def _kernels(self) -> list[str]:
        lines = [f"{'kernel':{NAME}} {'calls':>7} {'ms':>9}"]
        return [*lines, *(f"{k.name[:NAME]:{NAME}} {k.calls:7} {_ms(k.seconds):>9}" for k in self.device_ops[:SHOWN])]

    def _rest(self) -> list[str]:
        steps, lines = max(1, self.steps), []
        if self.memory is not None:
            m = self.memory
            per = "a step" if self.steps else "in all"
            peak = f", peak {size(m.peak)}" if m.peak is not None else ""
            grew = f"{'' if m.growth >= 0 else '-'}{size(abs(m.growth))}"
            lines.append(
                f"memory: {m.allocations / steps:,.0f} allocations and {size(m.bytes // steps)} {per}, "
                f"{m.driver_calls} calls of the driver{peak}, grew by {grew}"
            )
        for name, values in self.sampled.items():
            numbers = [value for _, value in values]
            lines.append(f"{name}: {statistics.fmean(numbers):.4g} on average, {max(numbers):.4g} at most")
        if self.trace is not None:
            lines.append(f"trace: {self.trace} (ui.perfetto.dev, chrome://tracing, TensorBoard)")
        return lines


def _device(trace: Trace) -> str:
    if trace.device is None:
        return "cpu"
    known = [d for d in trace.facts.get("deviceProperties", []) if d.get("id") == trace.device]
    name = known[0].get("name", "") if known else ""
    kind = "cuda" if torch.version.hip is None else "cuda (AMD)"
    return f"{kind}:{trace.device} {name}".rstrip()


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


SHADES = dict(zip(CAUSES, (*COLOURS, "0.75"), strict=True))
MOST = 5000  # gaps drawn, the longest ones


def draw(report: "ProfileReport", path: str | Path | None) -> Any:
    """See `ProfileReport.plot`."""
    panels = 2 + bool(report.memory and report.memory.timeline) + len(report.sampled)
    made = figure(9, 1.2 + 1.6 * panels, "draw a profile")
    axes: list[Any] = list(made.subplots(panels, 1, squeeze=False)[:, 0])
    _timeline(axes.pop(0), report)
    _causes(axes.pop(0), report)
    if report.memory and report.memory.timeline:
        moments, values = zip(*report.memory.timeline, strict=True)
        axis = axes.pop(0)
        axis.step([1e3 * t for t in moments], [v / 2**20 for v in values], where="post", linewidth=1)
        axis.set(xlabel="ms", ylabel="MiB in use")
    for name, series in report.sampled.items():
        axis = axes.pop(0)
        begun = series[0][0]
        axis.plot([(moment - begun) / 1e9 for moment, _ in series], [value for _, value in series], linewidth=1)
        axis.set(xlabel="s, all phases", ylabel=name)
    for axis in made.axes:
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        axis.tick_params(labelsize=8)
    if path is not None:
        save_figure(made, path)
    return made


def _timeline(axis: Any, report: "ProfileReport") -> None:
    gaps = sorted(report.gaps, key=lambda gap: -gap.duration)[:MOST]
    axis.axhspan(0, 1, color="0.9")
    for cause in CAUSES:
        spans = [((gap.start - report.start) / 1e6, gap.duration / 1e6) for gap in gaps if gap.cause == cause]
        if spans:
            axis.broken_barh(spans, (0, 1), color=SHADES[cause], label=cause)
    if report.gaps:
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize="small", frameon=False)
    axis.set(xlabel="ms", yticks=[], xlim=(0, 1e3 * report.window), ylim=(0, 1))
    share = report.busy_share
    axis.set_ylabel("time line" if share is None else f"busy {share:.0%}\n(light)")


def _causes(axis: Any, report: "ProfileReport") -> None:
    names = [idle.cause for idle in report.idle]
    axis.barh(names, [100 * idle.seconds / report.window for idle in report.idle], color=[SHADES[n] for n in names])
    axis.invert_yaxis()
    axis.set(xlabel="% of the time, idle")
