"""The foraging world by the names of its modes."""

import dataclasses
from typing import Any

from denizen.errors import InputError, nearest
from denizen.zoo.foraging.model import Foraging
from denizen.zoo.foraging.modes import mode_of


def foraging(mode: str = "ground_truth", **options: Any) -> Foraging:
    """The world in which a mode is trained.

    Args:
        mode: `ground_truth`, `ground_truth_blinded`, `proxy_mortal`, `proxy` or `ground_truth_handhold`.
        **options: fields of `Foraging`.

    Raises:
        InputError: for an unknown mode or option, or a value that does not fit.
    """
    unknown = [name for name in options if name not in Foraging.field_names]
    if unknown:
        raise InputError(f"foraging: unknown option {unknown[0]!r}; {nearest(unknown[0], Foraging.field_names)}")
    return Foraging(mode=mode_of(mode), **options)


def for_evaluation(env: Foraging) -> Foraging:
    """The world for evaluations: everybody can die, and nothing else ends a life."""
    return env.replace(mode=dataclasses.replace(env.mode, frozen=False), steps=None)
