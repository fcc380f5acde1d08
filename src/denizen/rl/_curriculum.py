"""Parameters of worlds that change as a training goes on, on the device: by progress, or by what was reached."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from denizen._fingerprint import describe
from denizen.errors import InputError
from denizen.model import Env
from denizen.rl._settings import Linear, numbers, wholes
from denizen.rl._worlds import param_numbers


@dataclasses.dataclass(frozen=True)
class Earned:
    """From `start` to `end` in equal stages; the next one comes when the policy is good enough in this one.

    Attributes:
        start: value of the first stage.
        end: value of the last one.
        score: mean return that ends a stage.
        stages: steps from `start` to `end`.
        lives: that a mean is taken of, one mean after the other.
    """

    start: float
    end: float
    score: float
    stages: int = 10
    lives: int = 100

    def __post_init__(self) -> None:
        numbers(self, "start", "end", "score")
        wholes(self, "stages", "lives")

    def at(self, stage: Tensor) -> Tensor:
        """Value at a stage: float32 `[]`."""
        return self.start + (self.end - self.start) * (stage / self.stages)

    def after(self, held: Tensor, lives: Tensor, total: Tensor) -> Tensor:
        """State after an update.

        Args:
            held: float32 `[3]`: stage, and number and sum of returns of the lives that count so far.
            lives: number of lives that ended in the update.
            total: sum of their returns.
        """
        stage, count, whole = (held + torch.stack([torch.zeros_like(lives), lives, total])).unbind()
        enough = count >= self.lives
        reached = enough & (whole >= self.score * count)
        stage = (stage + reached).clamp(max=self.stages)
        return torch.stack([stage, torch.where(enough, 0.0, count), torch.where(enough, 0.0, whole)])


class Curriculum:
    """Schedules of parameters, and the worlds that follow them."""

    def __init__(self, params: Mapping[str, Any] | None, *worlds: Any) -> None:
        """Args:
        params: as trainers take them; what is no schedule stays as it is.
        *worlds: which were made with `first_values`.
        """
        self._schedules, self._worlds = schedules(params), worlds
        device = worlds[0].device
        self._stages = {n: torch.zeros(3, device=device) for n, s in self._schedules.items() if isinstance(s, Earned)}

    def begin(self, progress: Tensor) -> None:
        """Give the worlds their values for an update; in place, so that a captured graph sees them."""
        for name in self._schedules:
            for worlds in self._worlds:
                worlds.values[name].copy_(self._now(name, progress))

    def end(self, metrics: dict[str, Tensor]) -> dict[str, Tensor]:
        """The metrics of an update with the values it was under; lives that ended in it count."""
        now = {f"param_{name}": self._worlds[0].values[name].flatten()[0].clone() for name in self._schedules}
        for name, held in self._stages.items():
            schedule = self._schedules[name]
            assert isinstance(schedule, Earned)
            held.copy_(schedule.after(held, metrics["episodes"], metrics["return_sum"]))
        return {**metrics, **now}

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds."""
        return {f"curriculum.{name}": held for name, held in self._stages.items()}

    def _now(self, name: str, progress: Tensor) -> Tensor:
        schedule = self._schedules[name]
        value = schedule.at(self._stages[name][0]) if isinstance(schedule, Earned) else schedule.at(progress)
        return value.clamp(min(schedule.start, schedule.end), max(schedule.start, schedule.end))


def schedules(params: Mapping[str, Any] | None) -> dict[str, Linear | Earned]:
    """Those of the parameters that change."""
    return {name: value for name, value in (params or {}).items() if isinstance(value, Linear | Earned)}


def first_values(env: Env, params: Mapping[str, Any] | None, count: int) -> dict[str, Tensor]:
    """Parameters as they are at the beginning, each with a leading axis of `count`.

    Raises:
        InputError: a schedule leaves the bounds of its parameter, worlds would not follow it, or a value is no number.
    """
    if not isinstance(params or {}, Mapping):
        raise InputError(f"params={params!r}: expected values by name, such as {{'gravity': dz.rl.Linear(5, 9.8)}}")
    changing = schedules(params)
    values = {name: param_numbers(name, v) for name, v in (params or {}).items() if name not in changing}
    env.check_changing([name for name in changing if name in env.params])
    for name, schedule in changing.items():
        spec, shape = env.params.get(name), ()
        if spec is not None:  # Worlds tells which there are
            shape = spec.shape
            for value in (schedule.start, schedule.end):
                spec.check(torch.tensor(float(value)), f"params[{name!r}] = {schedule}: value")
        values[name] = torch.full((count, *shape), float(schedule.start))
    return values


def described(params: Mapping[str, Any] | None) -> dict[str, str]:
    """Parameters as text, to compare."""
    changing = schedules(params)
    fixed = {name: param_numbers(name, value) for name, value in (params or {}).items() if name not in changing}
    return {name: describe(value) for name, value in {**fixed, **changing}.items()}
