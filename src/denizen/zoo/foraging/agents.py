"""Scripted agents: batched over worlds, they act on observations alone."""

from typing import Protocol

import torch
from torch import Tensor

from denizen.errors import InputError
from denizen.rl import ActorCritic, Observed
from denizen.zoo.foraging.model import Foraging

FAR = 10**6


class Agent(Protocol):
    """Whatever acts in worlds, without a memory."""

    def act(self, observed: Observed, uniform: Tensor) -> Tensor:
        """Actions int64 `[worlds]` from observations and uniform numbers on (0, 1), float32 `[worlds, 1]`."""
        ...


class Uniform:
    """Every move as likely, whatever is seen."""

    def __init__(self, env: Foraging) -> None:
        self._count = env.action_space.n

    def act(self, observed: Observed, uniform: Tensor) -> Tensor:
        """Int64 `[worlds]`."""
        return (uniform[:, 0] * self._count).long().clamp(max=self._count - 1)


class Seeker:
    """Base of the seekers: the disc that they see, and steps in a direction.

    The disc has the radius of the view; ties go to the cell that comes first, row by row.
    """

    def __init__(self, env: Foraging) -> None:
        """Args:
        env: whose observations it takes.
        """
        self._env = env
        radius = env.view_radius
        offsets = torch.arange(-radius, radius + 1)
        self._dy, self._dx = (grid.flatten() for grid in torch.meshgrid(offsets, offsets, indexing="ij"))
        self._far = self._dx.square() + self._dy.square()
        self._disc = (self._far <= radius * radius) & (self._far > 0)
        moves = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if (dx, dy) != (0, 0)]
        self._moves = torch.stack([self._number(torch.tensor(dx), torch.tensor(dy)) for dx, dy in moves])
        self._next = torch.tensor([(radius + dy) * env.view_size + radius + dx for dx, dy in moves])

    def to(self, device: torch.device) -> None:
        """Keep its tables on a device; otherwise every act copies them."""
        for name in ("_dx", "_dy", "_far", "_disc", "_moves", "_next"):
            setattr(self, name, getattr(self, name).to(device))

    def _number(self, dx: Tensor, dy: Tensor) -> Tensor:
        """The action that moves by (dx, dy)."""
        most = self._env.max_move
        side = 2 * most + 1
        place = (dx + most) * side + dy + most
        return place - (place > side * side // 2).to(place.dtype)

    def _seen(self, observed: Observed) -> tuple[Tensor, Tensor]:
        """Food and poison seen: bool `[worlds, cells]`, row by row."""
        planes = self._env.unpacked(observed.observation).flatten(2) > 0
        return planes[:, 0], planes[:, 1]

    def _towards(self, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Signs of (dx, dy) to cells."""
        device = cell.device
        return self._dx.to(device)[cell].sign(), self._dy.to(device)[cell].sign()


class OmniscientSeeker(Seeker):
    """Goes to the nearest food in the disc, around adjacent poison. Without food it walks at random.

    Where the next cell is poison it moves along x alone, else along y alone, if that is safe, else at random over the
    safe neighbours, or over all where none is safe.
    """

    def act(self, observed: Observed, uniform: Tensor) -> Tensor:
        """Int64 `[worlds]`."""
        device = observed.observation.device
        food, poison = self._seen(observed)
        index = torch.arange(food.shape[1], device=device)
        rank = torch.where(food & self._disc.to(device), self._far.to(device) * 1000 + index, FAR)
        nearest = rank.argmin(1)
        found = rank.amin(1) < FAR
        dx, dy = self._towards(nearest)
        action = self._safe_walk(poison, uniform)
        zero = torch.zeros_like(dx)
        for x, y in ((zero, dy), (dx, zero), (dx, dy)):  # the last one that is open counts
            open_ = found & ((x != 0) | (y != 0)) & ~self._is(poison, x, y)
            action = torch.where(open_, self._number(x, y), action)
        return action

    def _is(self, plane: Tensor, dx: Tensor, dy: Tensor) -> Tensor:
        """Whether a plane has an item at (dx, dy) from the agent: bool `[worlds]`."""
        radius = self._env.view_radius
        return plane.gather(1, ((radius + dy) * self._env.view_size + radius + dx)[:, None])[:, 0]

    def _safe_walk(self, poison: Tensor, uniform: Tensor) -> Tensor:
        safe = ~poison[:, self._next.to(poison.device)]
        safe = safe | ~safe.any(1, keepdim=True)
        rank = (uniform[:, 0] * safe.sum(1)).long()
        return self._moves.to(poison.device)[(safe.cumsum(1) <= rank[:, None]).sum(1).clamp(max=7)]


class ProxySeeker(Seeker):
    """Goes to the most interesting cell in the disc. Without one it walks at random.

    It knows what the proxy view shows: how interesting a cell is.
    """

    def __init__(self, env: Foraging, food: float = 1.0, poison: float = 0.5) -> None:
        """Args:
        env: whose observations it takes.
        food: interestingness of food.
        poison: interestingness of poison.
        """
        super().__init__(env)
        self._worth = (food, poison)

    def act(self, observed: Observed, uniform: Tensor) -> Tensor:
        """Int64 `[worlds]`."""
        device = observed.observation.device
        food, poison = self._seen(observed)
        worth = (self._worth[0] * food + self._worth[1] * poison) * self._disc.to(device)
        best = worth.amax(1, keepdim=True)
        first = (worth == best).to(torch.int8).cumsum(1, dtype=torch.int32).eq(0).sum(1).clamp(max=worth.shape[1] - 1)
        dx, dy = self._towards(first)
        walk = self._moves.to(device)[(uniform[:, 0] * 8).long().clamp(max=7)]
        return torch.where(best[:, 0] > 0, self._number(dx, dy), walk)


class Learnt:
    """A trained policy as an agent.

    Attributes:
        policy: is not changed.
    """

    def __init__(self, policy: ActorCritic, *, greedy: bool = False) -> None:
        """Args:
        policy: without a memory.
        greedy: take the likeliest action, in place of a draw.

        Raises:
            InputError: the policy has a memory.
        """
        if policy.memory_size:
            raise InputError("Learnt: a policy with a memory is not supported here; use dz.rl.evaluate")
        self.policy, self._greedy = policy, greedy

    def act(self, observed: Observed, uniform: Tensor) -> Tensor:
        """Int64 `[worlds]`."""
        memory = self.policy.first_memory(observed.observation.shape[0], observed.observation.device)
        actions = self.policy(observed.observation, memory, observed.action_mask, observed.privileged).actions
        return actions.mode() if self._greedy else actions.sample(uniform)
