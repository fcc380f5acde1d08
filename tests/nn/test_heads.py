"""The static network, heads and inference in eight bits."""

import pytest
import torch

from denizen import nn
from denizen.errors import InputError

from .configurations import SMALL, random_model, small, some_sensing


def test_the_static_network_is_the_dynamic_one_at_one_time():
    sensing = some_sensing(SMALL)
    static = random_model(nn.DotGAT, SMALL, sensing)
    reference = nn.DotGATReference(SMALL, sensing).double().eval()
    reference.core.load_state_dict(static.core.reference_state())
    entries = torch.randn(3, 4, dtype=torch.float64)
    torch.testing.assert_close(static(entries), reference(entries))
    views = entries[:, None] * sensing.double()
    torch.testing.assert_close(static(views=views), static(entries))
    with pytest.raises(InputError, match="either entries"):
        static()
    for network in (static, reference):
        for shape in ((2, 3, 4), (2, 3)):
            with pytest.raises(InputError, match=r"entries has shape .*: expected \[batch, 4\]"):
                network(torch.zeros(shape, dtype=torch.float64))
    with pytest.raises(InputError, match=r"views has shape .*: expected \[batch, 5, 4\]"):
        static(views=torch.zeros(2, 6, 4, dtype=torch.float64))


def test_heads():
    h = torch.randn(6, 5, 8)
    assert nn.Classifier(5, 8, 4)(h).shape == (6, 5, 4)
    assert nn.Predictor(5, 8, 4, 3)(h).shape == (6, 5, 3)
    matrix = nn.FactorPredictor(5, 8, 4, 6)(h)
    assert matrix.shape == (6, 5, 36)
    assert torch.linalg.matrix_rank(matrix.unflatten(-1, (6, 6)), rtol=1e-4).max() <= 3
    decoded = nn.SharedDecoder(8, 4, 7)(h)
    assert decoded.shape == (6, 5, 28)
    assert torch.linalg.matrix_rank(decoded.unflatten(-1, (4, 7)), rtol=1e-4).max() <= 2
    same = torch.ones(6, 5, 3)
    torch.testing.assert_close(nn.Aggregator(8)(h, same), same[:, 0])
    for wrong in (lambda: nn.FactorPredictor(5, 8, 4, 1), lambda: nn.SharedDecoder(8, 1, 7)):
        with pytest.raises(InputError, match="at least"):
            wrong()


def test_an_agent_predicts_by_its_own_weights():
    head, h = nn.Predictor(5, 8, 4, 3), torch.randn(2, 5, 8)
    changed = h.clone()
    changed[:, 3] += 1
    same = (head(h) == head(changed)).all(-1).all(0)
    assert same.tolist() == [True, True, True, False, True]


def test_quantized():
    config = small(hidden=64, num_heads=4, num_outputs=2)
    model = random_model(nn.DynamicDotGAT, config, some_sensing(config), dtype=torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    quantized = nn.quantize_int8(model)
    series = torch.randn(4, 9, 4)
    truth, found = model(series).outputs, quantized(series).outputs
    error = (found - truth).norm() / truth.norm()
    assert 0 < error < 0.03
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())

    def size(m):
        return sum(value.numel() * value.element_size() for value in m.state_dict().values())

    assert size(quantized) < 0.4 * size(model)
    assert not any(weight.requires_grad for weight in quantized.parameters())
    with pytest.raises(InputError, match="a quantized network"):
        quantized.to_reference()
    with pytest.raises(InputError, match="has no weights"):
        nn.quantize_int8(nn.DynamicDotGATReference(SMALL))
    with pytest.raises(InputError, match="quantized already"):
        nn.quantize_int8(quantized)


def test_thousands_of_agents_along_sparse_edges():
    """Dense scores of 2,000 agents would take 4M numbers for each time and head; edges take 10,000."""
    agents = 2000
    config = nn.DotGATConfig(
        num_agents=agents,
        num_features=3,
        hidden=4,
        num_heads=1,
        message_steps=1,
        social=nn.SmallWorld(rewire_prob=0.1).graph(agents),
    )
    model = nn.DynamicDotGAT(config, nn.sense_columns(agents, 3, 0.4))
    model(torch.randn(1, 2, 3)).outputs.sum().backward()
    assert model.bias.theta.grad.isfinite().all()
    assert model.bias.facts().components == 1
