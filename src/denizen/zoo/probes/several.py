"""Probes with several actors in a world, and with lives of unequal lengths."""

import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.model import whole

from .model import matched


class Team(dz.State):
    """Cues, whether each actor is still in, and what fills the places of those that are out."""

    cue: Tensor = dz.real("actors")
    inside: Tensor = dz.mask("actors")
    rubbish: Tensor = dz.real("actors")


class Padded(dz.Env):
    """Actors match their cues and drop out at random; their places are filled with rubbish, which must change nothing.

    Attributes:
        garbage: size of the rubbish in observations and rewards of actors that are out.
        stays: probability with which an actor stays for another step.
        actors: in a world.
        length: steps of a life.
    """

    garbage: Tensor = dz.param(100.0, learnable=False, about="size of what fills the places of those that are out")
    stays: Tensor = dz.param(0.7, low=0, high=1, learnable=False, about="probability of staying another step")
    actors: int = 4
    length: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("Padded", "actors", self.actors, 1)
        whole("Padded", "length", self.length, 1)

    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(-torch.inf, torch.inf, (1,))

    @property
    def num_actors(self) -> int:
        """In a world."""
        return self.actors

    def _cues(self, rng: dz.rng.Rng) -> tuple[Tensor, Tensor]:
        """(cues of -1 or +1, rubbish), `[actors]` each."""
        drawn = rng.on("cues", 2 * self.actors).uniform("cue", -1, 1)
        cue, rubbish = drawn.unflatten(0, (2, self.actors)).unbind()
        return torch.where(cue < 0, -1.0, 1.0), rubbish

    def init(self, rng: dz.rng.Rng) -> Team:
        """Everybody is in."""
        cue, rubbish = self._cues(rng)
        return Team(cue=cue, inside=torch.ones_like(cue, dtype=torch.int8), rubbish=rubbish)

    def step(self, now: Team, action: Tensor, rng: dz.rng.Rng) -> Team:
        """New cues; some drop out."""
        cue, rubbish = self._cues(rng)
        return now.replace(cue=cue, inside=now.inside * rng.bernoulli("stays", self.stays), rubbish=rubbish)

    def acting(self, now: Team) -> Tensor:
        """Those that are in: int8 `[actors]`."""
        return now.inside

    def observe(self, now: Team) -> Tensor:
        """The cue, or rubbish: float32 `[actors, 1]`."""
        return torch.where(now.inside != 0, now.cue, self.garbage * now.rubbish)[:, None]

    def reward(self, before: Team, action: Tensor, now: Team) -> Tensor:
        """+1 for a match, -1 for none, rubbish for those that were out: float32 `[actors]`."""
        return torch.where(before.inside != 0, matched(before.cue, action), self.garbage * before.rubbish)

    def terminated(self, now: Team) -> Tensor:
        """After `length` steps, or when all are out."""
        return (now.time.step >= self.length) | (now.inside.sum() == 0)


class Arms(dz.State):
    """The arm that was chosen."""

    arm: Tensor = dz.count()


class Bandit(dz.Env):
    """Two arms whose lives differ in length: the first action chooses, further ones do nothing, the last step pays.

    Every action is a token of its sequence, so losses that weigh sequences or tokens differently differ here.

    Attributes:
        pays: what each arm pays.
        lengths: steps of a life after each arm.
    """

    pays: tuple[float, ...] = (1.0, 0.0)
    lengths: tuple[int, ...] = (1, 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.pays) != len(self.lengths) or not self.pays:
            raise InputError(
                f"Bandit: pays={self.pays!r}, lengths={self.lengths!r}; expected one of each for every arm"
            )
        for place, length in enumerate(self.lengths):
            whole("Bandit", f"lengths[{place}]", length, 1)

    @property
    def action_space(self) -> dz.rl.Discrete:
        """The arms."""
        return dz.rl.Discrete(len(self.pays))

    observation_space = dz.rl.Box(0, 1, (1,))

    def init(self, rng: dz.rng.Rng) -> Arms:
        """Nothing is chosen."""
        return Arms(arm=rng.on("start", 1).integers("none", 0, 1)[0])

    def step(self, now: Arms, action: Tensor, rng: dz.rng.Rng) -> Arms:
        """The first action chooses."""
        return now.replace(arm=torch.where(now.time.step == 0, action, now.arm))

    def observe(self, now: Arms) -> Tensor:
        """0 before the choice, 1 after: float32 `[1]`."""
        return (now.time.step > 0).to(torch.float32)[None]

    def reward(self, before: Arms, action: Tensor, now: Arms) -> Tensor:
        """What the arm pays, in the last step."""
        return torch.where(self.terminated(now), self._of(self.pays, now), 0.0)

    def terminated(self, now: Arms) -> Tensor:
        """After the arm's number of steps."""
        return now.time.step >= self._of(self.lengths, now)

    def _of(self, numbers: tuple[float, ...], now: Arms) -> Tensor:
        """The chosen arm's entry, without a table of constants that would have to be copied to a device."""
        chosen = torch.zeros_like(now.arm, dtype=torch.float32)
        for arm, number in enumerate(numbers):
            chosen = torch.where(now.arm == arm, float(number), chosen)
        return chosen
