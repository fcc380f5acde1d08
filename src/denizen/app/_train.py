"""`denizen train`: a policy in a world, by name."""

import contextlib
import dataclasses
import math
import os
import re
import shlex
import warnings
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import Fixed, FlagCreatePairsOff, Positional, Suppress, UseAppendAction, arg

from denizen._printing import give, say
from denizen.app._build import SHORT, Made, build
from denizen.app._settings import fields_of, read_toml, within
from denizen.app._target import Target
from denizen.app._target import world as find
from denizen.errors import ConfigError, InputError
from denizen.zoo import WorldEntry

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.rl import Patience, Trained

Pairs = Annotated[
    UseAppendAction[tuple[tuple[str, ...], ...]], arg(metavar="NAME=VALUE", help_behavior_hint="(repeatable)")
]
OtherWorld = Annotated[Positional[str], arg(metavar="[WORLD]", help_behavior_hint="(default: as it was trained)")]


@dataclasses.dataclass(frozen=True)
class Train:
    """What `denizen train` does; the fields are its flags and the keys of a `--config` file."""

    about: ClassVar[
        str
    ] = """Train a policy in a world. It shows progress, a summary and curves, and keeps everything in a run folder.

WORLD is a name of `denizen models`, or FILE.py:NAME: a class, an object, or a function that returns a world.

examples:
  denizen train cartpole
  denizen train foraging --mode proxy --steps 50M --seeds 5
  denizen train fruits --algo grpo --steps 200k
  denizen train pendulum --algo sac
  denizen train breakout --set num_envs=4096 learning_rate=5e-3:0 --device cuda
  denizen train maze.py:Maze --world size=9 --steps 1M
  denizen train --config pole.toml --seed 7
  torchrun --nproc-per-node 4 -m denizen train breakout --set num_envs=4096
  denizen train dotgat --help            agents that talk with one another; this training has its own flags

A --config file has the names of the flags as keys, and tables for NAME=VALUE:
  world_name = "cartpole"
  steps = 500_000
  [set]
  num_envs = 64"""

    world_name: Annotated[Positional[str], arg(metavar="WORLD", help_behavior_hint="")] = ""
    """The world: a name, or FILE.py:NAME."""
    mode: Annotated[str | None, arg(metavar="MODE", help_behavior_hint="(default: the world's)")] = None
    """Mode of the world foraging; short for --world mode=MODE."""
    algo: Literal["ppo", "grpo", "sac", "td3", "dqn"] = "ppo"
    """The learning algorithm."""
    steps: Annotated[str | None, arg(metavar="N", help_behavior_hint="(default: the world's)")] = None
    """Number of steps of all worlds together, such as 500000, 500k or 50M."""
    total_epochs: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: what --steps needs)")] = None
    """Number of rollouts, in place of --steps."""
    batch_size: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: the recipe's)")] = None
    """Number of worlds (ppo: num_envs), of worlds with the same start (grpo: group_size), or of steps in a minibatch
    (sac, td3, dqn: batch_size)."""
    max_steps: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: the recipe's)")] = None
    """Number of steps in a rollout (grpo: max_steps, others: num_steps)."""
    set: Pairs = ()
    """Settings of the algorithm, for example num_envs=64 learning_rate=3e-4:0 value_clip=none."""
    world: Pairs = ()
    """Options of the world, for example mode=proxy. START:END lets a parameter change during the training."""
    policy: Pairs = ()
    """Options of the policy: hidden=64,64 memory_size=0 head=popart shared=true activation=tanh normalise=true
    memory=attention window=16 (dqn: hidden, duelling and normalise; sac and td3: hidden and normalise)."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the worlds, actions, shuffles and first weights."""
    seeds: Annotated[int, arg(metavar="N")] = 1
    """Number of trainings, one after the other, with the seeds from --seed on."""
    together: FlagCreatePairsOff[bool] = False
    """Train all seeds at once, up to 16. This is faster on a GPU where worlds are small."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on."""
    out: Annotated[str | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/WORLD-ALGO-DATE-TIME)")] = None
    """Run folder to write. It must be new or empty. Each of several seeds gets a folder seed-N in it."""
    config: Annotated[Path | None, arg(metavar="FILE.toml", help_behavior_hint="")] = None
    """File with settings. Flags override it."""
    validate_every: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: never)")] = None
    """Evaluate the policy on separate worlds every N updates."""
    validation: Pairs = ()
    """How to evaluate: num_envs=64 max_steps=500 greedy=true seed=0, and options of the world that differ."""
    patience: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: never stop early)")] = None
    """Stop after N updates without a better score. The best policy is then the last one."""
    min_delta: Annotated[float | None, arg(metavar="X", help_behavior_hint="(default: 0.05)")] = None
    """With --patience: the least increase of the score that counts as better."""
    tensorboard: FlagCreatePairsOff[bool] = False
    """Also write metrics for TensorBoard, into RUN-tensorboard."""
    wandb: Annotated[str | None, arg(metavar="PROJECT", help_behavior_hint="(default: no)")] = None
    """Also send metrics to Weights & Biases. WANDB_MODE=offline keeps them on this machine."""
    compile: FlagCreatePairsOff[bool] = False
    """Compile the training. By default it is compiled on CUDA, and on a CPU where it is long enough to gain by it."""
    no_compile: FlagCreatePairsOff[bool] = False
    """Never compile the training."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print only the path of the run folder."""
    file: Annotated[Any, Fixed, Suppress] = None
    """What the `--config` file alone means; no flag."""

    def __call__(self, console: "Console") -> int:
        """Train, and tell what came out; under torchrun, all processes together."""
        from denizen.app._settings import blamed, of_file
        from denizen.app._together import together

        command = _with_file(self)
        console.quiet = command.quiet
        with blamed(of_file(self, self.file)), together(command.device, console) as device:
            return run(command, device, console)


