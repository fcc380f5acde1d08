"""Tests: who is told positive, rightly or not, and when."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import number, share
from denizen.disease._delays import due, living, put, steps
from denizen.disease._waning import Waning
from denizen.errors import ModelError
from denizen.rng import Rng


@dataclasses.dataclass(frozen=True)
class Results:
    """What a step of a test gives, masks `[agents]`.

    Attributes:
        pending: the field one step on.
        positive: those who are told in this step that they are positive.
        negative: those who are told in this step that they are not.
        taken: those of whom a sample was taken: nobody twice while a result is awaited.
    """

    pending: Tensor
    positive: Tensor
    negative: Tensor
    taken: Tensor


@dataclasses.dataclass(frozen=True)
class Test:
    """A test with errors whose results come later.

    Whether a sample is positive is drawn when it is taken, from what holds then: with probability `sensitivity` where
    it should be, with probability 1 - `specificity` where it should not. What is awaited lies in a count field of the
    state.

    Attributes:
        sensitivity: share of those who have it that test positive.
        specificity: share of the others that test negative.
        delay: time from sample to result, in the model's unit of time: a number, rounded up to whole steps, 0 for the
            same step; or `Waning(mean, phases)` for a random one of at least a step.

    Examples:
        >>> Test(0.8, 0.99, delay=2.0)
        Test(sensitivity=0.8, specificity=0.99, delay=2.0)
    """

    __test__ = False  # nothing for pytest to collect

    sensitivity: Any
    specificity: Any = 1.0
    delay: float | Waning = 0.0

    def __post_init__(self) -> None:
        for name in ("sensitivity", "specificity"):
            if not isinstance(getattr(self, name), Tensor):
                share("Test", name, getattr(self, name))
        if not isinstance(self.delay, Waning):
            number("Test", "delay", self.delay, 0, hint=", or Waning(mean, phases)")

    def step(self, rng: Rng, now: Any, pending: Tensor, taken: Tensor, has_it: Tensor, name: str = "test") -> Results:
        """Results that are due, then new samples; once in a step.

        Args:
            rng: of the step.
            now: the state, for its clock; where it says who is alive, only the living are tested and told.
            pending: the field ``dz.count("agents")``, 0 at the start: what is awaited.
            taken: mask `[agents]` of those who are to be tested.
            has_it: mask `[agents]` of those of whom the test should be positive.
            name: scope of the streams.
        """
        for what, value in (("pending", pending), ("taken", taken), ("has_it", has_it)):
            if not isinstance(value, Tensor) or value.shape != now.id.shape:
                got = tuple(value.shape) if isinstance(value, Tensor) else f"{type(value).__name__} {value!r}"
                raise ModelError(
                    f"Test.step: {what} is {got}, expected one number for each of {now.id.shape[0]} agents"
                )
            if value.is_floating_point():
                raise ModelError(
                    f"Test.step: {what} holds real numbers, and who waits for what is not differentiable; give masks, "
                    f"and run without relax="
                )
        alive = living(now, taken)
        scope = rng[name]
        told, right, waits = due(now, pending)
        taken = (taken != 0).to(torch.int8) * alive * ~waits
        prob = torch.where(has_it != 0, self.sensitivity, 1 - self.specificity)
        outcome = scope.bernoulli("positive", prob, where=taken)
        wait = steps(self.delay, scope, now, "Test: delay")
        if isinstance(wait, int) and wait == 0:
            told, right = told | (taken != 0), right | (outcome != 0)
            taken_later = torch.zeros_like(taken)
        else:
            taken_later = taken
        positive = right.to(torch.int8) * alive
        return Results(
            pending=put(now, torch.where(waits, pending, 0), taken_later, outcome, wait),
            positive=positive,
            negative=told.to(torch.int8) * alive - positive,
            taken=taken,
        )

    def fits(self, dt: float) -> None:
        """Raise `InputError` where a random delay is shorter than its phases; for `Model.fits`."""
        if isinstance(self.delay, Waning):
            self.delay.fits(dt, "Test: delay")
