"""`denizen experiment goodhart`: trains and evaluates all modes of foraging, and writes the report."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denizen._printing import say
from denizen.errors import ConfigError, nearest
from denizen.studies._experiment import Plan

if TYPE_CHECKING:
    from denizen._printing import Console

EVALUATION_SEEDS = (42, 43, 44)
SEEDS_APART = 1000
COMPILE_FROM = 10_000_000  # steps of agents from which compiling an evaluation on the CPU pays


class Goodhart:
    """The experiment on all modes of foraging."""

    def __init__(self, plan: Plan) -> None:
        """Args:
        plan: what is asked for.

        Raises:
            ConfigError: an unknown mode, or a mode among the options of the world.
        """
        from denizen.zoo.foraging import MODES

        for mode in plan.modes:
            if mode not in MODES:
                raise ConfigError(f"--modes {mode}: unknown; {nearest(mode, MODES)}")
        if "mode" in plan.world:
            raise ConfigError("--world mode: this experiment trains several modes; choose with --modes")
        given = tuple(dict.fromkeys(plan.modes))  # a mode named twice is trained, and counts, once
        self.plan = plan
        self.modes = given or tuple(name for name, mode in MODES.items() if mode.in_all)

    def run(self, console: "Console") -> Path:
        """Do what is missing, and write the report; its path."""
        from denizen.studies.foraging.evaluate import joined
        from denizen.studies.foraging.report import write_report

        results: dict[str, list[Any]] = {}
        scenes: dict[str, list[Any]] = {}
        ways: dict[str, dict[str, list[Any]]] = {}
        for mode, seed, folder in self.trainings():
            say(console, (mode, "bold"), f", seed {seed}: {folder}")
            self.plan.train(self._settings(mode), seed, folder)
            results.setdefault(mode, []).append(joined(self._evaluate(folder)))
            for way, found in self._otherwise(folder).items():
                ways.setdefault(way, {}).setdefault(mode, []).append(found)
            scenes.setdefault(mode, []).append(self._directions(folder))
        agents = self._written(console, scenes)
        return write_report(
            self.plan.out / "report", results, agents=agents, directions=scenes, otherwise=ways, facts=self._told()
        )

    def facts(self) -> dict[str, Any]:
        """What must stay the same when the experiment goes on."""
        plan = self.plan
        kept = {"name": "goodhart", "modes": list(self.modes), "steps": plan.steps, "seeds": plan.seeds}
        words = {"set": plan.set, "world": plan.world, "policy": plan.policy}
        listed = {flag: [f"{name}={value}" for name, value in pairs.items()] for flag, pairs in words.items()}
        return {**kept, "worlds": plan.worlds, "budget": plan.budget, **listed}

    def trainings(self) -> Iterator[tuple[str, int, Path]]:
        """(mode, seed, folder) of each."""
        from denizen.zoo.foraging import MODES

        for mode in self.modes:
            first = SEEDS_APART * list(MODES).index(mode)  # trainings of two modes share no random number
            for seed in range(first, first + self.plan.seeds):
                yield mode, seed, self.plan.out / mode / f"seed-{seed}"

    def _settings(self, mode: str) -> dict[str, Any]:
        plan = self.plan
        return {
            "world_name": "foraging",
            "algo": "ppo",
            "steps": plan.steps,
            "set": dict(plan.set),
            "world": {**plan.world, "mode": mode},
            "policy": dict(plan.policy),
        }

    def _env(self, mode: str) -> Any:
        return self.plan.build(self._settings(mode), 0).env

    def _told(self) -> dict[str, str]:
        """What a reader of the report needs to know."""
        from denizen.rl import read_manifest

        _, _, first = next(self.trainings())
        told = {name: str(value) for name, value in self.facts().items()}
        told |= {"grid_lifetime": self._env(self.modes[0]).grid_lifetime, "evaluation seeds": str(EVALUATION_SEEDS)}
        told["algorithm"] = read_manifest(first)["algorithm"]
        return told | self.plan.surroundings()

    def _evaluate(self, folder: Path) -> list[Any]:
        """The evaluations of a training; missing ones are made."""
        return [self._foraged(folder, f"evaluation-{seed}", seed) for seed in EVALUATION_SEEDS]

    def _otherwise(self, folder: Path) -> dict[str, Any]:
        """Evaluations of a training with the likeliest actions, and in worlds with the other lifetime of grids."""
        from denizen.zoo.foraging.model import LIFETIMES

        seed, mine = EVALUATION_SEEDS[0], self._env(self.modes[0]).grid_lifetime
        found = {"likeliest actions": self._foraged(folder, f"evaluation-{seed}-greedy", seed, greedy=True)}
        for other in LIFETIMES:
            if other != mine:
                world = {"grid_lifetime": other}
                name = f"evaluation-{seed}-{other}"
                found[f"grid_lifetime={other}"] = self._foraged(folder, name, seed, world=world)
        return found

    def _foraged(
        self, folder: Path, name: str, seed: int, *, greedy: bool = False, world: dict[str, str] | None = None
    ) -> Any:
        """An evaluation of a training, made where it is missing; `world` are other options of the world."""
        from denizen.run import choose_device
        from denizen.studies.foraging.evaluate import Foraged, forage
        from denizen.zoo.foraging.agents import Learnt

        file, plan = folder / f"{name}.npz", self.plan
        if not file.exists():
            saved = plan.load(folder, world or {})
            target, _ = choose_device(plan.device, "experiment")
            told = forage(
                saved.env,
                Learnt(saved.policy.to(target), greedy=greedy),
                num_envs=plan.worlds,
                steps=plan.budget,
                seed=seed,
                device=target,
                compile=target.type == "cuda" or plan.budget * plan.worlds >= COMPILE_FROM,
            )
            _save(file, told)
        return Foraged.load(file)

    def _directions(self, folder: Path) -> Any:
        """How a trained policy moves in constructed scenes."""
        from denizen.studies.foraging.verify import Directions, directions
        from denizen.zoo.foraging.agents import Learnt

        file = folder / "directions.npz"
        if not file.exists():
            saved = self.plan.load(folder, {})
            _save(file, directions(saved.env, Learnt(saved.policy)))
        return Directions.load(file)

    def _written(self, console: "Console", scenes: dict[str, list[Any]]) -> dict[str, Any]:
        """Agents that were not trained, in the worlds of one evaluation; how they move is added to `scenes`."""
        from denizen.studies.foraging.evaluate import Foraged, forage
        from denizen.studies.foraging.verify import directions
        from denizen.zoo.foraging.agents import OmniscientSeeker, ProxySeeker, Uniform

        plan, found = self.plan, {}
        for name, mode, agent in (
            ("omniscient seeker", "ground_truth", OmniscientSeeker),
            ("proxy seeker", "proxy", ProxySeeker),
            ("uniform moves", "ground_truth", Uniform),
        ):
            file, env = plan.out / f"{name.replace(' ', '-')}.npz", self._env(mode)
            scenes[name] = [directions(env, agent(env))]
            if not file.exists():
                say(console, (name, "bold"))
                told = forage(
                    env,
                    agent(env),
                    num_envs=plan.worlds,
                    steps=plan.budget,
                    seed=EVALUATION_SEEDS[0],
                    device=plan.device,
                )
                _save(file, told)
            found[name] = Foraged.load(file)
        return found


def _save(file: Path, told: Any) -> None:
    """Write what has a `save`, whole or not at all."""
    partial = file.with_name(f".{file.name}")
    told.save(partial)
    partial.replace(file)
