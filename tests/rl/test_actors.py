"""Several agents in one world: axes, masks, and that those who are out change nothing."""

import subprocess
import sys

import pytest
import torch

import denizen as dz


class Crowd(dz.State):
    at: torch.Tensor = dz.real("agents")
    out: torch.Tensor = dz.mask("agents")


class Walkers(dz.Env):
    """Three walk on a line; those beyond 1 are out, and see and earn garbage when `spoil` is set."""

    spoil: float = 0.0
    num_actors = 3
    time_limit = 12
    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(-torch.inf, torch.inf, (2,))

    def init(self, rng):
        at = rng.uniform("start", -0.2, 0.2)
        return Crowd(at=at, out=torch.zeros_like(at, dtype=torch.int8))

    def step(self, now, action, rng):
        moved = now.at + 0.3 * (2 * action - 1) + 0.05 * rng.uniform("noise")
        moved = torch.where(now.out == 1, now.at, moved)
        return now.replace(at=moved, out=torch.maximum(now.out, (moved.abs() > 1).to(torch.int8)))

    def observe(self, now):
        seen = torch.stack([now.at, torch.full_like(now.at, float(self.num_actors))], 1)
        return torch.where(now.out[:, None] == 1, self.spoil, seen)

    def reward(self, before, action, now):
        return torch.where(before.out == 1, self.spoil, now.at)

    def terminated(self, now):
        return now.out.all()

    def acting(self, now):
        return now.out == 0


def trained(spoil, memory=0):
    env = Walkers(spoil=spoil)
    algorithm = dz.PPO(num_envs=6, num_steps=10, num_minibatches=2, update_epochs=2)
    held = algorithm.init(env, dz.rl.mlp(env, (8,), memory_size=memory), total_steps=600, device="cpu")
    told = [algorithm.update(held) for _ in range(4)][-1]
    return held, told


def test_rows_are_worlds_times_actors_and_masked_where_out():
    held, _ = trained(0.0)
    fields = held.rollout.fields
    assert fields["observation"].shape == (10, 18, 2)
    assert 0 < fields["valid"].float().mean() < 1
    assert (fields["reward"][~fields["valid"]] == 0).all()


def test_what_those_that_are_out_see_and_earn_changes_nothing():
    for memory in (0, 4):
        plain, one = trained(0.0, memory)
        spoilt, other = trained(1e6, memory)
        for mine, theirs in zip(plain.policy.parameters(), spoilt.policy.parameters(), strict=True):
            assert torch.equal(mine, theirs)
        for name in ("policy_loss", "value_loss", "entropy", "return_mean", "explained_variance"):
            assert torch.equal(one[name], other[name]), name


def test_evaluation_counts_each_actor():
    env = Walkers()
    told = dz.rl.evaluate(env, dz.rl.mlp(env, (8,)), num_envs=5)
    assert told.returns.shape == (15,)
    assert told.finished.all()


class Shared(dz.Env):
    """Everybody is paid what the world's coin says, each step; `plan` says when who acts."""

    plan: tuple[tuple[bool, ...], ...] = ((True,), (True,))  # by actor, by step; the last goes on
    observation_space = dz.rl.Box(-torch.inf, torch.inf, (1,))
    action_space = dz.rl.Discrete(2)
    time_limit = 6

    @property
    def num_actors(self):
        return len(self.plan)

    def init(self, rng):
        return Coin(side=rng.bernoulli("side", 0.5))

    def step(self, now, action, rng):
        return now

    def observe(self, now):
        return torch.zeros(len(self.plan), 1)

    def reward(self, before, action, after):
        return after.side[0].to(torch.float32).expand(len(self.plan))

    def terminated(self, now):
        return torch.zeros((), dtype=torch.bool)

    def acting(self, now):
        when = torch.tensor([[row[min(k, len(row) - 1)] for k in range(8)] for row in self.plan])
        return when.gather(1, now.time.step.clamp(max=7).expand(len(self.plan), 1)).squeeze(1)


class Coin(dz.State):
    side: torch.Tensor = dz.mask("agents")


def test_who_never_acts_has_no_life():
    env = Shared(plan=((True,), (False,)))
    told = dz.rl.evaluate(env, dz.rl.mlp(env, (8,)), num_envs=40)
    assert told.returns.shape == (40,)
    assert set(told.returns.tolist()) == {0.0, 6.0}
    assert told.world.tolist() == list(range(40))


def test_lives_in_one_world_are_no_independent_evidence():
    """Four that are all paid the same tell as much as one of them."""
    errors = []
    for actors in (1, 4):
        env = Shared(plan=((True,),) * actors)
        told = dz.rl.evaluate(env, dz.rl.mlp(env, (8,)), num_envs=30, seed=3)
        errors.append(told.error)
    alone = float(told.returns[::4].std()) / 30**0.5
    assert errors == pytest.approx([alone, alone], rel=1e-5)
    assert "120 lives in 30 worlds" in str(told)


def test_who_comes_back_lives_anew():
    """Three steps, out for one, and again: the first life has three, in training and in evaluation."""
    env = Shared(plan=((True, True, True, False, True),))
    told = dz.rl.evaluate(env, dz.rl.mlp(env, (8,)), num_envs=8)
    assert (told.lengths == 3).all()
    assert told.finished.all()


def test_a_policy_is_made_without_loading_compilers_and_learns_without_torchs():
    """Numba and dynamo take seconds to load; a look at the environment is over before."""
    code = (
        "import sys, denizen as dz; "
        "dz.rl.conv(dz.zoo.entry('foraging').build(), (4,), 8); env = dz.zoo.entry('cartpole').build();"
        "policy = dz.rl.mlp(env, (4,)); print({'numba', 'torch._dynamo', 'triton'} & set(sys.modules));"
        "ppo = dz.PPO(num_envs=2, num_steps=2); ppo.update(ppo.init(env, policy, total_steps=100, device='cpu'));"
        "print({'torch._dynamo', 'sympy', 'triton'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set()", "set()"]
