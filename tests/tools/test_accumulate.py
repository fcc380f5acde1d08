"""Accumulation makes the step of the one large batch: unequal and masked micro-batches, short windows, processes."""

import copy
import functools
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from denizen import tools
from denizen.errors import InputError

SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=6)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3)).double()


def clone(model, **options):
    model = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


def assert_equal(a, b):
    for left, right in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-10, atol=1e-12)


@given(SIZES, st.sampled_from([None, 0.1]))
def test_unequal_micro_batches(sizes, max_norm):
    start = net()
    small, optimizer, scheduler = clone(start)
    large, reference, its_scheduler = clone(start)
    accumulate = tools.Accumulate(small, optimizer, scheduler=scheduler, max_norm=max_norm)
    for _ in range(3):
        x, y = torch.randn(sum(sizes), 5).double(), torch.randint(3, (sum(sizes),))
        window = list(zip(x.split(sizes), y.split(sizes), strict=True))
        loss = accumulate(window, lambda batch: F.cross_entropy(small(batch[0]), batch[1], reduction="sum"))
        expected = F.cross_entropy(large(x), y)
        reference.zero_grad()
        expected.backward()
        if max_norm:
            nn.utils.clip_grad_norm_(large.parameters(), max_norm)
        reference.step()
        its_scheduler.step()
        torch.testing.assert_close(loss, expected.detach())
        assert_equal(small, large)
    assert scheduler.get_last_lr() == its_scheduler.get_last_lr()


@given(SIZES, st.booleans(), st.integers(0, 2**31))
def test_masked_losses(sizes, on_device, seed):
    start, draws = net(), torch.Generator().manual_seed(seed)
    small, optimizer, _ = clone(start)
    large, reference, _ = clone(start)
    x, y = torch.randn(sum(sizes), 5, generator=draws).double(), torch.randn(sum(sizes), 3, generator=draws).double()
    mask = (torch.rand(sum(sizes), 3, generator=draws) < 0.4).double()
    mask[0, 0] = 1
    window = [{"x": a, "y": b, "mask": m} for a, b, m in zip(*(t.split(sizes) for t in (x, y, mask)), strict=True)]
    loss = tools.Accumulate(small, optimizer)(
        window,
        lambda batch: ((small(batch["x"]) - batch["y"]).square() * batch["mask"]).sum(),
        count=lambda batch: batch["mask"].sum() if on_device else int(batch["mask"].sum()),
    )
    expected = ((large(x) - y).square() * mask).sum() / mask.sum()
    expected.backward()
    reference.step()
    torch.testing.assert_close(loss, expected.detach())
    assert_equal(small, large)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=5), st.integers(0, 2**31))
def test_tokens_of_uneven_micro_batches_count_as_in_one_large_batch(sizes, seed):
    """Rows of different numbers of tokens, some ignored: the step of the mean over all that count."""
    start, draws = net(), torch.Generator().manual_seed(seed)
    small, optimizer, _ = clone(start)
    large, reference, _ = clone(start)
    window = []
    for rows, tokens in sizes:
        y = torch.randint(3, (rows, tokens), generator=draws)
        y[torch.rand(rows, tokens, generator=draws) < 0.3] = -100
        window.append((torch.randn(rows, tokens, 5, generator=draws).double(), y))
    window[0][1][0, 0] = 0

    def loss_sum(batch):
        return F.cross_entropy(small(batch[0]).flatten(0, 1), batch[1].flatten(), reduction="sum")

    loss = tools.Accumulate(small, optimizer)(window, loss_sum, count=lambda batch: (batch[1] != -100).sum())
    x, y = torch.cat([x.flatten(0, 1) for x, _ in window]), torch.cat([y.flatten() for _, y in window])
    expected = F.cross_entropy(large(x), y)
    expected.backward()
    reference.step()
    torch.testing.assert_close(loss, expected.detach())
    assert_equal(small, large)


