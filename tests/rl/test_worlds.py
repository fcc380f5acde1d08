"""Worlds: batching, limits, resets, waiting, and what goes wrong."""

import pytest
import torch

import denizen as dz
from denizen.zoo.breakout import Breakout
from denizen.zoo.cartpole import CartPole


class State(dz.State):
    height: torch.Tensor = dz.real()
    life: torch.Tensor = dz.count()


class Ladder(dz.Env):
    """Climbs by the action; ends at 3, is cut off after 5 steps; the observation tells height and life."""

    time_limit = 5
    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(-torch.inf, torch.inf, (2,))

    def init(self, rng):
        start = rng.uniform("start")[0] * 0.1
        return State(height=start, life=torch.zeros_like(start, dtype=torch.int32))

    def reset(self, ended, rng):
        return self.init(rng).replace(life=ended.life + 1)

    def step(self, now, action, rng):
        return now.replace(height=now.height + action + 0 * rng.uniform("noise")[0])

    def observe(self, now):
        return torch.stack([now.height, now.life.float()])

    def reward(self, before, action, now):
        return now.height

    def terminated(self, now):
        return now.height >= 3


def run(worlds, actions):
    looks, steps = [worlds.reset()], []
    for action in actions:
        steps.append(worlds.step(action))
        looks.append(steps[-1].observed)
    return looks, steps


def actions(count, steps, seed=0):
    return torch.randint(0, 2, (steps, count), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("max_resets", [None, 2, 3])
def test_flags_and_final_looks_follow_the_definition(max_resets):
    count, given = 6, actions(6, 40)
    worlds = dz.rl.Worlds(Ladder(), count, max_resets=max_resets, device="cpu")
    observed = worlds.reset()
    height, life, age = observed.observation[:, 0].clone(), torch.zeros(count), torch.zeros(count)
    waiting, waited = torch.zeros(count, dtype=torch.bool), 0
    for action in given:
        step = worlds.step(action)
        assert torch.equal(step.valid, ~waiting)
        waited += int(waiting.sum())
        height, age = torch.where(waiting, height, height + action), torch.where(waiting, age, age + 1)
        dead, cut = (height >= 3) & ~waiting, (age >= 5) & ~waiting
        assert torch.equal(step.terminated, dead)
        assert torch.equal(step.truncated, cut)
        assert torch.equal(step.reward, torch.where(waiting, 0, height))
        over = (dead | cut | waiting).nonzero().flatten().tolist()
        reset = over[: max_resets or count]
        for row, world in enumerate(step.final_index.tolist()):
            if world in reset:
                assert torch.equal(step.final.observation[row], torch.stack([height[world], life[world]]))
        life[reset] += 1
        age[reset] = 0
        height[reset] = step.observed.observation[reset, 0]
        assert bool((height[reset] < 0.1).all())
        waiting = torch.zeros(count, dtype=torch.bool)
        waiting[over[max_resets or count :]] = True
        assert torch.equal(step.observed.observation, torch.stack([height, life], 1))
    assert int(worlds.run_state.waited.sum()) == waited
    assert (waited > 0) == (max_resets is not None)
    worlds.check()


class Counted(Ladder):
    @dz.series
    def climbed(self, before, now):
        return now.height - before.height


def test_worlds_that_wait_add_nothing_to_flows():
    worlds = dz.rl.Worlds(Counted(), 4, device="cpu", max_resets=1)
    worlds.reset()
    waited = 0
    for _ in range(8):
        step = worlds.step(torch.ones(4, dtype=torch.int64))
        assert torch.equal(step.flows["climbed"] > 0, step.valid)
        waited += int((~step.valid).sum())
    assert waited > 0


@pytest.mark.parametrize(("env", "most"), [(CartPole(), 20_000), (Breakout(), 2500)])
def test_how_many_worlds_begin_anew_at_once(env, most):
    assert dz.rl.Worlds(env, 20_000, device="cpu").max_resets == most


def test_worlds_that_waited_when_fewer_began_anew_begin_with_the_others():
    worlds = dz.rl.Worlds(Ladder(), 4, device="cpu")
    worlds.reset()
    worlds.run_state.waiting[1] = True  # as in a state that was saved with max_resets below the number of worlds
    worlds.step(torch.zeros(4, dtype=torch.int64))
    assert worlds.step(torch.zeros(4, dtype=torch.int64)).valid.all()


def test_worlds_do_not_depend_on_their_batch():
    given = actions(8, 30)
    whole, _ = run(dz.rl.Worlds(CartPole(), 8, device="cpu"), given)
    part, _ = run(dz.rl.Worlds(CartPole(), 3, worlds=[2, 5, 7], device="cpu"), given[:, [2, 5, 7]])
    for all_, some in zip(whole, part, strict=True):
        assert torch.equal(all_.observation[[2, 5, 7]], some.observation)


def test_worlds_of_one_number_are_the_same_under_the_same_actions():
    given = actions(1, 20).expand(-1, 4)
    looks, _ = run(dz.rl.Worlds(CartPole(), 4, worlds=[3, 3, 3, 9], device="cpu"), given)
    for observed in looks:
        assert torch.equal(observed.observation[0], observed.observation[1])
        assert torch.equal(observed.observation[0], observed.observation[2])
    assert not torch.equal(looks[0].observation[0], looks[0].observation[3])


def test_resets_repeat_no_start():
    worlds = dz.rl.Worlds(Ladder(), 2, device="cpu")
    starts = [worlds.reset().observation[:, 0]]
    for _ in range(50):
        step = worlds.step(torch.zeros(2, dtype=torch.int64))
        if bool(step.ended.any()):
            starts.append(step.observed.observation[:, 0])
    assert len(torch.cat(starts).unique()) == 22


def test_wrong_arguments_are_named():
    with pytest.raises(dz.errors.InputError, match="env is object"):
        dz.rl.Worlds(object(), 4)
    with pytest.raises(dz.errors.InputError, match="num_envs=0"):
        dz.rl.Worlds(Ladder(), 0)
    with pytest.raises(dz.errors.InputError, match="3 numbers, expected 4"):
        dz.rl.Worlds(Ladder(), 4, worlds=[1, 2, 3])
    worlds = dz.rl.Worlds(Ladder(), 4, device="cpu")
    with pytest.raises(dz.errors.InputError, match=r"call reset\(\) first"):
        worlds.step(torch.zeros(4, dtype=torch.int64))
    worlds.reset()
    with pytest.raises(dz.errors.InputError, match=r"action is \(3,\), expected a tensor of shape \(4,\)"):
        worlds.step(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(dz.errors.InputError, match="whole numbers from 0 to 1"):
        worlds.step(torch.zeros(4))


def test_an_action_out_of_range_is_told_with_world_and_step():
    worlds = dz.rl.Worlds(Ladder(), 4, device="cpu")
    run(worlds, actions(4, 3))
    worlds.step(torch.tensor([0, 0, 7, 0]))
    worlds.step(torch.tensor([9, 0, 0, 0]))
    with pytest.raises(dz.errors.ModelError, match=r"outside the action space, in world 2 at step 3 \(first of 2"):
        worlds.check()
