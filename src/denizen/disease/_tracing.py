"""Tracing of contacts: how many are found, and when."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import number, share
from denizen.disease._delays import due, living, put, steps
from denizen.disease._waning import Waning
from denizen.errors import InputError, ModelError
from denizen.rng import Rng


@dataclasses.dataclass(frozen=True)
class Traced:
    """What a step of tracing gives.

    Attributes:
        pending: the field one step on.
        found: mask `[agents]` of those who are told in this step that they are contacts.
        named: mask `[agents]` of those whom an index case named in this step, and who awaited no call.
    """

    pending: Tensor
    found: Tensor
    named: Tensor


@dataclasses.dataclass(frozen=True)
class Tracing:
    """Finds contacts of index cases, each contact with a probability of its own, and calls them later.

    Whom the index cases name is drawn by `contacts.traced` when they become index cases. What is awaited lies in a
    count field of the state.

    Attributes:
        coverage: probability that a contact is named, from 0 to 1; or by layer, those left out not being traced:
            ``{"home": 1.0, "work": 0.4}``. Numbers, or parameters of the model.
        delay: time until the call, in the model's unit of time: as of `Test`.

    Examples:
        >>> Tracing({"home": 1.0, "work": 0.4}, delay=1.0).delay
        1.0
    """

    coverage: Any
    delay: float | Waning = 0.0

    def __post_init__(self) -> None:
        by_layer = isinstance(self.coverage, Mapping)
        if by_layer and not self.coverage:
            raise InputError(
                "Tracing: coverage names no layer, expected a number or such as {'home': 1.0, 'work': 0.4}"
            )
        for name, value in self.coverage.items() if by_layer else [("", self.coverage)]:
            if not isinstance(value, Tensor):
                share("Tracing", f"coverage[{name!r}]" if by_layer else "coverage", value)
        if not isinstance(self.delay, Waning):
            number("Tracing", "delay", self.delay, 0, hint=", or Waning(mean, phases)")

    def step(self, rng: Rng, now: Any, contacts: Any, pending: Tensor, index: Tensor, name: str = "trace") -> Traced:
        """Calls that are due, then new names; once in a step.

        Args:
            rng: of the step.
            now: the state, for its clock; where it says who is alive, only the living are called.
            contacts: a `Graph` or `Layers`.
            pending: the field ``dz.count("agents")``, 0 at the start: what is awaited.
            index: mask `[agents]` of those who become index cases in this step, such as `Results.positive`.
            name: scope of the streams.
        """
        if not isinstance(pending, Tensor) or pending.shape != now.id.shape or pending.is_floating_point():
            got = f"{pending.dtype} {tuple(pending.shape)}" if isinstance(pending, Tensor) else type(pending).__name__
            raise ModelError(
                f"Tracing.step: pending is {got}, expected a field dz.count('agents'), in a run without relax="
            )
        alive = living(now, index)
        scope = rng[name]
        told, _, waits = due(now, pending)
        named = contacts.traced(scope, "named", index, self.coverage) * alive * ~waits
        wait = steps(self.delay, scope, now, "Tracing: delay")
        later = named
        if isinstance(wait, int) and wait == 0:
            told, later = told | (named != 0), torch.zeros_like(named)
        pending = put(now, torch.where(waits, pending, 0), later, named, wait)
        return Traced(pending, told.to(torch.int8) * alive, named)

    def fits(self, dt: float) -> None:
        """Raise `InputError` where a random delay is shorter than its phases; for `Model.fits`."""
        if isinstance(self.delay, Waning):
            self.delay.fits(dt, "Tracing: delay")