SWITCHES = ("together", "tensorboard", "quiet")
SERVICES = ("tensorboard", "wandb")
TABLES = ("set", "world", "policy", "validation")  # flags of NAME=VALUE
KEPT = ("world_name", "algo", "steps", "total_epochs", *SERVICES, *TABLES)


def from_file(path: Path) -> Train:
    """The command that a `--config` file means.

    Raises:
        ConfigError: the file cannot be read, is no TOML, or holds an unknown key or a value of the wrong type.
    """
    raw = read_toml(path)
    steps = raw.get("steps")
    if isinstance(steps, int | float) and not isinstance(steps, bool):
        raw["steps"] = str(steps)
    return Train(**fields_of(Train, raw, f"--config {path}"))


def _with_file(command: Train) -> Train:
    """The command where its flags win over the `--config` file that they were parsed on top of.

    The parser began with the file's values (`_cli.parse`), but for switches, which a flag could then only take back.
    """
    if command.file is None:
        return command
    from denizen.app._settings import pairs

    file = command.file
    changes: dict[str, Any] = {name: getattr(command, name) or getattr(file, name) for name in SWITCHES}
    if not (command.compile or command.no_compile):
        changes |= {"compile": file.compile, "no_compile": file.no_compile}
    for name in TABLES:
        begun, groups = getattr(file, name), getattr(command, name)[len(getattr(file, name)) :]
        given: set[str] = set(pairs(groups, f"--{name}"))
        if name == "world" and command.mode != file.mode:
            given.add("mode")  # the same by two names
        elif name == "world" and "mode" in given:
            changes["mode"] = None
        rest = tuple(text for group in begun for text in group if text.partition("=")[0] not in given)
        changes[name] = (rest, *groups)
    return dataclasses.replace(command, **changes)


def settings_of(command: Train) -> dict[str, Any]:
    """What a manifest keeps of a command, to build the same again."""
    from denizen.app._settings import pairs

    kept = {name: getattr(command, name) for name in KEPT}
    kept.update({name: pairs(kept[name], f"--{name}") for name in TABLES})
    if command.mode is not None:
        if "mode" in kept["world"]:
            raise ConfigError(f"--mode {command.mode} and --world mode={kept['world']['mode']}: give one of the two")
        kept["world"]["mode"] = command.mode
    kept["seeds"] = [command.seed, command.seeds]  # so that `denizen resume` begins those that are missing
    for flag, name in SHORT[command.algo].items():
        value = getattr(command, flag)
        if value is not None and name in kept["set"]:
            raise ConfigError(f"--{flag.replace('_', '-')} {value} and --set {name}: give one of the two")
        if value is not None:
            kept["set"][name] = str(value)
    if command.total_epochs is not None and command.steps is not None:
        raise ConfigError("--total-epochs and --steps: give one of the two")
    return kept


def crowded() -> str:
    """A line for a machine that others keep busy, where torch's threads wait for one another; "" elsewhere."""
    import torch

    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if threads == 1 or load <= cores:
        return ""
    return (
        f"the machine is busy: load {load:.0f} on {cores} cores, and {threads} threads here wait for one another; with "
        f"OMP_NUM_THREADS=1 a small network trains faster"
    )


