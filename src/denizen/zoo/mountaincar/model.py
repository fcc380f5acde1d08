"""MountainCar: a weak car rocks its way out of a valley; the task of Moore (1990) as in Gymnasium's MountainCar-v0."""

import itertools
import math

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._picture import GREEN, RED, Sketch

LEFT_END, RIGHT_END, GOAL, FASTEST, FORCE, GRAVITY = -1.2, 0.6, 0.5, 0.07, 0.001, 0.0025


class Car(dz.State):
    """Where the car is and how fast."""

    x: Tensor = dz.real()
    speed: Tensor = dz.real()


class MountainCar(dz.Env):
    """Push left (0), not at all (1) or right (2); -1 for every step until the car is on the right hill."""

    time_limit = 200
    action_space = dz.rl.Discrete(3)
    observation_space = dz.rl.Box(LEFT_END, RIGHT_END, (2,))

    def init(self, rng: dz.rng.Rng) -> Car:
        """At rest, at a place uniform on [-0.6, -0.4)."""
        x = rng.on("start", 1).uniform("at", -0.6, -0.4)[0]
        return Car(x=x, speed=torch.zeros_like(x))

    def step(self, now: Car, action: Tensor, rng: dz.rng.Rng) -> Car:
        """Speed first, then the place; the wall on the left stops the car."""
        speed = now.speed + (action - 1) * FORCE - GRAVITY * (3 * now.x).cos()
        speed = speed.clamp(-FASTEST, FASTEST)
        x = now.x + speed
        stopped = (x <= LEFT_END) & (speed < 0)
        return now.replace(x=x.clamp(LEFT_END, RIGHT_END), speed=torch.where(stopped, 0.0, speed))

    def observe(self, now: Car) -> Tensor:
        """Place and speed."""
        return torch.stack([now.x, now.speed])

    def reward(self, before: Car, action: Tensor, now: Car) -> Tensor:
        """-1 for every step, the last one included."""
        return -torch.ones_like(now.x)

    def terminated(self, now: Car) -> Tensor:
        """The car is at the goal and does not roll back."""
        return (now.x >= GOAL) & (now.speed >= 0)

    def draw(self, now: Car) -> Tensor:
        """The valley, the car and the goal."""
        picture = Sketch(48, 96, (LEFT_END, -0.2), (RIGHT_END, 1.2))
        ground = [LEFT_END + k * 0.02 for k in range(91)]
        for a, b in itertools.pairwise(ground):
            picture.line((a, _height(a)), (b, _height(b)), 0.03)
        picture.line((GOAL, _height(GOAL)), (GOAL, _height(GOAL) + 0.2), 0.03, GREEN)
        picture.disc((float(now.x), _height(float(now.x)) + 0.06), 0.06, RED)
        return picture.pixels


def _height(x: float) -> float:
    """Of the ground, for pictures only."""
    return 0.45 * math.sin(3 * x) + 0.55
