"""Environments around an environment: frames are stacked, actions repeated, and nothing else changes."""

import pytest
import torch

import denizen as dz
from denizen.rl import ActionRepeat, FrameStack, play
from denizen.zoo.cartpole import CartPole
from denizen.zoo.kuhn import Kuhn
from denizen.zoo.pendulum import Pendulum


class Steps(dz.State):
    at: torch.Tensor = dz.count()
    drawn: torch.Tensor = dz.real()


class Counter(dz.Env):
    """Adds up actions; its clock is seen, lives end at 10 and are cut off after 7 steps."""

    pace: torch.Tensor = dz.param(1.0, low=0.0)
    time_limit = 7
    action_space = dz.rl.Discrete(4)
    observation_space = dz.rl.Box(0, 255, (2,), torch.uint8)

    def init(self, rng):
        return Steps(at=torch.zeros((), dtype=torch.int32, device=self.pace.device), drawn=self.pace)

    def step(self, now, action, rng):
        return Steps(at=now.at + action, drawn=rng.on("world", 1).uniform("what", 0, 1)[0])

    def observe(self, now):
        return torch.stack([now.at, now.time.step]).to(torch.uint8)

    def reward(self, before, action, now):
        return self.pace * (action + 1.0)

    def terminated(self, now):
        return now.at >= 10

    def action_mask(self, now):
        return torch.arange(4, device=now.at.device) != now.time.step % 4

    @dz.series
    def gained(self, before, now):
        return now.at - before.at

    def measures(self, sums):
        return {"gain_per_step": sums["gained"] / sums["steps"]}


def played(env, actions, count=1):
    """Observations and steps of worlds under actions `[steps]`."""
    worlds = dz.rl.Worlds(env, count, device="cpu")
    looks, steps = [worlds.reset().observation], []
    for action in actions:
        steps.append(worlds.step(torch.full((count,), action)))
        looks.append(steps[-1].observed.observation)
    worlds.check()
    return torch.stack(looks)[:, 0], steps


def test_frames_are_the_last_looks_and_the_first_stands_in_for_those_before():
    plain, steps = played(Counter(), [1, 2, 0, 3, 1, 3, 2, 2])
    stacked, same = played(FrameStack(Counter(), 3), [1, 2, 0, 3, 1, 3, 2, 2])
    assert stacked.dtype == torch.uint8
    assert stacked.shape == (9, 3, 2)
    begin = 0
    for t, frames in enumerate(stacked):
        if t and (steps[t - 1].ended.item()):
            begin = t
        wanted = [plain[max(k, begin)] for k in (t - 2, t - 1, t)]
        assert torch.equal(frames, torch.stack(wanted)), t
    for one, other in zip(steps, same, strict=True):
        for name in ("reward", "terminated", "truncated", "valid"):
            assert torch.equal(getattr(one, name), getattr(other, name))
        assert torch.equal(one.flows["gained"], other.flows["gained"])
        assert torch.equal(one.observed.action_mask, other.observed.action_mask)
    ended = next(t for t, step in enumerate(steps) if step.ended.item())
    assert torch.equal(same[ended].final.observation[0, -1], steps[ended].final.observation[0])


def test_a_row_ends_where_a_life_ends_or_is_cut_off_in_its_midst():
    env = ActionRepeat(Counter(), 3)
    assert env.time_limit == 3
    looks, steps = played(env, [0, 0, 0])  # after 7 steps, of which the last row has one
    assert looks[:, 1].tolist() == [0, 3, 6, 0]
    assert [step.truncated.item() for step in steps] == [False, False, True]
    assert not any(step.terminated.item() for step in steps)
    assert [step.reward.item() for step in steps] == [3, 3, 1]
    assert steps[-1].final.observation[0].tolist() == [0, 7]

    looks, steps = played(env, [3, 3, 3])  # 10 is reached by the fourth step
    assert [step.terminated.item() for step in steps] == [False, True, False]
    assert [step.truncated.item() for step in steps] == [False, False, False]
    assert [step.reward.item() for step in steps] == [12, 4, 12]
    assert [step.flows["gained"].item() for step in steps] == [9, 3, 9]
    assert steps[1].final.observation[0].tolist() == [12, 4]
    assert steps[0].observed.action_mask[0].tolist() == [True, True, True, False]


