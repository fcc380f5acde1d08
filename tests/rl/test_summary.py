"""What a training tells of its worlds: the payload of spec/foraging_ppo.md, section 8, and measures of one's own."""

import pytest
import torch

import denizen as dz
from denizen.errors import ModelError
from denizen.zoo.cartpole import CartPole
from denizen.zoo.foraging import foraging
from trainings import read_metrics

PAYLOAD = {
    "policy_loss",
    "value_loss",
    "entropy",
    "explained_variance",
    *(f"action_{k}" for k in range(8)),
    "episodes",
    "return_sum",
    "return_min",
    "return_max",
    "food",
    "poison",
    "food_ratio",
    "reward_per_consumed",
    "steps_per_second",
    "steps_per_second_of_4",
    "steps_per_second_overall",
    "rollout_seconds",
    "learning_seconds",
    "learning_rate",
    "clip",
    "entropy_coefficient",
    "entropy_floor",
    "best_score",
    "step",
    "steps",
}
TINY = {"height": 16, "width": 16, "food_range": (30, 60), "poison_range": (30, 60), "steps": 6}
ALGORITHMS = [dz.PPO(num_envs=8, num_steps=8), dz.GRPO(groups=2, group_size=4, max_steps=6)]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=["ppo", "grpo"])
def test_the_payload_of_foraging_is_whole_and_that_of_the_rollout(algorithm, tmp_path):
    env, rewards = foraging("proxy_mortal", **TINY), []
    plain = type(algorithm).learn

    class Watched(type(algorithm)):
        def learn(self, training):
            rewards.append(float(training.rollout.fields["reward"].sum()))
            return plain(self, training)

    algorithm = Watched(**vars(algorithm))
    policy = dz.rl.conv(env, channels=(4,), hidden=16, critic_hidden=(8,))
    dz.train(env, policy, algorithm, 4 * algorithm.samples, device="cpu", folder=tmp_path / "run", progress=False)
    rows = read_metrics(tmp_path / "run")
    own = {"value_loss", "explained_variance", "clip", "entropy_floor"}  # GRPO has no critic
    missing = PAYLOAD - rows[0].keys() - (own if isinstance(algorithm, dz.GRPO) else set())
    assert not missing
    assert sum(row["food"] + row["poison"] for row in rows) > 20
    for row, reward in zip(rows, rewards[-len(rows) :], strict=True):
        eaten = row["food"] + row["poison"]
        assert row["food_ratio"] == pytest.approx(row["food"] / eaten)
        assert row["reward_per_consumed"] == pytest.approx(reward / eaten, rel=1e-5)
        assert row["return_sum"] == pytest.approx(row["return_mean"] * row["episodes"], nan_ok=True)
        if isinstance(algorithm, dz.PPO):
            assert row["reward_mean"] == pytest.approx(reward / algorithm.samples, rel=1e-5)


def test_nothing_eaten_is_no_ratio():
    sums = dict.fromkeys(("food", "poison", "reward", "steps"), torch.zeros(()))
    assert all(value.isnan() for value in foraging().measures(sums).values())


@pytest.mark.parametrize("name", ["entropy", "episodes", "steps", "seconds"])
def test_a_measure_with_the_name_of_a_metric_is_refused(name):
    class Clash(CartPole):
        def measures(self, sums):
            return {name: sums["reward"]}

    env = Clash()
    with pytest.raises(ModelError, match=f"Clash has a series or measure '{name}'"):
        dz.train(env, dz.rl.mlp(env, (4,)), dz.PPO(num_envs=4, num_steps=8), 32, device="cpu", progress=False)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=["ppo", "grpo"])
def test_phases_take_what_lies_between_their_ends(algorithm, monkeypatch):
    clock = iter(range(0, 10**12, 10**9))  # a second at each look
    env = CartPole()
    training = algorithm.init(env, dz.rl.mlp(env, (4,)), total_steps=64, device="cpu")
    plain, collect = training.rollout.collect, []
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(clock))
    monkeypatch.setattr(training.rollout, "collect", lambda *given: (plain(*given), collect.append(next(clock))))
    for _ in range(2):
        algorithm.update(training)
        assert {name: value.item() for name, value in training.phases.metrics().items()} == {
            "rollout_seconds": 2.0,
            "learning_seconds": 1.0,
        }
    assert len(collect) == 2


@pytest.mark.cuda
def test_a_captured_graph_tells_its_phases():
    env = CartPole()
    algorithm = dz.PPO(num_envs=64, num_steps=16)
    trained = dz.train(env, dz.rl.mlp(env), algorithm, 50 * algorithm.samples, device="cuda", progress=False)
    assert trained.path == "captured"
    told = sum(trained["rollout_seconds"]) + sum(trained["learning_seconds"])
    assert told < 1.02 * trained.seconds
    assert min(trained["rollout_seconds"]) > 0
    assert min(trained["learning_seconds"]) > 0
