"""The words of the command line: what each command takes, and its help."""

import dataclasses
import shlex
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import Positional, arg, subcommand
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from denizen.app._config import RunConfig, read_toml, refuse_repeats
from denizen.app._exit import DONE
from denizen.app._settings import whole

if TYPE_CHECKING:
    from denizen._printing import Console

ABOUT = """denizen: simulate large populations in plain PyTorch.

examples:
  denizen run covid                                  an epidemic in a city of 37,518
  denizen run covid --population my/folder --replicates 64 --set R=3.5,4.2,5.6
  denizen show runs/covid-20261128-120000            its numbers and curves again
  denizen resume runs/covid-20261128-120000          go on after Ctrl-C, a crash or a full disk
  denizen models                                     what can be set of each model
  denizen --version"""

RUN = """Run a model: a progress bar, a summary table, curves, and a run folder to keep.

examples:
  denizen run covid
  denizen run covid --population synthetic:astoria:200000 --steps 60 --replicates 4
  denizen run covid --population my/folder --network 0 --symmetrize --set mortality=0.02
  denizen run covid --set R=3.5,4.2,5.6 --set reference=true --steps 21
  denizen run seir --agents 100000 --mean-degree 12 --set infect_rate=0.03 latent_days=4
  denizen run --config city.toml --seed 7

A --config file holds the same words, parameters under [set]:
  model = "covid"
  replicates = 64
  [set]
  R = [3.5, 4.2, 5.6]"""

SHOW = """Show what a run folder holds: what ran, the summary table, the curves. Works while the run goes on.

example:
  denizen show runs/covid-20261128-120000"""

RESUME = """Go on with a run, bit for bit as if it had never stopped.

examples:
  denizen resume runs/covid-20261128-120000               the steps that are missing
  denizen resume runs/covid-20261128-120000 --steps 60    60 more"""

MODELS = "List the models, their parameters with defaults, bounds and units."

Folder = Annotated[Positional[Path], arg(metavar="RUN")]


@dataclasses.dataclass(frozen=True)
class Show:
    """`denizen show`."""

    run: Folder
    """Run folder."""


@dataclasses.dataclass(frozen=True)
class Resume:
    """`denizen resume`."""

    run: Folder
    """Run folder."""
    target: Annotated[Positional[str], arg(metavar="FILE.py:NAME", help_behavior_hint="")] = ""
    """Where the model or world came from, for a folder that was made with a file: it runs only where you name it."""
    steps: Annotated[int | None, arg(metavar="MORE", help_behavior_hint="(default: those missing)")] = None
    """Further steps."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to go on, also on the other kind; auto takes what DENIZEN_DEVICE says, else the kind as before."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print nothing but the run folder."""


@dataclasses.dataclass(frozen=True)
class Models:
    """`denizen models`."""

    target: Annotated[Positional[str], arg(metavar="MODEL", help_behavior_hint="(default: all of the zoo)")] = ""
    """A name, or FILE.py:NAME."""


Command = RunConfig | Show | Resume | Models

# Further commands: module within `denizen.app`, and a dataclass in it with the text `about` and a method
# `__call__(console) -> exit code`. The module imports what it needs for its work within that method.
# A name of two words, such as "train dotgat", has flags of its own and is told by the help of the first.
FURTHER: dict[str, tuple[str, str]] = {
    "train": ("_train", "Train"),
    "train dotgat": ("_train_dotgat", "TrainDotGAT"),
    "evaluate": ("_evaluate", "Evaluate"),
    "watch": ("_watch", "Watch"),
    "compare": ("_evaluate", "Compare"),
    "experiment": ("_experiment", "Experiment"),
    "check": ("_check", "Check"),
    "profile": ("_profile", "Profile"),
    "doctor": ("_doctor", "Doctor"),
    "bench": ("_bench", "Bench"),
    "equivalent": ("_equivalent", "Equivalent"),
}


def further() -> dict[str, Any]:
    """The further commands by name."""
    return {name: _load(name) for name in FURTHER if " " not in name}


