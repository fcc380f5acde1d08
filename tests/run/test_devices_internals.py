"""Which device is taken where CUDA is played, and a state that is carried from one device to another."""

import pytest
import torch
from tests.run.test_devices import model

import denizen as dz
from denizen import _device
from denizen.errors import InputError
from denizen.run import _resume, _simulation_folder, choose_device
from denizen.zoo.cartpole import CartPole


@pytest.fixture
def cuda(monkeypatch):
    """A machine with CUDA, as far as choosing goes."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(_device, "_fault", lambda: None)


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch):
    monkeypatch.delenv("DENIZEN_DEVICE", raising=False)


def test_cuda_is_taken_where_it_works(cuda, monkeypatch):
    assert choose_device(None) == (torch.device("cuda"), "torch sees it")
    monkeypatch.setattr(_device, "_fault", lambda: "no kernel image is available")
    with pytest.warns(UserWarning, match="takes the CPU: no kernel image"):
        target, reason = choose_device(None)
    assert (target.type, "no kernel image" in reason) == ("cpu", True)


def test_the_environment_decides_where_nothing_is_asked(cuda, monkeypatch):
    monkeypatch.setenv("DENIZEN_DEVICE", "cpu")
    assert choose_device(None) == (torch.device("cpu"), "DENIZEN_DEVICE says so")
    monkeypatch.setenv("DENIZEN_DEVICE", "cuda:1")
    assert choose_device(None)[0] == torch.device("cuda:1")
    assert choose_device("cpu") == (torch.device("cpu"), "as asked")
    monkeypatch.setenv("DENIZEN_DEVICE", " ")
    assert choose_device(None)[1] == "torch sees it"


def test_a_device_that_is_not_there(cuda):
    with pytest.raises(InputError, match="device='cuda:2', but torch sees 2 CUDA devices"):
        choose_device("cuda:2")


def test_a_run_stays_on_its_kind_of_device(cuda, monkeypatch):
    assert _resume._choose(None, "cpu") == (torch.device("cpu"), "as before")
    assert _resume._choose(None, "cuda") == (torch.device("cuda"), "as before")
    assert _resume._choose("cuda:1", "cpu") == (torch.device("cuda:1"), "as asked")


@pytest.mark.cuda
@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda")])
@pytest.mark.parametrize("compiled", [False, True])
def test_from_one_device_to_another(first, second, compiled):
    """By the checkpoint that a folder holds: a machine with a GPU may lack what a folder needs besides."""
    options = {"replicates": 2, "seed": 3}
    whole = dz.simulate(model(), 60, device="cpu", **options)
    begun = dz.simulate(model(), 31, device=first, compile=compiled and first == "cuda", **options)
    going = dz.simulate(model(), 0, device=second, compile=compiled and second == "cuda", **options)
    going._run_state = _resume._run_state(
        going, _resume.decode(_simulation_folder.checkpoint_of(begun), "checkpoint"), "checkpoint"
    )
    going._steps = begun.steps
    going.extend(29)
    both = {name: torch.cat([begun[name].cpu(), going[name].cpu()], dim=1) for name in whole.series_names}
    assert all(torch.equal(whole[name], values) for name, values in both.items())
    assert all(torch.equal(a, b.cpu()) for a, b in zip(whole._run_state.leaves, going._run_state.leaves, strict=True))


def test_worlds_take_the_gpu_that_was_asked_for(cuda, monkeypatch):
    taken = []
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    for device in ("cuda:1", "cuda", "cpu"):
        _device.make_current(torch.device(device))
    assert taken == [torch.device("cuda:1")]
    with pytest.raises(Exception, match=r"(?i)cuda"):  # it is not there
        dz.rl.Worlds(CartPole(), 4, device="cuda:1")
    assert taken == [torch.device("cuda:1")] * 2
