"""GRPO: groups, rollouts of one life, micro-batches, references, resume, settings."""

import dataclasses

import pytest
import torch

import denizen as dz


class Where(dz.State):
    at: torch.Tensor = dz.real()
    gust: torch.Tensor = dz.real()


class Drift(dz.Env):
    """Walks by the action and a gust of wind; ends beyond 3, always after 12 steps."""

    time_limit = 12
    action_space = dz.rl.Discrete(3)
    observation_space = dz.rl.Box(-torch.inf, torch.inf, (2,))

    def init(self, rng):
        at = rng.uniform("start")[0]
        return Where(at=at, gust=torch.zeros_like(at))

    def step(self, now, action, rng):
        gust = rng.normal("gust")[0]
        return now.replace(at=now.at + action - 1 + 0.5 * gust, gust=gust)

    def observe(self, now):
        return torch.stack([now.at, now.gust])

    def reward(self, before, action, now):
        return now.at - before.at

    def terminated(self, now):
        return now.at.abs() > 3


class Aim(Drift):
    """The same with a number as the action."""

    action_space = dz.rl.Box(-1.0, 1.0, ())

    def step(self, now, action, rng):
        gust = rng.normal("gust")[0]
        return now.replace(at=now.at + action + 0.5 * gust, gust=gust)


class Crowd(dz.Env):
    """Two in one world, each rewarded for its own choice; the second goes out after 3 steps."""

    num_actors = 2
    time_limit = 6
    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(-torch.inf, torch.inf, (1,))

    def init(self, rng):
        start = rng.uniform("start")[0]
        return Where(at=start, gust=torch.zeros_like(start))

    def step(self, now, action, rng):
        return now.replace(gust=now.gust + 1)

    def observe(self, now):
        return torch.stack([now.at, -now.at])[:, None]

    def reward(self, before, action, now):
        return action.float() * torch.tensor([1.0, -1.0])

    def terminated(self, now):
        return now.at > 2

    def acting(self, now):
        return torch.stack([now.at < 2, now.gust < 3])


def small(**changes):
    return dz.GRPO(**{"groups": 3, "group_size": 4, "max_steps": 12, "learning_rate": 1e-2, **changes})


def training(algorithm, *, env=None, seed=0, updates=4, policy=None, **arguments):
    env = env or Drift()
    policy = policy or dz.rl.mlp(env, (16,), shared=True)
    return algorithm.init(env, policy, total_steps=algorithm.samples * updates, seed=seed, device="cpu", **arguments)


def weights(held):
    return torch.cat([p.detach().flatten() for p in held.policy.parameters()])


# --- groups and rollouts ----------------------------------------------------------------------------------------------


def test_replicas_differ_only_from_where_their_actions_differ():
    algorithm = small(groups=4, group_size=6)
    held = training(algorithm)
    starts = []
    for _ in range(2):
        algorithm.update(held)
        seen, action = held.rollout.fields["observation"], held.rollout.fields["action"]
        valid = held.rollout.fields["valid"]
        for group in range(4):
            first = group * 6
            starts.append(float(seen[0, first, 0]))
            for other in range(first + 1, first + 6):
                both = valid[:, first] & valid[:, other]
                assert torch.equal(seen[both][:, first, 1], seen[both][:, other, 1]), "the wind is the group's"
                same = (action[:, first] == action[:, other]).to(torch.int64).cumprod(0)
                until = 1 + int(same.sum())
                assert torch.equal(seen[:until, first], seen[:until, other])
                if until < 12 and bool(both[until]):
                    assert not torch.equal(seen[until, first], seen[until, other])
    assert len(set(starts)) == 8, "every group of every rollout has a start of its own"


def test_replicas_may_share_their_start_alone():
    algorithm = small(shared_stream=False)
    held = training(algorithm)
    algorithm.update(held)
    seen = held.rollout.fields["observation"].unflatten(1, (3, 4))
    assert torch.equal(seen[0], seen[0][:, :1].expand_as(seen[0]))
    assert not torch.equal(seen[1, :, 0, 1], seen[1, :, 1, 1])


def test_a_rollout_is_one_life_masked_from_its_end_on():
    algorithm = small(groups=8)
    held = training(algorithm)
    metrics = algorithm.update(held)
    fields = held.rollout.fields
    length = fields["valid"].sum(0)
    assert torch.equal(fields["valid"], torch.arange(12)[:, None] < length)
    assert int(length.min()) < 12, "some life ended early"
    assert bool((fields["reward"][~fields["valid"]] == 0).all())
    ended = fields["terminated"] | fields["truncated"]
    assert torch.equal(ended.sum(0), torch.ones_like(length))
    assert bool(ended[length - 1, torch.arange(32)].all())
    assert float(metrics["episodes"]) == 32
    assert float(metrics["return_mean"]) == pytest.approx(float(fields["reward"].sum(0).mean()))
    assert float(metrics["length_mean"]) == pytest.approx(float(length.float().mean()))