class Parts(Counter):
    """As it is, told and steered in parts, with planes and a number of which the critic alone sees the newest."""

    action_space = dz.rl.Tuple((dz.rl.Discrete(4), dz.rl.Dict({"far": dz.rl.Box(-1, 1, (2,))})))
    observation_space = dz.rl.Dict(
        {
            "plane": dz.rl.Box(0, 9, (2, 3, 3), torch.uint8),
            "digit": dz.rl.Discrete(8),
            "more": dz.rl.Tuple((dz.rl.MultiDiscrete((4, 8)), dz.rl.MultiBinary(3), dz.rl.Box(0, 99, ()))),
        }
    )
    action_mask = dz.Env.action_mask

    def step(self, now, action, rng):
        return super().step(now, action[0], rng)

    def observe(self, now):
        step = now.time.step
        bits = torch.arange(3) < now.at
        return {
            "more": (torch.stack([now.at % 4, step]), bits, now.at.to(torch.float32)),
            "plane": torch.ones(2, 3, 3, dtype=torch.uint8) * step,
            "digit": step,
        }

    def reward(self, before, action, now):
        return super().reward(before, action[0], now) + action[1]["far"].sum()

    def privileged_input(self, observation, privileged):
        return observation["more"][2][:, None].to(torch.float32)


def test_parts_of_what_is_seen_are_stacked_each_by_itself():
    env = FrameStack(ActionRepeat(Parts(), 2), 3)
    sees = env.observation_space
    assert sees["plane"].shape == (3, 2, 3, 3)
    assert sees["digit"] == dz.rl.MultiDiscrete((8, 8, 8))
    assert sees["more"] == dz.rl.Tuple((dz.rl.MultiDiscrete((4, 8) * 3), dz.rl.MultiBinary(9), dz.rl.Box(0, 99, (3,))))
    worlds = dz.rl.Worlds(env, 2, device="cpu")
    worlds.reset()
    far = torch.tensor([[0.25, 0.5], [0.0, 0.0]])
    steps = [worlds.step((torch.tensor([1, 0]), {"far": far})) for _ in range(3)]
    worlds.check()
    assert [step.reward.tolist() for step in steps] == [[5.5, 2.0]] * 3
    seen = steps[-1].observed.observation
    assert seen["digit"].tolist() == [[2, 4, 6]] * 2
    assert seen["plane"][:, :, 0, 0, 0].tolist() == [[2, 4, 6]] * 2
    assert seen["more"][0].tolist() == [[2, 2, 0, 4, 2, 6], [0, 2, 0, 4, 0, 6]]
    assert seen["more"][1].tolist() == [[1, 1, 0, 1, 1, 1, 1, 1, 1], [0] * 9]
    assert seen["more"][2].tolist() == [[2, 4, 6], [0, 0, 0]]
    inputs = env.network_input(seen)
    assert inputs["plane"].shape == (2, 6, 3, 3)
    assert inputs["plane"][0, :, 0, 0].tolist() == [2, 2, 4, 4, 6, 6]
    assert inputs["digit"].shape == (2, 3 * 8)
    assert inputs["digit"].nonzero()[:, 1].tolist() == [2, 8 + 4, 16 + 6] * 2
    assert inputs["more"][2].tolist() == [[2, 4, 6], [0, 0, 0]]
    assert env.privileged_input(seen, None).tolist() == [[6], [0]]
    last = worlds.step((torch.tensor([0, 0]), {"far": far}))  # of the seventh step alone
    assert last.reward.tolist() == [1.75, 1.0]
    assert last.truncated.all()
    assert last.final.observation["digit"].tolist() == [[4, 6, 7]] * 2
    assert last.observed.observation["digit"].tolist() == [[0, 0, 0]] * 2


