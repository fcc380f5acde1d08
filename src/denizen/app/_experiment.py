"""`denizen experiment`: from training to report, resumable at any point.

`goodhart`: all modes of foraging trained, evaluated and written up. `learners` is in `_learners`.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen._printing import give, say
from denizen.errors import ConfigError, StorageError, nearest

if TYPE_CHECKING:
    from denizen._printing import Console

EVALUATION_SEEDS = (42, 43, 44)
NAME = "experiment.json"
SEEDS_APART = 1000
DEFAULTS: dict[str, dict[str, Any]] = {
    "goodhart": {"steps": "50331648", "worlds": 8192, "budget": 16_384},
    "learners": {"steps": None, "worlds": 1024, "budget": 500},
}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """`denizen experiment`; the fields but `out` are kept with the experiment and must stay as they were."""

    about: ClassVar[str] = """Run an experiment from training to report. The same command goes on where it stopped.

example:
  denizen experiment goodhart                                        the whole: days on a CPU
  denizen experiment goodhart --steps 5M --seeds 3 --worlds 1024 --budget 4096 --out runs/small
  denizen experiment goodhart --modes ground_truth proxy --out runs/two
  denizen experiment learners                                        PPO and GRPO in three worlds: hours on a CPU
  denizen experiment learners --modes fruits --steps 500k --seeds 3"""

    name: Annotated[Positional[Literal["goodhart", "learners"]], arg(metavar="EXPERIMENT")] = "goodhart"
    """goodhart: foragers paid for the truth or for a proxy, and how they survive. learners: PPO beside GRPO."""
    modes: Annotated[tuple[str, ...], arg(metavar="[NAME ...]", help_behavior_hint="")] = ()
    """goodhart: modes of foraging (default: the four of the published table). learners: worlds (default: all three)."""
    steps: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: goodhart 50331648, learners by world)")
    ] = None
    """Of each training, such as 5M."""
    seeds: Annotated[int, arg(metavar="N")] = 5
    """Trainings of each mode, or of each algorithm in each world."""
    worlds: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: goodhart 8192, learners 1024)")] = None
    """Of each evaluation."""
    budget: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: goodhart 16384, learners 500)")] = None
    """Steps of each evaluation, at most."""
    set: Annotated[tuple[str, ...], arg(metavar="[NAME=VALUE ...]", help_behavior_hint="")] = ()
    """Settings of PPO, as `denizen train --set` takes them."""
    world: Annotated[tuple[str, ...], arg(metavar="[NAME=VALUE ...]", help_behavior_hint="")] = ()
    """Options of the world, for example grid_lifetime=life."""
    policy: Annotated[tuple[str, ...], arg(metavar="[NAME=VALUE ...]", help_behavior_hint="")] = ()
    """Options of the policy, for example channels=16,32 hidden=128."""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/EXPERIMENT)")] = None
    """Folder of the experiment."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print nothing but the folder."""

    def __call__(self, console: "Console") -> int:
        """Train what is missing, evaluate what is missing, write the report."""
        from denizen.app._learners import Learners

        given = {n: v for n, v in DEFAULTS[self.name].items() if getattr(self, n) is None}
        command = dataclasses.replace(self, out=self.out or Path("runs") / self.name, **given)
        for name in ("seeds", "worlds", "budget"):
            if getattr(command, name) < 1:
                raise ConfigError(f"--{name} {getattr(command, name)}: expected a whole number, at least 1")
        assert command.out is not None
        experiment = Learners(command) if self.name == "learners" else Goodhart(command)
        begun(command.out, experiment.facts())
        with _held(command.out):
            begin(command.out, experiment.facts())
            try:
                page = experiment.run(console)
            except KeyboardInterrupt as stop:
                stop.go_on = "go on with the same command"  # type: ignore[attr-defined]  # rather than one training
                raise
        say(console, f"report: {page}")
        if self.quiet:
            give(command.out)
        return 0


@contextlib.contextmanager
def _held(out: Path) -> Iterator[None]:
    """The folder of an experiment, made where it is missing and held while the block runs."""
    from denizen.run._atomic import locked

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"--out {out} cannot be written: {error.strerror or error}") from error
    with locked(out):
        yield


def begin(out: Path, facts: dict[str, Any]) -> None:
    """With the folder held: keep what an experiment is, or make sure that it is the one in the folder.

    Raises:
        ConfigError: the folder holds another one.
    """
    from denizen.run._atomic import write_atomic

    if not begun(out, facts):
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / NAME, json.dumps(facts, indent=1).encode() + b"\n")


