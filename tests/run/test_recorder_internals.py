"""What is recorded, node for node as `make_fx` records it; and what is recorded by neither, or by `make_fx` alone."""

import copy
import ctypes
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor

import denizen as dz
from denizen.errors import ModelError
from denizen.population import synthetic
from denizen.rl._recorded import Recorded
from denizen.run import _trace
from denizen.run._recorder import Unknown, record
from denizen.space.generators import random_in_neighbours
from denizen.zoo import ModelEntry, WorldEntry, entries
from denizen.zoo.cartpole import CartPole
from denizen.zoo.pendulum import Pendulum

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/launches_gpu.py"))
WEIGHT, BUFFER = nn.Parameter(torch.arange(3.0)), torch.ones(3)
LINEAR = nn.Linear(3, 2)


def written(root, graph):
    """Each node with its target, arguments and form, and constants with their values, whatever they are called."""
    graph.eliminate_dead_code()
    place = {node: f"node {number}" for number, node in enumerate(graph.nodes)}
    lines = []
    for node in graph.nodes:
        given = torch.fx.node.map_arg((node.args, node.kwargs), place.__getitem__)
        what = node.op if node.op == "placeholder" else node.target
        if node.op == "get_attr":
            held = getattr(root, node.target)
            what = (type(held), held.tolist())
        forms = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda value: (value.shape, value.stride(), value.dtype, value.device), node.meta.get("val")
        )
        lines.append((node.op, str(what), str(given), str(forms)))
    return lines


def both(function, given, rules=None):
    """What the recorder and `make_fx` write for a function."""
    found = []
    for make in (record, lambda *asked: (made := make_fx(asked[0], dict(asked[2]))(*asked[1]), made.graph)):
        torch.manual_seed(0)
        with torch.no_grad():
            found.append(written(*make(function, [one.detach().clone() for one in given], rules or {})))
    return found


def of_every_kind(x, y):
    """Constants, parts of several results, writes, lists, vmap, a cast by autocast, and operations made of others."""
    held = torch.tensor([1.0, 2.0, 3.0])
    held[1] += x[0]
    values, places = torch.vmap(lambda row: torch.sort(row + WEIGHT))(torch.stack([x, held]))
    with torch.autocast("cpu", torch.bfloat16):
        product = values @ y
    steps = int(torch.tensor(2) + 1)  # of a constant alone
    return [torch.einsum("ij,j->i", values, x), places, product, torch.cat([x] * steps), WEIGHT, BUFFER, x]


class Square(torch.autograd.Function):
    """With a rule of its own for the slope."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, slope):
        return 3 * slope * ctx.saved_tensors[0]


def slopes(x, y):
    """Backward passes: of a rule of an author's own, of layers, through recomputation, forward mode."""
    with torch.enable_grad():
        given = x.detach().requires_grad_()
        again = torch.utils.checkpoint.checkpoint(lambda v: v.sin().exp(), Square.apply(given), use_reentrant=False)
        loss = (nn.functional.layer_norm(LINEAR(given), (2,)) ** 2).mean() + again.sum()
        found = torch.autograd.grad(loss, [given, *LINEAR.parameters()])
    return [*found, torch.func.jvp(torch.sin, (x,), (x,))[1], torch.vmap(torch.func.grad(lambda v: v**3))(x)]


def writes(x, y):
    """Into arguments, views, lists, buffers, and what random numbers are drawn into."""
    x.add_(1)
    x[1:].mul_(2)
    made = torch.empty(3)
    torch.add(x, BUFFER, out=made)
    torch._foreach_add_([made, x], 2.0)
    return [
        made,
        made.clone().bernoulli_(0.5),
        nn.functional.dropout(x, 0.5),
        torch.rand_like(y),
        x.masked_fill_(x > 2, 0),
    ]


def nested(x, y):
    """Graphs that are recorded while another is."""
    root, graph = record(lambda one: [one.sin() + BUFFER], [x.clone()], {})
    return [*torch.fx.GraphModule(root, graph)(x), make_fx(lambda one: one.cos() + 1)(x)(x)]


