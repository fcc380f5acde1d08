"""The fast network is the reference: values, gradients, training, dropout, recomputation, compilation."""

import pytest
import torch
from torch import nn

from denizen.nn import DynamicDotGAT, DynamicDotGATReference, attention_maps

from .configurations import CONFIGURATIONS, SMALL, random_model, small, some_sensing

TOLERANCE = {torch.float64: (1e-10, 1e-12), torch.float32: (1e-4, 1e-5)}


def pair(config, dtype=torch.float64, sensing=True):
    reference = random_model(DynamicDotGATReference, config, some_sensing(config) if sensing else None, dtype=dtype)
    return reference, DynamicDotGAT.from_reference(reference)


def gradients(model, *args, **named):
    """Loss and gradients by the names of the reference."""
    model.zero_grad()
    h, y = model(*args, **named)
    loss = h.sin().sum() + y.square().sum()
    loss.backward()
    grads = {name: weight.grad for name, weight in model.named_parameters()}
    if isinstance(model, DynamicDotGAT):
        holder = DynamicDotGAT(model.config).to(h.dtype)
        missing = {name for name, grad in grads.items() if grad is None}
        with torch.no_grad():
            for name, weight in holder.named_parameters():
                weight.copy_(torch.zeros_like(weight) if name in missing else grads[name])
        grads = holder.reference_state()
    return h, y, grads


def assert_same(one, other, dtype=torch.float64):
    rtol, atol = TOLERANCE[dtype]
    for mine, theirs in zip(one[:2], other[:2], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=atol)
    for name, grad in one[2].items():
        if grad is None:
            assert not other[2][name].any(), name
        else:
            scale = float(grad.abs().max()) if grad.numel() else 1.0
            torch.testing.assert_close(grad, other[2][name], rtol=rtol, atol=atol * max(scale, 1.0), msg=name)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_values_and_gradients(name, dtype):
    reference, fast = pair(CONFIGURATIONS[name], dtype)
    series = torch.randn(3, 7, 4, dtype=dtype)
    assert_same(gradients(reference, series), gradients(fast, series), dtype)


@pytest.mark.parametrize("shape", [(1, 1, 4), (1, 6, 4), (4, 1, 4), (5, 4)])
def test_shapes(shape):
    reference, fast = pair(SMALL)
    series = torch.randn(*shape, dtype=torch.float64)
    assert_same(gradients(reference, series), gradients(fast, series))


def test_views():
    reference, fast = pair(SMALL)
    views = torch.randn(2, 5, 6, 4, dtype=torch.float64)
    assert_same(gradients(reference, views=views), gradients(fast, views=views))


def test_an_empty_batch():
    _, fast = pair(SMALL)
    assert fast(torch.zeros(0, 3, 4, dtype=torch.float64)).outputs.shape == (0, 3, 5, 3)


def test_state_dicts_both_ways_are_exact():
    for config in CONFIGURATIONS.values():
        reference, fast = pair(config)
        back = fast.to_reference()
        for name, value in reference.state_dict().items():
            assert torch.equal(value, back.state_dict()[name])


def test_equal_seeds_give_equal_weights():
    torch.manual_seed(3)
    fast = DynamicDotGAT(SMALL)
    torch.manual_seed(3)
    reference = DynamicDotGATReference(SMALL)
    for name, value in reference.state_dict().items():
        assert torch.equal(value, fast.reference_state()[name])


class Replay(nn.Module):
    """Dropout with given masks `[B, T, A, H]`, one after the other."""

    def __init__(self, masks, agents_first):
        super().__init__()
        self.masks, self.agents_first, self.next = masks, agents_first, 0

    def forward(self, x):
        mask = self.masks[self.next]
        self.next += 1
        if self.agents_first:
            mask = mask.permute(2, 0, 1, 3).reshape(x.shape)
        return x * mask / 0.9


@pytest.mark.parametrize("name", ["plain", "own v", "symmetric", "edges", "one agent"])
def test_dropout_with_replayed_masks(name):
    config = CONFIGURATIONS[name]
    reference, fast = pair(config)
    masks = (torch.rand(12, 3, 7, config.num_agents, 8, dtype=torch.float64) < 0.9).double()
    reference.drop, fast.drop = Replay(masks, False), Replay(masks, True)
    series = torch.randn(3, 7, 4, dtype=torch.float64)
    assert_same(gradients(reference.train(), series), gradients(fast.train(), series))


