"""Probes: worlds of a few steps whose values and best actions are known. Each reveals one fault of a trainer."""

import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.model import whole


class Cue(dz.State):
    """What a world drew at its start, and which of its lives this is."""

    cue: Tensor = dz.real()
    life: Tensor = dz.count()


class Probe(dz.Env):
    """Base of the probes: one number observed, two actions, nothing drawn, nothing paid, one step."""

    @property
    def action_space(self) -> dz.model.Space:
        """Two actions."""
        return dz.rl.Discrete(2)

    @property
    def observation_space(self) -> dz.rl.Box:
        """One number."""
        return dz.rl.Box(-1, 1, (1,))

    def init(self, rng: dz.rng.Rng) -> Cue:
        """A life without a cue."""
        zero = rng.on("start", 1).uniform("none", 0, 0)[0]
        return Cue(cue=zero, life=torch.zeros_like(zero, dtype=torch.int32))

    def step(self, now: Cue, action: Tensor, rng: dz.rng.Rng) -> Cue:
        """Nothing changes but the time."""
        return now

    def observe(self, now: Cue) -> Tensor:
        """The cue: float32 `[1]`."""
        return now.cue[None]

    def terminated(self, now: Cue) -> Tensor:
        """After one step."""
        return now.time.step >= 1

    def value(self, observation: Tensor, gamma: float) -> Tensor:
        """What the value function must become, under the best actions where they matter: `[rows]`.

        Args:
            observation: `[rows, …]`, as worlds of this kind give them.
            gamma: discount.
        """
        raise NotImplementedError


def sign(rng: dz.rng.Rng) -> Tensor:
    """-1 or +1, as likely: float32 `[]`."""
    return 2 * rng.on("start", 1).integers("sign", 0, 2)[0].to(torch.float32) - 1


def matched(cue: Tensor, action: Tensor) -> Tensor:
    """+1 where action 1 meets a cue above 0 or action 0 one below, else -1."""
    return torch.where((action == 1) == (cue > 0), 1.0, -1.0)


class Constant(Probe):
    """Always 1: is anything learned at all? Value loss and optimiser."""

    def reward(self, before: Cue, action: Tensor, now: Cue) -> Tensor:
        """1."""
        return torch.ones_like(now.cue)

    def value(self, observation: Tensor, gamma: float) -> Tensor:
        """1."""
        return torch.ones_like(observation[:, 0])


class ObsValue(Probe):
    """The observation is the reward: does the critic get its inputs?"""

    def init(self, rng: dz.rng.Rng) -> Cue:
        """A cue of -1 or +1."""
        return super().init(rng).replace(cue=sign(rng))

    def reward(self, before: Cue, action: Tensor, now: Cue) -> Tensor:
        """The cue."""
        return before.cue

    def value(self, observation: Tensor, gamma: float) -> Tensor:
        """The cue."""
        return observation[:, 0]


class Delayed(Probe):
    """Sees 0, then 1, then gets 1: discount, bootstrap and the order of steps."""

    @property
    def observation_space(self) -> dz.rl.Box:
        """How many steps are done."""
        return dz.rl.Box(0, 2, (1,))

    def observe(self, now: Cue) -> Tensor:
        """How many steps are done."""
        return now.time.step.to(torch.float32)[None]

    def reward(self, before: Cue, action: Tensor, now: Cue) -> Tensor:
        """1 for the second step."""
        return torch.where(now.time.step == 2, 1.0, 0.0)

    def terminated(self, now: Cue) -> Tensor:
        """After two steps."""
        return now.time.step >= 2

    def value(self, observation: Tensor, gamma: float) -> Tensor:
        """Gamma, then 1."""
        return torch.where(observation[:, 0] == 0, gamma, 1.0)


class Action(Probe):
    """Action 1 is paid 1, action 0 is paid -1: sign of the surrogate and of the advantage."""

    def reward(self, before: Cue, action: Tensor, now: Cue) -> Tensor:
        """+1 or -1."""
        return torch.where(action == 1, 1.0, -1.0)

    def value(self, observation: Tensor, gamma: float) -> Tensor:
        """1, once the better action is taken."""
        return torch.ones_like(observation[:, 0])


class Both(ObsValue):
    """The action must match the cue: the whole loop."""

    def reward(self, before: Cue, action: Tensor, now: Cue) -> Tensor:
        """+1 for action 1 at +1 and action 0 at -1, else -1."""
        return matched(before.cue, action)

    def value(self, observation: Tensor, gamma: float) -> Tensor:
        """1, once actions match."""
        return torch.ones_like(observation[:, 0])


class Endless(Probe):
    """Pays the same for ever and is only cut off: a limit is no death.

    Attributes:
        pay: reward of every step.
        limit: steps after which a life is cut off.
    """

    pay: Tensor = dz.param(1.0, learnable=False, about="reward of every step")
    limit: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("Endless", "limit", self.limit, 1)

    @property
    def time_limit(self) -> int:
        """The limit."""
        return self.limit

    def reward(self, before: Cue, action: Tensor, now: Cue) -> Tensor:
        """The pay."""
        return torch.ones_like(now.cue) * self.pay

    def terminated(self, now: Cue) -> Tensor:
        """Never."""
        return torch.zeros_like(now.cue, dtype=torch.bool)

    def value(self, observation: Tensor, gamma: float) -> Tensor:
        """What paying for ever is worth."""
        return torch.ones_like(observation[:, 0]) * self.pay / (1 - gamma)


