"""Roles: a policy for each kind of actors of a world, learnt in the same worlds by one update."""

import dataclasses

import pytest
import torch

import denizen as dz


class Crowd(dz.State):
    at: torch.Tensor = dz.real("agents")
    out: torch.Tensor = dz.mask("agents")


class Walkers(dz.Env):
    """Three walk on a line; those beyond 1 are out, and nobody goes on to the left of -0.5."""

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
        return now.replace(at=moved, out=torch.maximum(now.out, (moved > 1).to(torch.int8)))

    def observe(self, now):
        return torch.stack([now.at, torch.full_like(now.at, 3.0)], 1)

    def reward(self, before, action, now):
        return torch.where(before.out == 1, 0.0, now.at)

    def terminated(self, now):
        return now.out.all()

    def acting(self, now):
        return now.out == 0

    def action_mask(self, now):
        return torch.stack([now.at > -0.5, torch.ones_like(now.at, dtype=torch.bool)], 1)


ALIKE = (Walkers.observation_space, Walkers.action_space)


class Teams(Walkers):
    """The same three, the first of them in a role of its own where there are two."""

    names: tuple[str, ...] = ("one", "rest")

    num_actors = None
    action_space, observation_space = dz.Env.action_space, dz.Env.observation_space

    @property
    def roles(self):
        counts = (3,) if len(self.names) == 1 else (1, 2)
        return {name: dz.rl.Role(count, *ALIKE) for name, count in zip(self.names, counts, strict=True)}

    def _split(self, rows):
        parts = (rows,) if len(self.names) == 1 else (rows[:1], rows[1:])
        return dict(zip(self.names, parts, strict=True))

    def step(self, now, action, rng):
        return super().step(now, torch.cat(list(action.values())), rng)

    def observe(self, now):
        return self._split(super().observe(now))

    def reward(self, before, action, now):
        return self._split(super().reward(before, action, now))

    def acting(self, now):
        return self._split(super().acting(now))

    def action_mask(self, now):
        return self._split(super().action_mask(now))


class Seeing(Walkers):
    """Networks see places in halves, and critics all places and the clock beside what an actor sees."""

    def network_input(self, observation):
        return observation / 2

    def privileged(self, now):
        everyone = torch.cat([now.at, now.time.step[None].to(torch.float32)])
        return everyone.expand(3, -1) + now.at[:, None]

    def privileged_input(self, observation, privileged):
        return torch.cat([observation.square(), privileged], 1)


class SeeingTeams(Teams, Seeing):
    """Likewise by role."""

    def privileged(self, now):
        return self._split(Seeing.privileged(self, now))

    def network_input(self, observation):
        return {name: Seeing.network_input(self, seen) for name, seen in observation.items()}

    def privileged_input(self, observation, privileged):
        return {name: Seeing.privileged_input(self, observation[name], extra) for name, extra in privileged.items()}


class OneSees(Teams):
    """Networks of the first role see sizes too, and its critic where the others are."""

    def privileged(self, now):
        return {"one": now.at[None, 1:]}

    def network_input(self, observation):
        return {name: torch.cat([seen, seen.abs()], 1) for name, seen in observation.items() if name == "one"}


SHORT = dz.PPO(num_envs=6, num_steps=10, num_minibatches=2, update_epochs=2)


def policies(env, seed=0, **options):
    return {role: dz.rl.mlp(env.role(role), (8,), seed=seed + k, **options) for k, role in enumerate(env.roles)}


def trained(env, policy, algorithm=SHORT, updates=3):
    held = algorithm.init(env, policy, total_steps=600, device="cpu")
    return held, [algorithm.update(held) for _ in range(updates)][-1]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    ("alone", "teams", "names", "memory"),
    [
        (Walkers(), Teams, ("all",), 0),
        (Walkers(), Teams, ("one", "rest"), 4),
        (Seeing(), SeeingTeams, ("one", "rest"), 0),
    ],
)
def test_one_policy_for_all_roles_learns_the_bits_of_a_world_without_roles(alone, teams, names, memory):
    plain, told = trained(alone, dz.rl.mlp(alone, (8,), memory_size=memory, normalise=teams is SeeingTeams))
    env = teams(names=names)
    shared = dz.rl.mlp(env.role(*names), (8,), memory_size=memory, normalise=teams is SeeingTeams)
    held, mine = trained(env, dict.fromkeys(names, shared))
    assert same(plain.policy, shared)
    party = "+".join(names)
    for name in ("policy_loss", "value_loss", "return_mean", "explained_variance", "action_0", "length_mean"):
        assert torch.equal(told[name], mine[f"{party}/{name}"]), name
    for name in ("episodes", "return_sum", "return_mean", "reward_mean", "waited", "faulty"):
        assert torch.equal(told[name], mine[name]), name
    assert 0 < held.learners[party].rollout.fields["valid"].float().mean() < 1
    assert held.learners[party].rollout.fields["action_mask"].float().mean() < 1

    lives = dz.rl.evaluate(env, held.policy, num_envs=5)
    lone = dz.rl.evaluate(alone, plain.policy, num_envs=5)
    mine = torch.cat([one.returns.view(5, -1) for one in lives.values()], 1)
    assert torch.equal(lone.returns, mine.flatten())
    assert (shared.privileged_normaliser is not None) == (teams is SeeingTeams)