WEIGHT = torch.tensor([0.2, 0.3, 0.5]).double()
TOKENS = {
    "sum": lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum"),
    "scaled by a mask": lambda z, y: (
        F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none").view_as(y) * (y > 0)
    ).sum(),
    "picked": lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none")[y.flatten() > 0].sum(),
    "images": lambda z, y: F.cross_entropy(z.transpose(1, 2), y, reduction="sum"),
    "smoothed": lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum", label_smoothing=0.1),
    "with a penalty": lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum") + z.square().sum(),
    "by hand": lambda z, y: -z.log_softmax(-1).gather(-1, y[..., None]).sum(),
    "one by one": lambda z, y: sum(F.cross_entropy(a, b, reduction="sum") for a, b in zip(z, y, strict=True)),
    "weighted": lambda z, y: F.cross_entropy(z[:, 0], y[:, 0], reduction="sum", weight=WEIGHT),
}
SAMPLES = {
    "one each": lambda z, y: F.cross_entropy(z[:, 0], y[:, 0], reduction="sum"),
    "means of each": lambda z, y: (
        F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none").view_as(y).mean(1).sum()
    ),
    "mean of all": lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten()) * len(z),
    "divided": lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum") / y.shape[1],
    "numbers": lambda z, y: z.square().sum(),
    "one by one": lambda z, y: sum(
        F.cross_entropy(a, b, reduction="sum") for a, b in zip(z[:, 0], y[:, 0], strict=True)
    ),
    "in parts": lambda z, y: sum(F.cross_entropy(z[k, 0], y[k, 0], reduction="sum") for k in ([0, 1, 2], [3])),
    "two heads": lambda z, y: sum(F.cross_entropy(z[:, k], y[:, k], reduction="sum") for k in (0, 1)),
    "added to itself": lambda z, y: functools.reduce(
        lambda a, _: a + a, range(60), F.cross_entropy(z[:, 0], y[:, 0], reduction="sum") / 2**60
    ),
    "a way of 60 steps": lambda z, y: functools.reduce(lambda a, _: a + 0.1 * torch.ones(3) * a, range(60), z).sum(),
}


@pytest.mark.parametrize("name", TOKENS)
def test_a_sum_over_tokens_is_not_divided_by_samples(name):
    model, batch = net(), (torch.randn(4, 10, 5).double(), torch.randint(3, (4, 10)))
    before = copy.deepcopy(model.state_dict())
    accumulate = tools.Accumulate(model, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(InputError, match=r"terms of cross-entropy.*in a micro-batch of 4 samples.*count=lambda"):
        accumulate([batch], lambda b: TOKENS[name](model(b[0]), b[1]))
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    accumulate([batch], lambda b: TOKENS[name](model(b[0]), b[1]), count=lambda b: b[1].numel())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sum_over_samples_needs_no_count(name):
    model, batch = net(), (torch.randn(4, 10, 5).double(), torch.randint(3, (4, 10)))
    tools.Accumulate(model, torch.optim.SGD(model.parameters(), 0.1))(
        [batch], lambda b: SAMPLES[name](model(b[0]), b[1])
    )


@pytest.mark.parametrize("fused", [False, True])
def test_an_overflow_leaves_optimizer_and_scheduler_out(fused):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=fused)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    amp = tools.Amp("cpu", torch.float16)
    accumulate = tools.Accumulate(model, optimizer, scheduler=scheduler, amp=amp, max_norm=1.0)
    for step, scale in enumerate((1e30, 1.0, 1.0)):  # the first overflows
        before = model.weight.clone()
        accumulate([torch.ones(2, 2)] * 2, lambda b, scale=scale: model(b).float().sum() * scale)
        assert torch.equal(model.weight, before) == (step == 0)
        assert scheduler.last_epoch == step
    assert optimizer.state[model.weight]["step"] == 2


@pytest.mark.filterwarnings("ignore:batch norm:UserWarning")
@settings(max_examples=20)
@given(st.lists(st.integers(2, 6), min_size=1, max_size=4))
def test_with_dropout_and_batch_norm_it_is_one_loss_over_the_same_micro_batches(sizes):
    """Each micro-batch has its own statistics and draws, as in a plain loop over them; buffers follow."""
    torch.manual_seed(0)
    start = nn.Sequential(nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 3)).double()
    small, optimizer, _ = clone(start)
    plain, reference, _ = clone(start)
    accumulate = tools.Accumulate(small, optimizer)
    for step in range(3):
        window = [(torch.randn(n, 5).double(), torch.randint(3, (n,))) for n in sizes]
        torch.manual_seed(step)
        loss = accumulate(window, lambda batch: F.cross_entropy(small(batch[0]), batch[1], reduction="sum"))
        torch.manual_seed(step)
        reference.zero_grad()
        losses = [F.cross_entropy(plain(x), y, reduction="sum") for x, y in window]
        expected = torch.stack(losses).sum() / sum(sizes)
        expected.backward()
        reference.step()
        torch.testing.assert_close(loss, expected.detach())
        assert_equal(small, plain)
        for left, right in zip(small.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(left, right)


def test_weights_below_one_and_windows_without_terms():
    model = nn.Linear(2, 1)
    accumulate = tools.Accumulate(model, torch.optim.SGD(model.parameters(), 0.1))
    batches = [(torch.ones(1, 2), 0.25), (torch.ones(1, 2), 0.25)]
    accumulate(batches, lambda b: (model(b[0]) * b[1]).sum(), count=lambda b: b[1])
    assert model.weight.grad.tolist() == [[1, 1]]
    before = model.weight.clone()
    for none in (0, torch.tensor(0)):
        loss = accumulate(batches, lambda b: (model(b[0]) * 0).sum(), count=lambda b, none=none: none)
        assert loss.item() == 0
        assert torch.equal(model.weight, before)


def test_once_for_each_window():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append("step"))
    optimizer.zero_grad = count("zero_grad", calls, optimizer.zero_grad)
    scheduler.step = count("schedule", calls, scheduler.step)
    amp = tools.Amp("cpu", torch.float16, init_scale=4.0)
    for name in ("unscale_", "update"):
        setattr(amp.scaler, name, count(name, calls, getattr(amp.scaler, name)))
    model.no_sync = count("no_sync", calls, lambda: warnings.catch_warnings())  # any context
    accumulate = tools.Accumulate(model, optimizer, scheduler=scheduler, amp=amp, max_norm=1.0)
    model.weight.grad = torch.full((1, 2), 1e3)  # left over: not of this window
    for window in tools.windows([torch.ones(2, 2)] * 5, 3):
        calls.append(len(window))
        accumulate(window, lambda batch: model(batch).sum())
    one = ["unscale_", "step", "update", "schedule"]
    assert calls == [3, "zero_grad", "no_sync", "no_sync", *one, 2, "zero_grad", "no_sync", *one]
    assert model.weight.grad.norm() < 1


