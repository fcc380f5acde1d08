"""Parts of networks that nothing public shows: attention's maps, covariances, products in eight bits."""

import math

import pytest
import torch
from scipy import special

from denizen import nn
from denizen.nn import DynamicDotGATReference
from denizen.nn._covariance import matern
from denizen.nn._int8 import int8_bmm
from denizen.nn._layers import PerAgentLinear
from denizen.nn._maps import _Recording, social_weights

from .configurations import CONFIGURATIONS, random_model


def test_rows_sum_to_one_and_frozen_edges_weigh_nothing():
    model = random_model(DynamicDotGATReference, CONFIGURATIONS["unfrozen"])
    weights = social_weights(model, torch.randn(2, 3, 5, 8, dtype=torch.float64))
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    frozen = model.bias().isinf()
    assert frozen.any()
    assert not weights[..., frozen].any()
    assert (weights[..., ~frozen] > 0).all()


def test_maps_are_the_weights_by_which_agents_listen():
    """A row is who listens, a column who is heard: with the values they give what the attention gives."""
    config = CONFIGURATIONS["unfrozen"]
    recording = _Recording(random_model(DynamicDotGATReference, config))
    u = torch.randn(1, 6, config.num_agents, config.hidden, dtype=torch.float64)
    bias = recording.bias()
    heard = recording._heads(u, "social")[2]
    said = torch.einsum("btnac,btcnd->btand", social_weights(recording, u), heard).flatten(-2)
    torch.testing.assert_close(said, recording._social(u, bias))
    remembered = recording._memory(u)
    (weights,) = recording.memory_maps  # [heads, agents, times, times]
    said = torch.einsum("nats,bsand->btand", weights, recording._heads(u, "memory")[2]).flatten(-2)
    torch.testing.assert_close(said, remembered)


@pytest.mark.parametrize("nu", [0.5, 1.0, 2.3, 8.0])
@pytest.mark.parametrize("length", [1.0, 4.0, 40.0])
def test_matern_is_the_textbook_function(nu, length):
    lag = torch.arange(50, dtype=torch.float64)
    found = matern(lag[None], torch.tensor([[nu]], dtype=torch.float64), torch.tensor([[length]], dtype=torch.float64))
    z = math.sqrt(2 * nu) * lag[1:].numpy() / length
    expected = 2 ** (1 - nu) / special.gamma(nu) * z**nu * special.kv(nu, z)
    assert found[0, 0] == 1
    torch.testing.assert_close(found[0, 1:], torch.from_numpy(expected), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("wide", [16, 1200])
def test_int8_products_are_exact(wide):
    x, weight = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((2, 5, wide), (2, wide, 3)))
    assert torch.equal(int8_bmm(x, weight).long(), torch.bmm(x.long(), weight.long()))


def test_quantized_zero_rows_stay_zero():
    linear = PerAgentLinear(torch.zeros(2, 3, 4))
    quantized = nn.quantize_int8(torch.nn.Sequential(linear))
    assert not quantized(torch.zeros(2, 5, 3)).any()


@pytest.mark.cuda
def test_int8_products_of_the_device_are_exact():
    x, weight = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((2, 32, 64), (2, 64, 16)))
    assert torch.equal(int8_bmm(x.cuda(), weight.cuda()).cpu().long(), torch.bmm(x.long(), weight.long()))
