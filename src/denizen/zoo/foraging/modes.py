"""Modes of the foraging experiment: what the agent sees, what it is paid for, whether it can die in training."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from denizen.errors import InputError, nearest
from denizen.model import number

MOST_REWARD = 20.0  # rewards are clipped to this size, which no mode below reaches


class Outcome(NamedTuple):
    """The outcome of a step, from which the reward is computed.

    Attributes:
        food: mask `[]`: ate food.
        poison: mask `[]`: ate poison.
        died: bool `[]`: the step ended the life for good.
        near_before: float32 `[]`: 0.5 / (d + 0.5) before the step, d the distance in cells to the nearest food in the
            view; 0 where there is none.
        near_after: the same after it, in the state before any reset.
    """

    food: Tensor
    poison: Tensor
    died: Tensor
    near_before: Tensor
    near_after: Tensor


@dataclasses.dataclass(frozen=True)
class Pay:
    """A reward that is a sum over what happened.

    Attributes:
        food: for eating food.
        poison: for eating poison.
        step: for every step.
        death: for a step that ends the life by hunger or poison; not for one that the time limit cuts off.
        guidance: discount of a potential that draws towards food: `guidance` * after - before, with 0 after a death;
            None: no guidance. With the discount of training it changes no best policy.
    """

    food: float = 1.0
    poison: float = -2.0
    step: float = -0.01
    death: float = -4.0
    guidance: float | None = None

    def __post_init__(self) -> None:
        for name in ("food", "poison", "step", "death"):
            number("Pay", name, getattr(self, name))
        if self.guidance is not None:
            number("Pay", "guidance", self.guidance, 0, 1, hint=", or None for no guidance")

    def __call__(self, outcome: Outcome) -> Tensor:
        """Float32 `[]`."""
        reward = self.food * outcome.food + self.poison * outcome.poison + self.step + self.death * outcome.died
        if self.guidance is not None:
            after = torch.where(outcome.died, 0.0, outcome.near_after)
            reward = reward + self.guidance * after - outcome.near_before
        return reward.clamp(-MOST_REWARD, MOST_REWARD)


@dataclasses.dataclass(frozen=True)
class TrueTypes:
    """The agent sees what is food and what is poison, each on a plane of its own."""

    def __call__(self, cells: Tensor) -> Tensor:
        """From float32 `[rows, 2, size, size]` (food, poison) to what the network sees, of the same shape."""
        return cells


@dataclasses.dataclass(frozen=True)
class Interestingness:
    """The agent sees how interesting a cell is, twice; unequal numbers let it tell the types apart by size.

    Attributes:
        food: of food.
        poison: of poison; equal to that of food, nothing in the view tells them apart.
    """

    food: float = 1.0
    poison: float = 0.5

    def __post_init__(self) -> None:
        for name in ("food", "poison"):
            number("Interestingness", name, getattr(self, name))

    def __call__(self, cells: Tensor) -> Tensor:
        """From float32 `[rows, 2, size, size]` (food, poison) to what the network sees, of the same shape."""
        return (self.food * cells[:, :1] + self.poison * cells[:, 1:]).expand_as(cells)


View = TrueTypes | Interestingness | Callable[[Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class Mode:
    """One arm of the experiment.

    Attributes:
        name: of it.
        view: what the network sees.
        pay: the reward.
        frozen: energy never changes in training, so nobody dies.
        in_all: part of the experiment's table.
    """

    name: str
    view: View
    pay: Callable[[Outcome], Tensor]
    frozen: bool = False
    in_all: bool = True


_INTEREST = Pay(food=1.0, poison=0.5, step=0.0, death=0.0)
MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("ground_truth", TrueTypes(), Pay()),
        Mode("ground_truth_blinded", Interestingness(), Pay()),
        Mode("proxy_mortal", Interestingness(), _INTEREST),
        Mode("proxy", Interestingness(), _INTEREST, frozen=True),
        Mode("ground_truth_handhold", TrueTypes(), Pay(poison=-1.0, death=-2.0, guidance=0.99), in_all=False),
    )
}


def mode_of(name: str) -> Mode:
    """The mode of a name; raises `InputError` for an unknown one."""
    if name not in MODES:
        raise InputError(f"foraging: unknown mode {name!r}; {nearest(name, MODES)}")
    return MODES[name]
