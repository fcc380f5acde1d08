"""`denizen experiment`: from training to report, resumable at any point; the experiments are in `denizen.studies`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen._printing import give, say

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.report import Page
    from denizen.studies import Plan

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

    name: Annotated[Positional[str], arg(metavar="EXPERIMENT", help_behavior_hint="")] = ""
    """goodhart: foragers that are paid for food or for a proxy of it, and how they survive. learners: PPO and GRPO."""
    modes: Annotated[tuple[str, ...], arg(metavar="[NAME ...]", help_behavior_hint="")] = ()
    """goodhart: modes of foraging (default: the four of the published table). learners: worlds (default: all three)."""
    steps: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: goodhart 50331648, learners by world)")
    ] = None
    """Number of steps of each training, over all its worlds together, such as 5M."""
    seeds: Annotated[int, arg(metavar="N")] = 5
    """Number of trainings of each mode, or of each algorithm in each world. They differ in their random numbers."""
    worlds: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: goodhart 8192, learners 1024)")] = None
    """Number of worlds in each evaluation."""
    budget: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: goodhart 16384, learners 500)")] = None
    """Number of steps of each world in an evaluation, at most."""
    set: Annotated[tuple[str, ...], arg(metavar="[NAME=VALUE ...]", help_behavior_hint="")] = ()
    """goodhart: settings of PPO, as `denizen train --set` takes them, for example gamma=0.99."""
    world: Annotated[tuple[str, ...], arg(metavar="[NAME=VALUE ...]", help_behavior_hint="")] = ()
    """goodhart: options of the world, for example grid_lifetime=life."""
    policy: Annotated[tuple[str, ...], arg(metavar="[NAME=VALUE ...]", help_behavior_hint="")] = ()
    """goodhart: options of the policy, for example channels=16,32 hidden=128."""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/EXPERIMENT)")] = None
    """Folder of the experiment. Where it holds this experiment already, that goes on."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on. auto takes DENIZEN_DEVICE where it is set, else a CUDA device that works, else the CPU."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print only the path of the folder."""

    def __call__(self, console: "Console") -> int:
        """Train what is missing, evaluate what is missing, write the report."""
        from denizen.app._report import write_at_end
        from denizen.studies import held
        from denizen.studies.goodhart import Goodhart
        from denizen.studies.learners import Learners

        plan = self.plan()
        experiment = Learners(plan) if self.name == "learners" else Goodhart(plan)
        with held(plan.out, experiment.facts()):
            try:
                page = experiment.run(console)
            except KeyboardInterrupt as stop:
                stop.go_on = "go on with the same command"  # type: ignore[attr-defined]  # rather than one training
                raise
        say(console, f"report: {page}")
        write_at_end(plan.out, console, lambda: report([plan.out]))
        if self.quiet:
            give(plan.out)
        return 0

    def plan(self) -> "Plan":
        """What the words ask for.

        Raises:
            ConfigError: no such experiment, or none is named, for they last for hours; a number that is too small, or
                what should be NAME=VALUE and is not.
        """
        from denizen.app._build import build
        from denizen.app._settings import pairs, whole, within
        from denizen.errors import ConfigError, nearest
        from denizen.studies import Plan

        if not self.name:
            names = " or ".join(f"denizen experiment {name}" for name in DEFAULTS)
            raise ConfigError(f"which experiment? {names}; denizen experiment --help tells them apart")
        if self.name not in DEFAULTS:
            raise ConfigError(f"EXPERIMENT {self.name}: {nearest(self.name, DEFAULTS)}; denizen experiment --help")
        given = {name: getattr(self, name) for name in ("steps", "seeds", "worlds", "budget")}
        given |= {name: value for name, value in DEFAULTS[self.name].items() if given[name] is None}
        for name in ("seeds", "worlds", "budget"):
            within(f"--{name}", given[name], 1)
        if given["steps"] is not None:
            try:
                within("--steps", whole(given["steps"]), 1)
            except ValueError as error:
                raise ConfigError(f"--steps: {error}") from error
        return Plan(
            modes=self.modes,
            **given,
            set=pairs([self.set], "--set"),
            world=pairs([self.world], "--world"),
            policy=pairs([self.policy], "--policy"),
            out=self.out or Path("runs") / self.name,
            device=None if self.device == "auto" else self.device,
            quiet=self.quiet,
            build=build,
            load=_load,
        )


def report(folders: Sequence[Path]) -> "Page":
    """`denizen report` of an experiment: the report that it wrote, as a page.

    Raises:
        ConfigError: several experiments, which no table compares.
        DataError: it has not come to its report.
    """
    from denizen.errors import ConfigError
    from denizen.report._markdown import page_of

    if len(folders) > 1:
        raise ConfigError(f"a report is of one experiment, not of {' and '.join(map(str, folders))}")
    return page_of(folders[0] / "report" / "report.md")


def _load(folder: Path, world: Mapping[str, str]) -> Any:
    """The training in a folder with the policy of its end, in its world or one with other options."""
    from denizen.app._trained import load

    return load(folder, best=False, world=[[f"{name}={value}" for name, value in world.items()]])
