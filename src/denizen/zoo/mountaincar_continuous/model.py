"""MountainCarContinuous: a weak car with a throttle rocks its way out of a valley; as in Gymnasium's
MountainCarContinuous-v0.
"""

import itertools
import math

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._picture import GREEN, RED, Sketch
from denizen.zoo.mountaincar import Car

LEFT_END, RIGHT_END, GOAL, FASTEST, POWER, GRAVITY = -1.2, 0.6, 0.45, 0.07, 0.0015, 0.0025


class MountainCarContinuous(dz.Env):
    """A throttle from -1 to 1, clipped to that; 100 for reaching the right hill, and 0.1 throttle² off every step."""

    time_limit = 999
    action_space = dz.rl.Box(-1.0, 1.0, (1,))
    observation_space = dz.rl.Box([LEFT_END, -FASTEST], [RIGHT_END, FASTEST], (2,))

    def init(self, rng: dz.rng.Rng) -> Car:
        """At rest, at a place uniform on [-0.6, -0.4)."""
        x = rng.on("start", 1).uniform("at", -0.6, -0.4)[0]
        return Car(x=x, speed=torch.zeros_like(x))

    def step(self, now: Car, action: Tensor, rng: dz.rng.Rng) -> Car:
        """Speed first, then the place; the wall on the left stops the car."""
        speed = now.speed + action[0].clamp(-1, 1) * POWER - GRAVITY * (3 * now.x).cos()
        speed = speed.clamp(-FASTEST, FASTEST)
        x = now.x + speed
        stopped = (x <= LEFT_END) & (speed < 0)
        return now.replace(x=x.clamp(LEFT_END, RIGHT_END), speed=torch.where(stopped, 0.0, speed))

    def observe(self, now: Car) -> Tensor:
        """Place and speed."""
        return torch.stack([now.x, now.speed])

    def reward(self, before: Car, action: Tensor, now: Car) -> Tensor:
        """100 at the goal, less what the throttle costs; an action out of bounds costs what it says, as there."""
        return torch.where(self.terminated(now), 100.0, 0.0) - 0.1 * action[0].square()

    def terminated(self, now: Car) -> Tensor:
        """The car is at the goal and does not roll back."""
        return (now.x >= GOAL) & (now.speed >= 0)

    def draw(self, now: Car) -> Tensor:
        """The valley, the car and the goal."""
        picture = Sketch(48, 96, (LEFT_END, -0.2), (RIGHT_END, 1.2))
        ground = [(LEFT_END + k * 0.02, _height(LEFT_END + k * 0.02)) for k in range(91)]
        for a, b in itertools.pairwise(ground):
            picture.line(a, b, 0.03)
        picture.line((GOAL, _height(GOAL)), (GOAL, _height(GOAL) + 0.2), 0.03, GREEN)
        picture.disc((float(now.x), _height(float(now.x)) + 0.06), 0.06, RED)
        return picture.pixels


def _height(x: float) -> float:
    """Of the ground, for pictures only."""
    return 0.45 * math.sin(3 * x) + 0.55