def begun(out: Path, facts: dict[str, Any]) -> bool:
    """Whether a folder holds this experiment; False where it holds none.

    Raises:
        ConfigError: it holds something else.
    """
    file = out / NAME
    try:
        held = {path.name for path in out.iterdir()} if out.exists() else set()
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be read: {error.strerror}") from error
    if not held - {NAME, ".lock"}:  # a wrong flag had ended it at once
        return False
    if NAME not in held:
        raise ConfigError(f"{out} holds something else than an experiment; choose another --out")
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    if not isinstance(known, dict):
        raise ConfigError(f"{file} holds no experiment; choose another --out")
    for name, value in facts.items():
        if known.get(name) != value:
            raise ConfigError(
                f"{out} holds an experiment with {name} {known.get(name)}, not {value}; choose another --out"
            )
    return True


def trained(settings: dict[str, Any], seed: int, folder: Path, *, device: str | None, show: bool, **given: Any) -> None:
    """Train into a folder, or go on there; nothing where that is done.

    Args:
        settings: as `_build.build` takes them.
        seed: of the training.
        folder: of the training.
        device: None: as `dz.train` chooses.
        show: a bar.
        **given: what else `dz.train` takes.
    """
    from denizen.app._build import build
    from denizen.rl import resume, train
    from denizen.rl._training_folder import read_manifest

    known = read_manifest(folder) if (folder / "manifest.json").exists() else None
    if known is not None and known["status"] == "finished":
        return
    made = build(settings, seed)
    if known is not None and known["checkpoint"] is not None:
        resume(folder, made.env, made.policy, made.algorithm, device=device, params=made.params, progress=show)
        return
    train(
        made.env,
        made.policy,
        made.algorithm,
        made.steps,
        seed=seed,
        device=device,
        folder=folder,
        progress=show,
        settings=settings,
        params=made.params,
        **given,
    )


def told_facts(command: Experiment) -> dict[str, str]:
    """What a reader of any report needs to know beside the experiment's own facts."""
    import torch

    from denizen.run._facts import commit, versions

    card = torch.cuda.get_device_name() if torch.cuda.is_available() and command.device != "cpu" else "CPU"
    used = {name: versions()[name] for name in ("denizen", "torch")}
    return {"hardware": card, "commit": commit() or "unknown", **used}


