"""Where CUDA is available nothing registers the simulated device, which would take torch's place for accelerators."""

import pytest
import torch

import denizen as dz
from denizen.perf._doctor import subject as _doctor_subject
from denizen.perf._profile import profile as _profile
from denizen.perf.simulated import _device as _backend


@pytest.fixture
def cuda(monkeypatch):
    def refuse():
        raise AssertionError("the simulated device was registered")

    monkeypatch.setattr(_backend, "_register", refuse)
    for name, answer in {"is_available": True, "current_device": 0, "device_count": 1}.items():
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    monkeypatch.delenv("DENIZEN_DEVICE", raising=False)


@pytest.mark.usefixtures("cuda")
def test_budget_doctor_and_profile_take_the_card():
    assert dz.budget().device.type == "cuda"
    assert _doctor_subject.choose_device(None).type == "cuda"
    assert _profile._chosen(None).type == "cuda"