def test_a_role_may_see_what_others_do_not():
    env = OneSees()
    made = policies(env, shared=False)
    wide = lambda body: next(layer.in_features for layer in body if isinstance(layer, torch.nn.Linear))
    assert [wide(made[name].body) for name in ("one", "rest")] == [4, 2]
    assert [made[name].head.linear.in_features for name in ("one", "rest")] == [8 + 2, 8]
    held, _ = trained(env, made)
    fields = [held.learners[name].rollout.fields for name in ("one", "rest")]
    assert fields[0]["privileged"].shape == (10, 6, 2)
    assert "privileged" not in fields[1]


def test_each_role_learns_from_its_own_rows_alone():
    env = Teams()
    first, second = policies(env), policies(env)
    second["rest"] = dz.rl.mlp(env.role("rest"), (5,), seed=9)
    trained(env, first)
    trained(env, second)
    assert same(first["one"], second["one"])  # walkers neither see nor push one another
    fresh = policies(env)
    assert not same(first["one"], fresh["one"])
    assert not same(first["rest"], fresh["rest"])


def test_frozen_policies_act_and_stay_as_they_are():
    env = Teams()
    mixed, fresh = policies(env), policies(env)
    mixed["rest"].requires_grad_(False)
    held, told = trained(env, mixed)
    assert same(mixed["rest"], fresh["rest"])
    assert not same(mixed["one"], fresh["one"])
    assert list(held.learners) == ["one"]
    assert "rest/return_mean" in told
    assert "rest/policy_loss" not in told


def test_frozen_policies_act_as_in_an_evaluation():
    env = Teams()
    mixed = policies(env)
    body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout())
    mixed["rest"] = dz.rl.ActorCritic(env.role("rest"), body.eval()).train().requires_grad_(False)
    fresh = {name: tensor.clone() for name, tensor in mixed["rest"].state_dict().items()}
    before = torch.get_rng_state()
    trained(env, mixed)
    assert all(torch.equal(tensor, fresh[name]) for name, tensor in mixed["rest"].state_dict().items())
    assert torch.equal(torch.get_rng_state(), before)


class Did2(dz.State):
    pair: torch.Tensor = dz.real("two")


class Pushers(dz.Env):
    """Two push within bounds of their own, and are paid as far as they did."""

    time_limit = 3

    @property
    def roles(self):
        return {
            name: dz.rl.Role(1, dz.rl.Box(-9, 9, (2,)), dz.rl.Box(-far, far, (1,)))
            for name, far in (("near", 0.1), ("far", 0.3))
        }

    def init(self, rng):
        return Did2(pair=0 * rng.on("two", 2).uniform("at"))

    def step(self, now, action, rng):
        return now.replace(pair=torch.cat([action["near"][0], action["far"][0]]))

    def observe(self, now):
        return {"near": now.pair[None], "far": now.pair[None]}

    def reward(self, before, action, now):
        return {"near": now.pair[:1].abs(), "far": now.pair[1:].abs()}

    def terminated(self, now):
        return (now.pair > 9).any()


@pytest.mark.parametrize("first", ["near", "far"])
def test_one_policy_for_roles_of_other_bounds_pushes_each_as_far_as_it_may(first):
    env = Pushers()
    shared = dz.rl.mlp(env.role(first), (8,))
    algorithm = dz.PPO(num_envs=8, num_steps=6, num_minibatches=1, update_epochs=1)
    held, _ = trained(env, dict.fromkeys(("near", "far"), shared), algorithm, updates=1)
    held.check()
    paid = held.learners["near+far"].rollout.fields["reward"].view(6, 8, 2).amax((0, 1))
    assert torch.equal(paid, torch.tensor([0.1, 0.3]))
    lives = dz.rl.evaluate(env, held.policy, num_envs=16)
    assert float(lives["near"].returns.max()) == pytest.approx(0.3)
    assert float(lives["far"].returns.max()) > 0.31


