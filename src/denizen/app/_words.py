"""A command from the words behind its name; words that mean nothing end it with one line."""

import contextlib
import dataclasses
import difflib
import io
import re
import typing
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from denizen.app._settings import number, whole
from denizen.errors import ConfigError, nearest

FLAG = re.compile("--?[A-Za-z]")  # what is meant as one; -1 is a number
FRAME = re.compile("\x1b\\[[0-9;]*m|^[│╭╰]|[│╮╯]$")  # of the parser's boxes, and their colours

INTERVENTIONS = {"act", "ask", "campaign", "course", "intervention", "isolation", "tracing", "trigger", "vaccine"}
IN_A_FILE = (
    "interventions that --scale cannot say stand in a file: a class that takes over the model, with a property "
    "interventions, run as FILE.py:NAME"
)


def read(command: type[Any], name: str, words: Sequence[str], **begun: Any) -> Any:
    """An object of a command's class; exits as argparse does for `--help`.

    Args:
        command: a dataclass of commands.
        name: of the command, such as `"train dotgat"`.
        words: behind it.
        **begun: `default`, what flags start from.

    Raises:
        ConfigError: a word that means nothing here, one that is missing, or a value of another kind: one line, which
            ends with the command whose help says more.
    """
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            found, unknown = tyro.cli(
                command,
                prog=f"denizen {name}",
                description=command.about,
                args=words,
                registry=numbers(),
                return_unknown_args=True,
                **begun,
            )
    except SystemExit as stop:
        if stop.code != 2:
            raise
        # Of two mistakes the flag that does not exist is told: what is missing may have gone to it.
        unknown = [word for word in words if FLAG.match(word) and not _known(word, flags(command))]
        wrong = _unknown(command, name, unknown) if unknown else _shortened(told.getvalue(), command, name)
        raise ConfigError(with_help(wrong, name)) from None
    if unknown:
        raise ConfigError(with_help(_unknown(command, name, unknown), name))
    for flag, shown in _shown(command).items():
        given = getattr(found, flag.lstrip("-").replace("-", "_"), None)
        if isinstance(given, tuple) and () in given:  # a flag that takes several, with none behind it
            raise ConfigError(with_help(f"{flag} needs a value, {shown}", name))
    return found


def with_help(wrong: str, name: str = "") -> str:
    """A message that ends with the command whose help says more."""
    return f"{wrong}{'' if wrong.endswith('?') else ';'} denizen {f'{name} ' if name else ''}--help"


def flags(command: type[Any]) -> list[str]:
    """The flags of a command, as they are typed."""
    found = ["--help"]
    for field, hint in _fields(command):
        markers = typing.get_args(hint)
        if tyro.conf.Positional not in markers:
            found.append(_typed(field))
        if hint is bool:  # one without the marker by which no second flag is made
            found.append(f"--no-{field.name.replace('_', '-')}")
    return found


def near(flag: str, valid: Sequence[str]) -> str | None:
    """The flag that was meant, if one is likely: `--steps` for `--step` and for `--total-steps`."""
    words = _stems(flag)
    within = sorted((one for one in valid if _stems(one) <= words), key=len, reverse=True)
    names = {"-".join(_parts(one)): one for one in valid}
    alike = [names[name] for name in difflib.get_close_matches("-".join(_parts(flag)), names, n=1)]
    around = [one for one in valid if words <= _stems(one)]
    return next(iter([*within, *alike, *around]), None)


