"""Where CUDA is available nothing registers the simulated device, which would take torch's place for accelerators."""

import pytest
import torch

import denizen as dz
from denizen.perf.simulated import gpu_or_simulated


@pytest.fixture
def cuda(monkeypatch):
    def refuse():
        raise AssertionError("the simulated device was registered")

    monkeypatch.setattr("denizen.perf.simulated._device._register", refuse)
    for name, answer in {"is_available": True, "current_device": 0, "device_count": 1}.items():
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    monkeypatch.delenv("DENIZEN_DEVICE", raising=False)


@pytest.mark.usefixtures("cuda")
def test_budget_doctor_and_profile_take_the_card():
    assert dz.budget().device.type == "cuda"
    assert gpu_or_simulated().type == "cuda"
    assert dz.perf.profile().device.type == "cuda"