def test_roles_draw_by_numbers_of_their_own():
    held, _ = trained(Teams(), policies(Teams()), updates=1)
    keys = torch.cat([rollout._draws.keys for rollout in held._rollouts.values()])
    assert len(keys.unique(dim=0)) == len(keys) == 18


class Stopped(Exception):
    pass


def test_a_run_is_kept_and_goes_on_bit_for_bit(tmp_path):
    env, options = Teams(), {"device": "cpu", "progress": False, "compile": False, "save_every": 0}
    algorithm = dataclasses.replace(SHORT, normalise_rewards=True)
    checked = {"validate_every": 2, "validation": {"num_envs": 4}}

    def made():
        return policies(env, normalise=True)

    def stop(folder, updates):
        if updates == 2:
            raise Stopped

    whole = dz.train(env, made(), algorithm, 240, folder=tmp_path / "whole", **checked, **options)
    with pytest.raises(Stopped):
        dz.train(env, made(), algorithm, 240, folder=tmp_path / "cut", on_save=stop, **checked, **options)
    rest = dz.rl.resume(tmp_path / "cut", env, made(), algorithm, progress=False)
    assert same(whole.policy, rest.policy)
    rows = dz.rl.read_metrics(tmp_path / "cut")
    assert [row["one/return_mean"] for row in rows] == whole["one/return_mean"]
    assert rows[-1]["rest/validation_return"] == pytest.approx(whole.evaluations[-1][1]["rest"].mean)
    assert whole.policy["one"].env.num_actors == 1
    assert all(torch.equal(whole.best_weights[n], w) for n, w in whole.policy.state_dict().items())
    one, frozen, clipped, other = made()["one"], made(), made(), made()
    frozen["rest"].requires_grad_(False)
    clipped["one"].normaliser.clip = 1.0
    other["one"] = dz.rl.mlp(env.role("one"), (8,), normalise=True, activation=torch.nn.ReLU)
    for given, differs in (
        ({**made(), "one": dz.rl.mlp(env.role("one"), (9,))}, "policy differs"),
        ({"one": one, "rest": one}, "network differs.*rest"),
        (frozen, "network differs.*rest.*None then, frozen now"),
        (clipped, "network differs.*clip=10.0.* then, .*clip=1.0.* now"),
        (other, "network differs.*Tanh then, ReLU now"),
    ):
        with pytest.raises(dz.errors.InputError, match=differs):
            dz.rl.resume(tmp_path / "whole", env, given, algorithm)


class Mixed(dz.Env):
    """Roles whose looks and actions are of every kind of space; the state is what was done last."""

    time_limit = 3
    roles = {
        "trees": dz.rl.Role(
            2,
            dz.rl.Dict({"a": dz.rl.MultiDiscrete((3, 2)), "b": dz.rl.Box(-9, 9, (2,))}),
            dz.rl.Dict({"go": dz.rl.MultiDiscrete((3, 2)), "push": dz.rl.Box(-1, 1, (2,))}),
        ),
        "bits": dz.rl.Role(3, dz.rl.MultiBinary(2), dz.rl.MultiBinary(2)),
    }

    def init(self, rng):
        zero = rng.uniform("at") * 0
        return Did(go=zero[:4].reshape(2, 2), push=zero[:4].reshape(2, 2), bits=zero.new_zeros(3, 2))

    def step(self, now, action, rng):
        assert action["trees"]["go"].shape == (2, 2)
        assert action["bits"].shape == (3, 2)
        return now.replace(go=action["trees"]["go"], push=action["trees"]["push"], bits=action["bits"])

    def observe(self, now):
        return {"trees": {"a": now.go, "b": now.push}, "bits": now.bits}

    def reward(self, before, action, now):
        return {"trees": now.go.sum(1).float(), "bits": now.bits.sum(1).float()}

    def terminated(self, now):
        return (now.bits.sum() > 99).any()


class Did(dz.State):
    go: torch.Tensor = dz.real("pair", "two")
    push: torch.Tensor = dz.real("pair", "two")
    bits: torch.Tensor = dz.real("triple", "two")