@pytest.mark.parametrize("function", [of_every_kind, slopes, writes, nested])
def test_the_graph_is_the_one_that_make_fx_records(function):
    ours, theirs = both(function, (torch.tensor([3.0, 1.0, 2.0]), torch.ones(3, 2)))
    assert ours == theirs
    assert len(ours) > 5


def test_a_weight_that_was_cast_before_is_cast_again():
    """Autocast keeps casts of weights; one of them would be a constant, and the weight could learn no more."""
    x = torch.ones(3)
    with torch.autocast("cpu", torch.bfloat16):
        LINEAR(x)
        ours, theirs = both(lambda one: [LINEAR(one)], (x,))
        assert torch.is_autocast_cache_enabled()
    assert ours == theirs
    assert [line[1] for line in ours].count("aten._to_copy.default") == 3


def test_rules_stand_in_for_operations():
    """Also where autograd would not have taken an operation apart."""
    rules = {torch.ops.aten.mul.Tensor: lambda a, b: a + a + b}
    ours, theirs = both(lambda x: [x * x], (torch.ones(2),), rules)
    assert ours == theirs
    assert [line[1] for line in ours] == ["placeholder", "aten.add.Tensor", "aten.add.Tensor", "output"]


def values(devices, in_place):
    """Of the nodes of a function, with and without writes."""
    graph = _trace.recorded(
        lambda x: [(x + 1) * x.sum() - torch.arange(3)], [torch.ones(3)], in_place=in_place, devices=devices
    ).graph
    return [node.meta["val"] for node in graph.nodes if node.op != "output"]


@pytest.mark.parametrize("in_place", [False, True])
def test_one_mode_of_fake_tensors_serves_all_nodes(in_place):
    """Each has Python's whole stack, which took a third of the time of a recording."""
    told, form = values(True, in_place), values(False, in_place)
    assert len(told) > 4
    assert len({value.fake_mode for value in told}) == 1
    assert {value.device.type for value in told} == {"cpu"}
    assert [(one.shape, one.stride(), one.dtype) for one in told] == [(v.shape, v.stride(), v.dtype) for v in form]


def test_what_is_compiled_is_recorded_as_it_is_written():
    graph = _trace.recorded(torch.compile(lambda x: [x.sin() + 1], backend="aot_eager"), [torch.ones(3)]).graph
    assert [str(node.target) for node in graph.nodes if node.op == "call_function"] == [
        "aten.sin.default",
        "aten.add.Tensor",
    ]


def read_of_an_argument(x):
    return [x * float(x.sum())]


def read_after_a_write(x):
    return [x * float(torch.tensor(1.0).add_(x.sum()))]


def read_after_a_write_into_a_view(x):
    one = torch.tensor(1.0)
    one.view(1).add_(x.sum())
    return [x * float(one)]


def read_after_a_write_into_a_list(x):
    one = torch.tensor(1.0)
    torch._foreach_add_([one], [x.sum()])
    return [x * float(one)]


def decided(x):
    return [x + 1 if x.sum() > 0 else x - 1]


def compared(x):
    return [x + 1 if torch.equal(x, BUFFER) else x - 1]


def random(x):
    return [x * float(torch.tensor(1.0).uniform_())]


