"""Actions of several factors: distributions against torch's, masks for each factor, and a world that they solve."""

import dataclasses

import pytest
import torch

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.rl import Draws

QUIET = {"device": "cpu", "progress": False, "compile": False}
SIZES = (3, 2, 4)


class Lock(dz.State):
    cue: torch.Tensor = dz.count("digits")


class Locks(dz.Env):
    """Pays for each digit that is set as shown; the last one by a rule, and one of its choices is closed."""

    time_limit = 3
    action_space = dz.rl.MultiDiscrete(SIZES)
    observation_space = dz.rl.MultiDiscrete((3, 2))

    def init(self, rng):
        digits = rng.on("start", 1)
        return Lock(cue=torch.cat([digits.integers("first", 0, 3), digits.integers("second", 0, 2)]))

    def step(self, now, action, rng):
        return now.replace(cue=(now.cue + action[:2]) % torch.tensor([3, 2]))

    def observe(self, now):
        return now.cue

    def wanted(self, now):
        return torch.cat([now.cue, now.cue[:1] + 1])

    def action_mask(self, now):
        factors = [torch.ones(3) > 0, torch.ones(2) > 0, torch.arange(4) != now.cue[0]]
        return torch.cat(factors)

    def reward(self, before, action, now):
        return (action == self.wanted(before)).to(torch.float32).sum()

    def terminated(self, now):
        return now.time.step > 5


class Switches(Locks):
    """Two switches, to be set as the digits are odd or even."""

    action_space = dz.rl.MultiBinary(2)

    def action_mask(self, now):
        return None

    def step(self, now, action, rng):
        return now.replace(cue=(now.cue + 1) % torch.tensor([3, 2]))

    def wanted(self, now):
        return now.cue % 2


class Later(Locks):
    """One choice, numbered from 5, of which the second is closed."""

    action_space = dz.rl.Discrete(3, start=5)

    def action_mask(self, now):
        return torch.arange(3) != 1

    def step(self, now, action, rng):
        return now.replace(cue=(now.cue + 1) % torch.tensor([3, 2]))

    def reward(self, before, action, now):
        return torch.where(action == 5 + 2 * (before.cue[1] % 2), 3.0, 0.0)


@pytest.mark.parametrize("factors", [SIZES, (3, 3)])
def test_a_product_agrees_with_torch(factors):
    logits = torch.randn(6, sum(factors), generator=torch.Generator().manual_seed(0), requires_grad=True)
    other = logits.detach() + torch.linspace(-1, 1, sum(factors))
    ours, its = (dz.rl.Categoricals.of(one, factors) for one in (logits, other))
    parts, others = (
        [torch.distributions.Categorical(logits=part) for part in one.split(factors, 1)] for one in (logits, other)
    )
    action = torch.stack([torch.arange(6) % size for size in factors], 1)
    torch.testing.assert_close(ours.log_prob(action), sum(p.log_prob(action[:, k]) for k, p in enumerate(parts)))
    torch.testing.assert_close(ours.entropy(), sum(p.entropy() for p in parts))
    kl = sum(torch.distributions.kl_divergence(p, q) for p, q in zip(parts, others, strict=True))
    torch.testing.assert_close(ours.kl(its), kl)
    assert torch.equal(ours.mode(), torch.stack([p.logits.argmax(1) for p in parts], 1))
    (ours.entropy().sum() + ours.log_prob(action).sum() + ours.kl(its).sum()).backward()
    assert torch.isfinite(logits.grad).all()


def test_each_factor_is_drawn_by_a_number_of_its_own():
    rows, probs = 20_000, [torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.9, 0.1])]
    actions = dz.rl.Categoricals.of(torch.cat(probs).log().expand(rows, 5), (3, 2))
    drawn = actions.sample(Draws(1, torch.arange(rows)).uniform("action", torch.tensor(0), 2))
    counted = torch.stack([drawn[:, 0] * 2 + drawn[:, 1] == k for k in range(6)]).float().mean(1)
    assert torch.allclose(counted, torch.outer(*probs).flatten(), atol=4 * 0.5 / rows**0.5)


def test_a_choice_closed_in_one_factor_is_never_drawn_and_leaves_gradients_finite():
    logits = torch.zeros(2000, 9, requires_grad=True)
    open_ = torch.tensor([1, 0, 1, 1, 1, 0, 0, 1, 0]) > 0
    actions = dz.rl.Categoricals.of(logits, SIZES, open_.expand(2000, 9))
    drawn = actions.sample(torch.linspace(1e-7, 1 - 1e-7, 2000)[:, None].expand(2000, 3))
    assert [set(factor.tolist()) for factor in drawn.unbind(1)] == [{0, 2}, {0, 1}, {2}]
    (actions.entropy().sum() + actions.log_prob(drawn).sum()).backward()
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[:, ~open_] == 0).all()


