"""`denizen experiment goodhart`: all modes of foraging trained, evaluated and written up; resumable at any point."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen.errors import ConfigError, nearest

if TYPE_CHECKING:
    from rich.console import Console

EVALUATION_SEEDS = (42, 43, 44)
NAME = "experiment.json"
SEEDS_APART = 1000


@dataclasses.dataclass(frozen=True)
class Experiment:
    """`denizen experiment`; the fields but `out` are kept with the experiment and must stay as they were."""

    about: ClassVar[str] = """Run an experiment from training to report. The same command goes on where it stopped.

example:
  denizen experiment goodhart                                        the whole: days on a CPU
  denizen experiment goodhart --steps 5M --seeds 3 --worlds 1024 --budget 4096 --out runs/small
  denizen experiment goodhart --modes ground_truth proxy --out runs/two"""

    name: Annotated[Positional[Literal["goodhart"]], arg(metavar="EXPERIMENT")] = "goodhart"
    """Which: goodhart trains foragers that are paid for the truth or for a proxy, and asks how they survive."""
    modes: tuple[str, ...] = ()
    """Modes of foraging; all four of the published table by default."""
    steps: str = "50331648"
    """Of each training, such as 5M."""
    seeds: int = 5
    """Trainings of each mode."""
    worlds: int = 8192
    """Of each evaluation."""
    budget: int = 16_384
    """Steps of each evaluation."""
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Settings of PPO, as `denizen train --set` takes them."""
    world: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Options of the world, for example grid_lifetime=life."""
    policy: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Options of the policy, for example channels=16,32 hidden=128."""
    out: Path = Path("runs/goodhart")
    """Folder of the experiment."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print nothing but the folder."""

    def __call__(self, console: "Console") -> int:
        """Train what is missing, evaluate what is missing, write the report."""
        from denizen.zoo.foraging.evaluate import joined
        from denizen.zoo.foraging.report import write_report

        self._check()
        self._begin()
        results: dict[str, list[Any]] = {}
        scenes: dict[str, list[Any]] = {}
        for mode, seed, folder in self._trainings():
            console.print(f"[bold]{mode}[/], seed {seed}: {folder}")
            self._train(mode, seed, folder)
            results.setdefault(mode, []).append(joined(self._evaluate(folder)))
            scenes.setdefault(mode, []).append(self._directions(folder))
        agents = self._written(console, scenes)
        page = write_report(self.out / "report", results, agents=agents, directions=scenes, facts=self._told())
        console.print(f"report: {page}")
        if self.quiet:
            print(self.out)
        return 0

    def _written(self, console: "Console", scenes: dict[str, list[Any]]) -> dict[str, Any]:
        """Agents that were not trained, in the worlds of one evaluation; how they move is added to `scenes`."""
        from denizen.zoo.foraging.agents import OmniscientSeeker, ProxySeeker, Uniform
        from denizen.zoo.foraging.evaluate import Foraged, forage
        from denizen.zoo.foraging.verify import directions

        found = {}
        for name, mode, agent in (
            ("omniscient seeker", "ground_truth", OmniscientSeeker), ("proxy seeker", "proxy", ProxySeeker),
            ("uniform moves", "ground_truth", Uniform),
        ):  # fmt: skip
            file, env = self.out / f"{name.replace(' ', '-')}.npz", self._env(mode)
            scenes[name] = [directions(env, agent(env))]
            if not file.exists():
                console.print(f"[bold]{name}[/]")
                device = None if self.device == "auto" else self.device
                _save(file, forage(
                    env, agent(env), num_envs=self.worlds, steps=self.budget, seed=EVALUATION_SEEDS[0], device=device
                ))  # fmt: skip
            found[name] = Foraged.load(file)
        return found

    def _env(self, mode: str) -> Any:
        from denizen.app._recipes import recipe
        from denizen.app._settings import guess

        return recipe("foraging").make_env({n: guess(v) for n, v in self._settings(mode)["world"].items()})

    def _told(self) -> dict[str, str]:
        """What a reader of the report needs to know."""
        import torch

        from denizen.run._facts import commit, versions

        env: Any = self._env(self._modes()[0])
        card = torch.cuda.get_device_name() if torch.cuda.is_available() and self.device != "cpu" else "CPU"
        told = {name: str(value) for name, value in self._facts().items()}
        told |= {"grid_lifetime": env.grid_lifetime, "evaluation seeds": str(EVALUATION_SEEDS), "hardware": card}
        return {**told, "commit": commit() or "unknown", "torch": versions()["torch"]}

    def _check(self) -> None:
        from denizen.zoo.foraging import MODES

        for mode in self.modes:
            if mode not in MODES:
                raise ConfigError(f"--modes {mode}: unknown; {nearest(mode, MODES)}")
        for name in ("seeds", "worlds", "budget"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} {getattr(self, name)}: expected a whole number, at least 1")

    def _facts(self) -> dict[str, Any]:
        kept = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in ("out", "device", "quiet"):
            del kept[name]
        return {
            **kept,
            "modes": list(self._modes()),
            "set": list(self.set),
            "world": list(self.world),
            "policy": list(self.policy),
        }

    def _begin(self) -> None:
        """Keep what the experiment is, or make sure that it is the one in the folder."""
        from denizen.run._atomic import write_atomic

        file = self.out / NAME
        if file.exists():
            try:
                known = json.loads(file.read_text())
            except (OSError, ValueError) as error:
                raise ConfigError(f"{file} cannot be read: {error}") from error
            for name, value in self._facts().items():
                if known.get(name) != value:
                    raise ConfigError(
                        f"{self.out} holds an experiment with {name} {known.get(name)}, not {value}; choose another "
                        f"--out"
                    )
            return
        self.out.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(self._facts(), indent=1).encode() + b"\n")

    def _modes(self) -> tuple[str, ...]:
        from denizen.zoo.foraging import MODES

        return self.modes or tuple(name for name, mode in MODES.items() if mode.in_all)

    def _trainings(self) -> Iterator[tuple[str, int, Path]]:
        from denizen.zoo.foraging import MODES

        for mode in self._modes():
            first = SEEDS_APART * list(MODES).index(mode)  # trainings of two modes share no random number
            for seed in range(first, first + self.seeds):
                yield mode, seed, self.out / mode / f"seed-{seed}"

    def _settings(self, mode: str) -> dict[str, Any]:
        from denizen.app._settings import pairs

        world = {**pairs([self.world], "--world"), "mode": mode}
        return {
            "world_name": "foraging", "algo": "ppo", "steps": self.steps, "set": pairs([self.set], "--set"),
            "world": world, "policy": pairs([self.policy], "--policy"),
        }  # fmt: skip

    def _train(self, mode: str, seed: int, folder: Path) -> None:
        from denizen.app._train import build
        from denizen.rl import resume, train
        from denizen.rl._training_folder import read_manifest

        settings = self._settings(mode)
        device = None if self.device == "auto" else self.device
        show = not self.quiet
        if (folder / "manifest.json").exists():
            if read_manifest(folder)["status"] == "finished":
                return
            made = build(settings, seed)
            resume(folder, made.env, made.policy, made.algorithm, device=device, progress=show)
            return
        made = build(settings, seed)
        train(
            made.env, made.policy, made.algorithm, made.steps, seed=seed, device=device, folder=folder, progress=show,
            settings=settings,
        )  # fmt: skip

    def _evaluate(self, folder: Path) -> list[Any]:
        """The evaluations of a training, those that are missing made."""
        from denizen.app._trained import load
        from denizen.rl._iteration import COMPILE_FROM
        from denizen.run._device import choose
        from denizen.zoo.foraging.agents import Learnt
        from denizen.zoo.foraging.evaluate import Foraged, forage

        files = {seed: folder / f"evaluation-{seed}.npz" for seed in EVALUATION_SEEDS}
        missing = [seed for seed, file in files.items() if not file.exists()]
        if missing:
            saved = load(folder, best=False)
            target, _ = choose(None if self.device == "auto" else self.device, "experiment")
            agent = Learnt(saved.policy.to(target))
            compile = target.type == "cuda" or self.budget * self.worlds >= COMPILE_FROM * 100
            for seed in missing:
                told = forage(
                    saved.env, agent, num_envs=self.worlds, steps=self.budget, seed=seed, device=target,
                    compile=compile,
                )  # fmt: skip
                _save(files[seed], told)
        return [Foraged.load(file) for file in files.values()]

    def _directions(self, folder: Path) -> Any:
        """How a training moves in constructed scenes."""
        from denizen.app._trained import load
        from denizen.zoo.foraging.agents import Learnt
        from denizen.zoo.foraging.verify import Directions, directions

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
