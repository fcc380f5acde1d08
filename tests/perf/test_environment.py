"""What the environment of a step is said to be: of this machine."""

import json
import sys

import pytest
import torch

from denizen.perf import environment


def test_on_a_machine_without_a_gpu():
    found = environment()
    names = [fact.name for fact in found.facts]
    assert len(names) == len(set(names))
    assert {"versions", "CUDA", "torch.compile", "bfloat16", "threads"} <= set(names)
    assert found["CUDA"].value == "no device"
    assert all(fact.evidence for fact in found.facts)
    assert all(fact.advice for fact in found.facts if fact.level == "change")
    assert json.loads(found.to_json())["facts"][0]["name"] == "versions"
    assert torch.__version__ in str(found)


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("torch.compile", "TORCHDYNAMO_DISABLE"),
        ("blocking launches", "CUDA_LAUNCH_BLOCKING"),
        ("allocator", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
    ],
)
def test_variables_that_slow(name, variable, monkeypatch):
    monkeypatch.setenv(variable, "1")
    found = environment()[name]
    assert found.level == "change"
    assert found in environment().to_change


def test_debugging_left_on():
    with torch.autograd.set_detect_anomaly(True):
        assert environment()["anomaly detection"].level == "change"
    assert "anomaly detection" not in {fact.name for fact in environment().facts}


def test_deterministic_algorithms():
    torch.use_deterministic_algorithms(True)
    try:
        assert environment()["deterministic algorithms"].level == "note"
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_step_on_the_cpu():
    calls = []
    found = environment(lambda: calls.append(torch.ones(3).sum()))
    assert len(calls) == 4
    assert found["CUDA used"].level == "note"
    assert found["compile active"].value == "no"


def test_compiled_code_is_seen_where_it_runs():
    double = torch.compile(lambda x: (x * 2).sum(), backend="eager")
    x = torch.ones(5)
    found = environment(lambda: double(x))["compile active"]
    assert found.value == "yes"
    assert "1 compiled in the first call" in found.evidence
    assert "compiled before" in environment(lambda: double(x))["compile active"].evidence


def test_distributions_are_not_imported_for_the_answer():
    before = "torch.distributions" in sys.modules
    environment()
    assert ("torch.distributions" in sys.modules) == before


@pytest.mark.cuda
def test_a_real_gpu():
    x = torch.ones(512, 512, device="cuda")
    found = environment(lambda: x @ x)
    assert found["CUDA used"].value == "yes"
    assert found["device 0"].value
