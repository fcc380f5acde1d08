"""Acrobot: swing two links up by a motor at the joint between them.

The task of Sutton (1996) as in Gymnasium's Acrobot-v1, with the equations of Sutton and Barto's book.
"""

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._picture import BLUE, RED, Sketch

GRAVITY, MASS, LENGTH, CENTRE, INERTIA, SECONDS = 9.8, 1.0, 1.0, 0.5, 1.0, 0.2
FASTEST_1, FASTEST_2 = 4 * torch.pi, 9 * torch.pi


class Links(dz.State):
    """Angle of the first link from hanging down, of the second one from the first, on [-pi, pi), and their speeds."""

    angle_1: Tensor = dz.real()
    angle_2: Tensor = dz.real()
    turn_1: Tensor = dz.real()
    turn_2: Tensor = dz.real()


class Acrobot(dz.Env):
    """Torque -1 (0), none (1) or +1 (2); -1 for every step until the tip is a link's length above the pivot."""

    time_limit = 500
    action_space = dz.rl.Discrete(3)
    observation_space = dz.rl.Box(-FASTEST_2, FASTEST_2, (6,))

    def init(self, rng: dz.rng.Rng) -> Links:
        """All four numbers uniform on [-0.1, 0.1)."""
        angle_1, angle_2, turn_1, turn_2 = rng.on("start", 4).uniform("at", -0.1, 0.1).unbind()
        return Links(angle_1=angle_1, angle_2=angle_2, turn_1=turn_1, turn_2=turn_2)

    def step(self, now: Links, action: Tensor, rng: dz.rng.Rng) -> Links:
        """One Runge-Kutta step of fourth order over 0.2 s."""
        torque = action.to(torch.float32) - 1
        start = torch.stack([now.angle_1, now.angle_2, now.turn_1, now.turn_2])
        first = _slope(start, torque)
        second = _slope(start + SECONDS / 2 * first, torque)
        third = _slope(start + SECONDS / 2 * second, torque)
        fourth = _slope(start + SECONDS * third, torque)
        end = start + SECONDS / 6 * (first + 2 * second + 2 * third + fourth)
        angle_1, angle_2 = ((end[:2] + torch.pi).remainder(2 * torch.pi) - torch.pi).unbind()
        return now.replace(
            angle_1=angle_1,
            angle_2=angle_2,
            turn_1=end[2].clamp(-FASTEST_1, FASTEST_1),
            turn_2=end[3].clamp(-FASTEST_2, FASTEST_2),
        )

    def observe(self, now: Links) -> Tensor:
        """Cosine and sine of both angles, both speeds."""
        one, two = now.angle_1, now.angle_2
        return torch.stack([one.cos(), one.sin(), two.cos(), two.sin(), now.turn_1, now.turn_2])

    def reward(self, before: Links, action: Tensor, now: Links) -> Tensor:
        """-1, and 0 for the step that gets there."""
        return torch.where(self.terminated(now), 0.0, -1.0)

    def terminated(self, now: Links) -> Tensor:
        """The tip is high enough."""
        return -now.angle_1.cos() - (now.angle_1 + now.angle_2).cos() > LENGTH

    def draw(self, now: Links) -> Tensor:
        """Both links, the pivot and the height to reach."""
        picture = Sketch(72, 72, (-2.3, -2.3), (2.3, 2.3))
        one, both = float(now.angle_1), float(now.angle_1 + now.angle_2)
        down = torch.tensor([one, both])
        elbow = (float(down[0].sin()), -float(down[0].cos()))
        tip = (elbow[0] + float(down[1].sin()), elbow[1] - float(down[1].cos()))
        picture.line((-2.3, LENGTH), (2.3, LENGTH), 0.05, RED)
        picture.line((0, 0), elbow, 0.2)
        picture.line(elbow, tip, 0.2, BLUE)
        picture.disc((0, 0), 0.15, RED)
        return picture.pixels


def _slope(at: Tensor, torque: Tensor) -> Tensor:
    """Time derivatives of (angle 1, angle 2, speed 1, speed 2)."""
    angle_1, angle_2, turn_1, turn_2 = at.unbind()
    cos, sin = angle_2.cos(), angle_2.sin()
    inner = MASS * CENTRE**2 + INERTIA  # of the second link about its joint
    d1 = MASS * CENTRE**2 + INERTIA + MASS * (LENGTH**2 + CENTRE**2 + 2 * LENGTH * CENTRE * cos) + INERTIA
    d2 = inner + MASS * LENGTH * CENTRE * cos
    lever = MASS * LENGTH * CENTRE * sin
    weight_2 = MASS * CENTRE * GRAVITY * (angle_1 + angle_2).sin()  # cos(x - pi/2) = sin(x)
    weight_1 = (MASS * CENTRE + MASS * LENGTH) * GRAVITY * angle_1.sin() + weight_2
    pull = weight_1 - lever * turn_2 * (turn_2 + 2 * turn_1)
    spin_2 = (torque + d2 / d1 * pull - lever * turn_1.square() - weight_2) / (inner - d2.square() / d1)
    spin_1 = -(d2 * spin_2 + pull) / d1
    return torch.stack([turn_1, turn_2, spin_1, spin_2])
