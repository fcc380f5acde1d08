"""Spaces of several parts: a world that shows a picture, a choice and a one-sided number, and takes three actions."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.rl import Dict, Discrete, MultiDiscrete, Tuple

QUIET = {"device": "cpu", "progress": False, "compile": False}
BOX = dz.rl.Box([-1.0], [2.0], (1,))
ACTS = Tuple((Discrete(3, start=3), Dict({"two": MultiDiscrete((2, 3)), "far": BOX})))
SEES = Dict(
    {
        "picture": dz.rl.Box(0, 1, (1, 4, 4), torch.uint8),
        "digit": Discrete(3, start=1),
        "more": Tuple((dz.rl.Box(0.0, math.inf, (1,)), dz.rl.Box(0, 1, (3,), torch.bool))),
    }
)


class Shown(dz.State):
    digit: torch.Tensor = dz.count()
    corner: torch.Tensor = dz.count()
    size: torch.Tensor = dz.real()


class Desk(dz.Env):
    """Pays for each of four answers: the digit, the corner that is lit, whether the number is large, and its half."""

    time_limit = 2
    action_space = ACTS
    observation_space = SEES

    def init(self, rng):
        start = rng.on("start", 1)
        digit, corner = start.integers("digit", 0, 3)[0], start.integers("corner", 0, 3)[0]
        return Shown(digit=digit, corner=corner, size=start.uniform("size", 0, 2)[0])

    def step(self, now, action, rng):
        start = rng.on("start", 1)
        return now.replace(digit=start.integers("digit", 0, 3)[0], corner=(now.corner + 1) % 3)

    def observe(self, now):
        lit = torch.arange(16).view(1, 4, 4) == 3 * now.corner * now.corner  # of three corners
        flags = torch.arange(3) == now.digit
        return {"more": (now.size[None], flags), "picture": lit, "digit": now.digit + 1}

    def action_mask(self, now):
        two = torch.cat([torch.ones(2), (torch.arange(3) != (now.corner + 1) % 3).to(torch.float32)])
        return torch.cat([torch.ones(3), two]) > 0

    def reward(self, before, action, now):
        word, rest = action
        right = (word == 3 + before.digit).to(torch.float32) + (rest["two"][1] == before.corner)
        right = right + (rest["two"][0] == (before.size > 1).to(torch.int64))
        return right - (rest["far"][0] - 0.5 * before.size).square()

    def terminated(self, now):
        return now.time.step > 9


BEST = 6.0


def bits(policy):
    return torch.cat([value.flatten().double() for value in policy.state_dict().values()])


def test_worlds_give_and_take_trees():
    worlds = dz.rl.Worlds(Desk(), 4, device="cpu")
    look = worlds.reset().observation
    assert list(look) == ["picture", "digit", "more"]
    assert look["picture"].shape == (4, 1, 4, 4)
    assert look["picture"].dtype == torch.uint8
    assert look["more"][1].dtype == torch.bool
    digit, corner = look["digit"], look["picture"].flatten(1).argmax(1)
    two = torch.stack([(look["more"][0][:, 0] > 1).long(), (corner > 0).long() + (corner > 3)], 1)
    action = (2 + digit, {"two": two, "far": 0.5 * look["more"][0]})
    step = worlds.step(action)
    worlds.check()
    torch.testing.assert_close(step.reward, torch.full((4,), 3.0))
    assert step.final.observation["digit"].shape == (4,)
    lone = dz.rl.Worlds(Desk(), 1, worlds=[2], device="cpu")
    alone = lone.reset().observation
    assert all(torch.equal(a[2:3], b) for a, b in zip(tree_leaves(look), tree_leaves(alone), strict=True))


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (torch.zeros(2), r"action is a Tensor, expected a tuple of 2"),
        ((torch.tensor([3, 3]),), "action is a tuple of 1, expected a tuple of 2"),
        (
            (torch.tensor([3, 3]), {"two": 1}),
            r"action is a dict with the keys 'two' at \[1\], expected a dict with .*'far'",
        ),
        ((torch.tensor([3, 3]), {"two": torch.zeros(2, 2), "far": torch.zeros(2, 1)}), r"\[1\]\['two'\] has dtype"),
        (
            (torch.tensor([3, 3]), {"two": torch.zeros(2).long(), "far": torch.zeros(2, 1)}),
            r"action\[1\]\['two'\] is \(2,\)",
        ),
    ],
)
def test_actions_that_are_built_otherwise_are_told(action, told):
    worlds = dz.rl.Worlds(Desk(), 2, device="cpu")
    worlds.reset()
    with pytest.raises(InputError, match=told):
        worlds.step(action)


def test_checks_on_the_device_name_the_leaf():
    worlds = dz.rl.Worlds(Desk(), 2, device="cpu")
    worlds.reset()
    two, far = torch.zeros(2, 2, dtype=torch.int64), torch.tensor([[0.0], [7.0]])
    worlds.step((torch.tensor([3, 3]), {"two": two, "far": far}))
    with pytest.raises(ModelError, match=r"outside the action space at \[1\]\['far'\], in world 1 at step 0"):
        worlds.check()

    class Wrong(Desk):
        def observe(self, now):
            return {**super().observe(now), "digit": now.digit + 2 * now.time.step}

    class Endless(Desk):
        def observe(self, now):
            return {**super().observe(now), "more": (now.size[None] / (1 - now.time.step), torch.ones(3) > 0)}

    for env, told in ((Wrong(), r"outside its space at \['digit'\]"), (Endless(), r"not finite at \['more'\]\[0\]")):
        worlds = dz.rl.Worlds(env, 8, device="cpu", max_resets=0)
        worlds.reset()
        worlds.step((torch.full((8,), 3), {"two": torch.zeros(8, 2).long(), "far": torch.zeros(8, 1)}))
        with pytest.raises(ModelError, match=told):
            worlds.check()


def test_check_names_leaf_step_and_value():
    assert dz.check(Desk()).ok

    class Wrong(Desk):
        def observe(self, now):
            return {**super().observe(now), "more": (now.size[None] - 5 * now.time.step, torch.ones(3) > 0)}

    report = str(dz.check(Wrong()))
    assert "an observation outside its space at ['more'][0]: -" in report
    assert "after 1 steps" in report

    class Missing(Desk):
        def observe(self, now):
            return {"digit": now.digit + 1}

    assert "observe gave what is a dict with the keys 'digit', expected a dict with the keys" in str(
        dz.check(Missing())
    )


ALGORITHM = dz.PPO(num_envs=32, num_steps=8, learning_rate=dz.rl.Linear(1e-2, 0), ent_coef=0.0, gamma=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("distribution", [dz.rl.Gaussian, dz.rl.SquashedGaussian, dz.rl.Beta])
def test_the_desk_is_learned(distribution):
    policy = dz.rl.mlp(Desk(), (32,), distribution=distribution)
    result = dz.train(Desk(), policy, ALGORITHM, ALGORITHM.samples * 40, **QUIET)
    assert all(row["faulty"] == 0 for row in result.metrics)
    assert dz.rl.evaluate(Desk(), policy, greedy=True, num_envs=32).mean > 0.8 * BEST


@pytest.mark.slow
def test_grpo_learns_the_desk():
    algorithm = dz.GRPO(groups=8, group_size=16, max_steps=2, learning_rate=1e-2, gamma=0.5)
    policy = dz.rl.mlp(Desk(), (32,))
    dz.train(Desk(), policy, algorithm, algorithm.samples * 100, **QUIET)
    assert dz.rl.evaluate(Desk(), policy, greedy=True, num_envs=32).mean > 0.8 * BEST


def test_the_desk_goes_on_bit_for_bit(tmp_path):
    algorithm = dataclasses.replace(ALGORITHM, learning_rate=1e-2)
    first, whole, resumed = (dz.rl.mlp(Desk(), (8,), distribution=dz.rl.Beta) for _ in range(3))
    dz.train(Desk(), first, algorithm, algorithm.samples, folder=tmp_path / "run", **QUIET)
    dz.train(Desk(), whole, algorithm, algorithm.samples * 2, **QUIET)
    dz.rl.resume(tmp_path / "run", Desk(), resumed, algorithm, steps=1, progress=False)
    assert torch.equal(bits(resumed), bits(whole))
    assert not torch.equal(bits(resumed), bits(first))


@pytest.mark.parametrize("distribution", [dz.rl.Gaussian, dz.rl.SquashedGaussian, dz.rl.Beta])
def test_ratios_begin_at_1_and_closed_choices_are_never_drawn(distribution):
    class Strict(Desk):
        def reward(self, before, action, now):
            word, rest = action
            chosen = torch.stack([word - 3, 3 + rest["two"][0], 5 + rest["two"][1]])
            open_ = self.action_mask(before).gather(0, chosen).all()
            return torch.where(open_, super().reward(before, action, now), -1e6)

    policy = dz.rl.conv(Strict(), (4,), 8, critic_hidden=(8,), distribution=distribution)
    algorithm = dz.GRPO(groups=4, group_size=8, max_steps=2, update_epochs=1, learning_rate=1e-2)
    training = algorithm.init(Strict(), policy, total_steps=algorithm.samples, device="cpu")
    metrics = algorithm.update(training)
    assert metrics["ratio_min"] == metrics["ratio_max"] == 1
    fields = training.rollout.fields
    assert fields["reward"].min() > -1e5
    assert not fields["action_mask"].all()


def test_actors_that_are_out_change_nothing():
    class Pair(Desk):
        junk: int = 0
        num_actors = 2

        def observe(self, now):
            return tree_map(lambda part: torch.stack([part, part * 0 + self.junk]), super().observe(now))

        def step(self, now, action, rng):
            word, rest = action
            return super().step(now, (word[0], {name: part[0] for name, part in rest.items()}), rng)

        def action_mask(self, now):
            return super().action_mask(now).expand(2, 8)

        def reward(self, before, action, now):
            word, rest = action
            return super().reward(before, (word[0], {name: part[0] for name, part in rest.items()}), now).expand(2)

        def acting(self, now):
            return torch.arange(2) < 1

    policies = []
    for junk in (1, 2):
        env = Pair(junk=junk)
        policy = dz.rl.mlp(env, (8,))
        algorithm = dz.PPO(num_envs=4, num_steps=4, num_minibatches=1, update_epochs=2)
        dz.train(env, policy, algorithm, 16 * 2, **QUIET)
        policies.append(policy)
    torch.testing.assert_close(bits(policies[0]), bits(policies[1]), rtol=0, atol=1e-7)


def test_bodies_of_ones_own_get_the_tree():
    seen = {}

    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward(self, given):
            seen.update({"kinds": (given["digit"].shape, given["picture"].dtype, given["more"][1].dtype)})
            return self.layer(given["digit"])

    policy = dz.rl.ActorCritic(Desk(), Body())
    assert seen["kinds"] == ((1, 3), torch.float32, torch.float32)
    evaluation = dz.rl.evaluate(Desk(), policy, num_envs=2, device="cpu")
    assert evaluation.finished.all()
    with pytest.raises(InputError, match=r"body does not take inputs of shape \{'picture': "):
        dz.rl.ActorCritic(Desk(), nn.Linear(3, 4))
    look = dz.rl.Worlds(Desk(), 2, device="cpu").reset()
    inputs, moved = dz.rl.saliency(policy, look, policy.first_memory(2, torch.device("cpu")))
    assert inputs["digit"].shape == moved["digit"].shape == (2, 3)
    assert (moved["digit"] > 0).any()
    assert (moved["picture"] == 0).all()


class Told(Desk):
    """Its critic sees the number beside what the policy sees."""

    def privileged_input(self, observation, privileged):
        return observation["more"][0]


def test_what_is_privileged_of_a_tree_is_normalised():
    policy = dz.rl.mlp(Told(), (8,), normalise=True)
    training = ALGORITHM.init(Told(), policy, total_steps=ALGORITHM.samples, device="cpu")
    ALGORITHM.update(training)
    looks = training.rollout.fields["observation"].flatten(0, 1)
    size = dz.rl.conv(Told(), (4,), 8).inputs(looks)["more"][0]
    torch.testing.assert_close(policy.privileged_normaliser.mean, size.double().mean(0))


def test_saliency_of_numbers_among_other_parts_is_that_of_the_numbers():
    class Reach(Desk):
        action_space = Dict({"far": BOX})

        def action_mask(self, now):
            return None

    alone, policy = (dz.rl.mlp(type("Env", (Reach,), {"action_space": s})(), (8,)) for s in (BOX, Reach.action_space))
    nn.init.normal_(alone.actor.weight)
    policy.load_state_dict(alone.state_dict())
    memory = policy.first_memory(2, torch.device("cpu"))
    look = dz.rl.Worlds(Desk(), 2, device="cpu").reset()._replace(action_mask=None)
    wanted, moved = (dz.rl.saliency(one, look, memory)[1] for one in (alone, policy))
    assert (wanted > 0).all()
    assert torch.equal(moved, wanted)


def test_a_policy_of_other_numbers_of_choices_is_refused():
    class From0(Desk):
        observation_space = Dict({**SEES.spaces, "digit": Discrete(3)})

    with pytest.raises(InputError, match=r"policy was made for From0 with observation_space .*Discrete\(n=3\)"):
        dz.rl.evaluate(Desk(), dz.rl.mlp(From0(), (8,)), num_envs=2, device="cpu")


def test_a_tree_of_inputs_may_be_an_environments_own():
    class Half(Desk):
        def network_input(self, observation):
            return {"half": observation["more"][0] / 2, "picture": observation["picture"].float()}

    policy = dz.rl.mlp(Half(), (8,))
    assert policy.body[1].in_features == 17
    dz.train(Half(), policy, dz.PPO(num_envs=4, num_steps=4, num_minibatches=2), 16, **QUIET)
    assert dz.rl.mlp(Half(), (8,), normalise=True).normaliser.mean.shape == (17,)
    with pytest.raises(InputError, match=r"shape=\(3,\), expected \(17,\), all numbers of the tree"):
        dz.rl.ActorCritic(Half(), nn.Identity(), normaliser=dz.rl.Normaliser((3,)))


def test_each_leaf_of_a_tree_is_normalised_by_its_own_statistics():
    policy = dz.rl.conv(Desk(), (4,), 8, normalise=True)
    training = ALGORITHM.init(Desk(), policy, total_steps=ALGORITHM.samples, device="cpu")
    ALGORITHM.update(training)
    given = policy.inputs(training.rollout.fields["observation"].flatten(0, 1))
    shown = policy.normalised(given)
    assert shown["picture"].shape == given["picture"].shape
    for raw, told in zip(tree_leaves(given), tree_leaves(shown), strict=True):
        apart = (raw.double() - raw.double().mean(0)) / (raw.double().var(0, unbiased=False) + 1e-8).sqrt()
        torch.testing.assert_close(told.double(), apart.clamp(-10, 10), rtol=1e-4, atol=1e-4)


def test_off_policy_learners_see_trees():
    class One(Desk):
        action_space = Discrete(3, start=3)

        def action_mask(self, now):
            return None

        def step(self, now, action, rng):
            return now

        def reward(self, before, action, now):
            return (action == 3 + before.digit).to(torch.float32)

    algorithm = dz.rl.DQN(num_envs=4, learning_starts=16, batch_size=16, buffer_size=64)
    for policy in (dz.rl.q_mlp(One(), (8,)), dz.rl.q_conv(One(), (4,), 8, normalise=True)):
        assert dz.train(One(), policy, algorithm, 64, **QUIET)["faulty"][-1] == 0


def test_imitation_takes_trees():
    def teacher(observed, uniform):
        look = observed.observation
        corner = (look["picture"].flatten(1) * torch.arange(16)).sum(1)
        two = torch.stack([(look["more"][0][:, 0] > 1).long(), (corner > 0).long() + (corner > 3)], 1)
        return 2 + look["digit"], {"two": two, "far": 0.5 * look["more"][0]}

    policy = dz.rl.mlp(Desk(), (32,))
    options = {"updates": 15, "num_envs": 16, "learning_rate": 2e-2, "device": "cpu", "progress": False}
    taught = dz.rl.imitate(Desk(), policy, teacher, **options)
    assert taught.loss[-1] < taught.loss[0] - 1
    with pytest.raises(InputError, match="what teacher gave is a Tensor, expected a tuple of 2"):
        dz.rl.imitate(Desk(), policy, lambda observed, uniform: uniform, updates=1, device="cpu", progress=False)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Dict({}), "Dict.*expected spaces by name"),
        (lambda: Dict({3: Discrete(2)}), "the name 3 is int, expected a string"),
        (lambda: Dict({"a": 3}), r"Dict\['a'\] is 3, expected a space"),
        (lambda: Tuple(()), "Tuple.*expected spaces"),
        (lambda: Tuple((Discrete(2), int)), r"Tuple\[1\] is <class 'int'>, expected a space"),
        (lambda: dz.rl.Box([0.0, 2.0], [1.0, 1.0], (2,)), "expected low nowhere above high"),
        (lambda: dz.rl.Box(0, 1, (2,), "float32"), "dtype='float32'"),
    ],
)
def test_spaces_that_are_none_are_told(make, told):
    with pytest.raises(InputError, match=told):
        make()


def test_policies_fit_worlds_of_the_same_leaves():
    other = Dict({**SEES.spaces, "digit": Discrete(4)})
    env = type("Other", (Desk,), {"observation_space": other})()
    with pytest.raises(InputError, match="make one for this environment"):
        dz.rl.evaluate(env, dz.rl.mlp(Desk(), (4,)))
    assert dataclasses.replace(SEES) == SEES
    assert len({SEES, dataclasses.replace(SEES)}) == 1


def test_adapters_give_and_take_trees():
    pytest.importorskip("gymnasium")
    pytest.importorskip("pettingzoo")
    single = dz.rl.to_gymnasium(Desk(), device="cpu")
    look, _ = single.reset(seed=3)
    assert single.observation_space.contains(look)
    single.action_space.seed(0)
    action = single.action_space.sample()
    action[1]["two"][1] = 0 if look["picture"].argmax() else 2  # open
    vector = dz.rl.to_gymnasium(dz.rl.Worlds(Desk(), 2, device="cpu", max_resets=2))
    seen, _ = vector.reset(seed=3)
    assert vector.observation_space.contains(seen)
    assert seen["more"][0][0] == look["more"][0]
    both = (np.repeat(action[0], 2), {name: np.stack([part] * 2) for name, part in action[1].items()})
    assert vector.step(both)[1][0] == pytest.approx(single.step(action)[1])
    world = dz.rl.to_pettingzoo(Desk(), device="cpu")
    looks, _ = world.reset(seed=3)
    assert world.observation_space("agent_0").contains(looks["agent_0"])
    paid = vector.reset(seed=3) and vector.step(both)[1][0]
    assert world.step({"agent_0": action})[1]["agent_0"] == pytest.approx(paid)
    single.reset()
    with pytest.raises(InputError, match=r"step: action has shape \(3,\) at \[1\]\['two'\], expected \(2,\)"):
        single.step((4, {"two": np.zeros(3, int), "far": np.zeros(1)}))
