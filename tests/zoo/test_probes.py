"""The probes do what they say: values by playing, flags, and what the parameters change."""

import pytest
import torch

import denizen as dz
from denizen.zoo.probes import (
    Action,
    Bandit,
    Both,
    Constant,
    Continuous,
    Delayed,
    Endless,
    Memory,
    Mortal,
    ObsValue,
    Padded,
    Resets,
)

GAMMA = 0.8


def best(probe, observation):
    """The right action."""
    if isinstance(probe, Continuous):
        return observation
    right = observation[:, 0] > 0
    return (right if isinstance(probe, Both | Memory) else torch.ones_like(right)).to(torch.int64)


@pytest.mark.parametrize(
    "probe",
    [
        Constant(),
        ObsValue(),
        Delayed(),
        Action(),
        Both(),
        Continuous(),
        Mortal(),
        Mortal(pay=-2.0, life=3),
        Endless(),
        Endless(pay=0.5, limit=1),
        Resets(),
        Resets(kinds=4, limit=3),
    ],
    ids=repr,
)
def test_values_are_what_playing_gives(probe):
    """Bellman's equation under the right actions, at every step of several lives; what is cut off goes on."""
    worlds = dz.rl.Worlds(probe, 32, device="cpu")
    observed = worlds.reset()
    cut = []
    for _ in range(24):
        step = worlds.step(best(probe, observed.observation))
        cut.append(bool(step.truncated.any()))
        after = probe.value(step.final.observation, GAMMA)  # of all worlds: so few are all reset at once
        after = torch.where(step.ended, after, probe.value(step.observed.observation, GAMMA))
        expected = step.reward + GAMMA * torch.where(step.terminated, 0.0, after)
        torch.testing.assert_close(probe.value(observed.observation, GAMMA), expected, rtol=1e-5, atol=1e-5)
        observed = step.observed
        assert not bool(probe.observation_space.fault(observed.observation).any())
    worlds.check()
    assert any(cut) == isinstance(probe, Endless | Resets)


def test_wrong_actions_cost():
    for probe, pay in ((Action(), -1.0), (Both(), -1.0)):
        worlds = dz.rl.Worlds(probe, 8, device="cpu")
        assert worlds.step(1 - best(probe, worlds.reset().observation)).reward.tolist() == [pay] * 8


@pytest.mark.parametrize("length", [2, 4, 7])
def test_memory_asks_at_the_end_for_what_it_showed_at_the_start(length):
    worlds = dz.rl.Worlds(Memory(length=length), 64, device="cpu")
    observed = worlds.reset()
    cue = observed.observation[:, 0]
    assert set(cue.tolist()) == {-1, 1}
    for number in range(length):
        due = number == length - 1
        assert bool((observed.observation[:, 1] == float(due)).all())
        assert number == 0 or not bool(observed.observation[:, 0].any())
        step = worlds.step((cue > 0).to(torch.int64))
        assert bool((step.reward == float(due)).all())
        assert bool((step.terminated == due).all())
        observed = step.observed
    with pytest.raises(dz.errors.InputError, match="what was seen before"):
        Memory().value(cue[:, None], 0.9)


def test_padded_actors_leave_and_their_places_are_rubbish():
    results = {}
    for garbage in (0.0, 100.0):
        worlds = dz.rl.Worlds(Padded(garbage=garbage, actors=5), 200, device="cpu", max_resets=200)
        observed, rows = worlds.reset(), []
        assert bool(observed.acting.all())
        for _ in range(12):
            acting = observed.acting
            assert bool((observed.observation[acting].abs() == 1).all())
            if garbage and not bool(acting.all()):
                assert not bool((observed.observation[~acting].abs() == 1).any())
            step = worlds.step((observed.observation[..., 0] > 0).to(torch.int64))
            assert bool((step.reward[acting] == 1).all())
            over = step.final.acting.sum(1) == 0
            assert bool((step.terminated[step.final_index] >= over).all())
            rows.append((acting, step.terminated, torch.where(acting, step.reward, 0)))
            observed = step.observed
        worlds.check()
        results[garbage] = rows
        assert any(not bool(row[0].all()) for row in rows)
    for plain, dirty in zip(*results.values(), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(plain, dirty, strict=True))


def test_a_bandit_pays_at_the_end_of_lives_of_different_lengths():
    worlds = dz.rl.Worlds(Bandit(pays=(1.0, 0.25), lengths=(1, 3)), 2, device="cpu", max_resets=0)
    assert worlds.reset().observation.tolist() == [[0], [0]]
    told = []
    for actions in ([0, 1], [1, 0], [1, 0]):
        step = worlds.step(torch.tensor(actions))
        told.append((step.reward.tolist(), step.terminated.tolist(), step.valid.tolist()))
    assert told == [
        ([1.0, 0.0], [True, False], [True, True]),
        ([0.0, 0.0], [False, False], [False, True]),
        ([0.0, 0.25], [False, True], [False, True]),
    ]


def test_parameters_are_checked():
    with pytest.raises(dz.errors.InputError, match=r"Mortal: life=0, expected a whole number, at least 1"):
        Mortal(life=0)
    with pytest.raises(dz.errors.InputError, match=r"Memory: length=1"):
        Memory(length=1)
    with pytest.raises(dz.errors.InputError, match=r"expected one of each for every arm"):
        Bandit(pays=(1.0,))
    with pytest.raises(dz.errors.InputError, match=r"Bandit: lengths.*, expected a whole number, at least 1"):
        Bandit(lengths=(0, 2))
