"""`denizen evaluate` and `denizen compare`: how good trained policies are, and how trainings went."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen._printing import give, say
from denizen.app._settings import within
from denizen.app._train import OtherWorld, Pairs, at_the_end
from denizen.errors import InputError

if TYPE_CHECKING:
    from denizen._printing import Console

Folder = Annotated[Positional[Path], arg(metavar="RUN")]
FORAGED = ("foragers", "energy", "food", "poison", "deaths", "food %", "null %", "median")
FORAGED_NOTE = (
    "Mortal in every mode, without a time limit. Per 1,000 steps, ± standard errors by worlds; share of food in what "
    "was eaten, and that of a forager without skill; median life in steps."
)
FORAGED_STEPS = 512  # of each world, where a training had no time limit


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """`denizen evaluate`."""

    about: ClassVar[str] = """Evaluate trained policies in new worlds: their returns, with confidence intervals.

examples:
  denizen evaluate runs/cartpole-ppo-20261128-120000
  denizen evaluate runs/foraging-ppo-20261128-120000 --greedy --worlds 1024 --best
  denizen evaluate runs/fruits-grpo-20261128-120000 --world stop_at_thresholds=true max_steps=1500"""

    run: Folder
    """Run folder. Each of several seeds is evaluated."""
    target: OtherWorld = ""
    """Another world, or the file that the world of the training came from. A file runs only where you name it."""
    worlds: Annotated[int, arg(metavar="N")] = 256
    """Number of worlds, with one life in each."""
    steps: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: the world's time limit)")] = None
    """Number of steps of the longest life."""
    greedy: FlagCreatePairsOff[bool] = False
    """Take the likeliest actions instead of drawing them."""
    best: FlagCreatePairsOff[bool] = False
    """Evaluate the best policy instead of the last."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the worlds."""
    world: Pairs = ()
    """Options of the world that differ from those of the training, for example spawn_prob=0.9."""
    json: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Also write the results to this file."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print only the mean return."""

    def __call__(self, console: "Console") -> int:
        """Evaluate, and print a table."""
        from denizen._printing import Table
        from denizen._results import student
        from denizen.app import _trained
        from denizen.rl import evaluate
        from denizen.zoo.foraging import Foraging

        self._check()
        table = Table("training", "return", "95 % interval", "lives", "unfinished", box=None)
        foragers = Table(*FORAGED, box=None)
        told: list[dict[str, Any]] = []
        errors: dict[str, list[float]] = {}
        of_roles: dict[str, list[float]] = {}
        for folder in _trained.folders(self.run, "evaluate"):
            saved = _trained.load(folder, self.best, self.world, self.target)
            if saved.note:
                say(console, f"note: {saved.note}")
            result = evaluate(
                saved.env, saved.policy, num_envs=self.worlds, max_steps=self.steps, greedy=self.greedy, seed=self.seed
            )
            lived = result if isinstance(result, dict) else {"": result}
            for role, one in lived.items():
                low, high = one.interval
                errors.setdefault(role, []).append(one.error)
                unfinished = int((~one.finished).sum())
                table.add_row(
                    " ".join(filter(None, (_trained.described(saved.manifest), role))),
                    f"{one.mean:.2f}",
                    f"{low:.2f} to {high:.2f}",
                    str(one.returns.numel()),
                    str(unfinished),
                )
                known = {"run": str(folder), **({"role": role} if role else {})}
                told.append({**known, "mean": one.mean, "low": low, "high": high, "unfinished": unfinished})
                of_roles.setdefault(role, []).append(one.mean)
            if isinstance(saved.env, Foraging):
                told[-1] |= self._foraged(saved, foragers)
        console.print(table)
        if foragers.row_count:
            console.print(foragers)
            console.print(FORAGED_NOTE)
        for role, means in of_roles.items():
            if len(means) < 2:
                continue
            mean, spread = statistics.mean(means), statistics.stdev(means)
            half = student(0.975, len(means) - 1) * spread / math.sqrt(len(means))
            say(
                console,
                f"{role}{' ' if role else ''}over {len(means)} training seeds: {mean:.2f} (95 % {mean - half:.2f} to "
                f"{mean + half:.2f}), standard deviation {spread:.2f}; all lived in the same worlds, which leave "
                f"{statistics.mean(errors[role]):.2f} (standard error) unknown beside that",
            )
        if self.json is not None:
            _trained.to_json(self.json, told)
        if self.quiet:
            for role, means in of_roles.items():
                mean = sum(means) / len(means)
                give(f"{role} {mean}" if role else mean)
        return 0

    def _check(self) -> None:
        """Raise `ConfigError` where a number is none that it can be, by the name of its flag."""
        for name, least in (("worlds", 1), ("steps", 1), ("seed", 0)):
            within(f"--{name}", getattr(self, name), least)

    def _foraged(self, saved: Any, table: Any) -> dict[str, float]:
        """How a forager fares where it can die, whatever it was paid for; adds a row to the table."""
        from denizen.studies.foraging.evaluate import forage
        from denizen.studies.foraging.nulls import memoryless_forager
        from denizen.zoo.foraging.agents import Learnt

        found = forage(
            saved.env,
            Learnt(saved.policy, greedy=self.greedy),
            num_envs=self.worlds,
            steps=self.steps or saved.env.time_limit or FORAGED_STEPS,
            seed=self.seed,
            device="cpu",
        )
        rates = {f"{name}_per_1000": found.per_thousand(name) for name in ("energy", "food", "poison", "deaths")}
        share, first = found.efficiency, found.first_lives
        eaten = (found.food.sum() + found.poison.sum()) / found.steps.sum()
        null = memoryless_forager(float(eaten), found.poison_share, steps=found.budget).efficiency
        efficiency = f"{100 * share.value:.1f} ± {100 * share.error:.2g}"
        median = f"> {found.budget:,}" if first.median is None else f"{first.median:,}"
        name = f"{saved.env.mode.name} {saved.manifest['seed']}"
        table.add_row(name, *map(str, rates.values()), efficiency, f"{100 * null:.1f}", median)
        return {**{name: rate.value for name, rate in rates.items()}, "efficiency": share.value, "null": null}


