"""Makers of steps from `programs/`, and the lines that their comments blame."""

import inspect
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_name("programs")
MARK = re.compile(r"  # ([a-z0-9 -]+)$")


def programs(*files: str) -> dict[str, Callable[[Any], Any]]:
    """The functions of these files, by name."""
    named: dict[str, Any] = {}
    for file in files:
        found = runpy.run_path(str(PROGRAMS / f"{file}.py"))
        named |= {name: value for name, value in found.items() if name.startswith(("faulty_", "mended_", "harmless_"))}
    return named


def places(file: Path) -> dict[str, int]:
    """Lines of a file that end in ``# <- name``, by that name."""
    lines = enumerate(file.read_text().splitlines(), 1)
    marks = ((number, re.search(r"  # <- (\w+)$", line)) for number, line in lines)
    return {mark[1]: number for number, mark in marks if mark}


def blamed(program: Callable[[Any], Any]) -> dict[int, set[str]]:
    """Kinds that a program's comments name, by their line in the file."""
    lines, first = inspect.getsourcelines(program)
    marks = ((number, MARK.search(line.rstrip())) for number, line in enumerate(lines, first))
    return {number: set(mark[1].split()) for number, mark in marks if mark}
