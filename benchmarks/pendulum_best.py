"""What the best policy of Pendulum-v1 returns, by dynamic programming on a grid: a bound for what learning can reach.

    python benchmarks/pendulum_best.py [--discounts 1 0.98 0.95 0.9] [--lives 3000]

Costs to come are found on a grid of angle and speed, backwards over the 200 steps for a discount of 1, by iteration for
others; then the policy that is greedy in them lives from random starts in the pendulum itself, off the grid. What it
returns is what a policy can return, whatever the grid's error. About four minutes on one core.
"""

import argparse
import math

import torch

ANGLES, SPEEDS, STEPS = 360, 241, 200


def step(angle, speed, torque):
    """Cost of the state and the torque, and the next state; as in Gymnasium."""
    cost = angle**2 + 0.1 * speed**2 + 0.001 * torque**2
    speed = (speed + (15 * angle.sin() + 3 * torque) * 0.05).clamp(-8, 8)
    return cost, (angle + speed * 0.05 + math.pi) % (2 * math.pi) - math.pi, speed


def between(table, angle, speed):
    """A table's value at states off the grid, linear in both."""
    x, y = (angle + math.pi) / (2 * math.pi) * ANGLES, (speed + 8) / 16 * (SPEEDS - 1)
    i, j = x.floor().long(), y.floor().long().clamp(max=SPEEDS - 2)
    right, up = x - i, y - j
    low = table[i % ANGLES, j] * (1 - right) + table[(i + 1) % ANGLES, j] * right
    high = table[i % ANGLES, j + 1] * (1 - right) + table[(i + 1) % ANGLES, j + 1] * right
    return low * (1 - up) + high * up


def tables(discount):
    """Costs to come with so many steps left; only the last one for a discount below 1."""
    grid = torch.meshgrid(
        torch.linspace(-math.pi, math.pi, ANGLES + 1)[:-1], torch.linspace(-8, 8, SPEEDS), indexing="ij"
    )
    moves = [step(*grid, torque) for torque in torch.linspace(-2, 2, 25)]
    found = [torch.zeros(ANGLES, SPEEDS)]
    for _ in range(STEPS if discount == 1 else math.ceil(3 / (1 - discount))):
        costs = [cost + discount * between(found[-1], angle, speed) for cost, angle, speed in moves]
        found.append(torch.stack(costs).amin(0))
    return found if discount == 1 else found[-1:]


def live(found, discount, lives):
    """Returns of the greedy policy."""
    draw = torch.Generator().manual_seed(0)
    angle = (torch.rand(lives, generator=draw) * 2 - 1) * math.pi
    speed = torch.rand(lives, generator=draw) * 2 - 1
    torques, total = torch.linspace(-2, 2, 101)[:, None], torch.zeros(lives)
    for left in reversed(range(STEPS)):
        cost, next_angle, next_speed = step(angle[None], speed[None], torques)
        costs = cost + discount * between(found[left if len(found) > 1 else 0], next_angle, next_speed)
        best = costs.argmin(0)
        cost, angle, speed = step(angle, speed, torques[best, 0])
        total -= cost
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--discounts", type=float, nargs="+", default=[1.0, 0.98, 0.95, 0.9])
    parser.add_argument("--lives", type=int, default=3000)
    given = parser.parse_args()
    for discount in given.discounts:
        told = live(tables(discount), discount, given.lives)
        print(f"discount {discount:g}: return {told.mean():.1f} ± {told.std() / given.lives**0.5:.1f}", flush=True)


if __name__ == "__main__":
    main()