class Mortal(Probe):
    """Pays the same until a true end: a death is no limit.

    Attributes:
        pay: reward of every step.
        life: steps of a life.
    """

    pay: Tensor = dz.param(1.0, learnable=False, about="reward of every step")
    life: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("Mortal", "life", self.life, 1)

    @property
    def observation_space(self) -> dz.rl.Box:
        """One place for each step of a life."""
        return dz.rl.Box(0, 1, (self.life,))

    def observe(self, now: Cue) -> Tensor:
        """1 at the number of steps done: float32 `[life]`; zeros at the end."""
        return (torch.arange(self.life, device=now.cue.device) == now.time.step).to(torch.float32)

    def reward(self, before: Cue, action: Tensor, now: Cue) -> Tensor:
        """The pay."""
        return torch.ones_like(now.cue) * self.pay

    def terminated(self, now: Cue) -> Tensor:
        """After `life` steps."""
        return now.time.step >= self.life

    def value(self, observation: Tensor, gamma: float) -> Tensor:
        """What the rest of a life is worth."""
        left = self.life - observation.argmax(1)
        return self.pay * (1 - gamma**left) / (1 - gamma)


class Resets(Probe):
    """Each life has another pay, told by the observation: do lives run into one another at a reset?

    Lives are cut off, so their values bootstrap from the last look of the same life, never from the next one's first.

    Attributes:
        kinds: of lives; they follow one another in a circle and pay 0, 1 / kinds, 2 / kinds, …
        limit: steps of a life.
    """

    kinds: int = 3
    limit: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("Resets", "kinds", self.kinds, 2)
        whole("Resets", "limit", self.limit, 1)

    @property
    def time_limit(self) -> int:
        """The limit."""
        return self.limit

    @property
    def observation_space(self) -> dz.rl.Box:
        """One place for each kind."""
        return dz.rl.Box(0, 1, (self.kinds,))

    def reset(self, ended: Cue, rng: dz.rng.Rng) -> Cue:
        """A life of the next kind."""
        return self.init(rng).replace(life=(ended.life + 1) % self.kinds)

    def observe(self, now: Cue) -> Tensor:
        """1 at the kind of this life: float32 `[kinds]`."""
        return (torch.arange(self.kinds, device=now.cue.device) == now.life).to(torch.float32)

    def reward(self, before: Cue, action: Tensor, now: Cue) -> Tensor:
        """By the kind of the life in which the step was taken."""
        return before.life / self.kinds

    def terminated(self, now: Cue) -> Tensor:
        """Never."""
        return torch.zeros_like(now.cue, dtype=torch.bool)

    def value(self, observation: Tensor, gamma: float) -> Tensor:
        """What paying so for ever is worth."""
        return observation.argmax(1) / self.kinds / (1 - gamma)


class Memory(ObsValue):
    """A cue at the first step is asked for at the last: 1 with a memory, 0 on average without.

    Attributes:
        length: steps of a life.
    """

    length: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("Memory", "length", self.length, 2)

    @property
    def observation_space(self) -> dz.rl.Box:
        """Cue and whether the answer is due."""
        return dz.rl.Box(-1, 1, (2,))

    def observe(self, now: Cue) -> Tensor:
        """The cue at the first step, else 0; 1 when the answer is due, else 0: float32 `[2]`."""
        due = (now.time.step == self.length - 1).to(torch.float32)
        return torch.stack([torch.where(now.time.step == 0, now.cue, 0.0), due])

    def reward(self, before: Cue, action: Tensor, now: Cue) -> Tensor:
        """+1 or -1 for the answer, 0 before."""
        return torch.where(now.time.step == self.length, matched(before.cue, action), 0.0)

    def terminated(self, now: Cue) -> Tensor:
        """After the answer."""
        return now.time.step >= self.length

    def value(self, observation: Tensor, gamma: float) -> Tensor:
        """Not a function of the observation alone: that is what the probe is about."""
        raise InputError("Memory.value: the value depends on what was seen before; compare returns")


class Continuous(Probe):
    """The action must equal the cue: Gaussian head and its log-probability."""

    @property
    def action_space(self) -> dz.rl.Box:
        """One number."""
        return dz.rl.Box(-3, 3, (1,))

    def init(self, rng: dz.rng.Rng) -> Cue:
        """A cue uniform on [-1, 1)."""
        return super().init(rng).replace(cue=rng.on("start", 1).uniform("cue", -1, 1)[0])

    def reward(self, before: Cue, action: Tensor, now: Cue) -> Tensor:
        """Minus the squared distance."""
        return -(action[0] - before.cue).square()

    def value(self, observation: Tensor, gamma: float) -> Tensor:
        """0, once actions are right and their spread is gone."""
        return torch.zeros_like(observation[:, 0])
