"""`denizen report`: one html page of one run folder or several, and the page that commands write at their end."""

import contextlib
import dataclasses
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen._printing import give, link, say
from denizen.app._exit import DONE
from denizen.app._folders import KINDS, expect
from denizen.errors import ConfigError, DenizenError, StorageError

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.report import Page

NAME, EXPERIMENT = "report.html", "experiment"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 120  # for a page to be printed


@dataclasses.dataclass(frozen=True)
class Report:
    """`denizen report`."""

    about: ClassVar[str] = """Write a page of what run folders hold: curves, tables, settings. It needs no network.

examples:
  denizen report runs/covid-20261128-120000                        runs/covid-20261128-120000/report.html
  denizen report runs/sir-20261128-120000 runs/sir-20261128-130000 --out sir.html    beside each other
  denizen report runs/cartpole-ppo-20261128-120000 --pdf           also as PDF"""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]", help_behavior_hint="")]
    """Run folders. Several of a kind stand beside each other."""
    out: Annotated[Path | None, arg(metavar="FILE.html", help_behavior_hint="(default: RUN/report.html)")] = None
    """Page to write. Of several runs: report.html."""
    pdf: FlagCreatePairsOff[bool] = False
    """Print the page as PDF too, beside it. This needs Chromium."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print only the path of the page."""

    def __call__(self, console: "Console") -> int:
        """Write the page."""
        if not self.runs:
            raise ConfigError("denizen report needs RUN, a run folder")
        if self.out is not None and self.out.suffix != ".html":
            raise ConfigError(f"--out {self.out}: expected a name that ends in .html")
        browser = _chromium() if self.pdf else ""  # before any work
        place = self.out or (self.runs[0] / NAME if len(self.runs) == 1 else Path(NAME))
        with console.status("reading …"):
            page = page_of(self.runs).write(place)
        tell(page, console)
        if self.pdf:
            pdf = page.with_suffix(".pdf")
            _print(browser, page, pdf)
            say(console, "pdf         ", link(pdf))
        if self.quiet:
            give(page)
        return DONE


def page_of(runs: Sequence[Path]) -> "Page":
    """The page of some run folders.

    Raises:
        ConfigError: folders of several kinds.
        DataError: there is no run in a folder, or it is damaged.
    """
    kinds = {run: _kind(run) for run in runs}
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{run} holds a run of kind {kind}" for run, kind in kinds.items())
        raise ConfigError(f"a report is of runs of one kind: {told}")
    module = {**KINDS, EXPERIMENT: "_experiment"}[next(iter(kinds.values()))]
    return import_module(f"denizen.app.{module}").report(list(kinds))


def _kind(run: Path) -> str:
    return EXPERIMENT if (run / "experiment.json").exists() else expect(run, "report")


def write_at_end(folder: Path, console: "Console", page: Callable[[], "Page"]) -> None:
    """Write the page of a run that has ended. What hinders it is a line, not a failure: the run is safe by then."""
    try:
        tell(page().write(folder / NAME), console)
    except (DenizenError, OSError) as error:
        say(console, f"no report: {error}")


def tell(page: Path, console: "Console") -> None:
    """Print the whole path of a page, as a link where the terminal has such; others make one of the path itself."""
    say(console, "report      ", link(page.resolve()))


UNTOLD = ("device", "out", "quiet", "file", "config")  # of commands: not what they compute


def typed(name: str, command: Any, given: Mapping[str, Any] | None = None) -> str:
    """A command as it is typed, without what it would do anyway.

    Args:
        name: of the command, whose first field is what stands behind it.
        command: its dataclass.
        given: values in place of those of fields.
    """
    first, *others = dataclasses.fields(command)
    values = {field.name: getattr(command, field.name) for field in others if field.name not in UNTOLD}
    values |= dict(given or {})
    words = ["denizen", name, str(getattr(command, first.name))]
    for field in others:
        value = values.get(field.name)
        if value in (field.default, None, False, ()):
            continue
        flag = f"--{field.name.replace('_', '-')}"
        words += [flag] if value is True else [flag, *_texts(value)]
    return shlex.join(words)


def _texts(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [text for one in value for text in _texts(one)]
    return [str(value)]


def _chromium() -> str:
    """The program that prints pages."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    raise ConfigError(
        "--pdf needs Chromium, which is not on the PATH; install it (apt install chromium), or print the "
        "page from a browser"
    )


def _print(browser: str, page: Path, pdf: Path) -> None:
    """Print a page to a PDF file."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={profile}"]
        command += ["--window-size=720,1000", "--virtual-time-budget=10000", f"--print-to-pdf={pdf.resolve()}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--no-sandbox")  # which Chromium does not have for root; the page runs scripts of ours alone
        try:
            pdf.unlink(missing_ok=True)
            done = subprocess.run(
                [*command, page.resolve().as_uri()], capture_output=True, text=True, check=False, timeout=SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StorageError(f"{pdf} could not be written: {error}") from error
    if not pdf.exists():
        told = done.stderr.strip().rpartition("\n")[2][:300]
        raise StorageError(f"{pdf} could not be written: {browser} ended with exit code {done.returncode}: {told}")


@contextlib.contextmanager
def plotting(console: "Console") -> Iterator[None]:
    """A plot that cannot be drawn or written is a line, not a failure: the run is safe by then."""
    try:
        yield
    except (ImportError, StorageError) as error:
        say(console, f"no curves: {error}")
