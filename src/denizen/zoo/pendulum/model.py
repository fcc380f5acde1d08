"""Pendulum: swing a pendulum up by a limited torque and hold it there; as in Gymnasium's Pendulum-v1."""

import math

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._picture import BLUE, RED, Sketch

GRAVITY, MASS, LENGTH, SECONDS, FASTEST, STRONGEST = 10.0, 1.0, 1.0, 0.05, 8.0, 2.0


class Swing(dz.State):
    """Angle from upright on [-pi, pi), and its speed."""

    angle: Tensor = dz.real()
    turn: Tensor = dz.real()


class Pendulum(dz.Env):
    """A torque from -2 to 2 N m, clipped to that; costs angle² + 0.1 speed² + 0.001 torque² a step."""

    time_limit = 200
    action_space = dz.rl.Box(-STRONGEST, STRONGEST, (1,))
    observation_space = dz.rl.Box(-FASTEST, FASTEST, (3,))

    def init(self, rng: dz.rng.Rng) -> Swing:
        """The angle uniform on [-pi, pi), the speed on [-1, 1)."""
        angle, turn = rng.on("start", 2).uniform("at", -1, 1).unbind()
        return Swing(angle=angle * torch.pi, turn=turn)

    def step(self, now: Swing, action: Tensor, rng: dz.rng.Rng) -> Swing:
        """Speed first, then the angle, over 0.05 s."""
        torque = action[0].clamp(-STRONGEST, STRONGEST)
        pull = 1.5 * GRAVITY / LENGTH * now.angle.sin() + 3 / (MASS * LENGTH**2) * torque
        turn = (now.turn + SECONDS * pull).clamp(-FASTEST, FASTEST)
        angle = now.angle + SECONDS * turn
        return now.replace(angle=(angle + torch.pi).remainder(2 * torch.pi) - torch.pi, turn=turn)

    def observe(self, now: Swing) -> Tensor:
        """Cosine and sine of the angle, speed."""
        return torch.stack([now.angle.cos(), now.angle.sin(), now.turn])

    def reward(self, before: Swing, action: Tensor, now: Swing) -> Tensor:
        """Minus the cost of the state before the step and of the torque."""
        torque = action[0].clamp(-STRONGEST, STRONGEST)
        return -(before.angle.square() + 0.1 * before.turn.square() + 0.001 * torque.square())

    def terminated(self, now: Swing) -> Tensor:
        """Never; a life is cut off after 200 steps."""
        return torch.zeros_like(now.angle, dtype=torch.bool)

    def draw(self, now: Swing) -> Tensor:
        """The pendulum and its pivot."""
        picture = Sketch(64, 64, (-1.3, -1.3), (1.3, 1.3))
        angle = float(now.angle)
        picture.line((0, 0), (-LENGTH * math.sin(angle), LENGTH * math.cos(angle)), 0.2, BLUE)
        picture.disc((0, 0), 0.1, RED)
        return picture.pixels
