"""A profile drawn: the time line with the causes of its gaps, idle time by cause, memory, the device's counters."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from denizen._figures import save_figure
from denizen.perf._profile.gaps import CAUSES

if TYPE_CHECKING:
    from denizen.perf._profile.report import ProfileReport

COLOURS = dict(zip(CAUSES, ("C0", "C3", "C1", "C5", "C2", "C4", "C6", "C7", "0.75"), strict=True))
MOST = 5000  # gaps drawn, the longest ones


def draw(report: "ProfileReport", path: str | Path) -> None:
    """Write the picture of a report."""
    from matplotlib.figure import Figure

    panels = 2 + bool(report.memory and report.memory.timeline) + len(report.sampled)
    figure = Figure(figsize=(9, 1.2 + 1.6 * panels), layout="constrained")
    axes: list[Any] = list(figure.subplots(panels, 1, squeeze=False)[:, 0])
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
    save_figure(figure, path, dpi=150)


def _timeline(axis: Any, report: "ProfileReport") -> None:
    gaps = sorted(report.gaps, key=lambda gap: -gap.duration)[:MOST]
    axis.axhspan(0, 1, color="0.9")
    for cause in CAUSES:
        spans = [((gap.start - report.start) / 1e6, gap.duration / 1e6) for gap in gaps if gap.cause == cause]
        if spans:
            axis.broken_barh(spans, (0, 1), color=COLOURS[cause], label=cause)
    if report.gaps:
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize="small", frameon=False)
    axis.set(xlabel="ms", yticks=[], xlim=(0, 1e3 * report.window), ylim=(0, 1))
    share = report.busy_share
    axis.set_ylabel("time line" if share is None else f"busy {share:.0%}\n(light)")


def _causes(axis: Any, report: "ProfileReport") -> None:
    names = [idle.cause for idle in report.idle]
    axis.barh(names, [100 * idle.seconds / report.window for idle in report.idle], color=[COLOURS[n] for n in names])
    axis.invert_yaxis()
    axis.set(xlabel="% of the time, idle")
