"""What the help of each command says, beside what the command declares."""

import ast
import dataclasses
import inspect
import re
import textwrap

import pytest
from tests.app.commands import COMMANDS

from denizen.app import _cli


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_keeps_its_lines(denizen, monkeypatch, command, columns):
    text = _cli._load(command).about
    monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = denizen(*command.split(), "--help")
    assert code == 0
    shown = [line.rstrip() for line in out.splitlines()]
    for line in text.rstrip().splitlines():
        assert line.rstrip() in shown, line
    options = [line for line in shown if not line.startswith("usage:") and line not in text.splitlines()]
    assert max(map(len, options)) <= int(columns)
    for odd in ("(default: )", "(default: '')", "{None}"):
        assert odd not in out


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("models", "[TARGET]"),
        ("bench", "[OPTIONS] [TARGET]"),
        ("doctor", "[OPTIONS] [TARGET]"),
        ("evaluate", "[OPTIONS] RUN [WORLD]"),
        ("watch", "[OPTIONS] RUN [WORLD]"),
        ("resume", "RUN [FILE.py:NAME]"),
        ("compare", "[OPTIONS] RUN [RUN ...]"),
        ("report", "RUN [RUN ...]"),
        ("train", "[OPTIONS] WORLD"),
        ("experiment", "[OPTIONS] EXPERIMENT"),
    ],
)
def test_usage_has_brackets_around_what_may_be_left_out(denizen, command, words):
    assert " ".join(denizen(command, "--help")[1].split()).startswith(f"usage: denizen {command} [-h] {words}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_that_help_shows_is_known(denizen, name):
    shown = set(re.findall(r"^[\s│|]*(?:-h, )?(--[a-z][a-z-]*)", denizen(*name.split(), "--help")[1], re.MULTILINE))
    assert "--help" in shown
    assert shown <= set(_cli.flags(_cli._load(name)))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_flag_is_a_sentence(name):
    command = _cli._load(name)
    nested = [field.default_factory for field in dataclasses.fields(command) if field.name == "settings"]
    for cls in (command, *nested):
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and field.target.id not in ("about", "settings"):
                told = text.value.value
                assert told[-1] in ".)", (field.target.id, told)
                assert not told.startswith("Of "), (field.target.id, told)
