"""What trainers refuse, before it costs anything: other policies, numbers that make no sense, broken environments."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

import denizen as dz
from denizen.errors import DataError, InputError, ModelError, StorageError
from denizen.rl import play, saliency
from denizen.run import StateFolder
from denizen.zoo.cartpole import CartPole
from denizen.zoo.pendulum import Pendulum
from denizen.zoo.probes import Action, Continuous

SMALL = dz.PPO(num_envs=4, num_steps=8, num_minibatches=1, update_epochs=1)
QUIET = {"device": "cpu", "progress": False, "compile": False}


class Spot(dz.State):
    at: torch.Tensor = dz.real("numbers")


class Walk(dz.Env):
    """Moves by a table of its own, which an action out of range would read beyond."""

    time_limit = 6
    action_space = dz.rl.Discrete(3)
    observation_space = dz.rl.Box(-torch.inf, torch.inf, (2,))
    moves: torch.Tensor = dz.param(torch.tensor([-1.0, 0.0, 1.0]))

    def init(self, rng):
        return Spot(at=rng.on("start", 2).uniform("where"))

    def step(self, now, action, rng):
        return now.replace(at=now.at + self.moves.index_select(0, action[None]))

    def observe(self, now):
        return now.at

    def reward(self, before, action, now):
        return now.at[0]

    def terminated(self, now):
        return now.at[0] > 9


class Drawing(Walk):
    def step(self, now, action, rng):
        return now.replace(at=now.at + torch.randn(2))


class Writing(Walk):
    def step(self, now, action, rng):
        now.at.add_(1.0)
        return now


class Reading(Walk):
    def terminated(self, now):
        return torch.tensor(bool(now.at[0] > 9))


class Closed(Walk):
    def action_mask(self, now):
        return (torch.zeros(3) < 1) & (now.time.step < 4)


@pytest.mark.parametrize(
    ("env", "told"),
    [(Drawing, "global generator"), (Writing, "writes into a tensor"), (Reading, "reads a value on the host")],
)
def test_an_environment_that_breaks_the_rule_is_told_with_its_line(env, told):
    with pytest.raises(ModelError, match=rf"(?s){env.__name__} at .*test_refusals.*{told}"):
        dz.train(env(), dz.rl.mlp(Walk(), (4,)), SMALL, 64, **QUIET)


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"action_space": 3}, r"Broken has action_space 3; expected dz.rl.Discrete\(n\) or dz.rl.Box"),
        ({"observation_space": None}, "Broken has observation_space None; expected .*dz.rl.Box"),
        ({"observation_space": dz.rl.Discrete}, "observation_space <class .*Discrete'>; expected .*dz.rl.Box"),
    ],
)
def test_spaces_that_are_none_are_told_wherever_an_environment_is_given(declared, told):
    env = type("Broken", (Walk,), declared)()
    for use in (
        lambda: dz.rl.mlp(env),
        lambda: dz.rl.conv(env),
        lambda: dz.rl.ActorCritic(env, nn.Linear(2, 2)),
        lambda: dz.rl.Worlds(env, 2, device="cpu"),
        lambda: dz.train(env, dz.rl.mlp(Walk(), (4,)), SMALL, 64, **QUIET),
        lambda: dz.check(env),
    ):
        with pytest.raises(ModelError, match=told):
            use()


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"privileged": lambda self, now: now.at[0]}, r"gave \(\); expected a tensor of shape \(k,\)"),
        ({"privileged": lambda self, now: now.at[None]}, r"gave \(1, 2\); expected a tensor of shape \(k,\)"),
        ({"privileged": lambda self, now: [1.0]}, r"gave list \[1.0\]; expected a tensor"),
    ],
)
def test_what_is_privileged_has_its_shape_checked(declared, told):
    env = type("Broken", (Walk,), declared)()
    with pytest.raises(ModelError, match=rf"Broken.privileged {told}"):
        dz.rl.mlp(env)
    with pytest.raises(ModelError, match=rf"Broken.privileged {told}"):
        dz.rl.Worlds(env, 2, device="cpu").reset()


def test_what_is_privileged_may_have_any_shape_where_the_author_makes_inputs_of_it():
    given = {
        "privileged": lambda self, now: now.at[None],
        "privileged_input": lambda self, observation, privileged: privileged.flatten(1),
    }
    env = type("Planes", (Walk,), given)()
    dz.train(env, dz.rl.mlp(env, (4,)), SMALL, 64, **QUIET)


def test_a_state_without_an_open_action_is_told():
    env = Closed()
    with pytest.raises(ModelError, match="no action that is open, in world 0 at step 3"):
        dz.train(env, dz.rl.mlp(env, (4,)), SMALL, 64, **QUIET)


def test_rows_without_an_open_choice_stay_finite():
    logits = torch.zeros(2, 3, requires_grad=True)
    spread = dz.rl.Categorical.of(logits, torch.tensor([[False] * 3, [True, False, True]]))
    (torch.tensor([0.0, 1.0]) * spread.entropy()).sum().backward()
    assert bool(torch.isfinite(logits.grad).all())
    assert spread.sample(torch.full((2, 1), 0.5)).tolist() == [1, 2]


def test_an_action_out_of_range_does_not_reach_the_author():
    worlds = dz.rl.Worlds(Walk(), 2, device="cpu")
    worlds.reset()
    worlds.step(torch.tensor([1, 7]))
    with pytest.raises(ModelError, match="outside the action space, in world 1 at step 0"):
        worlds.check()


def test_a_policy_for_another_environment_is_refused():
    policy, env = dz.rl.mlp(CartPole(), (4,)), Action()
    for use in (
        lambda: SMALL.init(env, policy, total_steps=1),
        lambda: dz.GRPO(groups=2, group_size=2, max_steps=1).init(env, policy, total_steps=1),
        lambda: dz.rl.evaluate(env, policy),
        lambda: dz.rl.imitate(env, policy, lambda observed, uniform: uniform),
    ):
        with pytest.raises(InputError, match="policy was made for CartPole with observation_space"):
            use()
    with pytest.raises(InputError, match="env is str"):
        dz.train("cartpole", policy, SMALL, 64, **QUIET)
    with pytest.raises(InputError, match="algorithm is str"):
        dz.train(CartPole(), policy, "ppo", 64, **QUIET)
    with pytest.raises(InputError, match="did you mean 'num_envs'"):
        dz.train(CartPole(), policy, SMALL, 64, validate_every=1, validation={"num_env": 3}, **QUIET)
    body = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1))
    with pytest.raises(InputError, match="dropout"):
        SMALL.init(CartPole(), dz.rl.ActorCritic(CartPole(), body), total_steps=1)


@pytest.mark.parametrize(
    "given",
    [
        {"clip_coef": -0.1},
        {"learning_rate": float("nan")},
        {"learning_rate": dz.rl.Linear(1e-3, -1e-3)},
        {"ent_coef": "much"},
        {"vf_coef": -1.0},
        {"gamma": None},
        {"gae_lambda": 1.1},
        {"max_resets": 0},
        {"max_resets": 1.5},
        {"adam_eps": float("inf")},
        {"target_kl": "0.1"},
        {"value_clip": "x"},
        {"max_grad_norm": True},
        {"normalise_minibatches": "no"},
        {"clip_apart": 3},
        {"precision": []},
    ],
)
def test_numbers_that_make_no_sense_are_refused(given):
    with pytest.raises(InputError, match=rf"PPO: {next(iter(given))}="):
        dz.PPO(**given)


def test_training_without_new_lives_is_refused_with_its_reason():
    with pytest.raises(InputError, match=r"max_resets=0, .* or None: with none, no life would begin"):
        dz.PPO(max_resets=0)


@pytest.mark.parametrize(
    "given",
    [
        {"clip_coef": "0.2"},
        {"clip_high": True},
        {"max_grad_norm": "1"},
        {"std_eps": None},
        {"gamma": "x"},
        {"beta": "0.04"},
        {"sequence_ratio": 1},
        {"shared_stream": "no"},
        {"loss": []},
    ],
)
def test_grpo_refuses_them_as_well(given):
    with pytest.raises(InputError, match=rf"GRPO: {next(iter(given))}="):
        dz.GRPO(**given)


POLE = CartPole()
SMALL_POLICY = dz.rl.mlp(POLE, (4,))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"total_steps": True}, "total_steps=True"),
        ({"algorithm": dz.PPO}, "algorithm is the class PPO"),
        ({"env": CartPole}, r"env is the class CartPole, expected a dz.Env, such as CartPole\(\)"),
        ({"policy": "p"}, "policy is str"),
        ({"policy": dz.rl.mlp(POLE, (4,)).double()}, r"float64, expected torch.float32.*policy.float\(\)"),
        ({"patience": 5}, "patience=5, expected a dz.rl.Patience"),
        ({"validate_every": 1, "validation": 5}, "validation=5"),
        ({"compile": "yes"}, "compile='yes'"),
        ({"sinks": 3}, "sinks=3"),
        ({"folder": 3}, "folder=3"),
        ({"settings": 3}, "settings=3"),
        ({"save_every": 5}, "save_every=5 is of saves to a folder; pass folder="),
        (
            {"save_every": "5", "folder": "unmade"},
            r"train: save_every='5', .* at least 0 \(seconds\)",
        ),
    ],
)
@pytest.mark.parametrize("algorithm", [SMALL, dz.GRPO(groups=2, group_size=2, max_steps=4)])
def test_arguments_of_another_kind_are_named_in_train(algorithm, given, told):
    kept = {"env": POLE, "policy": SMALL_POLICY, "algorithm": algorithm, "total_steps": 32}
    with pytest.raises(InputError, match=told):
        dz.train(**{**kept, **QUIET, **given})


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda: dz.rl.resume("nowhere", POLE, SMALL_POLICY, "ppo"), "resume: algorithm is str"),
        (lambda: dz.rl.resume(3, POLE, SMALL_POLICY, SMALL), "resume: folder=3"),
        (lambda: dz.rl.resume("nowhere", POLE, SMALL_POLICY, SMALL, save_every=-1), "resume: save_every=-1"),
        (lambda: dz.rl.Updates(SMALL), r"Updates: training is PPO, expected what PPO\(…\).init\(…\) gives"),
        (lambda: dz.rl.Updates(SMALL.init(POLE, SMALL_POLICY, total_steps=1), compile=1), "Updates: compile=1"),
        (lambda: dz.rl.evaluate(POLE, "p"), "evaluate: policy is str, expected a dz.rl.ActorCritic"),
        (lambda: dz.rl.evaluate(POLE, dz.rl.mlp(POLE, (4,)).half()), "evaluate: the policy's .* is torch.float16"),
        (lambda: dz.rl.train_seeds(POLE, SMALL_POLICY, SMALL, 32, seeds=[1]), "policy is ActorCritic, expected a func"),
        (lambda: dz.rl.Patience(min_delta="x"), "Patience: min_delta='x', expected a number, at least 0"),
        (lambda: dz.rl.Patience(restore_best="no"), "Patience: restore_best='no', expected True or False"),
        (lambda: dz.rl.Linear(0, 1, until="x"), "Linear: until='x', expected a number from 0 to 1"),
        (lambda: dz.rl.mlp(POLE, 64), "hidden=64, expected widths"),
        (lambda: dz.rl.mlp(POLE, activation="relu"), "activation is 'relu'.*such as torch.nn.ReLU"),
        (lambda: dz.rl.mlp(POLE, head="popart"), "head is 'popart'.*such as dz.rl.PopArt"),
        (lambda: dz.rl.mlp(POLE, head=dz.rl.PopArt(8)), r"head is PopArt\("),
        (lambda: dz.rl.mlp(POLE, seed="a"), "seed='a'"),
        (lambda: dz.rl.mlp(None), "mlp: env is NoneType"),
        (lambda: dz.rl.mlp(CartPole), "mlp: env is the class CartPole"),
        (lambda: dz.rl.q_conv(POLE), r"q_conv: CartPole .* take linear layers, such as dz\.rl\.q_mlp\(env\)"),
        (lambda: dz.rl.conv(CartPole), "conv: env is the class CartPole"),
        (lambda: dz.rl.ActorCritic(CartPole, nn.Linear(4, 4)), "ActorCritic: env is the class CartPole"),
        (lambda: dz.rl.Worlds(CartPole, 2, device="cpu"), "Worlds: env is the class CartPole"),
        (lambda: dz.rl.Worlds(POLE, 2, device="cpu", worlds="ab"), r"worlds\[0\]='a', expected a whole number"),
        (lambda: dz.rl.Worlds(POLE, 2, device="cpu", worlds=[0, 1.5]), r"worlds\[1\]=1.5, expected a whole number"),
        (lambda: dz.rl.Worlds(POLE, 2, device="cpu", worlds=3), "worlds=3, expected a list"),
    ],
)
def test_arguments_of_another_kind_are_named(use, told):
    with pytest.raises(InputError, match=told):
        use()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"teacher": None}, "teacher is NoneType"),
        (
            {"teacher": lambda observed, uniform: torch.zeros(3)},
            r"teacher gave \(3,\), expected a tensor of shape \(8,\)",
        ),
        ({"teacher": lambda observed, uniform: 0}, "teacher gave int"),
        (
            {"teacher": lambda observed, uniform: uniform[:, 0]},
            "teacher gave torch.float32, .* whole numbers from 0 to 1",
        ),
        ({"policy": "p"}, "policy is str"),
        ({"updates": True}, "updates=True"),
        ({"learning_rate": "1e-3"}, "learning_rate='1e-3'"),
    ],
)
def test_arguments_of_another_kind_are_named_in_imitate(given, told):
    kept = {"env": POLE, "policy": SMALL_POLICY, "teacher": lambda observed, uniform: (uniform[:, 0] * 2).long()}
    with pytest.raises(InputError, match=told):
        dz.rl.imitate(**{**kept, "updates": 1, "num_envs": 8, "device": "cpu", "progress": False, **given})


@pytest.mark.parametrize("world", [9, 2, -1, True, "a"])
def test_the_state_of_a_world_that_is_none_is_refused(world):
    worlds = dz.rl.Worlds(POLE, 2, device="cpu")
    worlds.reset()
    with pytest.raises(InputError, match=rf"world={world!r}, expected a whole number from 0 to 1"):
        worlds.state(world)


def test_a_schedule_needs_numbers():
    with pytest.raises(InputError, match="Linear: start='a', expected a number"):
        dz.rl.Linear("a", 0.0)
    with pytest.raises(InputError, match="learning_rate"):
        dz.GRPO(learning_rate=-1.0)


def test_a_loss_that_is_no_number_ends_a_training_and_what_was_saved_stays(tmp_path):
    env = CartPole()
    policy = dz.rl.mlp(env, (4,))
    with pytest.raises(ModelError, match="the loss is not a number from update 1 on"):
        dz.train(
            env,
            policy,
            dz.PPO(num_envs=4, num_steps=8, learning_rate=1e38, clip_coef=1e9, max_grad_norm=None),
            3200,
            folder=tmp_path / "run",
            **QUIET,
        )
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert (manifest["status"], manifest["updates"]) == ("failed", 0)


def test_a_training_can_be_resumed_from_its_first_moment(tmp_path, monkeypatch):
    env = CartPole()
    whole = dz.train(env, dz.rl.mlp(env, (4,), seed=1), SMALL, 128, **QUIET)
    with monkeypatch.context() as patched:
        patched.setattr(dz.rl.Updates, "warm_up", lambda self: 1 / 0)  # killed while it compiles
        with pytest.raises(ZeroDivisionError):
            dz.train(env, dz.rl.mlp(env, (4,), seed=1), SMALL, 128, folder=tmp_path / "run", **QUIET)
    again = dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (4,), seed=2), SMALL, progress=False)
    for mine, its in zip(whole.policy.parameters(), again.policy.parameters(), strict=True):
        assert torch.equal(mine, its)


@pytest.mark.parametrize("value", [object(), {"b": {1, 2}}, torch.zeros(2)])
def test_settings_that_no_manifest_can_keep_leave_no_folder(tmp_path, value):
    with pytest.raises(InputError, match=r"settings\['a'\] = .*: expected a JSON value"):
        dz.train(POLE, SMALL_POLICY, SMALL, 32, folder=tmp_path / "run", settings={"a": value}, **QUIET)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_a_training_that_ended_before_its_first_save_is_free(tmp_path, monkeypatch):
    folder = tmp_path / "seed-1"
    with monkeypatch.context() as patched:
        replace = os.replace
        # Killed before the manifest is there.
        patched.setattr(os, "replace", lambda a, b: 1 / 0 if Path(b).name == "manifest.json" else replace(a, b))
        with pytest.raises(ZeroDivisionError):
            dz.train(POLE, dz.rl.mlp(POLE, (4,)), SMALL, 64, folder=folder, **QUIET)
    assert sorted(entry.name for entry in folder.iterdir()) == [".lock", "checkpoints", "log.txt"]
    with pytest.raises(DataError, match=r"ended before its first save.*begin a new one in it"):
        dz.rl.resume(folder, POLE, dz.rl.mlp(POLE, (4,)), SMALL, progress=False)
    dz.rl.train_seeds(POLE, lambda seed: dz.rl.mlp(POLE, (4,)), SMALL, 64, seeds=[1], folder=tmp_path, **QUIET)
    assert len((folder / "log.txt").read_text().splitlines()) == 1  # nothing of the one before
    with pytest.raises(StorageError, match="not empty"):
        dz.train(POLE, dz.rl.mlp(POLE, (4,)), SMALL, 64, folder=folder, **QUIET)


@pytest.mark.parametrize("file", ["mine.txt", "checkpoints/update-00000007.safetensors", "metrics.jsonl"])
def test_a_folder_with_anything_else_in_it_is_not_free(tmp_path, file):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "log.txt").touch()
    (tmp_path / file).touch()
    with pytest.raises(StorageError, match="not empty"):
        dz.train(POLE, SMALL_POLICY, SMALL, 64, folder=tmp_path, **QUIET)
    assert (tmp_path / file).exists()


class Counts(StateFolder):
    """The folder of a run of another kind."""

    KIND, FORMAT, COUNT, FILES = "counts", "counts 1", "steps", {}


def test_a_folder_of_a_run_that_has_yet_to_save_is_not_free(tmp_path):
    begun = Counts.begin(tmp_path / "run", {})
    begun.log("created")
    with begun.session(), pytest.raises(StorageError, match="not empty"):
        dz.train(POLE, SMALL_POLICY, SMALL, 64, folder=tmp_path / "run", **QUIET)
    assert begun.path.joinpath("log.txt").exists()


class Shifts(dz.Env):
    """Two agents take turns; the memory of one that was out must not go on."""

    num_actors = 2
    time_limit = 6
    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(-torch.inf, torch.inf, (1,))

    def init(self, rng):
        return Spot(at=rng.on("start", 2).uniform("where"))

    def step(self, now, action, rng):
        return now.replace(at=now.at + 1)

    def observe(self, now):
        return now.at[:, None]

    def reward(self, before, action, now):
        return now.at

    def terminated(self, now):
        return now.at[0] > 90

    def acting(self, now):
        return torch.arange(2) == now.time.step % 2

    def draw(self, now):
        return ["."]


def test_what_is_privileged_has_the_actors_axis():
    env = type("Broken", (Shifts,), {"privileged": lambda self, now: now.at})()
    with pytest.raises(ModelError, match=r"privileged gave \(2,\); expected a tensor of shape \(2, k\)"):
        dz.rl.mlp(env)


def test_who_comes_back_has_no_memory_in_play(monkeypatch):
    env = Shifts()
    policy, seen = dz.rl.mlp(env, (4,), memory_size=3), []
    plain = type(policy.cell).over

    def over(self, shown, memory, first):
        cleared = memory if first is None else torch.where(first[0][:, None], 0.0, memory)
        seen.append(cleared.abs().sum(1) == 0)
        return plain(self, shown, memory, first)

    monkeypatch.setattr(type(policy.cell), "over", over)
    list(play(env, policy, 5))
    assert [bool(cleared[step % 2]) for step, cleared in enumerate(seen)] == [True] * 5


class Counting(Shifts):
    """Counts what is done; `both` act at every step."""

    both: bool = False

    def reward(self, before, action, now):
        return action.to(torch.float32)

    def acting(self, now):
        return super().acting(now) | self.both


@pytest.mark.parametrize("both", [False, True])
def test_who_comes_back_has_no_memory_in_evaluation(both, monkeypatch):
    env = Counting(both=both)
    policy = dz.rl.mlp(env, (4,), memory_size=3)
    plain = type(policy.cell).over

    def over(self, shown, memory, first):
        before = memory if first is None else torch.where(first[0][:, None], 0.0, memory)
        features, after = plain(self, shown, memory, first)
        return 0 * features + (before.abs().sum(1, keepdim=True) > 0), after

    monkeypatch.setattr(type(policy.cell), "over", over)
    with torch.no_grad():  # acts where it remembers anything
        policy.actor.weight.copy_(torch.tensor([[0.0] * 3, [1.0] * 3]))
        policy.actor.bias.copy_(torch.tensor([0.5, 0.0]))
    told = dz.rl.evaluate(env, policy, num_envs=3, greedy=True)
    assert told.returns.tolist() == [5.0 if both else 0.0] * 6


@pytest.mark.parametrize("env", [Pendulum(), Continuous(), CartPole()])
def test_saliency_tells_what_moves_the_decision(env):
    policy = dz.rl.mlp(env, (8,))
    nn.init.normal_(policy.actor.weight)
    observed = dz.rl.Worlds(env, 1, device="cpu").reset()
    inputs, moved = saliency(policy, observed, policy.first_memory(1, torch.device("cpu")))
    assert inputs.shape == moved.shape
    assert bool((moved > 0).all())
