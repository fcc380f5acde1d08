"""The words of the command line: the commands, their help, and a command from the words behind its name."""

import contextlib
import dataclasses
import difflib
import io
import re
import typing
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_type_hints

import tyro
from tyro.conf import Positional, arg, subcommand
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from denizen.app import _failures, _run
from denizen.app._exit import DONE
from denizen.app._settings import number, whole
from denizen.errors import ConfigError, nearest
from denizen.zoo import WorldEntry, entry

if TYPE_CHECKING:
    from denizen._printing import Console


ABOUT = """denizen: simulate large populations, train policies in them, and find what makes PyTorch loops slow.

examples:
  denizen hello                                      a small town, in seconds: curves and a page
  denizen run covid                                  an epidemic in a city of 37,518
  denizen run covid --population my/folder --replicates 64 --set R=3.5,4.2,5.6
  denizen show runs/covid-20261128-120000            its numbers and curves again
  denizen resume runs/covid-20261128-120000          go on after Ctrl-C, a crash or a full disk
  denizen report runs/covid-20261128-120000          a page of it, to look at and to send
  denizen models                                     all models and worlds, and what can be set
  denizen run city.py:Epidemic                       a model of your own
  denizen calibrate sir --targets cases.csv --column cases    parameters from a curve
  denizen sweep sir --grid infect_rate=0.02,0.04,0.06         many sets of parameters in the same worlds
  denizen train cartpole                             a policy that balances a pole
  denizen ui                                         all runs in a browser, also while they go on
  denizen doctor train.py:make                       what slows a PyTorch loop down
  denizen --version"""

Folder = Annotated[Positional[Path], arg(metavar="RUN")]


@dataclasses.dataclass(frozen=True)
class Show:
    """`denizen show`."""

    about: ClassVar[
        str
    ] = """Show what a run folder holds: the run, its table and its curves. The run may still be going on.

examples:
  denizen show runs/covid-20261128-120000        a run: its table and curves
  denizen show runs/sir-fit-20261128-120000      a calibration: estimates and intervals"""

    run: Folder
    """Run folder."""

    def __call__(self, console: "Console") -> int:
        """Do what its kind of run has done."""
        from denizen.app import _folders

        _folders.do("show", self, console)
        return DONE


@dataclasses.dataclass(frozen=True)
class Resume:
    """`denizen resume`."""

    about: ClassVar[
        str
    ] = """Go on with a run, a calibration, a sweep or a training, bit for bit as if it had never stopped.

examples:
  denizen resume runs/covid-20261128-120000               the steps that are missing
  denizen resume runs/covid-20261128-120000 --steps 60    60 further steps
  denizen resume runs/sir-fit-20261128-120000             a calibration, to its end
  denizen resume runs/Epidemic-20261128-120000 city.py:Epidemic    a run of a model from a file"""

    run: Folder
    """Run folder."""
    target: Annotated[Positional[str], arg(metavar="[FILE.py:NAME]", help_behavior_hint="")] = ""
    """The file that the model or world came from, if it came from one. A file runs only where you name it."""
    steps: Annotated[int | None, arg(metavar="MORE", help_behavior_hint="(default: those missing)")] = None
    """Number of further steps."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to go on with. auto takes DENIZEN_DEVICE where it is set, else the kind of device used before."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print only the path of the run folder."""

    def __call__(self, console: "Console") -> int:
        """Go on as its kind of run does."""
        from denizen.app import _folders

        _folders.do("resume", self, console)
        return DONE


# Every command: module within `denizen.app`, and a dataclass in it with the text `about` and a method
# `__call__(console) -> exit code`. The module imports what it needs for its work within that method.
# A name of two words, such as "train dotgat", has flags of its own and is told by the help of the first.
# CONTRIBUTING says what else a new command needs.
COMMANDS: dict[str, tuple[str, str]] = {
    "hello": ("_hello", "Hello"),
    "run": ("_run", "RunConfig"),
    "list": ("_list", "List"),
    "show": ("_cli", "Show"),
    "resume": ("_cli", "Resume"),
    "report": ("_report", "Report"),
    "models": ("_models", "Models"),
    "calibrate": ("_calibrate", "Calibrate"),
    "train": ("_train", "Train"),
    "train dotgat": ("_train_dotgat", "TrainDotGAT"),
    "evaluate": ("_evaluate", "Evaluate"),
    "watch": ("_watch", "Watch"),
    "compare": ("_compare", "Compare"),
    "sweep": ("_sweep", "SweepConfig"),
    "export": ("_export", "Export"),
    "experiment": ("_experiment", "Experiment"),
    "ui": ("_ui", "UI"),
    "check": ("_check", "Check"),
    "doctor": ("_doctor", "Doctor"),
    "profile": ("_profile", "Profile"),
    "bench": ("_bench", "Bench"),
    "equivalent": ("_equivalent", "Equivalent"),
}


