"""Tests of an agent: it must move towards food and away from poison in constructed scenes, and live long."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from denizen.model import Observed
from denizen.studies.statistics import RULE_OF_THREE, Survival
from denizen.zoo.foraging.agents import Agent
from denizen.zoo.foraging.model import Foraging

Map = NDArray[np.float64]
SURE = 0.75  # of the moves must go towards food
LASTING = ((101, 0.9), (512, 0.9), (4096, 0.5))  # (age, share that must live longer); without food it is over at 101
DRAWS = 32  # moves in each scene, at evenly spread uniform numbers: shares are the policy's to within 1/32
SIDES: dict[str, Callable[[Map, Map], NDArray[np.bool_]]] = {
    "up": lambda dx, dy: (dy < 0) & (abs(dx) <= -dy),
    "right": lambda dx, dy: (dx > 0) & (abs(dy) <= dx),
    "down": lambda dx, dy: (dy > 0) & (abs(dx) <= dy),
    "left": lambda dx, dy: (dx < 0) & (abs(dy) <= -dx),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Directions:
    """How an agent moves with one item in sight, or with food and poison on opposite sides.

    Each map is float64 `[size, size]`, row y, column x, the agent in the middle; an entry tells of the moves in the
    scene whose item (food, in scenes with both) lies there. NaN in the middle and farther away than the radius of the
    view. A move goes towards an item if its product with the way there is above 0, away if it is below, and counts half
    where it is 0: moves by chance come to 1/2 everywhere.

    Attributes:
        food: share that go towards food.
        poison: share that go towards poison.
        choice: share that go towards the food of two items.
        poison_taken: share that land on poison; NaN out of reach.
        num_moves: from which the agent chooses.
    """

    food: Map
    poison: Map
    choice: Map
    poison_taken: Map
    num_moves: int

    @property
    def verdicts(self) -> dict[str, tuple[int, int]]:
        """(scenes passed, scenes) by kind.

        `food` and `choice`: three of four moves go towards the food; `poison`: beside it, fewer than half as many land
        on it as by chance.
        """
        judged = {
            "food": (self.food >= SURE, self.food),
            "choice": (self.choice >= SURE, self.choice),
            "poison": (self.poison_taken < 0.5 / self.num_moves, self.poison_taken),
        }
        return {
            name: (int(passed[~np.isnan(of)].sum()), int((~np.isnan(of)).sum()))
            for name, (passed, of) in judged.items()
        }

    def sides(self, name: str = "food") -> dict[str, float]:
        """Mean of a map above, to the right, below and to the left; diagonals belong to both of their sides."""
        shares: Map = getattr(self, name)
        radius = shares.shape[0] // 2
        dy, dx = np.mgrid[-radius : radius + 1, -radius : radius + 1].astype(np.float64)
        return {side: float(np.nanmean(shares[within(dx, dy)])) for side, within in SIDES.items()}

    def save(self, path: Path | str) -> None:
        """Write everything to a numpy archive without pickles."""
        np.savez_compressed(path, **dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as held:
            values: dict[str, Any] = {name: held[name] for name in held.files}
        values["num_moves"] = int(values["num_moves"])
        return cls(**values)


def mean_of(parts: Sequence[Directions]) -> Directions:
    """The mean maps of several trainings."""
    names = ("food", "poison", "choice", "poison_taken")
    maps = {name: np.mean([getattr(part, name) for part in parts], axis=0) for name in names}
    return Directions(**maps, num_moves=parts[0].num_moves)


@torch.no_grad()
def directions(env: Foraging, agent: Agent, device: torch.device | str = "cpu") -> Directions:
    """Put an agent into all scenes with one item in sight, and all scenes with food and poison on opposite sides.

    Args:
        env: whose observations the agent takes.
        agent: a `Learnt` policy, or one that was written.
        device: of the agent's policy.
    """
    radius, size = env.view_radius, env.view_size
    dy, dx = (part.flatten() for part in np.mgrid[-radius : radius + 1, -radius : radius + 1])
    far = dx**2 + dy**2
    inside = (far > 0) & (far <= radius**2)
    dx, dy = dx[inside], dy[inside]
    here, there = _bits(dx, dy, size, radius), _bits(-dx, -dy, size, radius)
    nothing = torch.zeros_like(here)
    scenes = {"food": (here, nothing), "poison": (nothing, here), "choice": (here, there)}
    moves = {name: _moves(env, agent, torch.stack(planes, 1), device) for name, planes in scenes.items()}
    way, reach = np.stack([dx, dy], 1)[:, :, None], np.maximum(abs(dx), abs(dy)) <= env.max_move
    towards = {n: _map(np.sign((made * way).sum(1)) / 2 + 0.5, inside, size) for n, made in moves.items()}
    taken = (moves["poison"] == way).all(1).astype(np.float64)
    taken[~reach] = np.nan
    return Directions(**towards, poison_taken=_map(taken, inside, size), num_moves=env.action_space.n)


def _bits(dx: NDArray[np.int64], dy: NDArray[np.int64], size: int, radius: int) -> Tensor:
    """One plane of each scene with an item at (dx, dy), as observations hold it: int16 `[scenes, size]`."""
    plane = torch.zeros(dx.size, size, dtype=torch.int16)
    plane[torch.arange(dx.size), torch.from_numpy(dy + radius)] = torch.from_numpy(1 << (dx + radius)).to(torch.int16)
    return plane


def _moves(env: Foraging, agent: Agent, observation: Tensor, device: torch.device | str) -> NDArray[np.int64]:
    """What the agent does in each scene: (dx, dy) of `DRAWS` moves, `[scenes, 2, draws]`."""
    made = []
    for draw in range(DRAWS):
        seen = observation.to(device)
        uniform = torch.full((seen.shape[0], 1), (draw + 0.5) / DRAWS, device=device)
        observed = Observed(seen, None, torch.zeros(seen.shape[0], 2, device=device), None)
        made.append(agent.act(observed, uniform).cpu().numpy())
    return np.stack(_jumps(env, np.stack(made, 1)), 1)


def _jumps(env: Foraging, action: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(dx, dy) of actions."""
    side = 2 * env.max_move + 1
    jump = action + (action >= side * side // 2)  # over (0, 0)
    return jump // side - env.max_move, jump % side - env.max_move


def _map(moves: Map, inside: NDArray[np.bool_], size: int) -> Map:
    """Means over the moves of each scene, `[scenes, moves]`, at the scenes' cells."""
    shares = np.full(size * size, np.nan)
    shares[inside] = moves.mean(1)
    return shares.reshape(size, size)


@dataclasses.dataclass(frozen=True)
class Lasting:
    """Whether lives last as long as they should.

    Attributes:
        age: in steps.
        share: that live longer.
        low: lower end of its 95 % interval.
        wanted: share.
    """

    age: int
    share: float
    low: float
    wanted: float

    @property
    def passed(self) -> bool:
        """The interval lies above what is wanted."""
        return self.low >= self.wanted


def lasting(first: Survival) -> list[Lasting]:
    """First lives compared with each (age, share) of `LASTING` that was watched long enough.

    The interval is Greenwood's; where nobody died it is the rule of three's.
    """
    found = []
    for age, wanted in LASTING:
        if age <= first.budget:
            share, lives = first.at(age), int(first.reached[0])
            low = 1 - RULE_OF_THREE / lives if share == 1 else share - 1.959964 * first.error(age)
            found.append(Lasting(age, share, max(low, 0.0), wanted))
    return found
