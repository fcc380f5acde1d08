"""The command line; `_cli` lists the commands."""

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Read `sys.argv`, do what it says, exit.

    Exit codes: 0 done, 1 a check failed, 2 something was wrong and the message says what, 130 interrupted and saved.
    """
    words = sys.argv[1:]
    if words in (["--version"], ["-V"]):
        from denizen._version import __version__

        print(f"denizen {__version__}")
        return
    try:
        sys.exit(_do(words))
    except BrokenPipeError:  # the reader of a pipe, `head` for example, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _do(words: list[str]) -> int:
    from rich.console import Console

    from denizen.errors import DenizenError

    errors = Console(stderr=True)
    try:
        signal.signal(signal.SIGTERM, _terminate)
        from denizen.app import _cli, _commands

        command: Any = _cli.parse(words or ["--help"])
        console = Console(quiet=getattr(command, "quiet", False))
        if isinstance(command, _cli.RunConfig):
            _commands.run_model(command, console)
        elif isinstance(command, _cli.Resume):
            _commands.resume(command, console)
        elif isinstance(command, _cli.Show):
            _commands.show(command, console)
        elif isinstance(command, _cli.Models):
            _commands.models(console)
        else:
            return command(console)
    except DenizenError as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        errors.print("[bold red]error[/]", text.replace("[", r"\["), highlight=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt as stop:
        errors.print(f"interrupted{_safe(stop)}", highlight=False, markup=False, soft_wrap=True)
        return 130
    return 0


def _safe(stop: BaseException) -> str:
    folder = getattr(stop, "folder", None)
    if hasattr(stop, "go_on"):
        return f"; {stop.go_on}"
    if folder is None:
        return ""
    from denizen.app._cli import resume_command

    steps = getattr(stop, "steps", None)
    epochs = getattr(stop, "epochs", None)
    safe = f"{getattr(stop, 'updates', 0)} updates" if epochs is None else f"{epochs} epochs"
    safe = safe if steps is None else f"{steps} steps"
    return f"; {safe} are safe, go on with: {resume_command(folder)}"


def _terminate(number: int, frame: Any) -> None:
    """A scheduler's SIGTERM is treated like Ctrl-C: save, then go."""
    raise KeyboardInterrupt