def test_stacked_parts_are_learnt_and_resumed(tmp_path):
    env = FrameStack(Parts(), 2)
    ppo = dz.PPO(num_envs=4, num_steps=8, num_minibatches=2, update_epochs=1, learning_rate=1e-3)
    options = {"device": "cpu", "progress": False, "compile": False}
    make = lambda: dz.rl.mlp(env, (8,), normalise=True)
    whole = dz.train(env, make(), ppo, 64, **options)
    dz.train(env, make(), ppo, 32, folder=tmp_path / "run", **options)
    resumed = dz.rl.resume(tmp_path / "run", env, make(), ppo, steps=32, progress=False)
    weights = [result.policy.state_dict() for result in (whole, resumed)]
    assert all(torch.equal(weights[1][name], one) for name, one in weights[0].items())
    other = FrameStack(Parts(), 3)
    with pytest.raises(dz.errors.InputError, match=r"the env differs .*frames"):
        dz.rl.resume(tmp_path / "run", other, dz.rl.mlp(other, (8,), normalise=True), ppo, progress=False)


@pytest.mark.parametrize("around", [ActionRepeat, FrameStack])
@pytest.mark.parametrize("env", [Counter(), CartPole()], ids=lambda env: type(env).__name__)
def test_once_is_as_without(around, env):
    actions = [1, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1] * 4
    looks, steps = played(env, actions, 3)
    same, others = played(around(env, 1), actions, 3)
    assert torch.equal(same.reshape(looks.shape), looks)
    for one, other in zip(steps, others, strict=True):
        for name in ("reward", "terminated", "truncated", "valid"):
            assert torch.equal(getattr(one, name), getattr(other, name))


def test_each_step_of_a_row_draws_anew():
    worlds = dz.rl.Worlds(ActionRepeat(Counter(), 2), 2, device="cpu")
    plain = dz.rl.Worlds(Counter(), 2, device="cpu")
    worlds.reset()
    plain.reset()
    worlds.step(torch.zeros(2, dtype=torch.int64))
    plain.step(torch.zeros(2, dtype=torch.int64))
    drawn = [w.state().drawn for w in (worlds, plain)]
    assert not bool((drawn[0] == drawn[1]).any())
    assert drawn[0][0] != drawn[0][1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "env", [FrameStack(Pendulum(), 2), FrameStack(ActionRepeat(Counter(), 2), 3), FrameStack(Parts(), 2)], ids=str
)
def test_environments_around_others_keep_the_rules(env):
    assert not dz.check(env).findings


def test_both_are_evaluated_and_shown():
    env = FrameStack(ActionRepeat(CartPole(), 2), 3)
    policy = dz.rl.mlp(env, (8,))
    assert dz.rl.evaluate(env, policy, num_envs=4).finished.all()
    assert len(list(play(env, policy, 2))) == 3


def differences(folder, one, other):
    """What a training in one environment says when it is to go on in another one, in parts."""
    ppo = dz.PPO(num_envs=2, num_steps=2, num_minibatches=1, update_epochs=1)
    dz.train(one, dz.rl.mlp(one, (4,)), ppo, 4, folder=folder, device="cpu", progress=False)
    try:
        dz.rl.resume(folder, other, dz.rl.mlp(other, (4,)), ppo, progress=False)
    except dz.errors.InputError as error:
        return str(error).removeprefix(f"resume: the env differs from that of the training in {folder}; ").split("; ")
    return []