def test_no_two_seeds_and_no_two_rollouts_are_alike():
    algorithm = small(learning_rate=1e-12)
    held, other = training(algorithm), training(algorithm, seed=1)
    looks = []
    for one in (held, held, other):
        algorithm.update(one)
        looks.append(one.rollout.fields["observation"].clone())
    assert not torch.equal(looks[0], looks[1])
    assert not torch.equal(looks[0], looks[2])
    again = training(algorithm)
    algorithm.update(again)
    assert torch.equal(again.rollout.fields["observation"], looks[0])


def test_actors_of_one_world_are_compared_with_the_same_actor_of_the_replicas():
    algorithm = small(max_steps=6, advantage="outcome", scale="none", update_epochs=1)
    held = training(algorithm, env=Crowd())
    algorithm.update(held)
    fields = held.rollout.fields
    returns = fields["reward"].sum(0).view(3, 4, 2)
    wanted = (returns - returns.mean(1, keepdim=True)).flatten()
    gained = dz.rl.group_advantages(
        held.grouped(fields["reward"]), held.grouped(fields["valid"]), advantage="outcome", scale="none", gamma=1.0
    )
    found = held.ungrouped(gained.advantage)
    torch.testing.assert_close(found[0], wanted)
    assert torch.equal(held.ungrouped(held.grouped(fields["action"])), fields["action"])
    assert fields["valid"].sum(0).view(3, 4, 2)[0, 0].tolist() == [6, 3]


# --- learning from one rollout ----------------------------------------------------------------------------------------


def test_ratios_are_one_before_the_first_step():
    for changes in ({}, {"sequence_ratio": True}, {"precision": "bfloat16"}):
        algorithm = small(update_epochs=1, beta=0.1, **changes)
        metrics = algorithm.update(training(algorithm))
        near = 1e-2 if "precision" in changes else 1e-5
        assert abs(float(metrics["ratio_min"]) - 1) < near
        assert abs(float(metrics["ratio_max"]) - 1) < near
        assert float(metrics["clip_fraction"]) == 0
        assert abs(float(metrics["kl_old"])) < near
        assert abs(float(metrics["kl_reference"])) < near, "the reference is the policy"


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "bnpo"])
def test_micro_batches_change_nothing_but_with_bnpo(loss):
    after = []
    for parts in (1, 4, 5):
        algorithm = small(loss=loss, micro_batches=parts, update_epochs=1, beta=0.1, drop_flat_groups=True)
        held = training(algorithm)
        held.begin()
        held.rollout.collect()
        assert not bool(held.rollout.fields["valid"].all()), "lengths differ"
        algorithm.learn(held)
        after.append(torch.cat([flat.grad for flat in held.optimizer.flat]))
    for other in after[1:]:
        apart = float((other - after[0]).norm() / after[0].norm())
        assert (apart < 1e-6) is (loss != "bnpo")


def test_what_is_stored_after_an_end_changes_nothing():
    def learnt(spoil):
        algorithm = small(beta=0.1)
        held = training(algorithm)
        held.begin()
        held.rollout.collect()
        fields = held.rollout.fields
        unused = ~fields["valid"]
        assert bool(unused.any())
        if spoil:
            fields["observation"][unused], fields["log_prob"][unused] = 1e6, -1e9
            fields["action"][unused], fields["reward"][unused] = 1, 1e9
        algorithm.learn(held)
        return weights(held)

    torch.testing.assert_close(learnt(True), learnt(False), rtol=0, atol=1e-6)