def test_spaces_of_every_kind():
    env = Mixed()
    held, _ = trained(env, policies(env), updates=1)
    for name, count in (("trees", 2), ("bits", 3)):
        fields, party = held.learners[name].rollout.fields, env.role(name)
        assert fields["observation"].shape[:2] == (10, 6 * count)
        seen = dz.rl.mlp(party, (4,)).looked(fields["observation"])
        assert (fields["reward"].float() >= 0).all()
        # What is seen is what was done a step before, but at the beginning of a life.
        if name == "bits":
            after = torch.where(fields["first"][1:, :, None], 0, fields["action"][:-1])
            assert torch.equal(seen[1:].long(), after.long())
            assert torch.equal(fields["reward"], fields["action"].sum(-1).float())


def test_pettingzoo_has_agents_by_role():
    pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test

    world = dz.rl.to_pettingzoo(Mixed(), device="cpu")
    assert world.possible_agents == ["trees_0", "trees_1", "bits_0", "bits_1", "bits_2"]
    world.reset(seed=1)
    done = {name: world.action_space(name).sample() for name in world.agents}
    looks, paid, *_ = world.step(done)
    for name in ("bits_0", "bits_1", "bits_2"):
        assert (looks[name] == done[name]).all()
        assert paid[name] == done[name].sum()
    for name in ("trees_0", "trees_1"):
        assert (looks[name]["a"] == done[name]["go"]).all()
    masked = dz.rl.to_pettingzoo(Teams(), device="cpu")
    _, infos = masked.reset(seed=1)
    assert infos["rest_1"]["action_mask"].tolist() == [1, 1]
    parallel_api_test(masked, 30)


def no_roles(**changes):
    return type("Odd", (Teams,), changes)()


REFUSED = [
    (lambda env: SHORT.init(env, dz.rl.mlp(Walkers(), (8,)), total_steps=60), r"has roles; give a policy for each"),
    (lambda env: SHORT.init(env, {"one": policies(env)["one"]}, total_steps=60), r"policy lacks the role 'rest'"),
    (lambda env: SHORT.init(env, {**policies(env), "cat": 1}, total_steps=60), r"policy has 'cat', and Teams has no"),
    (lambda env: SHORT.init(env, {**policies(env), "one": 3}, total_steps=60), r"policy\['one'\]: policy is int"),
    (
        lambda env: SHORT.init(env, {**policies(env), "rest": policies(Mixed())["bits"]}, total_steps=60),
        r"policy\['rest'\]: policy was made for Mixed\.role\('bits'\) with .*, and Teams\.role\('rest'\) has",
    ),
    (lambda env: SHORT.init(Walkers(), policies(env), total_steps=60), r"policy is a dict, and Walkers has no roles"),
    (
        lambda env: dz.rl.evaluate(Walkers(), dz.rl.Policies(policies(env))),
        r"evaluate: policy is Policies, and Walkers has no roles; give one policy",
    ),
    (lambda env: dz.rl.Policies([1]), r"Policies: given is list, expected a policy for each role"),
    (lambda env: dz.rl.Policies({"one": 1}), r"Policies: given\['one'\] is int, expected a policy"),
    (lambda env: dz.rl.mlp(env), r"policy: Teams has the roles one, rest"),
    (lambda env: dz.rl.FrameStack(env, 2), r"FrameStack: Teams has the roles"),
    (lambda env: dz.rl.to_gymnasium(env), r"Teams has 3 actors"),
    (lambda env: dz.GRPO().init(env, policies(env), total_steps=60), r"GRPO.init: Teams has the roles"),
    (lambda env: dz.rl.SAC().init(env, policies(env), total_steps=60), r"SAC.*: Teams has the roles"),
    (lambda env: dz.rl.evaluate(env, policies(env)["one"]), r"evaluate: policy is ActorCritic, and Teams has roles"),
    (lambda env: dz.rl.soft_mlp(env.role("one", "rest")), r"soft_mlp: Teams\.role\('one', 'rest'\) has action_space"),
    (lambda env: env.role("two"), r"has no role 'two'"),
    (lambda env: Walkers().role("one"), r"has no role 'one'; it has none"),
    (lambda env: env.role("one", "rest", "one"), r"role: 'one' is named twice"),
    (lambda env: Mixed().role("trees", "bits"), r"'bits' has observation_space MultiBinary.*make one for each"),
    (lambda env: dz.rl.Worlds(env.role("one"), 2).reset(), r"is for making a policy"),
    (lambda env: dz.rl.Role(0, *ALIKE), r"Role: count=0"),
    (lambda env: dz.rl.Role(1, ALIKE[0], dz.rl.Discrete(3, start=1)), r"numbered from 0"),
    (lambda env: dz.rl.Role(1, 3, ALIKE[1]), r"observation_space is 3, expected a space"),
    (lambda env: dz.rl.Worlds(no_roles(roles={}), 2), r"expected a dz.rl.Role by name"),
    (lambda env: dz.rl.Worlds(no_roles(roles={"a b": dz.rl.Role(3, *ALIKE)}), 2), r"the name 'a b'"),
    (lambda env: dz.rl.Worlds(no_roles(num_actors=3), 2), r"has roles and num_actors"),
    (lambda env: dz.rl.Worlds(no_roles(action_space=ALIKE[1]), 2), r"has roles and action_space"),
    (lambda env: dz.rl.Worlds(no_roles(observe=lambda self, now: 0), 2).reset(), r"observe gave int; expected a dict"),
    (
        lambda env: dz.rl.Worlds(no_roles(observe=lambda self, now: {"one": 0, "rest": 0}), 2).reset(),
        r"observe of 'one' gave int 0; expected a tensor of shape \(1, 2\)",
    ),
    (
        lambda env: dz.rl.Worlds(no_roles(acting=lambda self, now: {"two": now.out}), 2).reset(),
        r"acting gave a dict with 'two'; expected a dict with 'one', 'rest'",
    ),
    (
        lambda env: dz.rl.mlp(OneSees().role("one", "rest")),
        r"OneSees.privileged gave 'one' \(2,\), 'rest' nothing, and one policy plays these roles; give alike",
    ),
    (
        lambda env: dz.rl.Worlds(no_roles(privileged=lambda self, now: {"rest": now.at}), 2).reset(),
        r"Odd.privileged of 'rest' gave .*\(3,\).*; expected a tensor of shape \(2, k\)",
    ),
    (
        lambda env: dz.rl.mlp(no_roles(network_input=lambda self, seen: {"rest": seen["rest"]}).role("one")),
        r"network_input looked for 'rest' where 'one' is asked for; it gets one role at a time",
    ),
    (
        lambda env: dz.rl.mlp(no_roles(network_input=lambda self, seen: 3).role("one")),
        r"Odd.network_input gave int, expected a dict by role",
    ),
    (
        lambda env: dz.train(env, policies(env), SHORT, 60, patience=dz.rl.Patience(), device="cpu"),
        r"patience=.*no score ranks",
    ),
]