@pytest.mark.parametrize("name", ["plain", "own v", "unfrozen", "symmetric", "edges", "isolated", "one agent"])
def test_twenty_steps_of_training(name):
    reference, fast = pair(CONFIGURATIONS[name], torch.float32)
    series, target = torch.randn(8, 7, 4), torch.randn(8, 7, 1, 3)
    losses = {}
    for model in (reference, fast):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        losses[model] = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = (model(series).outputs - target).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses[model].append(loss.item())
    assert losses[reference] == pytest.approx(losses[fast], rel=1e-4)
    assert losses[fast][-1] < losses[fast][0]


@pytest.mark.parametrize("name", ["plain", "edges"])
@pytest.mark.parametrize("training", [False, True])
def test_recomputed_steps_give_equal_gradients(name, training):
    _, fast = pair(CONFIGURATIONS[name])
    fast.train(training)
    series = torch.randn(3, 7, 4, dtype=torch.float64)
    found = []
    for again in (False, True):
        fast.checkpoint_steps = again
        torch.manual_seed(5)
        found.append(gradients(fast, series))
    assert torch.equal(found[0][0], found[1][0])
    for name, grad in found[0][2].items():
        assert torch.equal(grad, found[1][2][name]), name


def test_recomputed_steps_ask_the_dropout_that_is_there():
    """Its rate may have been changed since the network was made."""
    _, fast = pair(SMALL)
    fast.drop.p = 0.3
    fast.drop.train()
    series, found = torch.randn(3, 7, 4, dtype=torch.float64), []
    for fast.checkpoint_steps in (False, True):
        torch.manual_seed(5)
        found.append(gradients(fast, series)[2])
    for name, grad in found[0].items():
        assert torch.equal(grad, found[1][name]), name


def test_conversions_and_looks_draw_nothing():
    reference, fast = pair(SMALL)
    before = torch.get_rng_state()
    DynamicDotGAT.from_reference(reference)
    fast.to_reference()
    attention_maps(fast, torch.randn(1, 3, 4, dtype=torch.float64, generator=torch.Generator()))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "again"), [("plain", False), ("plain", True), ("own v", False), ("edges", False), ("one agent", False)]
)
def test_one_graph_under_compilation(name, again):
    _, fast = pair(CONFIGURATIONS[name])
    fast.checkpoint_steps = again
    series = torch.randn(2, 5, 4, dtype=torch.float64)
    plain = gradients(fast, series)
    torch._dynamo.reset()
    compiled = torch.compile(fast, fullgraph=True, backend="aot_eager", dynamic=False)
    fast.zero_grad()
    h, y = compiled(series)
    (h.sin().sum() + y.square().sum()).backward()
    torch.testing.assert_close(h, plain[0])
    grads = {n: w.grad.clone() for n, w in fast.named_parameters() if w.grad is not None}
    gradients(fast, series)
    for name, weight in fast.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(weight.grad, grads[name], msg=name)


@pytest.mark.parametrize("spoil", ["first layer", "activation", "bias", "shared v"])
def test_the_comparison_notices(spoil):
    """What the published 'optimised' network lost is found."""
    reference, fast = pair(SMALL)
    with torch.no_grad():
        if spoil == "first layer":
            fast.mlp.inner = nn.Identity()
        elif spoil == "activation":
            fast.mlp.forward = lambda h: fast.mlp.outer(fast.mlp.inner(fast.mlp.norm(h)))
        elif spoil == "bias":
            fast.mlp.inner.bias.zero_()
        else:
            fast.memory.shared.mul_(1.01)
    series = torch.randn(3, 7, 4, dtype=torch.float64)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(reference(series).outputs, fast(series).outputs, rtol=1e-5, atol=1e-6)


def test_bfloat16_is_as_near_as_the_plain_network():
    reference, fast = pair(small(hidden=32, message_steps=3), torch.float32)
    exact = random_model(DynamicDotGATReference, reference.config, some_sensing(reference.config))
    exact.load_state_dict(reference.state_dict())
    series = torch.randn(8, 12, 4)
    truth = exact.double()(series.double()).outputs
    error = {}
    for model in (reference, fast):
        with torch.autocast("cpu", torch.bfloat16):
            error[model] = float((model(series).outputs.double() - truth).norm().detach() / truth.norm().detach())
    assert error[fast] <= 2 * error[reference]


def test_gradients_reach_every_parameter():
    for name, config in CONFIGURATIONS.items():
        if config.message_steps:
            _, fast = pair(config)
            gradients(fast, torch.randn(3, 7, 4, dtype=torch.float64))
            for key, weight in fast.named_parameters():
                assert weight.grad is not None, (name, key)
                assert weight.grad.abs().sum() > 0 or not weight.numel(), (name, key)
