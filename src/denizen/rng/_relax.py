"""What makes draws differentiable, seen from the draws."""

from typing import Protocol

from torch import Tensor


class Hard(Protocol):
    """The draw that a run without relaxation makes; computed where it is asked for."""

    def __call__(self) -> Tensor:
        """0/1: int8 `[agents]`."""
        ...

    def uniform(self) -> Tensor:
        """The uniform numbers that decide it, float64 `[agents]` in (0, 1): it is 1 where they are below `prob`."""
        ...


class Relax(Protocol):
    """How draws become differentiable; see `denizen.relax` for the ones that exist."""

    def draw(self, prob: Tensor, hard: Hard) -> Tensor:
        """A float stand-in for a 0/1 draw.

        Args:
            prob: float32 probability of 1, with gradient.
            hard: the draw that a run without relaxation makes.
        """
        ...
