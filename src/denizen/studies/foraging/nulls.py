"""Statistics of foraging without any skill, from a simulated forager that has no memory."""

import dataclasses

import numpy as np

from denizen.errors import InputError


@dataclasses.dataclass(frozen=True)
class Null:
    """Statistics of a forager that eats whatever it comes upon.

    Attributes:
        mean_life: steps, of lives cut at the budget.
        deaths: per 1,000 steps.
        efficiency: share of food in what was eaten.
        life_efficiency: mean over lives of their own share of food, without those that ate nothing.
    """

    mean_life: float
    deaths: float
    efficiency: float
    life_efficiency: float


def memoryless_forager(
    eats: float,
    poison: float,
    *,
    lives: int = 20_000,
    steps: int = 16_384,
    seed: int = 0,
    move_cost: float = 0.01,
    food_energy: float = 1.0,
    poison_energy: float = 2.0,
) -> Null:
    """A forager that eats in every step with the same probability, independently, and never chooses.

    Args:
        eats: probability to eat in a step.
        poison: share of poison in what it eats.
        lives: simulated.
        steps: after which a life is cut.
        seed: of the draws.
        move_cost: energy for every step.
        food_energy: energy of food.
        poison_energy: energy that poison takes.
    """
    if not (0 <= eats <= 1 and 0 <= poison <= 1):
        raise InputError(f"memoryless_forager: eats={eats!r}, poison={poison!r}, expected probabilities")
    rng = np.random.default_rng(seed)
    energy = np.ones(lives, dtype=np.float32)
    eaten = np.zeros((2, lives), dtype=np.int64)
    alive, age = np.arange(lives), np.zeros(lives, dtype=np.int64)
    for _ in range(steps):
        u = rng.random(alive.size)
        bad, good = u < eats * poison, (u >= eats * poison) & (u < eats)
        energy[alive] -= np.float32(move_cost)
        energy[alive] += np.float32(food_energy) * good - np.float32(poison_energy) * bad
        eaten[0, alive] += good
        eaten[1, alive] += bad
        age[alive] += 1
        alive = alive[energy[alive] > 0]
        if alive.size == 0:
            break
    died = np.ones(lives, dtype=bool)
    died[alive] = False
    food, both = eaten[0], eaten.sum(0)
    fed = died & (both > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Null(
            float(age.mean()),
            float(1000 * died.sum() / age.sum()),
            float(food.sum() / both.sum()) if both.sum() else float("nan"),
            float((food[fed] / both[fed]).mean()) if fed.any() else float("nan"),
        )
