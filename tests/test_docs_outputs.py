"""What guides show below a snippet or a command is what it prints today, up to what varies by machine.

A `text` block right below a Python block shows lines of what that prints; one that begins with `$ denizen` has a
command too. Pages may wrap lines and leave some out. Times, rates, sizes, paths, versions and lines of files are not
compared; other numbers are, to 2 %.
"""

import contextlib
import io
import math
import re
import shlex
import sys
import types
from pathlib import Path

import pytest
import torch

GUIDES = Path(__file__).resolve().parents[1] / "docs" / "guides"
LEFT_OUT = {
    "bench": "its tables are times",
    "counters": "its tables are times, and go by what is installed",
    "data": "its tables are times",
    "devices": "needs a GPU that is too small",
    "first-three-minutes": "of `denizen hello`, which takes half a minute; tests/app/test_hello.py",
    "foraging": "half a minute; returns of trained policies differ by processor",
    "grpo": "half a minute",
    "machine": "of one machine, and operators go by the version of torch",
    "off-policy": "its text is commands that train for minutes",
    "profile": "its tables are times",
    "sweeps": "its text is a tree of files",
    "training": "half a minute",
    "training-helpers": "half a minute, and batch sizes by the memory there is",
    "troubleshooting": "errors of half precision, which differ by processor",
}
COMPARED = {page.stem: page for page in sorted(GUIDES.glob("*.md")) if "```text" in page.read_text(encoding="utf-8")}
BLOCK = re.compile(r"^(?:<!--- (skip): next[^\n]*-->\n+)?```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NUMBER = r"\d[\d,]*(?:\.\d+)?"
VARIES = re.compile(
    rf"[\w./-]*\.(?:py|md):\d+|\w*/[\w./-]+|\d+\.\d+\.\d+\S*|{NUMBER}(?: (?:s|ms|µs|us|bytes|a second)\b|"
    rf" ?(?:%|[KMG]i?B\b|GFLOP\b))"
)


def words(text):
    return VARIES.sub("#", text).split()


def same(shown, printed):
    with contextlib.suppress(ValueError):
        return math.isclose(*(float(word.replace(",", "").strip("(){}[],")) for word in (shown, printed)), rel_tol=0.02)
    return shown == printed


def missing(shown, printed):
    """The first line of a page whose words were not printed below those of the lines before it; None: there is none."""
    there, begin = words(printed), 0
    for line in filter(str.strip, shown.splitlines()):
        wanted = words(line)
        places = range(begin, len(there) - len(wanted) + 1)
        found = next((k for k in places if all(map(same, wanted, there[k : k + len(wanted)]))), None)
        if found is None:
            return line
        begin = found + len(wanted)
    return None


def test_pages_that_are_left_out_are_there():
    assert set(LEFT_OUT) < set(COMPARED)


@pytest.mark.parametrize(
    ("shown", "printed", "differs"),
    [
        ("12 cases in 1.2 s", "12 cases in 3 s", False),
        ("12 cases in 1.2 s", "13 cases in 1.2 s", True),
        ("model.py:3  [dt]", "x/y.py:77 [dt]", False),
        ("0.501 of 1", "0.502 of 1", False),
        ("a b", "a", True),
        ("a\nb c", "a b\nc", False),
        ("one\nthree", "one\ntwo\nthree", False),
        ("three\none", "one\ntwo\nthree", True),
    ],
)
def test_what_is_compared(shown, printed, differs):
    assert (missing(shown, printed) is not None) is differs


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(COMPARED) - set(LEFT_OUT)))
def test_pages_show_what_is_printed(name, tmp_path, monkeypatch, command_line):
    torch._dynamo.utils.counters.clear()  # `--checklist` tells of all that a process compiled
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    page = types.ModuleType(f"page_{name.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    printed, told = None, []
    for place, (skip, language, body) in enumerate(BLOCK.findall(COMPARED[name].read_text(encoding="utf-8"))):
        if language == "text":
            shown = body
            if body.startswith("$ denizen "):
                command, _, shown = body.removeprefix("$ denizen ").partition("\n")
                printed = "".join(command_line(*shlex.split(command))[1:])
            if printed is not None and not skip:
                told.append(missing(shown, printed))
        printed = None
        if language == "python" and not skip:
            file = Path(f"block_{place}.py")  # a file, so that what quotes lines finds them
            file.write_text(body, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(body, str(file), "exec"), vars(page))
            printed = output.getvalue()
    assert told
    assert set(told) == {None}, f"{name}.md shows these lines, which are not printed"
