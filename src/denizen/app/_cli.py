"""The words of the command line: what each command takes, and its help."""

import dataclasses
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_type_hints

import tyro
from tyro.conf import Positional, arg, subcommand

from denizen.app import _failures, _run, _words
from denizen.app._exit import DONE
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
    target: Annotated[Positional[str], arg(metavar="FILE.py:NAME", help_behavior_hint="")] = ""
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
        return _words.read(_load(two), two, words[2:])
    if words and words[0] in COMMANDS:
        begun = {"run": _run_begun, "train": _train_begun}.get(words[0])
        default: Any = {} if begun is None else {"default": begun(words)}
        command = _words.read(_load(words[0]), words[0], words[1:], **default)
        return _run.with_file(command) if isinstance(command, _run.RunConfig) else command
    if words and words[0] not in ("-h", "--help") and not words[0].startswith("--tyro-"):
        raise ConfigError(_words.with_help(_no_command(words[0])))
    commands: Any = None
    for name in (name for name in COMMANDS if " " not in name):
        command = _load(name)
        # In the list of commands a line each is enough.
        one = Annotated[command, subcommand(name, description=command.about.partition("\n")[0])]
        commands = one if commands is None else commands | one
    return tyro.cli(commands, prog="denizen", description=ABOUT, args=words, registry=_words.numbers())


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
        from denizen.run._device import no_cuda

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
