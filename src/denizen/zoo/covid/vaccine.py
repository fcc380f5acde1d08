"""COVID with a vaccine: who is protected by it, and what it leaves of the hazard of infection."""

import dataclasses
from typing import Any

from torch import Tensor

import denizen as dz
from denizen.disease import Vaccine
from denizen.model import Stage

from .model import Covid, People


class Vaccinated(People):
    """As `People`, and who has had a dose."""

    vaccine: Stage = dz.stage("agents", levels=("none", "dose 1 protected", "dose 1 unprotected"))
    last_dose: Tensor = dz.count("agents")


class CovidWithVaccine(Covid):
    """The COVID model in which doses of a vaccine protect; a `denizen.disease.Campaign` gives them.

    A vaccine that is all-or-nothing moves people who have never been exposed into an immune state, for ever or until it
    wanes. Nobody who was exposed before is exposed again, with or without a dose.
    """

    vaccine: Vaccine = dataclasses.field(default_factory=lambda: Vaccine(0.9, "all_or_nothing"))

    def fits(self, dt: float) -> None:
        """As for `Covid`, and refuse protection that is shorter than its phases."""
        super().fits(dt)
        self.vaccine.fits(dt)

    def init(self, rng: dz.rng.Rng) -> Vaccinated:
        """Everybody as the population says, nobody with a dose."""
        begun = super().init(rng)
        none = self.vaccine.start(begun.dead)
        return Vaccinated(exposed=begun.exposed, dead=begun.dead, vaccine=none, last_dose=0 * begun.dead)

    def step(self, now: Any, rng: dz.rng.Rng) -> Any:
        """As for `Covid`, then protection wanes."""
        return super().step(now, rng).replace(vaccine=self.vaccine.wane(rng, now, now.vaccine))

    def let_through(self, now: Any, hazard: Tensor) -> Tensor:
        """The hazard of infection that the vaccine leaves."""
        return hazard * self.vaccine.factor(now.vaccine)

    @dz.series
    def vaccinated(self, now: Vaccinated) -> Tensor:
        """Those who have had a dose, at the end of the step."""
        return self.vaccine.given(now.vaccine).sum()

    @dz.series
    def immune(self, now: Vaccinated) -> Tensor:
        """Those of the susceptible whom the vaccine protects, in part or wholly, at the end of the step."""
        return (now.exposed.never() * self.vaccine.protected(now.vaccine)).sum()
