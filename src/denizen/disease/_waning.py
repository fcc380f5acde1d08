"""How long something lasts: phases in a row, each left at random, so that the time is exponential, gamma or fixed."""

import dataclasses
from typing import Any

from torch import Tensor

from denizen._arguments import number, whole
from denizen.errors import InputError, ModelError
from denizen.model import Stage
from denizen.rng import Rng

MAX_PHASES = 60


@dataclasses.dataclass(frozen=True)
class Waning:
    """A time of mean `mean`, passed in phases in a row, each left with probability phases * dt / mean in a step.

    The number of steps is a sum of geometric times, of mean exactly mean / dt at any dt, and the variance of the time
    is mean² / phases - mean * dt: one phase is memoryless (exponential), mean / dt phases are a fixed time, numbers
    between have a gamma shape. It serves immunity that wanes, immunity of mothers' children, quarantine.

    Attributes:
        mean: in the model's unit of time; a number, or a parameter of the model as a 0-d tensor.
        phases: number of phases.
    """

    mean: Any
    phases: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.mean, Tensor):
            number("Waning", "mean", self.mean, above=0)
        whole("Waning", "phases", self.phases, 1, MAX_PHASES)

    def levels(self, name: str) -> tuple[str, ...]:
        """Names of the levels of a stage that the phases take: ``("immune", "immune 2", …)``."""
        return (name, *[f"{name} {k}" for k in range(2, self.phases + 1)])

    def leave(self, now: Any) -> Any:
        """Probability to leave a phase within the step."""
        return self.phases * now.time.dt / self.mean

    def wane(self, rng: Rng, now: Any, stage: Stage, level: str, to: str, name: str = "wane") -> Stage:
        """One step of those in the phases of `level`: on to the next phase, and from the last one to level `to`.

        Args:
            rng: of the step.
            now: the state, for its clock.
            stage: the field; its levels have the phases next to each other, as `levels` gives them.
            level: name of the first phase.
            to: level after the last one, any other.
            name: of the stream.
        """
        first, *rest = self.levels(level)
        codes = [stage.code(one) for one in (first, *rest)]
        if codes != list(range(codes[0], codes[0] + self.phases)):
            raise ModelError(
                f"Waning.wane: the phases of {level!r} lie apart in {', '.join(stage.levels)}; give the stage "
                f"*waning.levels({level!r}) in one piece"
            )
        phases = self.levels(level)
        left = rng.bernoulli(name, self.leave(now), where=stage.is_(*phases))
        stage = stage.move(left, to, source=phases[-1])  # the last first: nobody passes two in one step
        return stage.advance(left, *phases[:-1]) if self.phases > 1 else stage

    def fits(self, dt: float, what: str = "Waning") -> None:
        """Raise `InputError` where the phases, each at least a step long, outlast the mean; for `Model.fits`."""
        shortest, mean = self.phases * dt, float(self.mean.min()) if isinstance(self.mean, Tensor) else self.mean
        if mean < shortest * (1 - 1e-6):
            raise InputError(
                f"{what}: mean={mean:g} is shorter than {self.phases} phase{'s' if self.phases > 1 else ''} of a step "
                f"each ({shortest:g}); raise it, or lower dt{' or phases' if self.phases > 1 else ''}"
            )
