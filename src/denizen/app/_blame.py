"""Where a value came from: messages that name a flag name the file that said it, where no flag did."""

import contextlib
import dataclasses
import re
from collections.abc import Collection, Generator, Mapping
from typing import Any

from denizen.errors import ConfigError

PAIRS = ("set", "world", "policy", "validation")  # flags that take NAME=VALUE
_FLAG = re.compile(r"--([a-z][a-z-]*)")
_NAMES = re.compile(r"(?<=\s)[^\s=:]+(?==|:)")


@dataclasses.dataclass(frozen=True)
class Given:
    """A file that gave values.

    Attributes:
        where: how messages name it.
        flags: names of the flags that it gave, but for those of pairs; None: all.
        names: of each flag of pairs, the names that it gave; None: all.
    """

    where: str
    flags: Collection[str] | None = None
    names: Mapping[str, Collection[str]] | None = None


@contextlib.contextmanager
def blamed(given: Given | None) -> Generator[None]:
    """Errors that begin with a flag whose value came from elsewhere begin with that.

    Raises:
        ConfigError: what the block raised.
    """
    try:
        yield
    except ConfigError as error:
        text = None if given is None else _blaming(str(error), given)
        if text is None:
            raise
        raise ConfigError(text) from error


def _blaming(text: str, given: Given) -> str | None:
    """The message about the file; None where a flag was wrong."""
    found = _FLAG.match(text)
    if found is None:
        return None
    flag = found[1].replace("-", "_")
    if flag not in PAIRS:
        return f"{given.where}: {text}" if given.flags is None or flag in given.flags else None
    rest = text[found.end() :]
    names = _NAMES.findall(_head(rest))
    known = names if given.names is None else [name for name in names if name in given.names.get(flag, ())]
    if not known:
        return None
    if known != names:
        return f"{text} ({', '.join(known)} from {given.where})"
    return f"{given.where}: {flag}.{rest.lstrip()}"


def _head(rest: str) -> str:
    """The pairs at the beginning of a message."""
    words = []
    for word in rest.split(" "):
        words.append(word)
        if word.endswith(":"):
            break
    return " ".join(words)


def of_file(command: Any, file: Any) -> Given | None:
    """What a command has of its `--config` file; None where there is none.

    Args:
        command: as it was parsed.
        file: the command that the file alone means.
    """
    if file is None:
        return None
    flags: list[str] = []
    names: dict[str, set[str]] = {}
    for field in dataclasses.fields(command):
        said = getattr(file, field.name)
        if field.name in PAIRS:
            told = getattr(command, field.name)[len(said) :]  # the parser began with the file's
            by_flag = {text.partition("=")[0].strip() for group in told for text in group}
            names[field.name] = {text.partition("=")[0] for group in said for text in group} - by_flag
        elif said != field.default and said == getattr(command, field.name):
            flags.append(field.name)
    if "mode" in flags:  # short for --world mode=…
        names.setdefault("world", set()).add("mode")
    return Given(f"--config {command.config}", flags, names)
