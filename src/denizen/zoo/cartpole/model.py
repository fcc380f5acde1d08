"""CartPole: balance a pole on a cart; the task of Barto, Sutton and Anderson (1983) as in Gymnasium's CartPole-v1."""

import math

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._picture import BLUE, RED, Sketch

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
FAR, STEEP = 2.4, 12 * 2 * torch.pi / 360


class Pole(dz.State):
    """Where the cart and the pole are."""

    x: Tensor = dz.real()
    speed: Tensor = dz.real()
    angle: Tensor = dz.real()
    turn: Tensor = dz.real()


class CartPole(dz.Env):
    """Push left (0) or right (1); 1 for every step until the pole leans 12 degrees or the cart leaves 2.4 m."""

    time_limit = 500
    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(-torch.inf, torch.inf, (4,))

    def init(self, rng: dz.rng.Rng) -> Pole:
        """All four numbers uniform on [-0.05, 0.05)."""
        x, speed, angle, turn = rng.on("start", 4).uniform("at", -0.05, 0.05).unbind()
        return Pole(x=x, speed=speed, angle=angle, turn=turn)

    def step(self, now: Pole, action: Tensor, rng: dz.rng.Rng) -> Pole:
        """Euler steps of 0.02 s, positions first."""
        force = torch.where(action == 1, FORCE, -FORCE)
        cos, sin = now.angle.cos(), now.angle.sin()
        mass = CART + POLE
        push = (force + POLE * HALF_LENGTH * now.turn.square() * sin) / mass
        spin = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE * cos.square() / mass))
        pull = push - POLE * HALF_LENGTH * spin * cos / mass
        return now.replace(
            x=now.x + SECONDS * now.speed,
            speed=now.speed + SECONDS * pull,
            angle=now.angle + SECONDS * now.turn,
            turn=now.turn + SECONDS * spin,
        )

    def observe(self, now: Pole) -> Tensor:
        """Position, speed, angle, angular speed."""
        return torch.stack([now.x, now.speed, now.angle, now.turn])

    def reward(self, before: Pole, action: Tensor, now: Pole) -> Tensor:
        """1 for every step, the last one included."""
        return torch.ones_like(now.x)

    def terminated(self, now: Pole) -> Tensor:
        """The pole fell or the cart left."""
        return (now.x.abs() > FAR) | (now.angle.abs() > STEEP)

    def draw(self, now: Pole) -> Tensor:
        """The track, the cart and the pole."""
        picture = Sketch(48, 96, (-FAR, -0.4), (FAR, 2.0))
        x, angle = float(now.x), float(now.angle)
        picture.line((-FAR, -0.15), (FAR, -0.15), 0.05)
        picture.line((x - 0.2, 0), (x + 0.2, 0), 0.25, BLUE)
        picture.line((x, 0.1), (x + 1.5 * math.sin(angle), 0.1 + 1.5 * math.cos(angle)), 0.1, RED)
        return picture.pixels
