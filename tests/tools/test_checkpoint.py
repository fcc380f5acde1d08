"""Checkpointed blocks compute what plain ones do; as few of them as a budget of bytes needs."""

import copy
import gc
import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from denizen import tools
from denizen.errors import InputError


class Block(nn.Module):
    """Dropout, batch norm, keyword arguments, several outputs."""

    def __init__(self, width=16, wide=64):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(width, wide), nn.BatchNorm1d(wide), nn.Linear(wide, width)

    def forward(self, x, *, scale=1.0):
        h = F.dropout(torch.tanh(self.norm(self.up(x))), 0.2, self.training)
        return x + self.down(h) * scale, {"mean": h.mean()}


class Net(nn.Module):
    def __init__(self, wides=(64, 64, 64)):
        super().__init__()
        self.layers = nn.ModuleList(Block(wide=wide) for wide in wides)
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        extra = 0.0
        for layer in self.layers:
            x, more = layer(x, scale=0.5)
            extra = extra + more["mean"]
        return self.head(x).square().mean() + extra


def build(**options):
    torch.manual_seed(0)
    model = Net(**options)
    return model, torch.optim.Adam(model.parameters(), 1e-2), torch.randn(32, 16)


def steps(model, optimizer, x, number=4):
    torch.manual_seed(1)
    losses = []
    for _ in range(number):
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [w.grad for w in model.parameters()], list(model.state_dict().values()), torch.rand(1)


def assert_same(a, b):
    for left, right in zip(torch.utils._pytree.tree_leaves(a), torch.utils._pytree.tree_leaves(b), strict=True):
        assert torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


@pytest.mark.parametrize("blocks", ["layers.*", ["layers.0", "layers.2"], "layers.?.norm"])
def test_same_bits_with_dropout_and_batch_norm(blocks):
    plain = build()
    made = build()
    names = list(made[0].state_dict())
    handle = tools.checkpoint_blocks(made[0], blocks)
    assert list(made[0].state_dict()) == names
    assert all(isinstance(layer, Block) for layer in made[0].layers)
    assert_same(steps(*plain), steps(*made))
    handle.remove()
    handle.remove()
    assert type(made[0].layers[0]) is Block
    assert_same(steps(*plain), steps(*made))


def test_blocks_are_computed_again_in_the_backward_pass_only():
    model, _, x = build()
    calls = []
    for layer in model.layers:
        layer.up.register_forward_hook(lambda *_: calls.append(1))
    tools.checkpoint_blocks(model, ["layers.1"])
    loss = model(x)
    assert len(calls) == 3
    loss.backward()
    assert len(calls) == 4
    with torch.no_grad():
        model.eval()(x)
    assert len(calls) == 7


def test_copies_have_weights_of_their_own():
    model, _, x = build()
    tools.checkpoint_blocks(model, "layers.*")
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.layers[0].up.weight.zero_()
    before = model.eval()(x).item()
    assert other.eval()(x).item() != before
    assert model(x).item() == before


def make_step(model, optimizer, x):
    def step():
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch):
    """One millisecond for each timed call."""
    ticks = iter(range(10**9))
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) / 1000)


def plain_peak(**options):
    model, optimizer, x = build(**options)
    return tools.fit_memory(model, make_step(model, optimizer, x), budget_bytes=10**9, state=[optimizer])


def test_what_fits_is_left_alone():
    fit = plain_peak()
    assert fit.blocks == []
    assert fit.peak_before == fit.peak_after
    assert fit.gradients == "bit-equal"


def test_trial_calls_leave_nothing_behind():
    """An output that is saved, such as that of a ReLU, must not hold the node that holds it."""

    def graphs():
        gc.collect()
        return sum(type(held) is torch.Tensor and held.grad_fn is not None for held in gc.get_objects())

    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    before = graphs()
    with pytest.raises(InputError, match="budget_bytes=1 "):
        tools.fit_memory(model, lambda: model(torch.ones(2, 8)).sum().backward(), budget_bytes=1, blocks="0")
    assert graphs() == before


def test_as_few_blocks_as_the_budget_needs():
    wides = (128, 128, 96, 144, 64, 128)
    whole = plain_peak(wides=wides).peak_before
    chosen = {}
    for share in (0.9, 0.7, 0.6):
        model, optimizer, x = build(wides=wides)
        before = copy.deepcopy((model.state_dict(), torch.get_rng_state()))
        budget = int(whole * share)
        step = make_step(model, optimizer, x)
        fit = tools.fit_memory(model, step, budget_bytes=budget, state=[optimizer])
        assert_same(before, (model.state_dict(), torch.get_rng_state()))
        assert not optimizer.state
        assert fit.peak_after <= budget < fit.peak_before == whole
        assert fit.gradients == "bit-equal"
        assert [f"layers.{k}" for k, layer in enumerate(model.layers) if type(layer) is not Block] == sorted(fit.blocks)
        chosen[share] = fit.blocks
    assert chosen[0.9] == ["layers.3"]  # saves most in the same time
    assert 1 < len(chosen[0.6]) < 6
    saved = {cost.name: cost.saved_bytes for cost in fit.costs}
    assert next(iter(saved)) == "layers.3"
    assert list(saved)[-2:] == ["layers.2", "layers.4"]
    # Held: normalised input, its tanh, the dropout's mask and result, each 32 rows of `wide`; more or less by version.
    assert 3 * 32 * 144 * 4 < saved["layers.3"] < 6 * 32 * 144 * 4
    assert "layers.3" in str(fit)
    assert "gradients bit-equal" in str(fit)
    fit.checkpointing.remove()
    assert type(model.layers[3]) is Block


