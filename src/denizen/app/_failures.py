"""What went wrong, for people: a message of ours, the traceback of their own code, or where to find that of a fault."""

import contextlib
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denizen.errors import DenizenError

if TYPE_CHECKING:
    from denizen._printing import Console


PACKAGE = Path(__file__).parents[1]
FULL = ("can't allocate memory", "out of memory")  # what torch says


class TheirsError(Exception):
    """An error of the user's code, which it is the cause of."""


@contextlib.contextmanager
def their_code() -> Generator[None]:
    """Around what runs code of the user's: what it prints stays out of the results, what it raises is told as its own.

    Raises:
        TheirsError: it raised something, or ended the process.
        DenizenError: it was used wrongly.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except TheirsError:
        raise
    except DenizenError as error:
        if not _lines(error):
            raise
        raise TheirsError from error
    except (Exception, SystemExit) as error:
        raise TheirsError from error


@contextlib.contextmanager
def told_by_their_lines() -> Generator[None]:
    """Around a command: an error that lines of the user's led to is told with them.

    Raises:
        TheirsError: there was one.
    """
    try:
        yield
    except TheirsError:
        raise
    except Exception as error:
        # What a message of ours tells in place of another error is told without that one's lines.
        ours = isinstance(error, DenizenError)
        if _theirs(traceback.extract_tb(error.__traceback__)) if ours else _lines(error):
            raise TheirsError from error
        raise


@contextlib.contextmanager
def warnings_as_notes(console: "Console") -> Generator[None]:
    """Around a command: what denizen warns of is a line on the console; warnings of other code are shown as ever."""
    before = warnings.showwarning

    def show(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: str | None = None
    ) -> None:
        if file is None and category is UserWarning and Path(filename).is_relative_to(PACKAGE):
            from denizen._printing import say

            say(console, f"note: {message}")
        else:
            before(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def tell(error: BaseException, console: "Console") -> None:
    """Say on the console what ended a command."""
    from denizen._printing import say  # trainings are built from here where nothing prints

    if isinstance(error, TheirsError) and error.__cause__ is not None:
        return _tell_theirs(error.__cause__, console)
    if isinstance(error, DenizenError):
        say(console, ("error", "bold red"), " ", _message(error))
    elif isinstance(error, OSError) and error.strerror:
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        say(console, ("error", "bold red"), " ", f"{place}{error.strerror}")
    elif isinstance(error, MemoryError) or any(words in str(error) for words in FULL):
        first = str(error).partition("\n")[0]
        say(console, ("error", "bold red"), " ", f"not enough memory for so much at once: {first or 'nothing is left'}")
    else:
        say(console, ("error", "bold red"), " ", _named(error))
        say(console, f"this should have been a better message: please report it, with the traceback in {_kept(error)}")


def _tell_theirs(error: BaseException, console: "Console") -> None:
    from denizen._printing import say

    text = "".join(_of_theirs(traceback.TracebackException.from_exception(error)).format())
    if not _lines(error) and not isinstance(error, SyntaxError):  # it could not even be called
        say(console, ("error", "bold red"), " ", _named(error))
        say(console, f"your code raised it, or using it did; the traceback is in {_kept(error)}")
        return
    if isinstance(error, DenizenError):  # in full, as elsewhere, after the lines that led there
        lines = "".join(traceback.format_list(_lines(error)))
        say(console, f"Traceback (most recent call last):\n{lines}".rstrip())
        say(console, ("error", "bold red"), " ", _message(error))
        return
    say(console, text.rstrip())
    if isinstance(error, SystemExit):
        say(console, ("error", "bold red"), " the code ends the process; nothing can be told of it")


def _of_theirs(told: traceback.TracebackException) -> traceback.TracebackException:
    """Without frames of libraries and of denizen, also in the errors that it came from.

    Nor with the note that names the line: the frames end with it.
    """
    from denizen.perf.watch import RAISED

    told.__notes__ = [note for note in told.__notes__ or () if not str(note).startswith(RAISED)]
    told.stack = traceback.StackSummary.from_list(_theirs(told.stack))
    for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
        if other is not None:
            _of_theirs(other)
    return told


def _lines(error: BaseException) -> list[traceback.FrameSummary]:
    """Their lines that led to an error, or to the one that it tells of."""
    lines = _theirs(traceback.extract_tb(error.__traceback__))
    return lines or ([] if error.__cause__ is None else _lines(error.__cause__))


def _theirs(stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
    from denizen.perf.watch import USER, role

    # Code of dataclasses, and of Cython, whose frames name files that are nowhere.
    return [
        f for f in stack if f.filename != "<string>" and not f.filename.endswith(".pyx") and role(f.filename) == USER
    ]


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().removesuffix(":")


def _message(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def _kept(error: BaseException) -> str:
    """Where the traceback of a fault of ours was written."""
    text = "".join(traceback.format_exception(error))
    try:
        descriptor, path = tempfile.mkstemp(prefix="denizen-error-", suffix=".txt", text=True)
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return f"what follows\n{text}"
    return os.fspath(path)
