"""Several agents in one world: axes, masks, and that those who are out change nothing."""

import subprocess
import sys

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
    algorithm = dz.PPO(num_envs=6, num_steps=10, minibatches=2, epochs=2)
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


def test_a_policy_is_made_without_loading_compilers():
    """Numba and dynamo take seconds to load; a look at the environment is over before."""
    code = (
        "import sys, denizen as dz; from denizen.app._recipes import RECIPES;"
        "dz.rl.conv(RECIPES['foraging'].make_env({}), (4,), 8); dz.rl.mlp(RECIPES['cartpole'].make_env({}));"
        "print({'numba', 'torch._dynamo', 'triton'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"