# What reads values without an operation of torch, or gives a shape that depends on them.
READS = {
    "tolist": lambda x: x.tolist()[0],
    "numpy": lambda x: float(x.clone().numpy()[0]),
    "numpy's asarray": lambda x: float(np.asarray(x)[0]),
    "numpy's number": lambda x: float(np.float32(x[0])),
    "dlpack": lambda x: float(np.from_dlpack(x)[0]),
    "text": lambda x: len(str(x)),
    "a number in a text": lambda x: float(f"{x[0]:.2f}"),
    "address": lambda x: ctypes.c_float.from_address(x.data_ptr()).value,
    "copy": lambda x: copy.deepcopy(x.detach()),
    "a function of Python": lambda x: x.clone().apply_(abs),
    "list of a tensor": lambda x: torch.tensor([x[0], x[1]]),
    "lists in lists": lambda x: torch.as_tensor([[x[0]], [x[1]]]),
    "list, of its kind": lambda x: x.new_tensor([x.sum(), 1.0]),
    "list, the old way": lambda x: torch.Tensor([x.sum(), 1.0]),
    "where to cut": lambda x: x.tensor_split(x[:1].long())[0].sum(),
    "length": lambda x: len(x.nonzero()),
    "length behind a mask": lambda x: len(x[x > 0.5]),
    "length of a histogram": lambda x: len(torch.bincount(x.long())),
    "how often": lambda x: x.repeat_interleave(x.long()).sum(),
    "a weight": lambda x: (y := x + 1) * nn.Parameter(y).sum(),
    "memory of another": lambda x: (y := x + 1) * torch.from_dlpack(torch.utils.dlpack.to_dlpack(y)),
    "data of another": lambda x: setattr(torch.zeros(3), "data", x) or x,
    "random": lambda x: torch.rand(3).tolist()[0],
    "after a write": lambda x: torch.zeros(3).copy_(x).tolist()[0],
    "after a random write into a view": lambda x: (one := torch.tensor(1.0)).view(1).uniform_() * float(one),
}


BY_NAME = list(READS)[:15]  # what is seen as a call of Python, so that it is refused beside `make_fx`, too


@pytest.mark.parametrize("name", READS)
def test_what_reads_without_an_operation_is_not_burnt_in(name, monkeypatch):
    message = r"^\S*test_recorder_internals\.py:\d+: .* reads the value of a tensor .*; "
    with pytest.raises(ModelError, match=message):
        Recorded(lambda x: x * READS[name](x))(torch.ones(3))
    monkeypatch.setattr(_trace, "record", lambda *given: 1 / 0)
    if name in BY_NAME:
        with pytest.raises(ModelError, match=message):
            Recorded(lambda x: x * READS[name](x))(torch.ones(3))


def test_a_constant_may_have_the_memory_of_an_argument():
    """A first state may hold a tensor of the model, which later states do not."""
    given = torch.ones(3)
    step = Recorded(lambda x: x * given)
    for value in (given, torch.full((3,), 2.0)):
        assert step(value).tolist() == value.tolist()


def test_constants_may_be_read():
    """Also those of several numbers, and shapes that they determine."""

    def steady(x):
        kept = (torch.arange(3) * 2).cumsum(0)
        chosen = (kept > 1).nonzero()[:, 0]
        return x * sum(kept.tolist()) + len(chosen) * x[kept > 1].sum() + torch.tensor([1.0, 2.0, 0.0])

    step = Recorded(steady)
    for value in (torch.ones(3), torch.tensor([3.0, 1.0, 2.0])):
        assert torch.equal(step(value), steady(value))
    assert step.graph is not None


@pytest.mark.parametrize(
    "function",
    [
        read_of_an_argument,
        read_after_a_write,
        read_after_a_write_into_a_view,
        read_after_a_write_into_a_list,
        decided,
        compared,
        random,
    ],
)
def test_a_value_that_differs_from_call_to_call_is_not_burnt_in(function):
    with pytest.raises(
        ModelError, match=r"^\S*test_recorder_internals\.py:\d+: .* reads the value of a tensor .* use torch"
    ):
        Recorded(lambda x: function(x)[0])(torch.ones(3))


def test_a_tensor_made_of_others_is_left_to_make_fx():
    """Its class takes operations apart below the recorder, which would see none of them."""
    pair = TwoTensor(torch.ones(2), torch.ones(2))
    with pytest.raises(Unknown):
        record(lambda x: [(pair * x).a], (torch.ones(2),), {})
    step = Recorded(lambda x: (pair * x).a)
    for value in (3.0, 4.0):
        assert step(torch.full((2,), value)).tolist() == [value, value]


def test_what_the_recorder_refuses_is_recorded_by_make_fx(monkeypatch):
    refused = torch.ops.aten.mul.Tensor
    monkeypatch.setattr(_trace, "record", lambda *given: record(*given[:2], {refused: lambda *_: 1 / 0}))
    step, quick = Recorded(lambda x: x * x), Recorded(lambda x: x + x)
    assert step(torch.full((2,), 3.0)).tolist() == [9.0, 9.0]
    assert step(torch.full((2,), 4.0)).tolist() == [16.0, 16.0]
    assert quick(torch.ones(2)).tolist() == [2.0, 2.0]


