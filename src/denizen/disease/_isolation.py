"""Isolation: who stays at home keeps a share of the contacts of each layer."""

import dataclasses
from typing import Any

from torch import Tensor

from denizen._arguments import share
from denizen.errors import InputError, ModelError
from denizen.space import Layers


@dataclasses.dataclass(frozen=True, init=False)
class Isolation:
    """How much of their contacts those who stay at home keep, by layer.

    The factor of a layer multiplies what passes between an isolated person and anybody else there, in both directions;
    between two isolated persons it counts twice.

    Attributes:
        factors: a factor from 0 to 1 by layer; layers that are not named stay as they are.

    Examples:
        >>> Isolation(work=0.0, school=0.0, home=0.7).factors
        (('work', 0.0), ('school', 0.0), ('home', 0.7))
    """

    factors: tuple[tuple[str, Any], ...]

    def __init__(self, **factors: Any) -> None:
        """Args:
        **factors: by name of a layer; numbers, or parameters of the model as 0-d tensors.
        """
        if not factors:
            raise InputError(
                "Isolation: no layer given, expected factors by layer, such as Isolation(work=0, home=0.7)"
            )
        for name, factor in factors.items():
            if not isinstance(factor, Tensor):
                share("Isolation", name, factor)
        object.__setattr__(self, "factors", tuple(factors.items()))

    def sum(
        self,
        contacts: Any,
        values: Tensor,
        isolated: Tensor,
        *,
        needed: Tensor | None = None,
        max: float = 1.0,
        step: Tensor | None = None,
    ) -> Tensor:
        """`contacts.sum(values)` with some of the agents isolated: float32 `[agents]`.

        Args:
            contacts: `Layers`, with every layer that has a factor.
            values: `[agents]`, what each gives, for example who is infectious.
            isolated: mask `[agents]`.
            needed: mask of those whose sum is used, as for `Layers.sum`.
            max: bound of values, as for `Layers.sum`; 1 for masks.
            step: as for `Layers.sum`.
        """
        if not isinstance(contacts, Layers):
            named = ", ".join(name for name, _ in self.factors)
            raise ModelError(f"Isolation.sum: contacts is {type(contacts).__name__}, expected Layers with {named}")
        kept = {name: 1 - isolated * (1 - factor) for name, factor in self.factors}
        for name, factor in self.factors:
            if not isinstance(factor, Tensor) and factor == 0:
                kept[name] = 1 - isolated  # keeps a mask a mask, whose sums are the fastest
        given = {name: values * kept[name] if name in kept else values for name in contacts.graphs}
        return contacts.sum(given, needed=needed, max=max, step=step, scale=kept)
