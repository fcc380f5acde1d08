"""Variants of the game: for training, with a winner, and as the original trains it."""

from typing import Any

from denizen.errors import InputError, nearest
from denizen.zoo.fruits.model import Fruits, original_reward

ORIGINAL_STARTS = tuple(range(1, 18))


def fruits(**options: Any) -> Fruits:
    """The game over 100 steps, scored by fruits caught less fruits missed.

    Args:
        **options: fields of `Fruits`.

    Raises:
        InputError: for an unknown option.
    """
    for name in options:
        if name not in Fruits.field_names:
            raise InputError(f"fruits: unknown option {name!r}; {nearest(name, Fruits.field_names)}")
    return Fruits(**options)


def fruits_match(*, max_steps: int | None = 1500, **options: Any) -> Fruits:
    """The game until a score of +30 (won) or -30 (lost); good play wins after some 370 steps.

    Args:
        max_steps: after which a life ends undecided.
        **options: fields of `Fruits`.
    """
    return Fruits(stop_at_thresholds=True, max_steps=max_steps, **options)


def fruits_original(**options: Any) -> Fruits:
    """The game as the original trains it: its reward, its observation, its 17 start columns.

    Args:
        **options: fields of `Fruits`.
    """
    return Fruits(starts=ORIGINAL_STARTS, pays=original_reward, raw=True, **options)