@pytest.mark.parametrize(("call", "told"), REFUSED)
def test_what_does_not_fit_is_told_at_the_door(call, told):
    with pytest.raises(dz.errors.DenizenError, match=told):
        call(Teams())


def test_weights_in_common_are_told():
    env = Teams()
    made = policies(env)
    made["rest"].body = made["one"].body
    with pytest.raises(dz.errors.InputError, match="policies of one and rest share weights"):
        SHORT.init(env, made, total_steps=60)
    alike = policies(env, normalise=True)
    alike["rest"].requires_grad_(False).normaliser = alike["one"].normaliser
    with pytest.raises(dz.errors.InputError, match="share weights or a normaliser"):
        SHORT.init(env, alike, total_steps=60)
    for policy in made.values():
        policy.requires_grad_(False)
    made["rest"].body = dz.rl.mlp(env.role("rest"), (8,)).body.requires_grad_(False)
    with pytest.raises(dz.errors.InputError, match="all policies are frozen"):
        SHORT.init(env, made, total_steps=60)


def one_frozen(env):
    """One policy that learns and one that does not."""
    made = policies(env)
    made["rest"].requires_grad_(False)
    return made


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("env", "made"),
    [
        (Teams(), policies),
        (Teams(), lambda env: policies(env, memory_size=4)),
        (Teams(), one_frozen),
        (SeeingTeams(), lambda env: policies(env, shared=False, normalise=True)),
    ],
    ids=["plain", "memory", "frozen", "privileged"],
)
def test_captured_on_cuda_learns_what_eager_does(env, made):
    results = [
        dz.train(env, made(env), SHORT, 600, device="cuda", progress=False, compile=compile)
        for compile in (False, True)
    ]
    assert results[1].path == "captured"
    for one, other in zip(*(result.policy.state_dict().values() for result in results), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