def test_an_authors_error_has_no_other_error_as_its_cause():
    def faulty(x):
        raise ZeroDivisionError("an author's")

    with pytest.raises(ZeroDivisionError) as caught:
        Recorded(faulty)(torch.ones(2))
    assert caught.value.__context__ is None


# --- steps of the zoo, updates of learners ----------------------------------------------------------------------------


@pytest.fixture
def recordings(monkeypatch):
    """(what the recorder wrote, what `make_fx` writes) for each recording within the test."""
    found = []

    def compared(function, arguments, rules, devices):
        found.append(both(function, arguments, rules))
        return record(function, arguments, rules, devices)

    monkeypatch.setattr(_trace, "record", compared)
    yield found
    assert found
    for ours, theirs in found:
        assert ours == theirs


CONTACTS = dz.Graph.from_edges(random_in_neighbours(60, 4, seed=0))
SIZES = {
    "ants": {"size": 71, "num_agents": 9},
    "boids": {"num_agents": 20},
    "circles": {"num_agents": 30},
    "covid": {"population": synthetic("astoria", size=200), "symmetrize": True},
    "forest_fire": {"rows": 8, "columns": 8},
    "hiv": {"num_agents": 50},
    "life": {"rows": 8, "columns": 8},
    "opinions": {"num_agents": 40},
    "schelling": {"rows": 8, "columns": 8, "num_agents": 30},
    "sugarscape": {"num_agents": 20},
    "traffic": {"roads": 4, "cells": 20},
    "voter": {"rows": 8, "columns": 8},
    "wealth": {"num_agents": 30},
    "wolf_sheep": {"side": 6, "sheep": 10, "wolves": 6},
}
FIRST = ("seir", "cartpole", "grpo")


def shared(names):
    """Names as parameters, most of them for the slow tests."""
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=() if name in FIRST else pytest.mark.slow) for name in names]
    )


@shared(entries(ModelEntry))
def test_steps_of_the_zoo(name, recordings):
    model = entries(ModelEntry)[name].build(**SIZES.get(name, {"contacts": CONTACTS}))
    run = dz.simulate(model, 1, replicates=2, seed=1, device="cpu", compile=False)
    _trace.trace(run._stepper, run._run_state)


@shared(entries(WorldEntry))
def test_worlds_of_the_zoo(name, recordings):
    env = entries(WorldEntry)[name].build()
    (given,) = SCRIPT["actions"](env, 2, "cpu", 1)
    worlds = dz.rl.Worlds(env, 2, seed=1, device="cpu")
    worlds.reset()
    worlds.advance(worlds.run_state, given)


OFF_POLICY = {"num_envs": 4, "num_steps": 2, "gradient_steps": 2, "batch_size": 8, "buffer_size": 200}


def remembering(env, widths):
    """A policy with a memory."""
    return dz.rl.mlp(env, widths, memory=dz.rl.GRU(4))


LEARNERS = {
    "grpo": (CartPole, dz.rl.mlp, dz.GRPO(groups=2, group_size=2, max_steps=4)),
    "ppo with a memory": (
        CartPole,
        lambda env, widths: dz.rl.mlp(env, widths, memory=dz.rl.GRU(4)),
        dz.PPO(num_envs=4, num_steps=4),
    ),
    "sac": (Pendulum, dz.rl.soft_mlp, dz.rl.SAC(**OFF_POLICY, learning_starts=8)),
    "td3": (Pendulum, dz.rl.deterministic_mlp, dz.rl.TD3(**OFF_POLICY, learning_starts=8)),
    "dqn": (CartPole, dz.rl.q_mlp, dz.rl.DQN(**OFF_POLICY, learning_starts=8)),
}


@shared(LEARNERS)
def test_learners(name, recordings):
    world, policy, algorithm = LEARNERS[name]
    dz.train(world(), policy(world(), (4,)), algorithm, total_steps=32, device="cpu")
