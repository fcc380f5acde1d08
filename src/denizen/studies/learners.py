"""`denizen experiment learners`: compares PPO and GRPO in several worlds with equal numbers of steps."""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denizen._figures import FAINT, colour, figure, name_ends, plain_axis, save_figure, thousands, titled
from denizen._printing import say
from denizen.errors import ConfigError, nearest
from denizen.studies._experiment import Plan

if TYPE_CHECKING:
    from denizen._printing import Console

POINTS = 20  # of a curve
VALIDATION = {"num_envs": 256, "seed": 1}  # worlds of curves; those of final scores have another seed
FINAL_SEED = 2
# The objective of the program that the fruit catcher comes from, as `dz.GRPO.original` has it.
ORIGINAL = {
    "advantage": "original",
    "scale": "none",
    "loss": "dapo",
    "update_epochs": "1",
    "num_minibatches": "1",
    "shared_stream": "false",
}


@dataclasses.dataclass(frozen=True)
class Arena:
    """A world in which algorithms are compared.

    Attributes:
        steps: of each training unless flags say otherwise.
        greedy: policies take their likeliest actions in evaluations; in a world without a memory of where one was,
            that may go round in circles.
        arms: for each name the algorithm and its settings beside those of the recipe.
        policy: options of the policy beside those of the recipe.
    """

    steps: str
    greedy: bool
    arms: Mapping[str, tuple[str, dict[str, str]]]
    policy: Mapping[str, str] = dataclasses.field(default_factory=dict)


