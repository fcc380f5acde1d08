"""The command line; `_cli` lists the commands, `_exit` the exit codes."""

import atexit
import contextlib
import gc
import io
import itertools
import os
import signal
import stat
import sys
import threading
from collections.abc import Generator, Iterable
from typing import Any

from denizen._garbage import uncollected
from denizen.app import _exit


def process() -> None:
    """`main` in a process that does nothing else.

    It ends as Python does, waiting for threads, calling what asked to be called and writing what files still hold, but
    leaves its memory to the system: to take all of torch apart takes Python a second.
    """
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    if not isinstance(code, int) or _goes_on():
        sys.exit(code)
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except KeyboardInterrupt:  # a thread of the user's goes on for ever
        code = _exit.STOPPED
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, full or closed: `main` has told it
            stream.flush()
    _close_files()
    os._exit(code)


def _goes_on() -> bool:
    """Whether Python has something to do after the command: a profiler's table, a debugger, a prompt."""
    tools = getattr(sys, "monitoring", None)  # since Python 3.12
    watched = tools is not None and any(map(tools.get_tool, range(6)))
    return watched or sys.getprofile() is not None or sys.gettrace() is not None or bool(sys.flags.inspect)


def _close_files() -> None:
    """Write what files that a user's code left open still hold: texts, then what compresses, then bytes."""
    things = gc.get_objects()  # hundreds of thousands: without a line of Python for each
    kinds = {kind for kind in set(map(type, things)) if issubclass(kind, io.TextIOBase | io.BufferedIOBase)}
    left: list[Any] = list(itertools.compress(things, map(kinds.__contains__, map(type, things))))
    for one in sorted(left, key=lambda one: (not isinstance(one, io.TextIOBase), type(one).__module__ == "_io")):
        with contextlib.suppress(Exception):  # no file of the system's, or one that cannot be written any more
            if one.fileno() > 2 and stat.S_ISREG(os.fstat(one.fileno()).st_mode):  # a pipe's reader may never read
                one.close()


def main() -> None:
    """Read `sys.argv`, do what it says, exit; exit codes are in `denizen.app._exit`."""
    words = sys.argv[1:]
    if words in (["--version"], ["-V"]):
        from denizen._version import __version__

        print(f"denizen {__version__}")
        return
    with _streams():
        code = _do(words)
    sys.exit(code)


def _do(words: list[str]) -> int:
    try:
        with _ends_at_once(), uncollected():
            from denizen._printing import Console
            from denizen.app import _cli, _failures

            errors = Console(stderr=True)
            try:
                try:
                    command: Any = _cli.parse(words or ["--help"])
                finally:
                    _flush()  # help that cannot be written, as on a full disk, is told here
            except Exception as error:
                _failures.tell(error, errors)
                return _exit.WRONG
            console = Console(quiet=getattr(command, "quiet", False))
        if signal.SIGTERM in _heard():
            signal.signal(signal.SIGTERM, _terminate)
        try:
            with _failures.warnings_as_notes(errors):
                code = _cli.run(command, console)
            _flush()
            return code
        except Exception as error:
            _failures.tell(error, errors)
            return _exit.WRONG
    except KeyboardInterrupt as stop:
        sys.stderr.write(f"interrupted{_safe(stop)}\n")
        return _exit.STOPPED


@contextlib.contextmanager
def _ends_at_once() -> Generator[None]:
    """While modules are imported and words are read, Ctrl-C and SIGTERM end the process by one line.

    There is nothing to save yet, and an interrupt that is raised within an import may be taken for a broken library.
    """
    before = {number: signal.getsignal(number) for number in _heard()}
    try:
        for number in before:
            signal.signal(number, _end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _heard() -> list[signal.Signals]:
    """Signals that are for us: none in another thread, and not those that `nohup` or a shell's `&` has us ignore."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]


def _end(number: int, frame: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(_exit.STOPPED)


@contextlib.contextmanager
def _streams() -> Generator[None]:
    """Output that ends a command neither by a closed pipe nor by letters that the terminal's encoding does not have."""
    kept = sys.stdout, sys.stderr
    for stream in kept:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = (None if stream is None else _Patient(stream) for stream in kept)  # type: ignore[assignment]
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.close()
        sys.stdout, sys.stderr = kept


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


class _Patient:
    """A stream whose reader may leave: `head`, for example, has seen enough, and what is under way goes on."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._leave()
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def close(self) -> None:
        """Write what is left, or else drop it: the interpreter would try again at its end."""
        try:
            self.flush()
        except OSError:
            self._leave()

    def _leave(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _safe(stop: BaseException) -> str:
    folder = getattr(stop, "folder", None)
    if hasattr(stop, "go_on"):
        return f"; {stop.go_on}"
    if folder is None:
        return ""
    from denizen.app._folders import resume_command

    safe = stop.safe if hasattr(stop, "safe") else f"{getattr(stop, 'updates', 0)} updates"
    return f"; {safe} are safe, go on with: {resume_command(folder, getattr(stop, 'target', ''))}"


def _terminate(number: int, frame: Any) -> None:
    """A scheduler's SIGTERM is treated like Ctrl-C: save, then go."""
    raise KeyboardInterrupt
