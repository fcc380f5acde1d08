"""Memories of policies: cells and attention, cleared where lives begin, in rollout and update; segments of rollouts."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import denizen as dz
from denizen.rl import GRU, LSTM, Attention
from denizen.zoo.cartpole import CartPole
from denizen.zoo.probes import Memory
from trainings import judged_while_learning

KINDS = [GRU(6), LSTM(6), Attention(6, window=4, heads=2)]


def over(cell, shown, first=None, start=None):
    memory = torch.zeros(shown.shape[1], cell.size) if start is None else start
    features, after = cell.over(shown, memory, first)
    return features.unflatten(0, shown.shape[:2]), after


def one_by_one(cell, shown, first):
    memory, told = torch.zeros(shown.shape[1], cell.size), []
    for t in range(len(shown)):
        features, memory = cell.over(shown[t : t + 1], memory, first[t : t + 1])
        told.append(features)
    return torch.stack(told), memory


@pytest.fixture(params=KINDS, ids=lambda kind: type(kind).__name__)
def cell(request):
    torch.manual_seed(3)
    made = request.param.make(5)
    if isinstance(request.param, Attention):
        torch.nn.init.normal_(made.places)
    return made


def test_steps_at_once_are_steps_one_by_one_whatever_lives_begin(cell):
    torch.manual_seed(0)
    shown, first = torch.randn(11, 7, 5), torch.rand(11, 7) < 0.25
    whole, after = over(cell, shown, first)
    alone, last = one_by_one(cell, shown, first)
    torch.testing.assert_close(whole, alone, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(after, last, rtol=1e-5, atol=1e-6)
    half, between = over(cell, shown[:4], first[:4])
    rest, end = over(cell, shown[4:], first[4:], between)
    torch.testing.assert_close(torch.cat([half, rest]), whole, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(end, after, rtol=1e-5, atol=1e-6)
    assert over(cell, shown)[1].shape == (7, cell.size)


def test_nothing_crosses_the_start_of_a_life_and_nothing_else_is_lost(cell):
    torch.manual_seed(0)
    shown = torch.randn(6, 2, 5, requires_grad=True)
    first = torch.zeros(6, 2, dtype=torch.bool)
    first[3, 0] = True
    features, after = over(cell, shown, first, torch.randn(2, cell.size).abs())
    (slopes,) = torch.autograd.grad(features[5].sum() + after.sum(), shown)
    assert bool((slopes[:3, 0] == 0).all()), "the life before"
    assert bool((slopes[3:, 0] != 0).any(1).all()), "its own"
    assert bool((slopes[3:, 1] != 0).any(1).all()), "of a row where none began"
    fresh, _ = over(cell, shown[3:, :1])
    torch.testing.assert_close(features[3:, :1], fresh, rtol=1e-5, atol=1e-6)


def test_all_steps_are_one_graph_as_an_update_compiles_them(cell):
    torch._dynamo.reset()
    shown, first = torch.randn(4, 3, 5), torch.rand(4, 3) < 0.3
    whole = torch.compile(lambda *given: cell.over(*given), backend="eager", fullgraph=True)
    told = whole(shown, torch.zeros(3, cell.size), first)
    torch.testing.assert_close(told[0], over(cell, shown, first)[0].flatten(0, 1), rtol=1e-5, atol=1e-6)


UNORDERED = {"unfold_backward", "index_put", "index_add", "scatter_add", "scatter_reduce"}  # in any order on CUDA


def test_gradients_add_up_in_a_fixed_order(cell):
    shown, first = torch.randn(4, 3, 5, requires_grad=True), torch.rand(4, 3) < 0.3

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.add(func.name().split("::")[1].split(".")[0].rstrip("_"))
            return func(*args, **(kwargs or {}))

    names = set()
    with Seen():
        over(cell, shown, first)[0].square().sum().backward()
    assert "mm" in names
    assert not names & UNORDERED


def test_attention_sees_its_window_and_no_step_after():
    torch.manual_seed(0)
    cell = Attention(6, window=3, heads=2).make(5)
    shown = torch.randn(8, 1, 5, requires_grad=True)
    features, _ = over(cell, shown)
    (slopes,) = torch.autograd.grad(features[5].square().sum(), shown)
    assert [bool(one) for one in (slopes[:, 0] != 0).any(1)] == [False] * 3 + [True] * 3 + [False] * 2


def test_attention_is_softmax_of_products_over_what_is_open():
    torch.manual_seed(0)
    cell = Attention(6, window=4, heads=2).make(5).double()
    torch.nn.init.normal_(cell.places)
    shown = torch.randn(6, 1, 5, dtype=torch.float64)
    first = torch.zeros(6, 1, dtype=torch.bool)
    first[3] = True
    told, _ = over(cell, shown, first)
    entries = cell.entry(shown[:, 0])
    normed = cell.before(entries)
    for t in range(6):
        seen = [k for k in range(max(0, t - 3), t + 1) if (k >= 3) == (t >= 3)]
        mixed = []
        for head in range(2):
            part = slice(3 * head, 3 * head + 3)
            query = cell.query(normed[t])[part]
            scores = [query @ cell.key(normed[k])[part] / 3**0.5 + cell.places[head, 3 - (t - k)] for k in seen]
            shares = torch.stack(scores).softmax(0)
            mixed.append(sum(s * cell.value(normed[k])[part] for s, k in zip(shares, seen, strict=True)))
        out = entries[t] + cell.mixed(torch.cat(mixed))
        torch.testing.assert_close(told[t, 0], out + cell.further(cell.between(out)), rtol=1e-6, atol=1e-6)


def test_a_long_short_memory_is_that_of_torch_and_its_forget_gates_begin_open():
    torch.manual_seed(0)
    cell = LSTM(4).make(3)
    assert torch.equal(cell.bias_ih[4:8], torch.ones(4))
    shown, output, state = torch.randn(5, 2, 3), torch.zeros(2, 4), torch.zeros(2, 4)
    told, _ = over(cell, shown)
    for t in range(5):
        output, state = cell(shown[t], (output, state))
        torch.testing.assert_close(told[t], output, rtol=1e-5, atol=1e-6)


# --- in a training ----------------------------------------------------------------------------------------------------


def training(memory, updates=1000, **settings):
    env = CartPole()
    algorithm = dz.PPO(**{"num_envs": 8, "num_steps": 32, "update_epochs": 1, "learning_rate": 1e-3, **settings})
    policy = dz.rl.mlp(env, (8,), memory=memory)
    return algorithm.init(env, policy, total_steps=updates * algorithm.samples, device="cpu")


@pytest.mark.parametrize(("memory", "length"), [(LSTM(4), None), (GRU(4), 4), (Attention(4, 5, 2), 8)])
def test_the_ratio_is_one_across_ends_of_lives(memory, length, monkeypatch):
    rate = dz.rl.Linear(1e-3, 0.0, 0.0, 0.6)  # nothing moves in the third update
    held = training(memory, 3, segment_length=length, num_minibatches=2, num_steps=64, learning_rate=rate)
    for _ in range(2):  # lives end within the rollouts, and go on from one to the next
        held.algorithm.update(held)
    held.rollout.collect()
    fields = held.rollout.fields
    assert fields["terminated"].any()
    judged = judged_while_learning(held, monkeypatch)
    torch.testing.assert_close(judged, fields["log_prob"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("memory", [LSTM(4), Attention(4, 3, 2)], ids=lambda kind: type(kind).__name__)
def test_gradients_of_segments_are_those_of_a_plain_loop(memory):
    settings = {"num_minibatches": 1, "value_clip": None, "normalise_advantages": False, "max_grad_norm": None}
    held = training(memory, segment_length=8, learning_rate=0.0, ent_coef=0.1, vf_coef=0.5, clip_coef=0.2, **settings)
    held.algorithm.update(held)
    fields, policy = held.rollout.fields, held.policy
    gained = dz.rl.advantages(
        *(fields[n] for n in ("reward", "value")),
        held.rollout.bootstrap,
        *(fields[n] for n in ("terminated", "truncated", "valid")),
        0.99,
        0.95,
    )
    found = {name: p.grad.clone() for name, p in policy.named_parameters()}
    loss = torch.zeros(())
    for row in range(8):
        carried = held.rollout.memory[row : row + 1]
        for t in range(32):
            if t % 8 == 0:
                torch.testing.assert_close(held.rollout.memories[t // 8, row], carried[0].detach(), rtol=0, atol=1e-6)
                carried = carried.detach()
            here = (slice(t, t + 1), row)
            judged, value = policy.with_value(fields["observation"][here], carried, first=fields["first"][here])
            carried = judged.memory
            ratio = (judged.actions.log_prob(fields["action"][here]) - fields["log_prob"][here]).exp()
            error = (value - gained.returns[here]).square()
            loss = loss - ratio * gained.advantage[here] + 0.5 * error - 0.1 * judged.actions.entropy()
    wanted = torch.autograd.grad(loss.sum() / (8 * 32), list(policy.parameters()))
    for (name, slope), by_hand in zip(found.items(), wanted, strict=True):
        torch.testing.assert_close(slope, by_hand, rtol=1e-4, atol=1e-6, msg=name)


def test_minibatches_of_segments_may_be_parts_of_worlds():
    held = training(LSTM(4), num_envs=2, num_minibatches=8, segment_length=4)
    assert held.algorithm.update(held)["policy_loss"].isfinite()
    with pytest.raises(dz.errors.InputError, match="whole worlds, or segment_length"):
        training(LSTM(4), num_envs=2, num_minibatches=8)


def test_wrong_memories_are_told():
    env = CartPole()
    for given, said in [
        ({"memory": "lstm"}, "memory is 'lstm', expected an object such as dz.rl.LSTM"),
        ({"memory": LSTM}, "memory is the class LSTM"),
        ({"memory": LSTM(4), "memory_size": 4}, "give one of them"),
    ]:
        with pytest.raises(dz.errors.InputError, match=said):
            dz.rl.mlp(env, **given)
    for wrong in (lambda: LSTM(0), lambda: Attention(64, window=1), lambda: Attention(6, heads=4)):
        with pytest.raises(dz.errors.InputError, match=r"size=0|window=1|heads=4"):
            wrong()
    with pytest.raises(dz.errors.InputError, match="num_steps=32 does not divide into segment_length=5; take"):
        dz.PPO(num_steps=32, segment_length=5)
    with pytest.raises(dz.errors.InputError, match="segment_length=8, but the policy has no memory"):
        dz.PPO(num_steps=32, segment_length=8).init(env, dz.rl.mlp(env), total_steps=1, device="cpu")


def scored(memory, length):
    env = Memory(length=3)
    ppo = dz.PPO(
        num_envs=64,
        num_steps=8,
        num_minibatches=2,
        gamma=0.9,
        value_clip=None,
        learning_rate=dz.rl.Linear(2e-2, 0.0),
        ent_coef=0.0,
        max_grad_norm=None,
        segment_length=length,
    )
    policy = dz.rl.mlp(env, (32,), memory=memory)
    dz.train(env, policy, ppo, 50 * ppo.samples, device="cpu", progress=False)
    return dz.rl.evaluate(env, policy, num_envs=256, max_steps=3).mean


@pytest.mark.slow
def test_memories_answer_for_their_cue_and_a_policy_without_one_does_not():
    assert scored(Attention(16, window=4, heads=2), None) > 0.95
    assert scored(LSTM(16), 4) > 0.95
    assert abs(scored(None, None)) < 0.2