def test_minibatches_take_every_life_once():
    algorithm = small(num_minibatches=2, update_epochs=2)
    held = training(algorithm)
    algorithm.update(held)
    learned = {"used": torch.arange(12).expand(12, 12)}
    for epoch in range(2):
        parts = algorithm._batches(held, learned, epoch)
        lives = torch.cat([part["used"][0] for part in parts])
        assert [torch.bincount(part["used"][0] // 4).tolist() for part in parts] == [[2, 2, 2]] * 2, "of every group"
        assert torch.equal(lives.sort().values, torch.arange(12))
        assert not torch.equal(lives, torch.arange(12))


def test_flat_groups_leave_the_policy_alone():
    class Same(Drift):
        def reward(self, before, action, now):
            return torch.zeros_like(now.at)

    for drop in (False, True):
        algorithm = small(drop_flat_groups=drop, ent_coef=0.0)
        held = training(algorithm, env=Same())
        before = weights(held)
        metrics = algorithm.update(held)
        assert float(metrics["flat_groups"]) == 1
        assert float(metrics["policy_loss"]) == 0
        torch.testing.assert_close(weights(held), before, rtol=0, atol=0)


def test_lives_that_were_cut_off_may_be_left_out():
    algorithm = small(mask_truncated=True, update_epochs=1, ent_coef=0.0, max_steps=2)
    held = training(algorithm)
    before = weights(held)
    metrics = algorithm.update(held)
    assert not bool(held.rollout.fields["terminated"].any())
    assert float(metrics["gradient_norm"]) == 0
    torch.testing.assert_close(weights(held), before, rtol=0, atol=0)


def test_the_reference_is_refreshed_every_so_many_updates():
    algorithm = small(beta=0.1, refresh_reference=2)
    held = training(algorithm)
    assert held.reference is not None

    def reference():
        return torch.cat([p.flatten() for p in held.reference.parameters()])

    first = weights(held)
    algorithm.update(held)
    torch.testing.assert_close(reference(), first, rtol=0, atol=0)
    algorithm.update(held)
    torch.testing.assert_close(reference(), first, rtol=0, atol=0)
    later = weights(held)
    algorithm.update(held)
    torch.testing.assert_close(reference(), later, rtol=0, atol=0)


def test_a_reference_may_be_given_and_pulls():
    env = Drift()
    reference = dz.rl.mlp(env, (16,), shared=True, seed=5)
    with torch.no_grad():
        reference.actor.bias.copy_(torch.tensor([2.0, 0.0, -2.0]))
    apart = []
    for kl in ("k3_iw", "k3", "exact"):
        algorithm = small(beta=5.0, kl=kl, update_epochs=4)
        held = training(algorithm, env=env, reference=reference, updates=30)
        found = [float(algorithm.update(held)["kl_reference"]) for _ in range(30)]
        apart.append((found[0], found[-1]))
    assert all(before > 0.4 and after < 0.1 for before, after in apart)


@pytest.mark.parametrize("changes", [{}, {"memory": 8}, {"env": Aim()}, {"env": Crowd(), "max_steps": 6}])
def test_what_is_rewarded_is_learnt(changes):
    env = changes.get("env", Drift())
    policy = dz.rl.mlp(env, (16,), shared=True, memory_size=changes.get("memory", 0))
    algorithm = small(groups=8, group_size=8, max_steps=changes.get("max_steps", 12), update_epochs=3)
    held = training(algorithm, env=env, policy=policy, updates=25)
    found = [float(algorithm.update(held)["return_mean"]) for _ in range(25)]
    assert found[-1] > found[0] + 0.5


# --- through the loop -------------------------------------------------------------------------------------------------


def test_a_training_goes_on_bit_for_bit(tmp_path):
    algorithm = small(beta=0.1, refresh_reference=2, num_minibatches=2)
    held = training(algorithm)
    for _ in range(2):
        algorithm.update(held)
    saved = {name: tensor.clone() for name, tensor in held.tensors().items()}
    rest = [algorithm.update(held) for _ in range(2)]
    other = training(algorithm, policy=dz.rl.mlp(Drift(), (16,), shared=True, seed=9))
    with torch.no_grad():
        for name, tensor in other.tensors().items():
            tensor.copy_(saved[name])
    for metrics in rest:
        again = algorithm.update(other)
        assert {name: float(value) for name, value in again.items()} == {n: float(v) for n, v in metrics.items()}
    assert torch.equal(weights(held), weights(other))


def test_train_takes_it_with_a_folder_and_resumes(tmp_path):
    algorithm = small(beta=0.1)
    env = Drift()
    whole = dz.train(
        env,
        dz.rl.mlp(env, (8,)),
        algorithm,
        algorithm.samples * 6,
        device="cpu",
        progress=False,
        compile=False,
        folder=tmp_path / "run",
    )
    assert whole.updates == 6
    assert {"return_mean", "kl_reference", "flat_groups", "ratio_max"} <= set(whole.metrics[0])
    again = dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (8,), seed=3), algorithm, progress=False)
    assert again.updates == 6
    for mine, theirs in zip(whole.policy.parameters(), again.policy.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    other = dataclasses.replace(algorithm, beta=0.2)
    with pytest.raises(dz.errors.InputError, match="beta"):
        dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (8,)), other, progress=False)


