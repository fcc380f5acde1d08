"""Who hears whom: isolation, causality, frozen edges, the small world, sparse graphs."""

import pytest
import torch

from denizen.errors import InputError
from denizen.nn import DynamicDotGAT, DynamicDotGATReference, EdgeBias, SmallWorld, SocialBias
from denizen.space import Graph

from .configurations import CONFIGURATIONS, SMALL, random_model, ring, small, some_sensing

BOTH = [DynamicDotGATReference, DynamicDotGAT]


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("name", ["plain", "own v", "everyone", "edges", "isolated", "one agent"])
def test_the_future_does_not_change_the_past(cls, name):
    model = random_model(cls, CONFIGURATIONS[name])
    series = torch.randn(2, 6, 4, dtype=torch.float64)
    changed = series.clone()
    changed[:, 4] += 1
    before, after = model(series), model(changed)
    for mine, theirs in zip(before, after, strict=True):
        torch.testing.assert_close(mine[:, :4], theirs[:, :4], rtol=0, atol=1e-13)
        assert (mine[:, 4] != theirs[:, 4]).any()
        assert CONFIGURATIONS[name].memory is False or (mine[:, 5] != theirs[:, 5]).any()


@pytest.mark.parametrize("cls", BOTH)
def test_what_nobody_sees_changes_nothing(cls):
    sensing = some_sensing(SMALL)
    sensing[:, 3] = 0
    model = random_model(cls, SMALL, sensing)
    series = torch.randn(2, 6, 4, dtype=torch.float64, requires_grad=True)
    model(series).outputs.sum().backward()
    assert not series.grad[..., 3].any()
    assert series.grad[..., 0].all()
    assert not (model.embed.grad * (1 - sensing[:, :, None])).any()


@pytest.mark.parametrize("cls", BOTH)
def test_an_agent_that_hears_nobody_knows_only_what_it_sees(cls):
    sensing = torch.eye(5, 4)
    model = random_model(cls, small(social=SmallWorld(neighbours=0)), sensing)
    series = torch.randn(2, 6, 4, dtype=torch.float64)
    changed = series.clone()
    changed[..., 2] += 1
    same = (model(series).outputs == model(changed).outputs).all(-1).all(0).all(0)
    assert same.tolist() == [True, True, False, True, True]


@pytest.mark.parametrize("steps", [1, 2])
def test_news_travels_half_the_neighbours_a_step(steps):
    config = small(num_agents=9, num_features=9, message_steps=steps, social=SmallWorld(neighbours=2))
    model = random_model(DynamicDotGAT, config, torch.eye(9))
    series = torch.randn(1, 3, 9, dtype=torch.float64)
    changed = series.clone()
    changed[..., 4] += 1
    moved = (model(series).outputs != model(changed).outputs).any(-1).any(0).any(0)
    assert moved.tolist() == [abs(agent - 4) <= steps for agent in range(9)]


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_bias_matrix(symmetric):
    bias = SocialBias(SmallWorld(neighbours=4, freeze=0.7, rewire_prob=0.2, symmetric=symmetric), 20)
    with torch.no_grad():
        bias.theta.copy_(torch.randn_like(bias.theta))
    matrix = bias()
    assert torch.equal(matrix.diagonal(), torch.ones(20))
    assert not matrix.isinf().all(1).any()
    learnable = torch.zeros(20, 20, dtype=torch.bool)
    learnable[bias.receiver, bias.sender] = True
    assert torch.equal(matrix.isfinite(), learnable | torch.eye(20, dtype=torch.bool))
    if symmetric:
        assert torch.equal(matrix, matrix.T)
    else:
        assert bias.theta.numel() - 80 in range(75, 97)  # 30 % of 320 absent, less those on the diagonal


def test_frozen_entries_stay_frozen_in_training():
    model = random_model(DynamicDotGAT, CONFIGURATIONS["unfrozen"], dtype=torch.float32)
    before = model.bias().isinf()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(2, 3, 4)).outputs.square().sum().backward()
        optimizer.step()
    assert torch.equal(model.bias().isinf(), before)
    assert torch.equal(model.bias().diagonal(), torch.ones(5))


def test_sparse_equals_dense():
    world = SmallWorld(neighbours=4, rewire_prob=0.3)
    config = small(num_agents=12, social=world)
    dense = random_model(DynamicDotGAT, config)
    sparse = random_model(DynamicDotGAT, small(num_agents=12, social=world.graph(12)))
    assert torch.equal(dense.bias().isinf(), sparse.bias.dense().isinf())
    state = sparse.state_dict()
    sparse.load_state_dict({**dense.state_dict(), **{k: v for k, v in state.items() if k.startswith("bias.")}})
    with torch.no_grad():
        sparse.bias.theta.copy_(dense.bias()[sparse.bias.receiver[:-12], sparse.bias.sender[:-12]])
    series = torch.randn(2, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(dense(series).outputs, sparse(series).outputs)


def test_agents_can_be_renumbered():
    """Agents laid out anew with their weights, masks and graph give the outputs laid out anew."""
    config = small(social=None)
    model = random_model(DynamicDotGAT, config, some_sensing(config))
    order = torch.tensor([3, 1, 4, 0, 2])
    other = random_model(DynamicDotGAT, config, some_sensing(config))
    per_agent = ("sensing", "memory.fused.weight", "social.fused.weight", "mlp.inner", "mlp.outer", "head.")
    state = {k: v[order] if k == "embed" or k.startswith(per_agent) else v for k, v in model.state_dict().items()}
    other.load_state_dict(state)
    series = torch.randn(2, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(model(series).outputs[:, :, order], other(series).outputs)


def test_facts():
    found = SocialBias(SmallWorld(neighbours=4), 20).facts()
    assert (found.edges, found.degree_min, found.degree_mean, found.degree_max, found.components) == (80, 4, 4.0, 4, 1)
    assert EdgeBias(Graph.from_edges([0, 2], [1, 3], 6)).facts().components == 4
    assert EdgeBias(ring(1000)).facts().components == 1


def test_the_graph_travels_with_the_weights():
    model = DynamicDotGAT(small(num_agents=12, social=SmallWorld(neighbours=4, rewire_prob=0.5)))
    assert {"bias.theta", "bias.receiver", "bias.sender"} <= set(model.state_dict())


def test_wrong_graphs_are_refused():
    with pytest.raises(InputError, match="same number"):
        small(social=ring(6))
    with pytest.raises(InputError, match="has weights"):
        small(social=ring(5).with_weight(torch.ones(10)))
    with pytest.raises(InputError, match="repeated edges"):
        small(social=Graph.from_edges([0, 0, 1], [1, 1, 2], 5))
    small(social=Graph.from_edges([0, 0, 1], [1, 1, 2], 5, duplicates="drop"))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_crowd_of_neighbours_adds_up_in_sixteen_bits(device):
    num = 2000  # of which bfloat16 counts to 256
    config = small(
        num_agents=num, hidden=1, num_heads=1, memory=False, social=Graph.from_edges([*range(1, num)], [0] * 1999, num)
    )
    model = DynamicDotGAT(config).to(device).requires_grad_(False)
    model.social.fused.weight.zero_()
    model.social.shared.fill_(1)
    h = torch.ones(num, 1, 1, device=device)
    h[3 * num // 4 :] = -1
    heard = model.social(h, model.bias(), model.bias)[0]
    model.bfloat16()
    found = model.social(h.bfloat16(), model.bias(), model.bias)[0]
    torch.testing.assert_close(found.float(), heard, rtol=0.02, atol=1e-4)
