"""The live view of a training: a bar with rate and remaining time, and the latest metrics with their trend."""

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

SHOWN = (
    ("return_mean", "return"),
    ("length_mean", "length of a life"),
    ("validation_return", "return, validation"),
    ("entropy", "entropy"),
    ("value_loss", "value loss"),
    ("explained_variance", "explained variance"),
    ("kl", "KL"),
    ("clip_fraction", "clipped"),
    ("gradient_norm", "gradient norm"),
    ("learning_rate", "learning rate"),
)
BLOCKS = "▁▂▃▄▅▆▇█"
TREND = 32  # points of a trend


class Trends:
    """The latest value of each metric and how it came there, in few points."""

    def __init__(self, more: Sequence[str] = ()) -> None:
        """Args:
        more: names of further metrics to show.
        """
        self._shown = (*SHOWN, *((name, name.replace("_", " ")) for name in more))
        self._kept: dict[str, deque[float]] = {name: deque(maxlen=2048) for name, _ in self._shown}

    def take(self, row: dict[str, Any]) -> None:
        """Take the metrics of an update."""
        for name, kept in self._kept.items():
            value = row.get(name)
            if value is not None and value == value:
                kept.append(float(value))

    def rows(self) -> list[tuple[str, str, str]]:
        """(name, value, trend) of each metric that there is."""
        shown = []
        for name, words in self._shown:
            kept = list(self._kept[name])
            if kept:
                shown.append((words, f"{kept[-1]:.4g}", spark(kept)))
        return shown


def spark(values: list[float]) -> str:
    """A line of blocks: means of `TREND` stretches of the values that are finite."""
    values = [value for value in values if math.isfinite(value)]
    count = min(TREND, len(values))
    if not count:
        return ""
    edges = [len(values) * k // count for k in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(BLOCKS[min(7, int((mean - low) / span * 8))] for mean in means)


@contextmanager
def live_view(
    steps: int, show: bool, title: str, more: Sequence[str] = ()
) -> Generator[tuple[Callable[[int], None], Callable[[dict[str, Any]], None]]]:
    """(function of steps done, function of an update's metrics); shows nothing unless `show`.

    Args:
        steps: to do.
        show: whether to show anything.
        title: of the bar.
        more: names of metrics to show beside the usual ones.
    """
    if not show or steps == 0:
        yield lambda count: None, lambda row: None
        return
    import rich
    from rich.console import Group
    from rich.live import Live

    from denizen._printing import Table, progress

    bar = progress()
    task, trends = bar.add_task(title, total=steps, rate=""), Trends(more)

    def view() -> Group:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for words, value, trend in trends.rows():
            table.add_row(words, value, trend)
        return Group(bar, table)

    lines = bar.console is rich.get_console()  # a notebook without ipywidgets takes a single one

    def advance(count: int) -> None:
        bar.advance(task, count)
        speed = bar.tasks[0].speed
        bar.update(task, rate=f"{speed:,.0f}/s" if speed else "")

    try:
        with Live(get_renderable=view if lines else lambda: bar, console=bar.console, refresh_per_second=4):
            yield advance, trends.take
    finally:
        if not bar.console.is_terminal:  # rich ends no line there, and what is told next may be why it ended
            bar.console.print()