def test_a_policy_is_evaluated_also_where_lives_have_no_limit():
    class Endless(Drift):
        time_limit = None

    told = dz.rl.evaluate(Endless(), dz.rl.mlp(Endless(), (8,)), num_envs=8)
    assert bool(told.finished.all())
    assert told.steps == 10_000


def test_a_warm_up_leaves_no_trace():
    algorithm = small(beta=0.1, refresh_reference=2, num_minibatches=2, micro_batches=2, drop_flat_groups=True)
    held = training(algorithm)
    before = {name: tensor.clone() for name, tensor in held.tensors().items()}
    dz.rl.Updates(held, compile=False).warm_up()
    for name, tensor in held.tensors().items():
        assert torch.equal(tensor, before[name]), name


def test_faults_of_the_worlds_are_told_also_after_later_rollouts():
    class Broken(Drift):
        def reward(self, before, action, now):
            return torch.where((now.time.step == 2) & (now.gust > 0), torch.nan, now.at)

    algorithm = small()
    held = training(algorithm, env=Broken())
    metrics = [algorithm.update(held) for _ in range(2)][-1]
    assert float(metrics["faulty"]) == 1
    with pytest.raises(dz.errors.ModelError, match="a reward that is not finite"):
        held.check()


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"group_size": 1}, "at least 2"),
        ({"groups": 0}, r"groups=0"),
        ({"kl": "k33"}, r"kl='k33'.*did you mean 'k3'"),
        ({"loss": "grop"}, "did you mean 'grpo'"),
        ({"advantage": "gae"}, "valid: original"),
        ({"clip_coef": 0}, r"clip_coef=0"),
        ({"num_minibatches": 3}, "does not divide"),
        ({"refresh_reference": 3}, "refresh_reference=3, but beta=0"),
        ({"beta": -1}, r"beta=-1"),
        ({"gamma": 1.5}, r"gamma=1\.5"),
        ({"precision": "half"}, r"precision='half'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, told):
    with pytest.raises(dz.errors.InputError, match=told):
        small(**changes)


def test_what_init_is_given_is_looked_at():
    env, algorithm = Drift(), small()
    policy = dz.rl.mlp(env, (8,))
    with pytest.raises(dz.errors.InputError, match="end after 12 steps; give max_steps=12 or fewer"):
        small(max_steps=13).init(env, policy, total_steps=10, device="cpu")
    with pytest.raises(dz.errors.InputError, match=r"expected a dz\.rl\.ActorCritic"):
        algorithm.init(env, torch.nn.Linear(2, 3), total_steps=10, device="cpu")
    with pytest.raises(dz.errors.InputError, match=r"has shape \(4,\), expected \(3, …\)"):
        algorithm.init(env, policy, total_steps=10, device="cpu", params={"wind": [1.0, 2.0, 3.0, 4.0]})
    with pytest.raises(dz.errors.InputError, match="beta is 0"):
        algorithm.init(env, policy, total_steps=10, device="cpu", reference=policy)
    body = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Dropout(0.1))
    with pytest.raises(dz.errors.InputError, match="has dropout"):
        algorithm.init(env, dz.rl.ActorCritic(env, body), total_steps=10, device="cpu")


def test_the_critic_is_left_alone():
    algorithm = small()
    held = training(algorithm, policy=dz.rl.mlp(Drift(), (8,)))
    before = [p.clone() for part in (held.policy.critic_body, held.policy.head) for p in part.parameters()]
    algorithm.update(held)
    after = [p for part in (held.policy.critic_body, held.policy.head) for p in part.parameters()]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_the_original_takes_one_step_of_its_policy_gradient():
    algorithm = dz.GRPO.original(groups=3, group_size=4, max_steps=12)
    held = training(algorithm)
    held.begin()
    held.rollout.collect()
    fields = held.rollout.fields
    gained = dz.rl.group_advantages(
        held.grouped(fields["reward"]), held.grouped(fields["valid"]), advantage="original", scale="none", gamma=0.99
    )
    gain, valid = held.ungrouped(gained.advantage), fields["valid"]
    judged = held.policy(fields["observation"].flatten(0, 1), held.rollout.memory)
    log_prob, entropy = judged.actions.log_prob(fields["action"].flatten()), judged.actions.entropy()
    loss = -(log_prob.view(12, 12) * gain + 0.01 * entropy.view(12, 12))[valid].mean()
    wanted = torch.autograd.grad(loss, list(held.policy.actor.parameters()))
    algorithm.learn(held)
    for parameter, slope in zip(held.policy.actor.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, slope, rtol=1e-4, atol=1e-6)
