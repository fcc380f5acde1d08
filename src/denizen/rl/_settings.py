"""Settings of algorithms: their names, former ones included, their values, and schedules of those that may change."""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from denizen._arguments import number, switch, whole
from denizen.errors import InputError, nearest

T = TypeVar("T")
SEARCHED = 100_000  # values above one that does not fit
FORMER = {  # former name -> present one: run folders of denizen before November 2026 hold the former ones
    "epochs": "update_epochs",
    "minibatches": "num_minibatches",
    "clip": "clip_coef",
    "value_coefficient": "vf_coef",
    "entropy_coefficient": "ent_coef",
    "max_gradient_norm": "max_grad_norm",
}
ELSEWHERE = {  # names that other libraries have -> here
    "lr": "learning_rate",
    "n_steps": "num_steps",
    "n_envs": "num_envs",
    "n_epochs": "update_epochs",
    "lam": "gae_lambda",
    "lambda": "gae_lambda",
    "clip_range": "clip_coef",
    "clip_eps": "clip_coef",
    "entropy_coef": "ent_coef",
    "value_coef": "vf_coef",
    "kl_coef": "beta",
}
_FORMER_IN_TEXT = re.compile(rf"\b({'|'.join(FORMER)})(?==)")


@dataclasses.dataclass(frozen=True)
class Linear:
    """From `start` to `end` while progress goes from `begin` to `until`, constant before and after.

    Attributes:
        start: value up to `begin`.
        end: value from `until` on.
        begin: progress, 0 to 1.
        until: progress, 0 to 1.
    """

    start: float
    end: float
    begin: float = 0.0
    until: float = 1.0

    def __post_init__(self) -> None:
        numbers(self, "start", "end")
        numbers(self, "begin", "until", low=0, high=1)
        if self.begin >= self.until:
            raise InputError(f"Linear: begin={self.begin}, until={self.until}, expected begin below until")

    def at(self, progress: Tensor) -> Tensor:
        """Value at a progress: float32 `[]`."""
        part = ((progress - self.begin) / (self.until - self.begin)).clamp(0, 1)
        return self.start + (self.end - self.start) * part


@dataclasses.dataclass(frozen=True)
class AdaptiveKL:
    """A learning rate that follows how far each update moves the policy, as rsl_rl has it (Rudin et al., 2022).

    Before each optimiser step but an update's first, by the KL of the policy that acted to the present one over the
    minibatch: above twice the target the rate is divided by `factor`, below half of it multiplied. It goes on from
    update to update, on the device.

    Attributes:
        target: of the KL, nats.
        start: the first rate.
        low: smallest rate.
        high: largest rate.
        factor: of a change.
    """

    target: float = 0.01
    start: float = 1e-3
    low: float = 1e-5
    high: float = 1e-2
    factor: float = 1.5

    def __post_init__(self) -> None:
        numbers(self, "target", "low", above=0)
        numbers(self, "factor", above=1)
        numbers(self, "high", low=self.low)
        numbers(self, "start", low=self.low, high=self.high)


Schedule = float | Linear
LearningRate = float | Linear | AdaptiveKL


