"""What makes draws differentiable, seen from the draws."""

from typing import Protocol, TypeGuard

from torch import Tensor


class Hard(Protocol):
    """The draw that a run without relaxation makes; computed where it is asked for."""

    def __call__(self) -> Tensor:
        """0/1: int8 `[agents]`."""
        ...

    def uniform(self) -> Tensor:
        """The uniform numbers that decide it, float64 `[agents]` in (0, 1): it is 1 where they are below `prob`."""
        ...

    def spare(self) -> Tensor:
        """Other uniform numbers, which nothing else uses: float64 `[agents]` in (0, 1)."""
        ...

    def place(self) -> tuple[Tensor, int]:
        """Where the draw stands in its world: step (int64 0-d, -1 within init), and how many came before it in it."""
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


class Weigh(Relax, Protocol):
    """A relaxation by its second hook: the run is a hard one, and its series get slopes from what is noted of draws.

    The state keeps its hard form, so masks and `where=` leave out whom they leave out in every hard run.
    """

    def start(self, key: Tensor) -> Tensor:
        """What is noted before the first draw; `key` is on the device."""
        ...

    def note(self, noted: Tensor, prob: Tensor, hard: Hard) -> Tensor:
        """What is noted after a draw: a tensor like `noted`.

        Args:
            noted: after the draw before, with gradient.
            prob: float32 probability of 1, with gradient.
            hard: the draw.
        """
        ...

    def flips(self, noted: Tensor) -> Tensor | None:
        """Draws that come out otherwise in a second run of each world: int64 `[worlds, 3]` of step, place and agent.

        Args:
            noted: after the last step, `[worlds, …]`.
        """
        ...

    def weigh(self, values: Tensor, noted: Tensor, other: Tensor | None) -> Tensor:
        """A series with slopes.

        Args:
            values: float32 `[worlds, steps, …]` of the hard run.
            noted: after each step, `[worlds, steps, …]`.
            other: the series of the second run, where there is one.
        """
        ...


def weighs(relax: Relax | None) -> TypeGuard[Weigh]:
    """Whether a relaxation works by its second hook."""
    return hasattr(relax, "weigh")