def _load(name: str) -> Any:
    module, cls = FURTHER[name]
    return getattr(import_module(f"denizen.app.{module}"), cls)


def parse(words: list[str]) -> Any:
    """The command that the words mean; exits as argparse does for `--help` and for words that mean nothing.

    Raises:
        ConfigError: a `--config` file that cannot be used, or a parameter that is set twice.
    """
    two = " ".join(words[:2])
    if two in FURTHER:
        command = _load(two)
        return tyro.cli(command, prog=f"denizen {two}", description=command.about, args=words[2:], registry=_numbers())
    texts = {"run": RUN, "show": SHOW, "resume": RESUME, "models": MODELS}
    texts.update({name: command.about for name, command in further().items()})
    # In the list of commands a line each is enough.
    about = {name: text if words[:1] == [name] else text.partition("\n")[0] for name, text in texts.items()}
    file = _defaults(words)
    plain = dataclasses.replace(file, compile=False, no_compile=False)  # so that both flags are offered
    run = subcommand("run", description=about["run"], default=plain)
    commands = (
        Annotated[RunConfig, run]
        | Annotated[Show, subcommand("show", description=about["show"])]
        | Annotated[Resume, subcommand("resume", description=about["resume"])]
        | Annotated[Models, subcommand("models", description=about["models"])]
    )
    for name, command in further().items():
        begun: Any = {"default": _train_begun(words)} if name == "train" else {}
        commands |= Annotated[command, subcommand(name, description=about[name], **begun)]
    command: Any = tyro.cli(  # type: ignore[call-overload]
        commands, prog="denizen", description=ABOUT, args=words, registry=_numbers()
    )
    if isinstance(command, RunConfig):
        refuse_repeats(command.set[len(file.set) :])
    if isinstance(command, RunConfig) and not (command.compile or command.no_compile):
        command = dataclasses.replace(command, compile=file.compile, no_compile=file.no_compile)
    return command


def _numbers() -> ConstructorRegistry:
    """Whole numbers are written in one way behind all flags, also of a command whose numbers are words."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def rule(told: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        maybe = told.type == int | None
        if told.type is not int and not maybe:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="N",
            instance_from_str=lambda words: whole(words[0]),
            is_instance=lambda value: type(value) is int or (maybe and value is None),
            str_from_instance=lambda value: [str(value)],
        )

    return registry


def run(command: Any, console: "Console") -> int:
    """Do what a command says; the exit code."""
    from denizen.app import _commands, _folders

    if isinstance(command, RunConfig):
        _commands.run_model(command, console)
    elif isinstance(command, Resume):
        _folders.do("resume", command, console)
    elif isinstance(command, Show):
        _folders.do("show", command, console)
    elif isinstance(command, Models):
        _commands.models(command, console)
    else:
        return command(console)
    return DONE


def _config_file(words: list[str]) -> Path | None:
    """What `--config` names; None: nothing, or the parser says that the file is missing."""
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--config" and (equals or place + 1 < len(words)):
            return Path(value if equals else words[place + 1])
    return None


def _defaults(words: list[str]) -> RunConfig:
    """What flags start from: the `--config` file where one is named, so that help shows its values too."""
    file = _config_file(words) if words[:1] == ["run"] else None
    if file is None:
        return RunConfig()
    read = read_toml(file)
    return dataclasses.replace(read, file=read)


def _train_begun(words: list[str]) -> Any:
    """The same for `denizen train`, but for switches, so that their flags are offered."""
    from denizen.app import _train

    file = _config_file(words) if words[:1] == ["train"] else None
    if file is None:
        return _train.Train()
    off: dict[str, Any] = dict.fromkeys((*_train.SWITCHES, "compile", "no_compile"), False)
    begun = _train.from_file(file)
    return dataclasses.replace(begun, **off, file=begun)


def resume_command(folder: Path | str, target: str = "") -> str:
    """What to type to go on with a run; `target` is the file of its model, where that is not one of the zoo."""
    return shlex.join(["denizen", "resume", str(folder), *([target] if target else [])])