def _load(name: str) -> Any:
    module, cls = COMMANDS[name]
    return getattr(import_module(f"denizen.app.{module}"), cls)


def parse(words: list[str]) -> Any:
    """The command that the words mean; exits as argparse does for `--help`.

    Raises:
        ConfigError: words that mean nothing, a `--config` file that cannot be used, or a parameter that is set twice.
    """
    two = " ".join(words[:2])
    if two in COMMANDS:
        return read(_load(two), two, words[2:])
    if words and words[0] in COMMANDS:
        begun = {"run": _run_begun, "train": _train_begun}.get(words[0])
        default: Any = {} if begun is None else {"default": begun(words)}
        command = read(_load(words[0]), words[0], words[1:], **default)
        return _run.with_file(command) if isinstance(command, _run.RunConfig) else command
    if words and words[0] not in ("-h", "--help") and not words[0].startswith("--tyro-"):
        raise ConfigError(with_help(_no_command(words[0])))
    commands: Any = None
    for name in (name for name in COMMANDS if " " not in name):
        command = _load(name)
        # In the list of commands a line each is enough.
        one = Annotated[command, subcommand(name, description=command.about.partition("\n")[0])]
        commands = one if commands is None else commands | one
    return tyro.cli(commands, prog="denizen", description=ABOUT, args=words, registry=numbers())


def _no_command(word: str) -> str:
    """What to say of a first word that is none of the commands."""
    commands = [name for name in COMMANDS if " " not in name]
    if word.startswith("-"):
        return f"{word}: a command comes first, one of {', '.join(commands)}"
    found = entry(word)
    if found is not None:
        told = f"a world: denizen train {word}" if isinstance(found, WorldEntry) else f"a model: denizen run {word}"
        return f"there is no command {word!r}; it is {told}"
    if word.partition(":")[0].endswith(".py"):
        return (
            f"there is no command {word!r}; a command comes first, such as denizen run {word} or denizen train {word}"
        )
    return f"there is no command {word!r}; {nearest(word, commands)}"


def run(command: Any, console: "Console") -> int:
    """Do what a command says; the exit code.

    Raises:
        ConfigError: it is to run on CUDA, and there is none.
        TheirsError: code of the user's raised something.
    """
    import torch

    if getattr(command, "device", None) == "cuda" and not torch.cuda.is_available():
        from denizen._device import no_cuda

        words = get_args(get_type_hints(type(command))["device"])
        there = " or ".join(word for word in words if word not in ("auto", "cuda"))
        raise ConfigError(f"--device cuda: {no_cuda()}; give --device {there}, or leave it out")
    with _failures.told_by_their_lines():
        return command(console)


def _config_file(words: list[str]) -> Path | None:
    """What `--config` names; None: nothing, or the parser says that the file is missing."""
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--config" and (equals or place + 1 < len(words)):
            return Path(value if equals else words[place + 1])
    return None


def _run_begun(words: list[str]) -> _run.RunConfig:
    """What flags start from: the `--config` file where one is named, so that help shows its values too.

    But for switches, so that their flags are offered.
    """
    file = _config_file(words)
    if file is None:
        return _run.RunConfig()
    begun = _run.from_file(file)
    return dataclasses.replace(begun, compile=False, no_compile=False, file=begun)


def _train_begun(words: list[str]) -> Any:
    """The same for `denizen train`."""
    from denizen.app import _train

    file = _config_file(words)
    if file is None:
        return _train.Train()
    off: dict[str, Any] = dict.fromkeys((*_train.SWITCHES, "compile", "no_compile"), False)
    begun = _train.from_file(file)
    return dataclasses.replace(begun, **off, file=begun)


# --- a command from its words -----------------------------------------------------------------------------------------


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