@pytest.mark.parametrize(
    ("env", "updates"), [(Locks(), 20), (Switches(), 8), (Later(), 8)], ids=lambda one: str(one)[:6]
)
def test_a_world_of_factors_is_solved_and_closed_choices_never_made(env, updates):
    algorithm = dz.PPO(num_envs=32, num_steps=12, learning_rate=dz.rl.Linear(3e-2, 0), ent_coef=0.0, gamma=0.5)
    policy = dz.rl.mlp(env, (32,))
    trained = dz.train(env, policy, algorithm, 32 * 12 * updates, **QUIET)
    best = 6 if isinstance(env, Switches) else 9
    assert dz.rl.evaluate(env, policy, greedy=True, device="cpu", num_envs=32).mean > 0.9 * best
    assert all(row["faulty"] == 0 for row in trained.metrics)
    assert dz.check(env).ok


def test_grpo_and_imitation_take_factors():
    env, policy = Locks(), dz.rl.mlp(Locks(), (32,))
    algorithm = dz.GRPO(groups=4, group_size=8, max_steps=3, learning_rate=2e-2)
    result = dz.train(env, policy, algorithm, algorithm.samples * 3, **QUIET)
    assert result["ratio_max"][0] >= 1 >= result["ratio_min"][0]

    def teacher(observed, uniform):
        return torch.cat([observed.observation, observed.observation[:, :1] + 1], 1)

    taught = dz.rl.imitate(env, policy, teacher, updates=60, learning_rate=1e-2, device="cpu", progress=False)
    assert taught.agreement[-1] > 0.95

    def late(observed, uniform):
        return 5 + 2 * (observed.observation[:, 1] % 2)

    policy = dz.rl.mlp(Later(), (32,))
    taught = dz.rl.imitate(Later(), policy, late, updates=60, learning_rate=1e-2, device="cpu", progress=False)
    assert taught.agreement[-1] > 0.95


def test_worlds_take_actions_of_the_space_and_tell_others():
    worlds = dz.rl.Worlds(Later(), 2, device="cpu")
    worlds.reset()
    worlds.step(torch.tensor([5, 7], dtype=torch.uint8))
    worlds.check()
    worlds.step(torch.tensor([5, 4], dtype=torch.int8))
    with pytest.raises(ModelError, match="an action outside the action space, in world 1 at step 1"):
        worlds.check()
    worlds = dz.rl.Worlds(Locks(), 1, device="cpu")
    worlds.reset()
    worlds.step(torch.tensor([[2, 2, 0]]))
    with pytest.raises(ModelError, match="an action outside"):
        worlds.check()
    with pytest.raises(InputError, match=r"expected whole numbers from 0, below \(3, 2, 4\)"):
        worlds.step(torch.zeros(1, 3))


def test_a_factor_without_an_open_choice_is_told():
    class Stuck(Locks):
        def action_mask(self, now):
            return (torch.arange(9) < 3) | (torch.arange(9) > 4)

    worlds = dz.rl.Worlds(Stuck(), 1, device="cpu")
    worlds.reset()
    worlds.step(torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(ModelError, match="no action that is open"):
        worlds.check()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: dz.rl.MultiDiscrete((3, 0)), r"nvec\[1\]=0, expected a whole number, at least 1"),
        (lambda: dz.rl.MultiDiscrete(3), r"nvec=3\): expected a size for each factor"),
        (lambda: dz.rl.MultiDiscrete(()), "expected a size for each factor"),
        (lambda: dz.rl.MultiBinary(0), "n=0, expected a whole number, at least 1"),
        (lambda: dz.rl.Discrete(3, start=0.5), "start=0.5, expected a whole number"),
    ],
)
def test_spaces_that_are_none_are_told(make, told):
    with pytest.raises(InputError, match=told):
        make()


def test_spaces_keep_what_they_were_given():
    assert dz.rl.MultiDiscrete(torch.tensor([3, 2])).nvec == (3, 2)
    assert repr(dz.rl.Discrete(2)) == "Discrete(n=2)"
    assert repr(dz.rl.Discrete(2, start=1)) == "Discrete(n=2, start=1)"
    assert dataclasses.replace(dz.rl.Discrete(2), n=3) == dz.rl.Discrete(3)
