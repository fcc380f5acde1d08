"""What prints: everything that denizen writes to a terminal, and every text of a report, goes through here.

Rich reads `[…]` in a text as markup and `:name:` as an emoji. A folder `runs/[old]`, a line of a user's code and
`pip install 'denizen[plot]'` would lose a part of themselves. Here texts stay what they are; what has a style is a
`Text`, or a pair (text, style) that `say` takes.
"""

import importlib.util
import io
import time
from pathlib import Path
from typing import Any

import rich.console
import rich.progress
import rich.status
import rich.table
from rich.style import Style
from rich.text import Text

BETWEEN = 30.0  # seconds between two lines of progress where there is no terminal
Part = object  # a text, something that is written like one, such as a path, or a pair (text, style)


class Console(rich.console.Console):
    """A console that prints texts as they are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def status(self, status: Any, **options: Any) -> rich.status.Status:
        """Rich's, of a text as it is."""
        return super().status(as_it_is(status), **options)


def say(console: Any, *parts: Part) -> None:
    """Print a line that is not broken at the end of the screen, so that paths and commands can be copied from it.

    Args:
        console: this module's, or another one of rich's.
        *parts: texts, or pairs (text, style).
    """
    plainly = len(parts) == 1 and not isinstance(parts[0], Text | tuple)
    line = str(parts[0]) if plainly else _joined(*parts)
    console.print(line, soft_wrap=True, markup=False, emoji=False, highlight=False)


def give(text: object) -> None:
    """Print what another program reads: as it is, and also where the console is quiet."""
    print(text)


class Table(rich.table.Table):
    """A table of texts as they are."""

    def __init__(self, *headers: str, title: Any = None, **options: Any) -> None:
        super().__init__(title=as_it_is(title), **options)
        for header in headers:
            self.add_column(header)

    def add_column(self, header: Any = "", *others: Any, **options: Any) -> None:
        """Rich's, of texts as they are."""
        super().add_column(as_it_is(header), *others, **options)

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Rich's, of texts as they are."""
        super().add_row(*map(as_it_is, cells), **options)


def link(path: Path) -> Text:
    """A path that a terminal opens by a click, where it knows links."""
    return Text(str(path), style=Style(link=path.resolve().as_uri()))


def as_it_is(text: Any) -> Any:
    """A text that rich reads no markup in; anything else unchanged."""
    return Text(text) if isinstance(text, str) else text


def bold(text: str) -> Text:
    """A text in bold letters."""
    return Text(text, style="bold")


def _joined(*parts: Part) -> Text:
    pairs = (part if isinstance(part, Text | tuple) else str(part) for part in parts)
    return Text.assemble(*pairs)


def plain(renderable: Any, width: int) -> str:
    """Something of rich's as text without colours, lines at most so wide."""
    # In a notebook rich would show it there instead.
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False, force_jupyter=False)
    console.print(renderable)
    shown: str = console.file.getvalue()  # type: ignore[attr-defined]  # of the StringIO
    return "\n".join(line.rstrip() for line in shown.splitlines()).rstrip("\n")


def html(renderable: Any, width: int = 110) -> str:
    """Something of rich's, or a text, for a notebook."""
    console = Console(file=io.StringIO(), width=width, record=True, legacy_windows=False, force_jupyter=False)
    console.print(renderable, soft_wrap=isinstance(renderable, str))
    style = "white-space: pre; overflow-x: auto; line-height: 1.3"
    return console.export_html(inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>')


class _Bar(rich.progress.Progress):
    """Rich's; where it cannot draw, as into a file, a line now and then."""

    told = 0.0  # when the last line was printed

    def update(self, task_id: Any, **changes: Any) -> None:
        """Rich's, and perhaps a line."""
        super().update(task_id, **changes)
        now = time.monotonic()
        self.told = self.told or now
        if now - self.told >= BETWEEN and not (self.console.is_terminal or self.console.is_jupyter):
            self.told = now
            self.console.print(plain(self.make_tasks_table(self.tasks), 110), soft_wrap=True)


def progress(endless: bool = False, memory: float = 30.0) -> rich.progress.Progress:
    """A bar with the rate and the time that is left, on rich's own console; its tasks have a field `rate`.

    In a notebook rich draws it with ipywidgets. Where these are missing it is a line of text there. Where there is
    neither terminal nor notebook, a line is printed every half minute.

    Args:
        endless: whether nobody knows how much there is to do, so that nothing is said of it.
        memory: seconds back that the rate is of; longer than one advance takes.
    """
    console = rich.get_console()
    if console.is_jupyter and importlib.util.find_spec("ipywidgets") is None:
        console = Console(force_jupyter=False, force_terminal=True, color_system=None, width=80, legacy_windows=False)
    told = rich.progress.TextColumn("{task.description}", markup=False)
    rate = rich.progress.TextColumn("{task.fields[rate]}", markup=False)
    if endless:
        columns = (told, rich.progress.BarColumn(), rate, rich.progress.TimeElapsedColumn())
        return _Bar(*columns, console=console)
    return _Bar(
        told,
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("steps"),
        rate,
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn("left"),
        rich.progress.TimeRemainingColumn(),
        speed_estimate_period=memory,
        console=console,
    )