def numbers() -> ConstructorRegistry:
    """Numbers are written in one way behind all flags, also of a command whose numbers are words."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def rule(told: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        for kind, read_as, metavar in ((int, whole, "N"), (float, number, "X")):
            maybe = told.type == kind | None
            if told.type is kind or maybe:
                return PrimitiveConstructorSpec(
                    nargs=1,
                    metavar=metavar,
                    instance_from_str=lambda words, read_as=read_as: read_as(words[0]),
                    is_instance=lambda value, kind=kind, maybe=maybe: type(value) is kind or (maybe and value is None),
                    str_from_instance=lambda value: [str(value)],
                )
        return None

    return registry


def _fields(command: type[Any]) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """Fields that are read from words, with their types; of settings within a command, theirs."""
    hints = typing.get_type_hints(command, include_extras=True)
    for field in dataclasses.fields(command):
        hint = hints[field.name]
        plain, *markers = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)
        if dataclasses.is_dataclass(plain):
            yield from _fields(plain)  # type: ignore[arg-type]
        elif tyro.conf.Fixed not in markers:
            yield field, hint


def _typed(field: dataclasses.Field[Any]) -> str:
    """A field as its flag is typed; `from_` is `--from`, which Python keeps for itself."""
    return f"--{field.name.rstrip('_').replace('_', '-')}"


def _known(word: str, valid: Sequence[str]) -> bool:
    """Whether a word is one of the flags, which all begin with two dashes."""
    return word.startswith("--") and f"--{'-'.join(_parts(word))}" in valid


def _parts(flag: str) -> list[str]:
    return flag.partition("=")[0].lstrip("-").replace("_", "-").lower().split("-")


def _stems(flag: str) -> set[str]:
    """Its words, whether they are written as one or as several."""
    return {part.removesuffix("s") for part in _parts(flag)}


def _unknown(command: type[Any], name: str, words: Sequence[str]) -> str:
    """What to say of words that a command does not take."""
    word = next((word for word in words if word.startswith("-")), words[0])
    valid, shown = flags(command), word.partition("=")[0]
    if not word.startswith("-"):
        flag = _flag_of_pair(command, shown) if "=" in word else None
        return f"{word}: one word too many for denizen {name}" + (f"; did you mean {flag} {word}?" if flag else "")
    if "--scale" in valid and _stems(shown) & INTERVENTIONS:
        return f"{shown}: denizen {name} has no such flag; {IN_A_FILE}"
    meant = near(word, valid)
    if meant is not None:
        return f"{shown}: denizen {name} has no such flag, did you mean {meant}?"
    key = shown[2:].replace("-", "_")
    flag = _flag_of_pair(command, key) if word.startswith("--") else None
    hint = f"; a parameter, setting or option of that name is given as {flag} {key}=VALUE" if flag else ""
    return f"{shown}: denizen {name} has no such flag{hint}"


def _flag_of_pair(command: type[Any], key: str) -> str | None:
    """The flag behind which a name is set; None for a command that sets nothing."""
    pairs = [flag for flag in ("--set", "--world") if flag in flags(command)]
    return None if not pairs else pairs[0] if len(pairs) == 1 or key in _of_algorithms() else "--world"


def _of_algorithms() -> set[str]:
    from denizen.rl import GRPO, PPO

    return {field.name for algorithm in (GRPO, PPO) for field in dataclasses.fields(algorithm)}


def _shortened(text: str, command: type[Any], name: str) -> str:
    """What the parser says in a box, in a line."""
    lines = [FRAME.sub("", FRAME.sub("", line.strip())).strip() for line in text.splitlines()]
    # A title, perhaps a rule, what is wrong, and behind the next rule what this command does without.
    parts = [
        list(part) for rule, part in groupby(lines[1:], lambda line: bool(line) and not line.strip("─-")) if not rule
    ]
    said = " ".join(line for line in parts[0] if line) if parts else ""
    if found := re.fullmatch(r"Error parsing (\S+): (.*)", said):
        return f"{found[1]}: {found[2]}"
    if found := re.match(r"Missing value for argument '([^'/]+)", said):
        if not found[1].startswith("-"):
            return f"denizen {name} needs {_shown(command).get(found[1], found[1])}"
        return f"{found[1]} needs a value, {_shown(command).get(found[1], 'VALUE')}"
    if found := re.fullmatch(r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*)\)\.", said):
        valid = re.findall("'([^']*)'", found[3])
        return f"{_shown(command).get(found[2], found[2])} {found[1]}: {nearest(found[1], valid)}"
    if said.startswith("Missing from"):
        needed = [shown for shown in _shown(command).values() if shown in said.split()]
        return f"denizen {name} needs {' and '.join(needed)}"
    return said or "these words mean nothing"


def _shown(command: type[Any]) -> dict[str, str]:
    """What help calls what has no flag, by the name of its field; and the values of flags, by flag."""
    found = {}
    for field, hint in _fields(command):
        given = [marker.metavar for marker in typing.get_args(hint) if getattr(marker, "metavar", None)]
        positional = tyro.conf.Positional in typing.get_args(hint)
        if given:
            found[field.name if positional else _typed(field)] = given[0]
    return found