def test_it_does_not_fit():
    model, optimizer, x = build()
    with pytest.raises(InputError, match=r"budget_bytes=1000 \(1000 B\): the step holds .* layers.0.*checkpointed"):
        tools.fit_memory(model, make_step(model, optimizer, x), budget_bytes=1000, state=[optimizer])
    assert type(model.layers[0]) is Block


def test_the_plain_step_runs_out_of_memory():
    model, optimizer, x = build()
    whole = plain_peak()
    inner = make_step(model, optimizer, x)

    def step():
        made = sum(type(layer) is not Block for layer in model.layers)
        if made < 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return inner()

    fit = tools.fit_memory(model, step, budget_bytes=int(whole.peak_before * 0.8), state=[optimizer])
    assert fit.peak_before is None
    assert len(fit.blocks) >= 2
    assert fit.gradients.startswith("not compared")
    assert "out of memory" in str(fit)


class Counting(nn.Module):
    """Computes with a buffer that it has changed, and draws from a generator of its own."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 16)
        self.register_buffer("runs", torch.zeros(()))
        self.own = None

    def forward(self, x):
        self.runs += 1
        noise = torch.randn(16, generator=self.own) if self.own else 1.0
        return torch.tanh(torch.tanh(self.lin(x * self.runs * noise)).exp()).exp()


def test_a_changed_buffer_is_changed_once():
    model = nn.Sequential(Counting(), nn.Linear(16, 1))
    tools.checkpoint_blocks(model, "0")
    model(torch.ones(2, 16)).sum().backward()
    assert model[0].runs.item() == 1


def test_blocks_that_are_not_the_same_twice_are_refused():
    model, own = nn.Sequential(Counting(), Counting(), Counting(), nn.Linear(16, 1)), torch.Generator().manual_seed(0)
    for block in model[:3]:
        block.own = own
    x = torch.randn(64, 16)
    whole = tools.fit_memory(model, lambda: model(x).sum().backward(), budget_bytes=10**9, state=[own]).peak_before
    with pytest.raises(
        InputError, match=r"checkpointing changes the gradient of [012].lin.\w+: .* a generator of its own"
    ):
        tools.fit_memory(model, lambda: model(x).sum().backward(), budget_bytes=int(whole * 0.8), state=[own])
    assert type(model[0]) is Counting
    assert model[0].runs.item() == 0


def test_names_are_checked():
    model, optimizer, x = build()
    for blocks, message in [
        ("layer.0", "is no module of the model; did you mean 'layers.0"),
        (["layers.0", "layers.0.up"], "'layers.0.up' lies inside 'layers.0'"),
    ]:
        with pytest.raises(InputError, match=message):
            tools.checkpoint_blocks(model, blocks)
    tools.checkpoint_blocks(model, "layers.0")
    with pytest.raises(InputError, match=r"'layers.0' is checkpointed already"):
        tools.checkpoint_blocks(model, "layers.*")
    model.head.forward = lambda x: x
    with pytest.raises(InputError, match="forward of 'head' was replaced"):
        tools.checkpoint_blocks(model, "head")
    with pytest.raises(InputError, match="budget_bytes=0"):
        tools.fit_memory(model, lambda: None, budget_bytes=0)
    with pytest.raises(InputError, match="no ModuleList and no Sequential"):
        tools.fit_memory(nn.Linear(2, 2), lambda: None, budget_bytes=10)
    with pytest.warns(UserWarning, match="fit_memory: the step uses optimizer"):
        tools.fit_memory(build()[0], make_step(model, optimizer, x), budget_bytes=10**9, state=[model])


@pytest.mark.cuda
def test_on_cuda():
    model, optimizer, x = (thing.cuda() if hasattr(thing, "cuda") else thing for thing in build())
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    x = x.repeat(2000, 1)
    step = make_step(model, optimizer, x)
    whole = tools.fit_memory(model, step, budget_bytes=10**11, state=[optimizer]).peak_before
    fit = tools.fit_memory(model, step, budget_bytes=int(whole * 0.7), state=[optimizer])
    assert fit.peak_after <= whole * 0.7
    assert fit.gradients in ("bit-equal", "within tolerance")


def test_compiled():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh()), nn.Linear(4, 1))
    plain, x = copy.deepcopy(model), torch.randn(5, 4)
    tools.checkpoint_blocks(model, "0")
    torch.compile(model, backend="aot_eager", fullgraph=True)(x).sum().backward()
    plain(x).sum().backward()
    assert model[0][1].num_batches_tracked == 1
    torch.testing.assert_close(dict(model.state_dict()), dict(plain.state_dict()))
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
