"""Vaccines: what a dose does to the hazard of infection, for how long, and the levels of a stage that keep it.

The levels of a vaccine of D doses are "none", then for each dose its phases of protection and, where somebody may have
had it and not be protected, "dose d unprotected". Waning thereby always leads to the next level. Where another dose of
an all-or-nothing vaccine may follow, those whom a dose protected until it waned have a level of their own.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import one_of, share
from denizen.disease._waning import Waning
from denizen.errors import InputError, ModelError
from denizen.model import Stage
from denizen.rng import Rng

KINDS = ("leaky", "all_or_nothing")
MAX_DOSES = 4
# Labels of checks on the device: the first fails where doses are given and the step never lets protection wane.
_FORGOTTEN = (
    "the protection of a vaccine wanes, and the step leaves it as it is; write in step: "
    "now.replace(vaccine=vaccine.wane(rng, now, now.vaccine)); field: "
)
_WANES = "the protection of a vaccine wanes; field: "


@dataclasses.dataclass(frozen=True)
class Vaccine:
    """What doses of a vaccine do; who has had which is a stage field of the state.

    A leaky vaccine multiplies the hazard of each protected person by 1 - efficacy. An all-or-nothing one protects a
    share `efficacy` of those who get it wholly and the others not at all. Both lower the hazard of a first contact by
    the same share; they part in epidemics, where the leaky one lets repeated contacts through.

    Protection lasts for ever, or wanes: a person is protected for a random time and then not at all, so the mean
    efficacy of many falls as the survival function of that time.

    Attributes:
        efficacy: from 0 to 1; of several doses a list, the efficacy after each, not falling. A number, or a parameter
            of the model as a 0-d tensor: ``Vaccine(self.efficacy)`` in a property of the model.
        kind: ``"leaky"`` or ``"all_or_nothing"``.
        waning: how long protection lasts; None for ever.

    Examples:
        >>> Vaccine(0.9, "all_or_nothing").levels
        ('none', 'dose 1 protected', 'dose 1 unprotected')
    """

    efficacy: Any
    kind: str = "leaky"
    waning: Waning | None = None

    def __post_init__(self) -> None:
        one_of("Vaccine", "kind", self.kind, KINDS)
        each = self.efficacies
        if not 1 <= len(each) <= MAX_DOSES:
            raise InputError(f"Vaccine: efficacy={self.efficacy!r}, expected a number, or one for each of 1 to 4 doses")
        numbers = [share("Vaccine", "efficacy", one) for one in each if not isinstance(one, Tensor)]
        if numbers != sorted(numbers):
            raise InputError(f"Vaccine: efficacy={self.efficacy!r} falls from dose to dose, expected numbers that rise")
        if self.waning is not None and not isinstance(self.waning, Waning):
            raise InputError(f"Vaccine: waning={self.waning!r}, expected Waning(mean, phases), or None")

    @property
    def efficacies(self) -> tuple[Any, ...]:
        """The efficacy after each dose."""
        return tuple(self.efficacy) if isinstance(self.efficacy, list | tuple) else (self.efficacy,)

    @property
    def doses(self) -> int:
        """Number of doses."""
        return len(self.efficacies)

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of the stage field: "none", then those of each dose."""
        return ("none", *[level for dose in range(1, self.doses + 1) for level in self.levels_of(dose)])

    def levels_of(self, dose: int) -> tuple[str, ...]:
        """Levels of those whose last dose was this one; "none" of dose 0."""
        if dose == 0:
            return ("none",)
        unprotected = self.kind == "all_or_nothing" or self.waning is not None
        return (*self._phases(dose), *self._waned(dose), *([f"dose {dose} unprotected"] if unprotected else []))

    def start(self, like: Tensor) -> Stage:
        """The field at the start, nobody having had a dose: for `init`, where `like` is any `[agents]`."""
        return Stage(torch.zeros_like(like, dtype=torch.int8), self.levels)

    def given(self, status: Stage) -> Tensor:
        """Mask `[agents]` of those who have had a dose."""
        return status.is_(*self._own(status)[1:])

    def protected(self, status: Stage) -> Tensor:
        """Mask `[agents]` of those whom a dose protects, in part or wholly."""
        self._own(status)
        return status.is_(*[level for dose in range(1, self.doses + 1) for level in self._phases(dose)])

    def factor(self, status: Stage) -> Tensor:
        """What multiplies the hazard of infection: float32 `[agents]`, from 0 to 1."""
        self._own(status)
        out = torch.ones_like(status.is_("none"), dtype=torch.float32)
        for dose, efficacy in enumerate(self.efficacies, start=1):
            blocked = 1.0 if self.kind == "all_or_nothing" else efficacy
            out = out - blocked * status.is_(*self._phases(dose))
        return out

    def give(self, rng: Rng, status: Stage, dosed: Tensor) -> Stage:
        """The field after a dose.

        All-or-nothing: a first dose protects with probability efficacy. A later one lifts the share of the protected
        to its own efficacy: whom the one before protected is so again, waned or not, and whom it did not becomes so
        with probability (e₂ - e₁) / (1 - e₁).

        Args:
            rng: of the step; the draw is called "take".
            status: the field.
            dosed: mask `[agents]` of those who get a dose; who has had all stays.
        """
        return self._give(rng, status, dosed, "")

    def _give(self, rng: Rng, status: Stage, dosed: Tensor, field: str) -> Stage:
        """The same with the name of the field, where it is known, so that each field is missed for itself."""
        self._own(status)
        stepping, wanes = rng._path.partition("/")[0] == "step", (_WANES, _WANES + field)
        if self.waning is not None and stepping and all(label not in wanes for label, _ in rng._bad):
            rng._bad.append((_FORGOTTEN + field, (dosed != 0).any().to(torch.int8)))
        take = self._take(rng, status, dosed)
        for dose in range(self.doses, 0, -1):  # the last first: nobody gets two at once
            to, lost = f"dose {dose} protected", f"dose {dose} unprotected"
            for level in self.levels_of(dose - 1):
                if take is None or level in (*self._phases(dose - 1), *self._waned(dose - 1)):
                    status = status.move(dosed, to, source=level)
                else:
                    took = dosed * take
                    status = status.move(took, to, source=level)
                    left = dosed - took  # of those who are still there, in a relaxed run
                    left = left / (1 - took).clamp(min=1e-6) if left.is_floating_point() else left
                    status = status.move(left, lost, source=level)
        return status

    def wane(self, rng: Rng, now: Any, status: Stage, name: str = "vaccine wanes") -> Stage:
        """The field one step on: the protected leave phases of protection; for the model's step, in every step.

        Args:
            rng: of the step.
            now: the state, for its clock.
            status: the field.
            name: of the stream.
        """
        protected = self.protected(status)
        if self.waning is None:
            return status
        fields = [name for name in now.kinds if getattr(getattr(now, name), "value", None) is status.value]
        done = (_FORGOTTEN, _FORGOTTEN + fields[0]) if fields else ()  # of none: it has been moved in the step
        rng._bad[:] = [one for one in rng._bad if not (one[0] in done if done else one[0].startswith(_FORGOTTEN))]
        rng._bad.append((_WANES + "".join(fields[:1]), torch.zeros_like(now.time.step, dtype=torch.int8)))
        left = rng.bernoulli(name, self.waning.leave(now), where=protected)
        return status.advance(left, *[level for dose in range(1, self.doses + 1) for level in self._phases(dose)])

    def fits(self, dt: float) -> None:
        """Raise `InputError` where protection is shorter than its phases; for `Model.fits`."""
        if self.waning is not None:
            self.waning.fits(dt, "Vaccine: waning")

    def _phases(self, dose: int) -> tuple[str, ...]:
        """Levels of the protected."""
        if dose == 0:
            return ()
        return (self.waning or Waning(1.0)).levels(f"dose {dose} protected")

    def _waned(self, dose: int) -> tuple[str, ...]:
        """The level of those whom the dose protected until it waned, where the next dose tells them from others."""
        told = self.kind == "all_or_nothing" and self.waning is not None and 0 < dose < self.doses
        return (f"dose {dose} waned",) if told else ()

    def _own(self, status: Any) -> tuple[str, ...]:
        if not isinstance(status, Stage) or tuple(status.levels) != self.levels:
            got = f"the levels {', '.join(status.levels)}" if isinstance(status, Stage) else type(status).__name__
            raise ModelError(
                f"Vaccine: the field has {got}, expected {', '.join(self.levels)}; give it in init: "
                f"vaccine.start(like), or declare dz.stage('agents', levels=vaccine.levels)"
            )
        return self.levels

    def _take(self, rng: Rng, status: Stage, dosed: Tensor) -> Tensor | None:
        """Whether a dose protects somebody who is not: mask `[agents]`; None where it always does."""
        if self.kind == "leaky":
            return None
        prob: Any = 0.0
        before: Any = 0.0
        for dose, efficacy in enumerate(self.efficacies, start=1):
            lift = (efficacy - before) / (1 - before + 1e-12)
            prob, before = prob + lift * status.is_(*self.levels_of(dose - 1)), efficacy
        return rng.bernoulli("take", prob, where=dosed)