class Goodhart:
    """All modes of foraging."""

    def __init__(self, command: Experiment) -> None:
        """Args:
        command: with its defaults filled in.

        Raises:
            ConfigError: an unknown mode, or a mode among the options of the world.
        """
        from denizen.app._settings import pairs
        from denizen.zoo.foraging import MODES

        for mode in command.modes:
            if mode not in MODES:
                raise ConfigError(f"--modes {mode}: unknown; {nearest(mode, MODES)}")
        if "mode" in pairs([command.world], "--world"):
            raise ConfigError("--world mode: this experiment trains several modes; choose with --modes")
        assert command.out is not None
        assert command.worlds is not None
        assert command.budget is not None
        self.command, self.out, self.worlds, self.budget = command, command.out, command.worlds, command.budget

    def run(self, console: "Console") -> Path:
        """Everything that is missing; the report."""
        from denizen.studies.foraging.evaluate import joined
        from denizen.studies.foraging.report import write_report

        results: dict[str, list[Any]] = {}
        scenes: dict[str, list[Any]] = {}
        ways: dict[str, dict[str, list[Any]]] = {}
        for mode, seed, folder in self._trainings():
            say(console, (mode, "bold"), f", seed {seed}: {folder}")
            trained(self._settings(mode), seed, folder, device=self._device, show=not self.command.quiet)
            results.setdefault(mode, []).append(joined(self._evaluate(folder)))
            for way, found in self._otherwise(folder).items():
                ways.setdefault(way, {}).setdefault(mode, []).append(found)
            scenes.setdefault(mode, []).append(self._directions(folder))
        agents = self._written(console, scenes)
        return write_report(
            self.out / "report", results, agents=agents, directions=scenes, otherwise=ways, facts=self._told()
        )

    @property
    def _device(self) -> str | None:
        return None if self.command.device == "auto" else self.command.device

    def _written(self, console: "Console", scenes: dict[str, list[Any]]) -> dict[str, Any]:
        """Agents that were not trained, in the worlds of one evaluation; how they move is added to `scenes`."""
        from denizen.studies.foraging.evaluate import Foraged, forage
        from denizen.studies.foraging.verify import directions
        from denizen.zoo.foraging.agents import OmniscientSeeker, ProxySeeker, Uniform

        found = {}
        for name, mode, agent in (
            ("omniscient seeker", "ground_truth", OmniscientSeeker),
            ("proxy seeker", "proxy", ProxySeeker),
            ("uniform moves", "ground_truth", Uniform),
        ):
            file, env = self.out / f"{name.replace(' ', '-')}.npz", self._env(mode)
            scenes[name] = [directions(env, agent(env))]
            if not file.exists():
                say(console, (name, "bold"))
                _save(
                    file,
                    forage(
                        env,
                        agent(env),
                        num_envs=self.worlds,
                        steps=self.budget,
                        seed=EVALUATION_SEEDS[0],
                        device=self._device,
                    ),
                )
            found[name] = Foraged.load(file)
        return found

    def _env(self, mode: str) -> Any:
        from denizen.app._recipes import recipe
        from denizen.app._settings import guess

        return recipe("foraging").make_env({n: guess(v) for n, v in self._settings(mode)["world"].items()})

    def _told(self) -> dict[str, str]:
        """What a reader of the report needs to know."""
        from denizen.rl._training_folder import read_manifest

        env: Any = self._env(self._modes()[0])
        _, _, first = next(self._trainings())
        told = {name: str(value) for name, value in self.facts().items()}
        told |= {"grid_lifetime": env.grid_lifetime, "evaluation seeds": str(EVALUATION_SEEDS)}
        told["algorithm"] = read_manifest(first)["algorithm"]
        return told | told_facts(self.command)

    def facts(self) -> dict[str, Any]:
        """What must stay as it is."""
        command = self.command
        kept = {f.name: getattr(command, f.name) for f in dataclasses.fields(command)}
        for name in ("out", "device", "quiet"):
            del kept[name]
        listed = {name: list(kept[name]) for name in ("set", "world", "policy")}
        return {**kept, "modes": list(self._modes()), **listed}

    def _modes(self) -> tuple[str, ...]:
        from denizen.zoo.foraging import MODES

        given = tuple(dict.fromkeys(self.command.modes))  # a mode named twice is trained, and counts, once
        return given or tuple(name for name, mode in MODES.items() if mode.in_all)

    def _trainings(self) -> Iterator[tuple[str, int, Path]]:
        from denizen.zoo.foraging import MODES

        for mode in self._modes():
            first = SEEDS_APART * list(MODES).index(mode)  # trainings of two modes share no random number
            for seed in range(first, first + self.command.seeds):
                yield mode, seed, self.out / mode / f"seed-{seed}"

    def _settings(self, mode: str) -> dict[str, Any]:
        from denizen.app._settings import pairs

        world = {**pairs([self.command.world], "--world"), "mode": mode}
        return {
            "world_name": "foraging",
            "algo": "ppo",
            "steps": self.command.steps,
            "set": pairs([self.command.set], "--set"),
            "world": world,
            "policy": pairs([self.command.policy], "--policy"),
        }

    def _evaluate(self, folder: Path) -> list[Any]:
        """The evaluations of a training, those that are missing made."""
        return [self._foraged(folder, f"evaluation-{seed}", seed) for seed in EVALUATION_SEEDS]

    def _otherwise(self, folder: Path) -> dict[str, Any]:
        """Evaluations of a training with the likeliest actions, and in worlds with the other lifetime of grids."""
        from denizen.zoo.foraging.model import LIFETIMES

        first, mine = EVALUATION_SEEDS[0], self._env(self._modes()[0]).grid_lifetime
        ways = {f"grid_lifetime={other}": other for other in LIFETIMES if other != mine}
        return {
            "likeliest actions": self._foraged(folder, f"evaluation-{first}-greedy", first, greedy=True),
            **{
                told: self._foraged(folder, f"evaluation-{first}-{other}", first, world=(told,))
                for told, other in ways.items()
            },
        }

    def _foraged(self, folder: Path, name: str, seed: int, *, greedy: bool = False, world: tuple[str, ...] = ()) -> Any:
        """An evaluation of a training, made where it is missing; `world` are other options of the world."""
        from denizen.app._trained import load
        from denizen.rl._iteration import COMPILE_FROM
        from denizen.run._device import choose
        from denizen.studies.foraging.evaluate import Foraged, forage
        from denizen.zoo.foraging.agents import Learnt

        file = folder / f"{name}.npz"
        if not file.exists():
            saved = load(folder, best=False, world=(world,) if world else ())
            target, _ = choose(self._device, "experiment")
            compile = target.type == "cuda" or self.budget * self.worlds >= COMPILE_FROM * 100
            told = forage(
                saved.env,
                Learnt(saved.policy.to(target), greedy=greedy),
                num_envs=self.worlds,
                steps=self.budget,
                seed=seed,
                device=target,
                compile=compile,
            )
            _save(file, told)
        return Foraged.load(file)

    def _directions(self, folder: Path) -> Any:
        """How a training moves in constructed scenes."""
        from denizen.app._trained import load
        from denizen.studies.foraging.verify import Directions, directions
        from denizen.zoo.foraging.agents import Learnt

        file = folder / "directions.npz"
        if not file.exists():
            saved = load(folder, best=False)
            _save(file, directions(saved.env, Learnt(saved.policy)))
        return Directions.load(file)


def _save(file: Path, told: Any) -> None:
    """Write what has a `save`, whole or not at all."""
    partial = file.with_name(f".{file.name}")
    told.save(partial)
    partial.replace(file)
