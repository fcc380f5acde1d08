"""Predators chase prey among obstacles: two roles that want the opposite; see README.md."""

import torch
from torch import Tensor
from torch.nn import functional as F

import denizen as dz
from denizen.model import whole
from denizen.zoo._picture import BLUE, INK, RED, Sketch

TIME, DAMPING = 0.1, 0.25  # of a step; share of the speed that is lost in it
FORCE, MARGIN = 100.0, 1e-3  # with which things that overlap push one another, and how gently it sets in
PREDATOR_SIZE, PREY_SIZE, OBSTACLE_SIZE = 0.075, 0.05, 0.2
PREDATOR_PUSH, PREY_PUSH = 3.0, 4.0
PREDATOR_SPEED, PREY_SPEED = 1.0, 1.3
CAUGHT = 10.0


class Chase(dz.State):
    """Where all are and how fast they go; predators come before prey."""

    x: Tensor = dz.real("agents")
    y: Tensor = dz.real("agents")
    dx: Tensor = dz.real("agents")
    dy: Tensor = dz.real("agents")
    obstacle_x: Tensor = dz.real("obstacles")
    obstacle_y: Tensor = dz.real("obstacles")


class PredatorPrey(dz.Env):
    """Predators are paid together for every touch of prey, which pays for it.

    Attributes:
        predators: that chase.
        prey: that flee, and are quicker.
        obstacles: that nobody passes.
        max_steps: of a life.
    """

    predators: int = 3
    prey: int = 1
    obstacles: int = 2
    max_steps: int = 25

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("predators", "prey", "obstacles", "max_steps"):
            whole("PredatorPrey", name, getattr(self, name), 1)

    @property
    def roles(self) -> dict[str, dz.rl.Role]:
        """All may push to four sides or not; predators see how fast prey is."""
        common = 4 + 2 * self.obstacles + 2 * (self.predators + self.prey - 1)
        act = dz.rl.Discrete(5)
        return {
            "predator": dz.rl.Role(self.predators, _numbers(common + 2 * self.prey), act),
            "prey": dz.rl.Role(self.prey, _numbers(common + 2 * (self.prey - 1)), act),
        }

    @property
    def time_limit(self) -> int:
        """The number of steps of a life."""
        return self.max_steps

    def init(self, rng: dz.rng.Rng) -> Chase:
        """All anywhere, at rest."""
        still = torch.zeros_like(x := rng.uniform("x", -1.0, 1.0))
        place = rng.on("obstacles", self.obstacles)
        return Chase(
            x=x,
            y=rng.uniform("y", -1.0, 1.0),
            dx=still,
            dy=still,
            obstacle_x=place.uniform("x", -0.9, 0.9),
            obstacle_y=place.uniform("y", -0.9, 0.9),
        )

    def step(self, now: Chase, action: dict[str, Tensor], rng: dz.rng.Rng) -> Chase:
        """All move on by their speeds; then speeds change by their own pushes and by those of what they touch."""
        push = self._each(now.x, PREDATOR_PUSH, PREY_PUSH)
        chosen = torch.cat([action["predator"], action["prey"]])
        force_x, force_y = self._contacts(now)
        dx = (1 - DAMPING) * now.dx + TIME * (push * _sign(chosen, 2, 1) + force_x)
        dy = (1 - DAMPING) * now.dy + TIME * (push * _sign(chosen, 4, 3) + force_y)
        speed, most = torch.sqrt(dx.square() + dy.square()), self._each(now.x, PREDATOR_SPEED, PREY_SPEED)
        slower = torch.where(speed > most, most / speed.clamp(min=1e-12), 1.0)
        return now.replace(x=now.x + TIME * now.dx, y=now.y + TIME * now.dy, dx=slower * dx, dy=slower * dy)

    def _each(self, like: Tensor, predator: float, prey: float) -> Tensor:
        """A number of each agent: `[agents]`."""
        return torch.where(torch.arange(like.shape[-1], device=like.device) < self.predators, predator, prey)

    def _contacts(self, now: Chase) -> tuple[Tensor, Tensor]:
        """With what force each agent is pushed by all that it touches, along x and y: `[agents]` each."""
        size, wide = self._each(now.x, PREDATOR_SIZE, PREY_SIZE), torch.full_like(now.obstacle_x, OBSTACLE_SIZE)
        apart_x = now.x[:, None] - torch.cat([now.x, now.obstacle_x])
        apart_y = now.y[:, None] - torch.cat([now.y, now.obstacle_y])
        # Nobody pushes itself: apart from itself by nothing, at whatever distance.
        distance = torch.sqrt(apart_x.square() + apart_y.square()).clamp(min=1e-6)
        touching = size[:, None] + torch.cat([size, wide])
        pushed = FORCE * MARGIN * F.softplus((touching - distance) / MARGIN) / distance
        return (pushed * apart_x).sum(1), (pushed * apart_y).sum(1)

    def observe(self, now: Chase) -> dict[str, Tensor]:
        """Own speed and place, then from there obstacles and the others in order, then speeds of (other) prey."""
        count, predators = self.predators + self.prey, self.predators
        place, speed = torch.stack([now.x, now.y], 1), torch.stack([now.dx, now.dy], 1)
        obstacles = torch.stack([now.obstacle_x, now.obstacle_y], 1) - place[:, None]
        others = (place - place[:, None])[_each_but_one(count, place.device)]
        seen = torch.cat([speed, place, obstacles.flatten(1), others.reshape(count, -1)], 1)
        prey = speed[predators:]
        fleeing = prey.expand(self.prey, -1, -1)[_each_but_one(self.prey, prey.device)]
        return {
            "predator": torch.cat([seen[:predators], prey.flatten().expand(predators, -1)], 1),
            "prey": torch.cat([seen[predators:], fleeing.reshape(self.prey, -1)], 1),
        }

    def _touching(self, now: Chase) -> Tensor:
        """Which predator touches which prey: bool `[predators, prey]`."""
        apart_x = now.x[: self.predators, None] - now.x[self.predators :]
        apart_y = now.y[: self.predators, None] - now.y[self.predators :]
        return torch.sqrt(apart_x.square() + apart_y.square()) < PREDATOR_SIZE + PREY_SIZE

    def reward(self, before: Chase, action: dict[str, Tensor], now: Chase) -> dict[str, Tensor]:
        """10 for each touch, to every predator; the prey that is touched loses 10, and more for leaving the field."""
        touching = self._touching(now).to(torch.float32)
        out = _leaving(now.x[self.predators :]) + _leaving(now.y[self.predators :])
        return {
            "predator": (CAUGHT * touching.sum()).expand(self.predators),
            "prey": -CAUGHT * touching.sum(0) - out,
        }

    def terminated(self, now: Chase) -> Tensor:
        """Never; lives are cut off."""
        return torch.zeros((), dtype=torch.bool, device=now.x.device)

    @dz.series
    def touches(self, before: Chase, now: Chase) -> Tensor:
        """Pairs of a predator and the prey that it touches."""
        return self._touching(now).sum()

    def draw(self, now: Chase) -> Tensor:
        """Predators red, prey blue, obstacles grey: uint8 `[240, 240, 3]`."""
        sketch = Sketch(240, 240, (-1.5, -1.5), (1.5, 1.5))
        for x, y in zip(now.obstacle_x.tolist(), now.obstacle_y.tolist(), strict=True):
            sketch.disc((x, y), OBSTACLE_SIZE, INK)
        for number, (x, y) in enumerate(zip(now.x.tolist(), now.y.tolist(), strict=True)):
            hunts = number < self.predators
            sketch.disc((x, y), PREDATOR_SIZE if hunts else PREY_SIZE, RED if hunts else BLUE)
        return sketch.pixels


def _numbers(count: int) -> dz.rl.Box:
    return dz.rl.Box(-torch.inf, torch.inf, (count,))


def _sign(chosen: Tensor, up: int, down: int) -> Tensor:
    return (chosen == up).to(torch.float32) - (chosen == down).to(torch.float32)


def _each_but_one(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Index of each row's entries but its own: `[count, count - 1]` of an axis of `count` times `count`."""
    row, place = torch.arange(count, device=device)[:, None], torch.arange(count - 1, device=device)
    return row, place + (place >= row)


def _leaving(place: Tensor) -> Tensor:
    """What being so far from the middle costs: nothing up to 0.9, 1 at 1, more beyond, at most 10."""
    far = place.abs()
    beyond = torch.exp(2 * far - 2).clamp(max=10)
    return torch.where(far < 0.9, 0.0, torch.where(far < 1, 10 * (far - 0.9), beyond))
