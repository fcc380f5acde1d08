"""Survival with censoring: estimates from counts of lives by their age, as worlds on the device keep them."""

import dataclasses

import numpy as np

from denizen.errors import InputError

UPPER_95 = 3.0  # deaths that a rate of no observed death is compatible with (the rule of three)


@dataclasses.dataclass(frozen=True)
class Survival:
    """A Kaplan-Meier estimate (Kaplan and Meier, 1958).

    Attributes:
        share: float64 `[ages + 1]`: share that lives beyond age t, for t = 0, 1, …
        deaths: number of deaths.
        lives: number of lives, censored ones included.
        exposure: steps lived, in all.
    """

    share: np.ndarray
    deaths: int
    lives: int
    exposure: int

    @property
    def median(self) -> int | None:
        """Age beyond which at most half live; None where more than half do to the end."""
        below = np.flatnonzero(self.share <= 0.5)
        return int(below[0]) if len(below) else None

    def at(self, age: int) -> float:
        """Share that lives beyond an age; NaN beyond what was watched."""
        return float(self.share[age]) if 0 <= age < len(self.share) else float("nan")

    def restricted_mean(self, horizon: int) -> float:
        """Mean of the smaller of life and horizon: the sum of the shares at ages 0 … horizon - 1.

        Raises:
            InputError: the horizon lies beyond what was watched.
        """
        if not 1 <= horizon <= len(self.share):
            raise InputError(f"restricted_mean({horizon}): expected 1 to {len(self.share)} steps, which were watched")
        return float(self.share[:horizon].sum())

    @property
    def death_rate(self) -> float:
        """Deaths a step lived; without a death, 0: see `death_rate_bound`."""
        return self.deaths / self.exposure

    @property
    def death_rate_bound(self) -> float:
        """Upper bound of the rate, 95 %, where no death was seen: 3 / exposure; else NaN."""
        return UPPER_95 / self.exposure if self.deaths == 0 else float("nan")


def kaplan_meier(ended: np.ndarray, censored: np.ndarray) -> Survival:
    """Survival from counts: S(t) is the product over ages u <= t of 1 - deaths at u / lives that came to u.

    Args:
        ended: whole numbers `[ages]`: lives that ended at age 1, 2, …
        censored: whole numbers `[ages]`: lives that were watched to age 1, 2, … and went on.

    Raises:
        InputError: shapes that differ, negative counts, or no life at all.
    """
    ended, censored = np.asarray(ended, dtype=np.int64), np.asarray(censored, dtype=np.int64)
    if ended.ndim != 1 or ended.shape != censored.shape:
        raise InputError(f"kaplan_meier: ended {ended.shape} and censored {censored.shape}: expected one shape (ages,)")
    if (ended < 0).any() or (censored < 0).any():
        raise InputError("kaplan_meier: counts are negative; expected numbers of lives")
    leaving = ended + censored
    lives = int(leaving.sum())
    if lives == 0:
        raise InputError("kaplan_meier: there is no life; expected at least one")
    reached = lives - np.concatenate([[0], leaving.cumsum()[:-1]])  # who came to age 1, 2, …
    hazard = np.divide(ended, reached, out=np.zeros(len(ended)), where=reached > 0)
    ages = np.arange(1, len(ended) + 1)
    share = np.concatenate([[1.0], np.cumprod(1 - hazard)])
    watched = int(np.flatnonzero(leaving)[-1]) + 2  # beyond the last life nothing is known
    return Survival(share[:watched], int(ended.sum()), lives, int((leaving * ages).sum()))


def naive_mean_age(worlds: int, budget: int, deaths: int) -> float:
    """What an average of all ages gives, censored ones counted as deaths: B W / (W + D), a function of the budget.

    Args:
        worlds: W, each always alive.
        budget: B, steps.
        deaths: D, in all worlds.
    """
    return budget * worlds / (worlds + deaths)