def test_what_is_inside_counts_for_a_folder(tmp_path):
    one, same, other = (FrameStack(ActionRepeat(CartPole(), n), 3) for n in (2, 2, 3))
    assert not differences(tmp_path / "a", one, same)
    assert "times=2" in differences(tmp_path / "b", one, other)[0]

    class Other(Counter):
        def observe(self, now):
            return super().observe(now) + 1

    Other.__name__, Other.__qualname__ = Counter.__name__, Counter.__qualname__
    assert differences(tmp_path / "c", FrameStack(Counter(), 2), FrameStack(Other(), 2)) == [
        "method env.observe has other code than it had"
    ]


def test_parameters_hooks_and_series_are_those_inside():
    env = ActionRepeat(Counter(), 2)
    assert isinstance(env, ActionRepeat)
    assert list(env.params) == ["pace"]
    assert env.replace(pace=2.0).pace == 2
    assert "action_mask" in vars(type(env))
    assert "privileged" not in vars(type(env))
    worlds = dz.rl.Worlds(env, 2, device="cpu", params={"pace": [1.0, 3.0]})
    worlds.reset()
    assert worlds.step(torch.tensor([1, 1])).reward.tolist() == [4, 12]
    ppo = dz.PPO(num_envs=4, num_steps=8, num_minibatches=1, update_epochs=1)
    told = ppo.update(ppo.init(env, dz.rl.mlp(env, (4,)), total_steps=32, device="cpu"))
    assert told["gain_per_step"] == told["gained"] / 32


def test_inputs_of_planes_lie_side_by_side():
    class Planes(Counter):
        observation_space = dz.rl.Box(0, 1, (2, 3, 3))

        def observe(self, now):
            return now.drawn.expand(2, 3, 3)

    env = FrameStack(Planes(), 4)
    seen = torch.rand(5, 4, 2, 3, 3)
    assert torch.equal(env.network_input(seen), seen.flatten(1, 2))
    assert dz.rl.conv(env, (4,), 8, critic_hidden=()).body[0].in_channels == 8
    assert FrameStack(CartPole(), 2).observation_space.shape == (2, 4)


class Late(Counter):
    observation_space = dz.rl.Dict({"day": dz.rl.Discrete(3, start=1)})


def test_a_look_that_is_built_otherwise_is_told():
    class Odd(Parts):
        def observe(self, now):
            return {**super().observe(now), "more": (now.at, now.at)}

    class Wide(Parts):
        def observe(self, now):
            return {**super().observe(now), "digit": torch.zeros(2)}

    for env, told in (
        (Odd(), r"what Odd.observe gave is a tuple of 2 at \['more'\], expected a tuple of 3"),
        (Wide(), r"Wide.observe gave \(2,\) at \['digit'\], its observation_space has \(\)"),
    ):
        with pytest.raises(dz.errors.ModelError, match=told):
            dz.rl.Worlds(FrameStack(env, 2), 2, device="cpu").reset()


def test_what_does_not_fit_is_told():
    for make, said in [
        (lambda: FrameStack(CartPole(), 0), "FrameStack: frames=0"),
        (lambda: ActionRepeat(CartPole(), 1.5), "ActionRepeat: times=1.5"),
        (lambda: FrameStack(CartPole, 2), "FrameStack: env is the class CartPole"),
        (lambda: FrameStack(Late(), 2), r"observations Discrete\(n=3, start=1\) at \['day'\]; choices of frames are"),
        (lambda: FrameStack(ActionRepeat(FrameStack(CartPole(), 2), 2), 2), "FrameStack: env has one already"),
    ]:
        with pytest.raises(dz.errors.InputError, match=said):
            make()


def test_a_rule_of_a_game_inside_counts_for_a_folder(tmp_path):
    class Other(Kuhn):
        def payoff(self, before, now):
            return 2 * super().payoff(before, now)

    Other.__module__, Other.__qualname__ = Kuhn.__module__, Kuhn.__qualname__
    for around in (dz.rl.Against, dz.rl.SelfPlay):
        told = differences(tmp_path / around.__name__, around(Kuhn()), around(Other()))
        assert "method game.payoff has other code than it had" in told
