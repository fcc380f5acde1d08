"""The readable reference against loops over agents, times and heads, in float64."""

import dataclasses

import pytest
import torch

from denizen.errors import InputError
from denizen.nn import DotGATConfig, DynamicDotGAT, DynamicDotGATReference, SmallWorld

from . import loops
from .configurations import CONFIGURATIONS, SMALL, random_model, small, some_sensing


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_equals_the_loops(name):
    config = dataclasses.replace(CONFIGURATIONS[name], hidden=4)
    sensing = some_sensing(config)
    model = random_model(DynamicDotGATReference, config, sensing)
    series = torch.randn(1, 3, config.num_features, dtype=torch.float64)
    h, y = model(series)
    loop_h, loop_y = loops.run(model, series[0] * sensing.double()[:, None])
    torch.testing.assert_close(h[0], loop_h, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(y[0], loop_y, rtol=1e-10, atol=1e-12)
    names, weights = zip(*model.named_parameters(), strict=True)
    loss = lambda h, y: (h.sin().sum() + (y * y).sum(), weights)
    plain = torch.autograd.grad(*loss(h[0], y[0]), allow_unused=True)
    looped = torch.autograd.grad(*loss(loop_h, loop_y), allow_unused=True)
    for weight, mine, theirs in zip(names, plain, looped, strict=True):
        assert mine is not None or config.message_steps == 0, weight
        if mine is not None and theirs is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11, msg=weight)
        else:
            assert not any(found is not None and found.any() for found in (mine, theirs)), weight


def test_gradcheck():
    model = random_model(DynamicDotGATReference, small(num_agents=2, hidden=4, message_steps=1))
    series = torch.randn(1, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: model(x).outputs, series)


def test_parameter_count_of_the_benchmark():
    config = DotGATConfig(num_agents=20, num_features=25)
    model = DynamicDotGATReference(config)
    agents, features, width, edges = 20, 25, 128, 80
    expected = agents * features * width + 4 * agents * width**2 + 2 * width**2 + 2 * agents * width**2
    expected += 2 * agents * width + agents + agents * width + 5 * width + edges
    assert sum(weight.numel() for weight in model.parameters()) == expected == 2_071_268


def test_first_weights_slice_by_slice():
    torch.manual_seed(0)
    config = DotGATConfig(num_agents=3, num_features=50, hidden=128, shared_v=False)
    model = DynamicDotGATReference(config).requires_grad_(False)
    for name in ("memory_q", "memory_k", "social_q", "social_k"):
        weight, bound = getattr(model, name), (3 / 128) ** 0.5
        assert float(weight.abs().max()) <= bound
        torch.testing.assert_close(weight.flatten(1).std(1), torch.full((3,), bound / 3**0.5), rtol=0.03, atol=0)
    spread = {"memory_v": 128, "social_v": 128, "mlp_in": 128, "mlp_out": 128, "embed": 50}
    for name, fan in spread.items():
        expected = torch.full((3,), 0.7845 / fan**0.5)
        torch.testing.assert_close(getattr(model, name).flatten(1).std(1), expected, rtol=0.04, atol=0)


def test_batch_of_one_and_views():
    sensing = some_sensing(SMALL)
    model = random_model(DynamicDotGATReference, SMALL, sensing)
    series = torch.randn(3, 6, 4, dtype=torch.float64)
    views = series[:, None] * sensing.double()[None, :, None]
    assert torch.equal(model(series).outputs, model(views=views).outputs)
    torch.testing.assert_close(model(series[0]).outputs, model(series).outputs[:1])


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"hidden": 9}, "multiple of num_heads"),
        ({"num_agents": 0}, "at least 1"),
        ({"message_steps": -1}, "at least 0"),
        ({"dropout": 1.0}, "below 1"),
        ({"dropout": "0.1"}, "dropout='0.1'.* number"),
        ({"eps": 0.0}, "above 0"),
        ({"shared_v": "no"}, "shared_v='no'.* True or False"),
        ({"social": "graph"}, "SmallWorld"),
        ({"social": SmallWorld(neighbours=3)}, "even"),
        ({"social": SmallWorld(freeze=2.0)}, "number from 0 to 1"),
        ({"social": SmallWorld(freeze="all")}, "number from 0 to 1"),
        ({"social": SmallWorld(seed=-1)}, "seed=-1"),
        ({"social": SmallWorld(symmetric="no")}, "symmetric=.no.* True or False"),
    ],
)
def test_wrong_configurations_are_refused(changes, part):
    with pytest.raises(InputError, match=part):
        small(**changes)


@pytest.mark.parametrize(
    ("args", "named", "part"),
    [
        ((torch.zeros(2, 3, 5),), {}, "expected \\[batch, time, 4\\]"),
        ((torch.zeros(2, 5, 3, 4),), {}, "goes in as views="),
        ((torch.zeros(2, 0, 4),), {}, "at least one time"),
        ((), {}, "either series"),
        ((), {"views": torch.zeros(2, 3, 3, 4)}, "5 agents"),
        ((torch.zeros(2, 3, 4, dtype=torch.long),), {}, "not torch.int64"),
        ((torch.zeros(2, 3, 4).numpy(),), {}, "not ndarray"),
        ((torch.zeros(2, 3, 4, dtype=torch.float64),), {}, "torch.float64, the network torch.float32"),
        ((torch.zeros(2, 3, 4, device="meta"),), {}, "on meta, the network on cpu"),
    ],
)
@pytest.mark.parametrize("network", [DynamicDotGAT, DynamicDotGATReference])
def test_wrong_inputs_are_refused(network, args, named, part):
    with pytest.raises(InputError, match=part):
        network(SMALL)(*args, **named)


@pytest.mark.parametrize("network", [DynamicDotGAT, DynamicDotGATReference])
def test_mixed_precision_and_devices_without_numbers_are_taken(network):
    model, series = network(SMALL).eval(), torch.randn(2, 3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        for dtype in (torch.float32, torch.bfloat16):
            assert model(series.to(dtype)).outputs.isfinite().all()
    assert model.to("meta")(series.to("meta")).outputs.shape == (2, 3, 5, 3)


@pytest.mark.parametrize("sensing", [torch.ones(4, 5), torch.full((5, 4), 0.5), [1, 0]])
def test_wrong_sensing_is_refused(sensing):
    with pytest.raises(InputError, match="sensing"):
        DynamicDotGATReference(SMALL, sensing)
