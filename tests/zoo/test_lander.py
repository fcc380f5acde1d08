"""The lander beside Gymnasium's: flight by its numbers, landings by its published pilot."""

import math

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.zoo.lander import Flight, Lander

# LunarLander-v3 of gymnasium 1.4.0 with Box2D 2.3.10: actions and scatter of numpy.random.default_rng(number),
# observations after 30 and 60 steps and the rewards of steps 2 to there.
FLIGHTS = [
    (
        (600.0, -300.0),
        ([0.1665, 1.1396, 0.6187, -0.6372, -0.3645, -0.4283], -50.30),
        ([0.3892, 0.4990, 0.9927, -1.3159, -1.4218, -1.0678], -182.25),
    ),
    (
        (-900.0, 500.0),
        ([-0.2500, 1.3909, -0.9219, -0.1794, 0.4846, 0.2556], -67.03),
        ([-0.5644, 1.0847, -1.1361, -0.7477, 0.8132, 0.1088], -125.25),
    ),
    (
        (0.0, 900.0),
        ([0.0021, 1.6254, 0.0370, 0.0692, -0.1884, -0.2656], -5.92),
        ([0.0327, 1.5377, 0.2334, -0.3411, -0.4591, -0.2704], -60.81),
    ),
]


class Told:
    """In place of random numbers: those that are told."""

    def __init__(self, **streams):
        self.streams = streams

    def on(self, name, num):
        self.name = name
        return self

    def uniform(self, name, low=0.0, high=1.0):
        return torch.tensor(self.streams[self.name], dtype=torch.float32)


@pytest.mark.parametrize("number", range(3))
def test_flights_are_gymnasiums(number):
    push, *seen = FLIGHTS[number]
    env, rng, paid = Lander(), np.random.default_rng(number), 0.0
    now = env.init(Told(push=push, hills=[0.0] * 12))
    for step in range(1, 61):
        scatter = rng.uniform(-1, 1, 2).tolist()
        action = torch.tensor(int(rng.integers(4)))
        before, now = now, env.step(now, action, Told(engines=scatter))
        paid += float(env.reward(before, action, now)) * (step > 1)
        if step % 30 == 0:
            numbers, reward = seen[step // 30 - 1]
            assert env.observe(now)[:6].tolist() == pytest.approx(numbers, abs=0.01)
            assert paid == pytest.approx(reward, abs=2.0)  # 100 for each unit of the numbers above


def test_full_power_of_two_numbers_is_what_choices_give():
    one, two = Lander(), Lander(continuous=True)
    start = one.init(Told(push=(500.0, -200.0), hills=[0.0] * 12))
    scatter = Told(engines=(0.3, -0.6))
    for choice, numbers in [(0, (0.0, 0.5)), (1, (-1.0, -1.0)), (2, (1.0, 0.0)), (3, (-0.1, 1.0))]:
        by_choice = one.step(start, torch.tensor(choice), scatter)
        by_numbers = two.step(start, torch.tensor(numbers), scatter)
        for name in ("x", "y", "speed_x", "speed_y", "turn", "fuel"):
            assert torch.equal(getattr(by_choice, name), getattr(by_numbers, name)), (choice, name)
    half = two.step(start, torch.tensor((0.0001, 0.0)), scatter)
    assert float(half.fuel) == pytest.approx(0.15, abs=1e-4)


def dropped(**fields):
    """Flights that begin above flat ground, at the pad's height."""
    start = Lander().init(Told(push=(0.0, 0.0), hills=[0.0] * 12))
    height = start.ground[5]
    given = {"x": 10.0, "y": float(height) + 0.8, "speed_y": -0.5, "turn": 0.0, **fields}
    return start.replace(
        ground=height.expand(11), **{name: torch.tensor(float(value)) for name, value in given.items()}
    )


def ends(start, steps=200):
    env, now = Lander(), start
    for _ in range(steps):
        before, now = now, env.step(now, torch.tensor(0), Told(engines=(0.0, 0.0)))
        if bool(env.terminated(now)):
            return now, float(env.reward(before, torch.tensor(0), now))
    return now, None


def test_what_comes_down_gently_stands_and_has_landed():
    now, reward = ends(dropped())
    assert reward == 100
    assert now.touching.tolist() == [1, 1]
    assert abs(float(now.angle)) < 1e-3
    assert float(now.y) == pytest.approx(float(now.ground[5]) + 0.617 - 0.02, abs=0.01)  # legs give by 0.02


@pytest.mark.parametrize("fields", [{"speed_y": -6.0}, {"angle": math.pi / 2}, {"x": 19.5, "speed_x": 4.0, "y": 9.0}])
def test_hard_falls_and_flights_out_of_sight_are_crashes(fields):
    assert ends(dropped(**fields))[1] == -100


def pilot(seen):
    """The published one of Gymnasium's file."""
    x, y, speed_x, speed_y, angle, turn, left, right = seen.unbind(1)
    touches = left + right > 0
    turned = torch.where(touches, 0.0, ((0.5 * x + speed_x).clamp(-0.4, 0.4) - angle) * 0.5 - turn)
    lift = torch.where(touches, -0.5 * speed_y, (0.55 * x.abs() - y) * 0.5 - 0.5 * speed_y)
    sides = torch.where(turned < -0.05, 3, torch.where(turned > 0.05, 1, 0))
    return torch.where((lift > turned.abs()) & (lift > 0.05), 2, sides)


@pytest.mark.slow
def test_the_published_pilot_lands_as_often_as_in_gymnasium():
    worlds = dz.rl.Worlds(Lander(), 60, device="cpu", max_resets=0)
    seen, returned, last = worlds.reset().observation, torch.zeros(60), torch.zeros(60)
    for _ in range(1_000):
        step = worlds.step(pilot(seen))
        seen, returned = step.observed.observation, returned + step.reward
        last = torch.where(step.ended, step.reward, last)
        if not bool(step.valid.any()):
            break
    worlds.check()
    assert float(returned.mean()) == pytest.approx(265, abs=25)  # three standard errors of both together
    assert int((last == 100).sum()) >= 54


def test_states_are_of_their_kinds():
    assert isinstance(Lander().init(Told(push=(0.0, 0.0), hills=[1.0] * 12)), Flight)
    assert dz.rl.Worlds(Lander(continuous=True), 3, device="cpu").reset().observation.shape == (3, 8)