PACE = {
    "num_minibatches": "4",
    "learning_rate": "1e-3:1e-4",
    "ent_coef": "0.01",
    "entropy_floor": "0",
    "floor_penalty": "0",
}
BOTH: dict[str, tuple[str, dict[str, str]]] = {"PPO": ("ppo", {}), "GRPO": ("grpo", {})}
ARENAS = {
    "cartpole": Arena("500k", True, BOTH),
    # A smaller network than the published one, so that a CPU can do it; as many gradient steps a rollout, at the same
    # rate, for both: the recipe of PPO is the published one, for 50 M steps.
    "foraging": Arena(
        "1M",
        False,
        {"PPO": ("ppo", PACE), "GRPO": ("grpo", {})},
        {"channels": "8,16", "hidden": "64", "critic_hidden": "64"},
    ),
    "fruits": Arena("4M", True, {**BOTH, "original objective": ("grpo", ORIGINAL)}),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One training.

    Attributes:
        steps: of worlds.
        curve: (steps, score) of each validation.
        score: mean return of the policy at the end, in worlds of their own.
    """

    steps: int
    curve: Sequence[tuple[int, float]]
    score: float


class Learners:
    """Trains, evaluates and writes up what is missing."""

    def __init__(self, plan: Plan) -> None:
        """Args:
        plan: what is asked for.

        Raises:
            ConfigError: an unknown world, or flags that belong to another experiment.
        """
        for world in plan.modes:
            if world not in ARENAS:
                raise ConfigError(f"--modes {world}: unknown; {nearest(world, ARENAS)}")
        for name in ("set", "world", "policy"):
            if getattr(plan, name):
                raise ConfigError(f"--{name}: not for this experiment, whose settings are those of `denizen train`")
        self.plan = plan
        self.worlds = tuple(name for name in ARENAS if name in plan.modes or not plan.modes)

    def run(self, console: "Console") -> Path:
        """Do what is missing, and write the report; its path."""
        found: dict[str, dict[str, list[Outcome]]] = {}
        for world, arm, seed, folder in self._trainings():
            say(console, (world, "bold"), f", {arm}, seed {seed}: {folder}")
            found.setdefault(world, {}).setdefault(arm, []).append(self._outcome(world, arm, seed, folder))
        facts = {**self._told(), **self.plan.surroundings()}
        return write_report(self.plan.out / "report", found, self._lines(), facts)

    def facts(self) -> dict[str, Any]:
        """What must stay the same when the experiment goes on."""
        names = ("steps", "seeds", "worlds", "budget")
        kept = {name: getattr(self.plan, name) for name in names}
        return {"name": "learners", **kept, "modes": list(self.worlds)}

    def _told(self) -> dict[str, str]:
        told = {f"steps of a training, {name}": self.plan.steps or ARENAS[name].steps for name in self.worlds}
        told |= {"worlds of a final score": f"{self.plan.worlds:,}", "trainings": f"{self.plan.seeds} of each"}
        return {**told, "actions": ", ".join(f"{w} {'greedy' if ARENAS[w].greedy else 'drawn'}" for w in self.worlds)}

    def _trainings(self) -> Iterator[tuple[str, str, int, Path]]:
        for world in self.worlds:
            for arm in ARENAS[world].arms:
                for seed in range(self.plan.seeds):
                    yield world, arm, seed, self.plan.out / world / arm.replace(" ", "-") / f"seed-{seed}"

    def _outcome(self, world: str, arm: str, seed: int, folder: Path) -> Outcome:
        """Of a training, which is done where it is missing."""
        from denizen._atomic import write_atomic
        from denizen.rl import evaluate, read_metrics

        arena = ARENAS[world]
        algorithm, changes = arena.arms[arm]
        settings = {
            "world_name": world,
            "algo": algorithm,
            "steps": self.plan.steps or arena.steps,
            "set": changes,
            "world": {},
            "policy": dict(arena.policy),
        }
        made = self.plan.build(settings, seed)
        budget = min(self.plan.budget, made.env.time_limit or math.inf)
        lives = {"max_steps": int(budget), "greedy": arena.greedy}
        every = max(1, round(made.steps / made.algorithm.samples / POINTS))
        self.plan.train(settings, seed, folder, validate_every=every, validation={**VALIDATION, **lives})
        file = folder / "score.json"
        if not file.exists():
            saved = self.plan.load(folder, {})
            told = evaluate(saved.env, saved.policy, num_envs=self.plan.worlds, seed=FINAL_SEED, **lives)
            write_atomic(file, json.dumps({"mean": told.mean, "interval": told.interval}).encode() + b"\n")
        rows = read_metrics(folder)
        curve = [(row["steps"], row["validation_return"]) for row in rows if row.get("validation_return") is not None]
        return Outcome(rows[-1]["steps"], curve, json.loads(file.read_text())["mean"])

    def _lines(self) -> dict[str, dict[str, float]]:
        """Scores to compare with, in the worlds of the final scores."""
        from denizen.studies.fruits import Chase, Guess, hindsight, scores
        from denizen.zoo.fruits import fruits

        if "fruits" not in self.worlds:
            return {}
        env = fruits(max_steps=min(self.plan.budget, 100))
        worlds = {"num_envs": self.plan.worlds, "seed": FINAL_SEED}
        return {
            "fruits": {
                "hindsight optimum": float(hindsight(env, **worlds).mean()),
                "chase the lowest fruit": float(scores(env, Chase(env), **worlds).mean()),
                "at random": float(scores(env, Guess(), **worlds).mean()),
            }
        }


def write_report(
    folder: Path,
    found: Mapping[str, Mapping[str, Sequence[Outcome]]],
    lines: Mapping[str, Mapping[str, float]],
    facts: Mapping[str, str],
) -> Path:
    """Write `report.md`, its picture and its numbers.

    Args:
        folder: is made where it does not exist.
        found: for each world and algorithm its trainings.
        lines: for some worlds, scores of other play in the worlds of the final scores.
        facts: what else a reader needs.

    Returns:
        Path of the report.
    """
    from denizen.studies.foraging.report import table
    from denizen.studies.statistics import interval

    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for world, arms in found.items():
        for arm, outcomes in arms.items():
            scores = [outcome.score for outcome in outcomes]
            over = interval(scores)
            spread = "–" if len(scores) < 2 else f"{over.low:.2f} to {over.high:.2f}"
            rows.append(
                [
                    world,
                    arm,
                    f"{outcomes[0].steps:,}",
                    f"{over.mean:.2f}",
                    spread,
                    f"{min(scores):.2f}",
                    f"{max(scores):.2f}",
                    str(len(scores)),
                ]
            )
        rows += [[world, name, "", f"{score:.2f}", "", "", "", ""] for name, score in lines.get(world, {}).items()]
    head = ["world", "algorithm", "steps", "score", "95 % interval", "lowest", "highest", "trainings"]
    note = (
        "Score: mean return of one life in each world of the evaluation, of the policy at the end. The interval is "
        "Student's t over trainings, whose lowest and highest are beside it. Steps are rounded up to whole rollouts."
    )
    parts = ["# PPO and GRPO", table(["setting", ""], list(facts.items())), "## Scores", table(head, rows), note]
    _picture(folder / "curves.png", found, lines)
    parts += ["## Curves", "![Score over steps of worlds](curves.png)"]
    parts.append(
        f"Score in {VALIDATION['num_envs']} other worlds during training; the line is the mean over trainings, "
        "the band goes from the lowest to the highest."
    )
    told = {
        w: {a: [dataclasses.asdict(o) for o in outcomes] for a, outcomes in arms.items()} for w, arms in found.items()
    }
    (folder / "scores.json").write_text(json.dumps(told) + "\n")
    page = folder / "report.md"
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return page


def _picture(
    file: Path, found: Mapping[str, Mapping[str, Sequence[Outcome]]], lines: Mapping[str, Mapping[str, float]]
) -> None:
    made = figure(4.6 * len(found), 3.8, "draw the curves of a report")
    axes: Any = made.subplots(1, len(found), squeeze=False)[0]
    for axis, (world, arms) in zip(axes, found.items(), strict=True):
        ends = []
        for number, (arm, outcomes) in enumerate(arms.items()):
            at = list(zip(*(outcome.curve for outcome in outcomes), strict=False))
            if not at:
                continue
            steps, scores = [one[0][0] for one in at], [[v for _, v in one] for one in at]
            mean = [sum(one) / len(one) for one in scores]
            axis.fill_between(
                steps, list(map(min, scores)), list(map(max, scores)), color=colour(number), alpha=0.2, lw=0
            )
            axis.plot(steps, mean, color=colour(number), linewidth=2, marker="o" if len(steps) == 1 else None)
            ends.append((arm, mean[-1], colour(number)))
        for name, score in lines.get(world, {}).items():
            axis.axhline(score, color=FAINT, linewidth=0.8, linestyle="dotted")
            axis.text(0.01, score, name, transform=axis.get_yaxis_transform(), va="bottom", fontsize=7, color=FAINT)
        plain_axis(axis)
        titled(axis, world, "steps of worlds", "score")
        thousands(axis)
        name_ends(axis, ends)
    save_figure(made, file)
