"""Mixed precision: which dtype is chosen, that a step is right with and without a scaler, and that a state fits."""

import pytest
import torch

from denizen import tools
from denizen.errors import InputError


def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def train(amp, steps=3, max_norm=None, scale=1.0):
    model, x = net(), torch.randn(32, 8, generator=torch.Generator().manual_seed(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    for _ in range(steps):
        with amp.autocast():
            loss = model(x).square().mean() * scale
        amp.backward(loss)
        norms.append(amp.step(optimizer, max_norm=max_norm))
        optimizer.zero_grad(set_to_none=True)
    return torch.cat([weight.detach().reshape(-1) for weight in model.parameters()]), norms


def test_float32_is_a_plain_step():
    model, x = net(), torch.randn(32, 8, generator=torch.Generator().manual_seed(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    plain = torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])
    amp = tools.Amp("cpu", torch.float32)
    assert train(amp)[0].equal(plain)
    assert amp.scaler is None
    assert amp.state_dict() == {}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("max_norm", [None, 0.01])
def test_low_precision_is_near(dtype, max_norm):
    amp = tools.Amp("cpu", dtype, init_scale=256.0)  # none of the steps overflows
    weights, norms = train(amp, max_norm=max_norm)
    exact, exact_norms = train(tools.Amp("cpu", torch.float32), max_norm=max_norm)
    torch.testing.assert_close(weights, exact, rtol=0.02, atol=2e-3)
    assert (amp.scaler is not None) == (dtype is torch.float16)
    if max_norm is not None:  # unscaled before it is clipped
        torch.testing.assert_close(torch.stack(norms), torch.stack(exact_norms), rtol=0.05, atol=1e-3)
    with amp.autocast():
        assert net()(torch.ones(2, 8)).dtype is dtype


def test_an_overflow_is_left_out():
    amp = tools.Amp("cpu", torch.float16)
    before = train(amp, steps=0)[0]
    weights, _ = train(amp, steps=1, scale=float("inf"))
    assert weights.equal(before)
    assert amp.scaler.get_scale() == 32768.0


@pytest.mark.parametrize("fused", [False, True])
def test_an_overflow_leaves_the_scheduler_out_too(fused):
    amp, model = tools.Amp("cpu", torch.float16), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    taken = 0
    for scale in (float("inf"), 1.0, float("nan"), 1.0, 1.0):
        before = model[0].weight.clone()
        amp.backward(model(torch.ones(4, 8)).square().mean() * scale)
        amp.step(optimizer, max_norm=1.0, schedulers=[scheduler])
        optimizer.zero_grad()
        taken += not model[0].weight.equal(before)
        assert scheduler.last_epoch == taken
        assert scheduler.get_last_lr() == [0.1 * 0.5**taken]
    assert taken == 3


def test_each_scheduler_follows_its_own_optimizer():
    amp, model = tools.Amp("cpu", torch.float16), net()
    optimizers = [torch.optim.SGD(model[k].parameters(), lr=0.1) for k in (0, 2)]
    schedulers = [torch.optim.lr_scheduler.StepLR(one, 1) for one in optimizers]
    amp.backward(model(torch.ones(4, 8)).square().mean())
    model[0].weight.grad[0, 0] = float("inf")
    amp.step(*optimizers, schedulers=schedulers)
    assert [one.last_epoch for one in schedulers] == [0, 1]
    plain = torch.optim.lr_scheduler.StepLR(optimizers[0], 1)
    tools.Amp("cpu", torch.float32).step(*optimizers, schedulers=[plain])
    assert plain.last_epoch == 1


def test_two_optimizers_share_a_step():
    amp, model = tools.Amp("cpu", torch.float16), net()
    first, second = (torch.optim.SGD(model[k].parameters(), lr=0.1) for k in (0, 2))
    amp.backward(model(torch.ones(4, 8)).square().mean())
    norm = amp.step(first, second, max_norm=1.0)
    both = torch.cat([weight.grad.reshape(-1) for weight in model.parameters()])
    torch.testing.assert_close(both.norm(), norm.clamp(max=1.0), rtol=1e-4, atol=1e-5)


def test_choice_by_device(monkeypatch):
    for avx512, amx, dtype in ((0, 0, torch.float32), (1, 0, torch.bfloat16), (0, 1, torch.bfloat16)):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda has=avx512: bool(has), raising=False)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda has=amx: bool(has), raising=False)
        assert tools.Amp("cpu").dtype is dtype
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    for has, dtype in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True, has=has: has)
        monkeypatch.setattr(torch.amp, "GradScaler", lambda device, init_scale: ("scaler", device))
        amp = tools.Amp("cuda:0")
        assert amp.dtype is dtype
        assert amp.scaler == (None if has else ("scaler", "cuda"))
        assert "bfloat16" in repr(amp)


def test_states():
    amp = tools.Amp("cpu", torch.float16, init_scale=8.0)
    other = tools.Amp("cpu", torch.float16)
    other.load_state_dict(amp.state_dict())
    assert other.scaler.get_scale() == 8.0
    with pytest.raises(InputError, match="works without a gradient scaler"):
        tools.Amp("cpu", torch.float32).load_state_dict(amp.state_dict())
    with pytest.raises(InputError, match="works with a gradient scaler"):
        amp.load_state_dict({})


def test_errors():
    with pytest.raises(InputError, match=r"dtype=torch\.int8: expected"):
        tools.Amp("cpu", torch.int8)
    with pytest.raises(InputError, match="needs an optimizer"):
        tools.Amp("cpu", torch.float32).step()


@pytest.mark.cuda
def test_on_a_gpu():
    amp = tools.Amp("cuda")
    model = net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with amp.autocast():
        loss = model(torch.ones(4, 8, device="cuda")).square().mean()
    amp.backward(loss)
    assert amp.step(optimizer, max_norm=1.0).is_cuda
    assert (amp.dtype is torch.bfloat16) == torch.cuda.is_bf16_supported(including_emulation=False)


def test_what_is_no_scheduler_is_refused_before_anything_is_stepped():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    tools.Amp("cpu", torch.float32).backward(model(torch.ones(1, 2)).sum())
    before, plateau = model.weight.clone(), torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    for schedulers, told in (
        (torch.optim.lr_scheduler.StepLR(optimizer, 1), r"schedulers is StepLR, expected a list"),
        ([plateau], r"ReduceLROnPlateau.*scheduler\.step\(metric\)"),
        ([optimizer.param_groups], "scheduler is list"),
    ):
        with pytest.raises(InputError, match=told):
            tools.Amp("cpu", torch.float32).step(optimizer, schedulers=schedulers)
    with pytest.raises(InputError, match="Accumulate: scheduler is ReduceLROnPlateau"):
        tools.Accumulate(model, optimizer, scheduler=plateau)
    assert torch.equal(model.weight, before)
