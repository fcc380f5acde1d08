"""SIRS with births and deaths: immunity that wanes, in a population that renews itself."""

from torch import Tensor

import denizen as dz
from denizen.zoo.sis import SIS
from denizen.zoo.sis import People as People


class SIRS(SIS):
    """Each infected contact infects at `infect_rate`; the infected recover and are immune for `immune_days` on average.

    At the rate `turnover` an agent dies and a newborn, who is susceptible, takes the place and its contacts. Everything
    in a step is decided from the stages at its start.
    """

    levels = ("susceptible", "infected", "recovered")

    immune_days: Tensor = dz.param(60.0, low=0.01, unit="day", about="mean time until immunity is lost")

    def passed(self, stage: dz.model.Stage, caught: Tensor, healed: Tensor, rng: dz.rng.Rng) -> dz.model.Stage:
        """Who was infected, who recovered and whose immunity waned, all from the start of the step.

        One after the other, those who just became susceptible might be infected.
        """
        waned = rng.event("wane", 1 / self.immune_days, where=stage.is_("recovered"))
        ill = stage.move(healed, "recovered", source="infected").move(caught, "infected", source="susceptible")
        bare = stage.move(waned, "susceptible", source="recovered")
        return dz.model.Stage(ill.value + bare.value - stage.value, stage.levels)

    @dz.series
    def recovered(self, now: People) -> Tensor:
        """Immune at the end of the step."""
        return now.stage.is_("recovered").sum()