def compare_trainings(runs: Sequence[Path], out: Path, console: "Console") -> None:
    """`denizen compare` of trainings: a table, and their learning curves in one picture.

    Raises:
        InputError: fewer than two, or a picture of an unknown kind.
    """
    from denizen._printing import Table
    from denizen.app import _curves, _trained
    from denizen.rl import read_manifest, read_metrics

    if len(runs) < 2:
        raise InputError("compare: give two run folders or more")
    if out.suffix not in (".png", ".pdf", ".svg"):
        raise InputError(f"--out {out}: expected a name that ends in .png, .pdf or .svg")
    table = Table("training", "status", "updates", "return at the end", "highest", "settings that differ", box=None)
    found = [folder for run in runs for folder in _trained.folders(run, "compare")]
    manifests = [read_manifest(folder) for folder in found]
    for folder, manifest in zip(found, manifests, strict=True):
        last, highest = at_the_end(read_metrics(folder))
        table.add_row(
            str(folder),
            manifest["status"],
            f"{manifest['updates']:,}",
            last,
            highest,
            _differing(manifest, manifests),
        )
    console.print(table)
    picture = _curves.draw(found, out, console)
    if picture is not None:
        say(console, f"curves: {picture}")


def _differing(manifest: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """The settings in which a training differs from one of the others."""
    mine = _flat(manifest)
    return ", ".join(
        f"{name}={value}" for name, value in mine.items() if any(_flat(other).get(name) != value for other in others)
    )


def _flat(manifest: dict[str, Any]) -> dict[str, Any]:
    other = ("seeds", "tensorboard", "wandb")  # of the command, but not of the training
    settings = {name: value for name, value in (manifest["settings"] or {}).items() if name not in other}
    flat = {name: value for name, value in settings.items() if not isinstance(value, dict)}
    for name, table in settings.items():
        if isinstance(table, dict):  # a validation's names are those of others too
            flat.update({f"validation.{n}": v for n, v in table.items()} if name == "validation" else table)
    return {**flat, "seed": manifest["seed"]}