def run(command: Train, device: str | None, console: "Console") -> int:
    """Train as the command says."""
    from denizen import _processes
    from denizen.app._folders import run_folder

    settings = _checked(command)
    world = find(command.world_name)
    settings["world_name"] = world.word
    settings |= world.origin.settings() if world.origin else {}
    settings["set"] = {**_on_cuda(world.entry, command.algo, device), **settings["set"]}
    with _as_typed(command):
        made = build(settings, command.seed, world)
    name = world.origin.name if world.origin else world.word
    with run_folder(command.out, f"{name}-{command.algo}", writes=_processes.rank() == 0) as root:
        try:
            return _run_into(root, command, settings, made, world, device, console)
        except KeyboardInterrupt as stop:
            stop.target = world.word if world.origin else ""  # type: ignore[attr-defined]  # to go on with
            raise


def _on_cuda(entry: WorldEntry, algo: str, device: str | None) -> dict[str, str]:
    """What a world's training takes on the chosen device, if that is a GPU; the manifest keeps it as it keeps flags."""
    import torch

    from denizen._device import choose_device

    if algo not in entry.settings_on_cuda:
        return {}
    with warnings.catch_warnings(action="ignore"):  # the training says so, where a GPU does not work
        target, _ = choose_device(device, "train")
    if target.type != "cuda" or not torch.cuda.is_bf16_supported(including_emulation=False):
        return {}
    return {name: str(value) for name, value in entry.settings_on_cuda[algo].items()}


@contextlib.contextmanager
def _as_typed(command: Train) -> Generator[None]:
    """Messages about settings that short flags gave name those flags."""
    try:
        yield
    except InputError as error:
        text = str(error)
        for flag, name in SHORT[command.algo].items():
            if getattr(command, flag) is not None:
                text = re.sub(rf"(--set )?\b{name}=", f"--{flag.replace('_', '-')} ", text)
        if text == str(error):
            raise
        raise ConfigError(text) from error