def count(name, calls, function):
    def counted(*args, **options):
        calls.append(name)
        return function(*args, **options)

    return counted


@given(st.lists(st.integers(1, 5), max_size=12), st.integers(1, 7))
def test_windows(sizes, size):
    batches = [torch.zeros(n) for n in sizes]
    whole = list(tools.windows(batches, size))
    assert [b.shape[0] for window in whole for b in window] == sizes
    assert all(len(window) == size for window in whole[:-1])
    rows = [[len(b) for b in window] for window in tools.windows(batches, rows=size)]
    assert sum(rows, []) == sizes  # noqa: RUF017
    assert all(sum(window) >= size > sum(window[:-1]) for window in rows[:-1])


def test_batch_norm_is_warned_of():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    accumulate = tools.Accumulate(model, torch.optim.SGD(model.parameters(), 0.1))
    window = [torch.randn(4, 2)] * 2
    with pytest.warns(UserWarning, match="batch norm '1' takes its statistics from each micro-batch"):
        accumulate(window, lambda batch: model(batch).sum())
    accumulate(window, lambda batch: model(batch).sum())  # once
    model[1].eval()
    tools.Accumulate(model, torch.optim.SGD(model.parameters(), 0.1))(window, lambda batch: model(batch).sum())


def test_what_is_refused():
    model = nn.Linear(2, 1)
    accumulate = tools.Accumulate(model, torch.optim.SGD(model.parameters(), 0.1))
    batch = torch.ones(3, 2)
    for window in ([], batch, {"x": batch}):
        with pytest.raises(InputError, match="expected a list of micro-batches"):
            accumulate(window, lambda b: model(b).sum())
    with pytest.raises(InputError, match=r"shape \(3, 1\): expected a 0-d sum"):
        accumulate([batch], model)
    with pytest.raises(InputError, match="count returned -1"):
        accumulate([batch], lambda b: model(b).sum(), count=lambda b: -1)
    with pytest.raises(InputError, match="pass count="):
        accumulate(["text"], lambda b: model(b).sum())
    for options in ({}, {"size": 2, "rows": 2}, {"size": 0}, {"rows": -1}):
        with pytest.raises(InputError, match="windows"):
            tools.windows([batch], **options)


PROCESS = Path(__file__).with_name("programs") / "accumulate_in_two_processes.py"


@pytest.mark.slow
def test_two_processes_make_the_step_of_one_large_batch(tmp_path):
    words = [sys.executable, PROCESS, str(tmp_path / "store"), str(tmp_path / "grads")]
    subprocess.run(words, check=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    x = torch.arange(40).double().reshape(10, 4).sin()
    model(x).square().mean().backward()
    for rank in (0, 1):
        for grad, weight in zip(torch.load(tmp_path / f"grads{rank}"), model.parameters(), strict=True):
            torch.testing.assert_close(grad, weight.grad, rtol=1e-6, atol=1e-9)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_on_cuda_without_a_host_read(no_waits, dtype):
    model = nn.Linear(4, 1).cuda()
    amp = tools.Amp("cuda", dtype)
    accumulate = tools.Accumulate(model, torch.optim.AdamW(model.parameters(), fused=True), amp=amp, max_norm=1.0)
    window = [(torch.randn(n, 4, device="cuda"), torch.ones(n, 1, device="cuda")) for n in (3, 2)]
    run = lambda: accumulate(window, lambda b: (model(b[0]) * b[1]).float().sum(), count=lambda b: b[1].sum())
    run()
    with no_waits("error" if dtype is not torch.float16 else "default"):
        run()
