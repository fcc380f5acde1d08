"""`set_fast_defaults` on patched machines: what it sets, what it leaves alone, and that it can be undone."""

import pytest
import torch

from denizen import tools


@pytest.fixture
def switches():
    """The switches as they are, restored afterwards."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = False, False, False
    yield lambda: (matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark)
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


def machine(monkeypatch, available=True, hip=None, capability=(9, 0)):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    monkeypatch.setattr(torch.version, "hip", hip)


def test_sets_and_undoes(monkeypatch, switches):
    machine(monkeypatch)
    done = tools.set_fast_defaults()
    assert switches() == (True, True, True)
    assert done.changed["torch.backends.cudnn.benchmark"] == (False, True)
    assert len(done.changed) == 3
    assert not done.skipped
    assert "torch.backends.cuda.matmul: False -> True" in str(done)
    done.undo()
    assert switches() == (False, False, False)
    torch.backends.cudnn.benchmark = True
    done.undo()  # does nothing any more
    assert switches() == (False, False, True)


def test_what_was_set_before_stays_so(monkeypatch, switches):
    machine(monkeypatch)
    torch.backends.cudnn.benchmark = True
    with tools.set_fast_defaults() as done:
        assert "torch.backends.cudnn.benchmark" not in done.changed
    assert switches() == (False, False, True)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ({"available": False}, "no CUDA device"),
        ({"hip": "6.2"}, "off on AMD"),
        ({"available": False, "hip": "6"}, "AMD"),
    ],
)
def test_left_alone(monkeypatch, switches, kind, why):
    machine(monkeypatch, **kind)
    done = tools.set_fast_defaults()
    assert switches() == (False, False, False)
    assert not done.changed
    assert all(why in reason for reason in done.skipped.values())
    assert len(done.skipped) == 3


def test_cards_without_tf32_and_choices(monkeypatch, switches):
    machine(monkeypatch, capability=(7, 5))
    with tools.set_fast_defaults() as done:
        assert switches() == (False, False, True)
        assert "7.5 has no TF32" in done.skipped["torch.backends.cuda.matmul"]
    machine(monkeypatch)
    with tools.set_fast_defaults(benchmark=False):
        assert switches() == (True, True, False)


def test_beside_the_newer_switch(monkeypatch):
    """Who uses `fp32_precision` can no longer read `allow_tf32`; nothing may fail for that."""
    machine(monkeypatch)
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32
    try:
        matmul.fp32_precision = "tf32"
        with pytest.raises(RuntimeError):
            _ = matmul.allow_tf32
        matmul.fp32_precision = "ieee"
        with tools.set_fast_defaults(benchmark=False):
            assert matmul.fp32_precision == "tf32"
        assert matmul.fp32_precision == "ieee"
    finally:
        matmul.allow_tf32 = before
        cudnn.benchmark = False