class Rate:
    """The learning rate of a training.

    Attributes:
        follows: by which rule it follows the KL; None: it follows a schedule.
    """

    def __init__(self, schedule: LearningRate, device: torch.device) -> None:
        """Args:
        schedule: of an algorithm.
        device: of the training.
        """
        self.follows = schedule if isinstance(schedule, AdaptiveKL) else None
        self._schedule = schedule
        self._held = torch.full((), 0.0 if self.follows is None else self.follows.start, device=device)

    def at(self, progress: Tensor) -> Tensor:
        """At a moment: float32 `[]`."""
        return self._held.clone() if isinstance(self._schedule, AdaptiveKL) else value_at(self._schedule, progress)

    @torch.no_grad()
    def after(self, kl: Tensor, stopped: Tensor) -> Tensor:
        """The rate of the next step, where it follows the KL; a NaN changes nothing.

        Args:
            kl: float32 `[]`: of the policy that acted to the present one, of all processes.
            stopped: bool `[]`: the update changes nothing any more, so neither does this.
        """
        rule, now = self.follows, self._held
        assert rule is not None
        less, more = now / rule.factor, now * rule.factor
        moved = torch.where(kl > 2 * rule.target, less, torch.where(kl < rule.target / 2, more, now))
        self._held.copy_(torch.where(stopped, now, moved.clamp(rule.low, rule.high)))
        return self._held.clone()

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds."""
        return {} if self.follows is None else {"learning_rate": self._held}


def value_at(schedule: Schedule, progress: Tensor) -> Tensor:
    """Value of a number or a schedule: float32 `[]` on the device of `progress`."""
    if isinstance(schedule, Linear):
        return schedule.at(progress)
    return torch.full_like(progress, schedule)


# --- values -----------------------------------------------------------------------------------------------------------


def wholes(owner: Any, *names: str, low: int = 1, none: bool = False) -> None:
    """Have settings of a frozen dataclass be whole numbers of at least `low`, or None where that is allowed."""
    for name in names:
        value = getattr(owner, name)
        if not (none and value is None):
            kept = whole(type(owner).__name__, name, value, low, hint=", or None" if none else "")
            object.__setattr__(owner, name, kept)


def numbers(
    owner: Any,
    *names: str,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    none: bool = False,
    schedule: bool = False,
) -> None:
    """Have settings of a frozen dataclass be finite numbers within limits, or None, or a `Linear` between such."""
    hint = ", or None for none" if none else ", or a dz.rl.Linear between such" if schedule else ""
    for name in names:
        value = getattr(owner, name)
        if none and value is None:
            continue
        ends = (value.start, value.end) if schedule and isinstance(value, Linear) else (value,)
        kept = [number(type(owner).__name__, name, end, low, high, above=above, hint=hint) for end in ends]
        if not isinstance(value, int | float | Linear):  # a whole one stays so: manifests tell 1 from 1.0
            object.__setattr__(owner, name, kept[0])


def rates(owner: Any) -> None:
    """Have the learning rate of a frozen dataclass be a number of at least 0, a `Linear` or an `AdaptiveKL`."""
    if not isinstance(owner.learning_rate, AdaptiveKL):
        numbers(owner, "learning_rate", low=0, schedule=True)
    elif owner.update_epochs * owner.num_minibatches == 1:
        raise InputError(
            f"{type(owner).__name__}: learning_rate={owner.learning_rate}, but one step an update, before which "
            f"nothing has moved; take update_epochs=2, or num_minibatches=2"
        )


def switches(owner: Any) -> None:
    """Have settings that are declared a bool be one: any word, "no" as well, would count as on."""
    for field in dataclasses.fields(owner):
        if field.type is bool:
            kept = switch(type(owner).__name__, field.name, getattr(owner, field.name))
            object.__setattr__(owner, field.name, kept)


def ways(**settings: tuple[int, Callable[[int], bool]]) -> str:
    """Values nearest to some settings that fit: ``num_minibatches=2 or 5, or num_envs=8 or 12``.

    Args:
        **settings: the value of each, and what tells whether another one fits while the rest stays.
    """
    told = []
    for name, (value, fits) in settings.items():
        below = next((one for one in range(value - 1, 0, -1) if fits(one)), None)
        above = next((one for one in range(value + 1, value + 1 + SEARCHED) if fits(one)), None)
        near = [str(one) for one in (below, above) if one is not None]
        told += [f"{name}={' or '.join(near)}"] if near else []
    return ", or ".join(told)


# --- names ------------------------------------------------------------------------------------------------------------


def by_name(cls: type[T]) -> type[T]:
    """A dataclass of settings that answers a name which it does not know with an `InputError` that helps."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]  # pyrefly: ignore
    made = cls.__init__

    @functools.wraps(made)
    def init(self: T, *args: Any, **given: Any) -> None:
        for name, value in given.items():
            if name not in names:
                raise InputError(f"{cls.__name__}: {name}={value!r}: {instead(cls, name, repr(value))}")
        made(self, *args, **given)

    cls.__init__ = init  # type: ignore[method-assign]  # pyrefly: ignore
    return cls


def instead(cls: type[Any], name: str, value: Any) -> str:
    """What to write in place of an argument that a class of settings does not take."""
    names = [field.name for field in dataclasses.fields(cls)]
    now = FORMER.get(name)
    if now in names:
        return f"renamed; write {now}={value}"
    meant = ELSEWHERE.get(name)
    return f"unknown; {nearest(meant if meant in names else name, names)}"


def present(text: str) -> str:
    """Text of ``NAME=VALUE`` with present names in place of former ones."""
    return _FORMER_IN_TEXT.sub(lambda found: FORMER[found[0]], text)


def with_present_names(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A training's manifest with present names in place of former ones."""
    new = dict(manifest)
    if isinstance(new.get("algorithm"), str):
        new["algorithm"] = present(new["algorithm"])
    settings = new.get("settings")
    if isinstance(settings, dict) and isinstance(settings.get("set"), dict):
        new["settings"] = {
            **settings,
            "set": {FORMER.get(name, name): value for name, value in settings["set"].items()},
        }
    return new