def _run_into(
    root: Path,
    command: Train,
    settings: dict[str, Any],
    made: Made,
    world: Target[WorldEntry],
    device: str | None,
    console: "Console",
) -> int:
    from denizen import _processes
    from denizen._run_folder import check_free
    from denizen.ops import stop_compilers
    from denizen.run import choose_device

    if command.seeds > 1 and _processes.rank() == 0:  # all of them, before the first takes its hours
        for seed in range(command.seed, command.seed + command.seeds):
            check_free(root / f"seed-{seed}")
    given: dict[str, Any] = {
        "compile": True if command.compile else False if command.no_compile else None,
        "device": device,
        "validate_every": command.validate_every,
        "validation": made.validation,
        "progress": not command.quiet,
        "settings": settings,
        "patience": None if command.patience is None else _patience(command),
    }
    options = " ".join(f"{name}={value}" for name, value in settings["world"].items())
    told = f" ({options})" if options else ""
    precision = getattr(made.algorithm, "precision", "float32")
    told += f" by {command.algo}" if precision == "float32" else f" by {command.algo} in {precision}"
    # What a training is asked for is rounded up to whole updates.
    update = made.algorithm.samples
    steps = -(-made.steps // update) * update
    why = f" ({made.steps:,} rounded up to whole updates of {update:,})" if steps != made.steps else ""
    say(console, (command.world_name, "bold"), f"{told}: {steps:,} steps{why}, into {root}")
    if choose_device(device, "train")[0].type == "cpu" and (busy := crowded()):
        say(console, busy)
    try:
        results = _trained(command, settings, made, world, root, given)
    except KeyboardInterrupt as stop:
        if command.seeds > 1:
            stop.folder = root  # type: ignore[attr-defined]  # from where the seeds that are missing begin as well
        raise
    stop_compilers()
    if results[0].folder is None:  # another process writes and tells
        return 0
    tell(results, root, console, made.env, world.word if world.origin else "")
    if command.quiet:
        give(root)
    return 0


def _checked(command: Train) -> dict[str, Any]:
    """The settings of a command; raises `ConfigError` where flags do not go together."""
    if command.out == "":  # such as "$RUN" of a shell that knows no RUN
        raise ConfigError("--out is empty; leave it out, or give a value")
    if command.compile and command.no_compile:
        raise ConfigError("--compile and --no-compile: give one of the two")
    for flag in ("seeds", "validate_every", "patience"):
        within(f"--{flag.replace('_', '-')}", getattr(command, flag), 1)
    if command.min_delta is not None and command.patience is None:
        raise ConfigError("--min-delta goes with --patience")
    if command.together and (command.tensorboard or command.wandb is not None):
        raise ConfigError("--together writes run folders only; leave --tensorboard and --wandb out")
    settings = settings_of(command)
    if settings["validation"] and command.validate_every is None:
        raise ConfigError("--validation goes with --validate-every")
    return settings


def _trained(
    command: Train,
    settings: dict[str, Any],
    made: Made,
    world: Target[WorldEntry],
    root: Path,
    given: dict[str, Any],
) -> list[Any]:
    """The trainings of a command, at once or one after the other; `made` is the first one's."""
    from denizen.rl import train_seeds

    seeds = range(command.seed, command.seed + command.seeds)
    if command.together and command.seeds > 1:
        return train_seeds(
            made.env,
            lambda seed: build(settings, seed, world).policy,
            made.algorithm,
            made.steps,
            seeds=seeds,
            folder=root,
            params=made.params,
            **given,
        )
    results: list[Any] = []
    for seed in seeds:
        made = build(settings, seed, world) if results else made
        folder = root if command.seeds == 1 else root / f"seed-{seed}"
        results.append(made.train(seed=seed, folder=folder, sinks=sinks_of(settings, folder), **given))
    return results


def _patience(command: Train) -> "Patience":
    from denizen.rl import Patience

    assert command.patience is not None
    least = Patience.min_delta if command.min_delta is None else command.min_delta
    return Patience(updates=command.patience, min_delta=least)


def sinks_of(settings: Mapping[str, Any], folder: Path) -> list[Any]:
    """Where metrics go beside the run folder's own file; of several processes, from the first alone.

    Args:
        settings: of a command, or of a manifest, where those of trainings before denizen kept these tell none.
        folder: of the training.
    """
    from denizen import _processes
    from denizen.tools import TensorBoard, WeightsAndBiases

    sinks: list[Any] = []
    if _processes.rank() > 0:
        return sinks
    if settings.get("tensorboard"):
        sinks.append(TensorBoard(folder.with_name(f"{folder.name}-tensorboard")))
    if settings.get("wandb") is not None:
        sinks.append(WeightsAndBiases(project=settings["wandb"], name=folder.name, config=settings))
    return sinks


def tell(results: "list[Trained]", root: Path, console: "Console", env: Any, target: str = "") -> None:
    """Print a summary and draw the curves, where matplotlib is installed.

    Args:
        results: of the trainings.
        root: their folder.
        console: to print on.
        env: of the trainings.
        target: what to name beside the folder in further commands, for a world of a file.
    """
    from denizen._printing import Table
    from denizen.app._curves import draw
    from denizen.app._report import write_at_end
    from denizen.app._trained import film, page_of
    from denizen.model import can_draw
    from denizen.rl import read_metrics

    table = Table("training", "updates", "steps", "steps/s", "ready in", "return at the end", "highest", box=None)
    for result in results:
        rows = result.metrics if result.folder is None else read_metrics(result.folder)  # also those before a resume
        last, highest = at_the_end(rows)
        table.add_row(
            result.folder.name if result.folder else "",
            f"{result.updates:,}",
            f"{result.steps:,}",
            f"{result.steps_per_second:,.0f} ({result.path})",
            f"{result.seconds_to_ready:.1f} s",
            last or "no life ended",
            highest,
        )
    console.print(table)
    picture = draw([result.folder for result in results if result.folder], root / "curves.png", console)
    last = shlex.join([str(results[-1].folder), *([target] if target else [])])
    say(console, f"{root}" + (f"  curves: {picture}" if picture else ""))
    written = [result.folder for result in results if result.folder]
    write_at_end(root, console, lambda: page_of([(root, written, film(env, results[-1].policy))]))
    watch = f"   or: denizen watch {last}" if can_draw(env) else ""
    say(console, f"next: denizen evaluate {last}{watch}")


def at_the_end(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """(mean return over the last tenth of the updates, the highest), of worlds with roles for each; "" for none."""
    from denizen.report._training import ends, of_role, roles_of

    known = {f"{role} ".lstrip(): ends(rows, of_role(role, "return_mean")) for role in roles_of(rows)}
    known = {role: pair for role, pair in known.items() if not math.isnan(pair[0])}
    return tuple(", ".join(f"{role}{pair[k]:.2f}" for role, pair in known.items()) for k in (0, 1))  # type: ignore[return-value]
