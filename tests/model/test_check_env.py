"""`dz.check` of environments: one bad one for each rule, found at its line and alone; good ones pass."""

import inspect
import itertools

import pytest
import torch

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.zoo.cartpole import CartPole
from denizen.zoo.probes import Padded

COUNTER = 0
TICKS = itertools.count()
OUTSIDE = torch.zeros(3)


class Place(dz.State):
    x: torch.Tensor = dz.real()
    marks: torch.Tensor = dz.mask("places")


class Base(dz.Env):
    """An environment without fault; each bad one below replaces a method."""

    time_limit = 3
    action_space = dz.rl.Discrete(3)
    observation_space = dz.rl.Box(-5, 5, (4,))

    def init(self, rng):
        return Place(x=rng.uniform("x")[0], marks=torch.zeros(3, dtype=torch.int8))

    def step(self, now, action, rng):
        marks = now.marks | (torch.arange(3) == action)
        return now.replace(x=(now.x + rng.uniform("drift", -1, 1)[0]).clamp(-2, 2), marks=marks)

    def observe(self, now):
        return torch.cat([now.x[None], now.marks.float()])

    def reward(self, before, action, now):
        return now.x - before.x

    def terminated(self, now):
        return now.marks.sum() == 3

    def action_mask(self, now):
        return (now.marks == 0) | (now.marks.sum() == 3)

    def draw(self, now):
        return [str(float(now.x))]


class ReadsInReward(Base):
    def reward(self, before, action, now):
        return now.x * float(before.x)  # BAD


class ReadsInObserve(Base):
    def observe(self, now):
        if now.x > 0:  # BAD
            return torch.cat([now.x[None], now.marks.float()])
        return torch.cat([-now.x[None], now.marks.float()])


class BranchesOnAction(Base):
    def step(self, now, action, rng):
        return now.replace(x=now.x + (1 if action == 2 else 0))  # BAD


class RandomEnd(Base):
    def terminated(self, now):
        return torch.rand(()) < 0.5  # BAD


class WritesInObserve(Base):
    def observe(self, now):
        now.marks[0] = 1  # BAD
        return torch.cat([now.x[None], now.marks.float()])


class WritesOutside(Base):
    def reward(self, before, action, now):
        OUTSIDE.add_(1)  # BAD
        return now.x


class NarrowObservation(Base):
    def observe(self, now):
        return now.marks.float()  # BAD


class NoObservation(Base):
    def observe(self, now):
        print(end="")  # BAD


class RewardOfTwo(Base):
    def reward(self, before, action, now):
        return torch.stack([now.x, now.x])  # BAD


class RewardOfNumber(Base):
    def reward(self, before, action, now):
        return 1.0  # BAD


class EndOfEach(Base):
    def terminated(self, now):
        return now.marks == 1  # BAD


class MaskOfTwo(Base):
    def action_mask(self, now):
        return now.marks[:2] == 0  # BAD


class ActsAlone(Base):
    def acting(self, now):
        return now.marks[:1] == 0  # BAD


class Fractions(Base):
    observation_space = dz.rl.Box(-5, 5, (4,), torch.int8)

    def observe(self, now):
        return torch.cat([now.x[None], now.marks.float()])  # BAD


class WholeInputs(Base):
    def network_input(self, observation):  # BAD
        return observation.to(torch.int64)


class FlatPicture(Base):
    def draw(self, now):  # BAD
        return now.marks


class AnotherShapeAtReset(Base):
    def reset(self, ended, rng):
        return Place(x=ended.x, marks=torch.zeros(4, dtype=torch.int8))  # BAD


class LeavesItsSpace(Base):
    observation_space = dz.rl.Box(-5, 0.5, (4,))

    def observe(self, now):  # BAD
        return torch.cat([now.x[None], now.marks.float()])


class NanObservation(Base):
    def observe(self, now):  # BAD
        return torch.cat([now.x[None].log(), now.marks.float()]) - 5


class NanReward(Base):
    def reward(self, before, action, now):  # BAD
        return (now.x * 0 - 1).sqrt()


class NothingOpen(Base):
    def action_mask(self, now):  # BAD
        return (now.marks == 0) & (now.x < -9)


class Odds(Base):
    def step(self, now, action, rng):  # BAD
        return now.replace(x=rng.bernoulli("odds", 1.5)[0].float())


class StreamTwice(Base):
    def step(self, now, action, rng):
        return now.replace(x=rng.uniform("drift")[0] + rng.uniform("drift")[0])  # BAD


class Counts(Base):
    def reward(self, before, action, now):
        global COUNTER
        COUNTER += 1  # BAD
        return now.x


class ResetDiffers(Base):
    def init(self, rng):  # BAD
        return Place(x=torch.tensor(float(next(TICKS) % 7)) / 9, marks=torch.zeros(3, dtype=torch.int8))


class NoReward(dz.Env):  # BAD
    action_space = dz.rl.Discrete(3)
    observation_space = dz.rl.Box(-5, 5, (4,))
    init, step, observe = Base.init, Base.step, Base.observe


BAD = {
    "host read": [ReadsInReward, ReadsInObserve, BranchesOnAction],
    "random": [RandomEnd],
    "in place": [WritesInObserve, WritesOutside],
    "shapes": [
        NarrowObservation,
        NoObservation,
        RewardOfTwo,
        RewardOfNumber,
        EndOfEach,
        MaskOfTwo,
        ActsAlone,
        Fractions,
        WholeInputs,
        FlatPicture,
        AnotherShapeAtReset,
    ],
    "range": [LeavesItsSpace, NanObservation, NanReward, NothingOpen, Odds],
    "stream": [StreamTwice],
    "global state": [Counts],
    "repeat": [ResetDiffers],
    "error": [NoReward],
}
CASES = [pytest.param(rule, cls, id=cls.__name__) for rule, group in BAD.items() for cls in group]


def bad_line(cls):
    lines, start = inspect.getsourcelines(cls)
    return next(start + k for k, line in enumerate(lines) if "# BAD" in line)


@pytest.mark.parametrize(("rule", "cls"), CASES)
def test_each_rule_is_found_at_its_line_and_alone(rule, cls):
    report = dz.check(cls(), steps=4)
    assert [(f.rule, f.line.number) for f in report.findings] == [(rule, bad_line(cls))], str(report)
    assert report.findings[0].line.file == __file__


@pytest.mark.parametrize("env", [Base(), CartPole(), Padded()], ids=repr)
def test_good_environments_pass(env):
    report = dz.check(env, steps=5)
    assert report.ok, str(report)
    assert "5 steps under random actions" in str(report)
    assert "two worlds batched by vmap equal each alone" in report.proved
    assert any("one compiled graph" in sentence for sentence in report.proved)


def test_interventions_are_refused():
    with pytest.raises(InputError, match="an environment takes none"):
        dz.check(Base(), interventions=[object()])


@pytest.mark.parametrize(
    ("cls", "says"),
    [(MaskOfTwo, r"MaskOfTwo.action_mask gave \(2,\); expected \(3,\)"), (ActsAlone, "ActsAlone.acting gave")],
)
def test_worlds_refuse_looks_of_a_wrong_shape(cls, says):
    with pytest.raises(ModelError, match=says):
        dz.rl.Worlds(cls(), 2, device="cpu").reset()
