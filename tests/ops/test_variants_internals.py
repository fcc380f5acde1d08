"""Which variant of the ops a device gets: machines that are not at hand, by patches."""

import importlib.util
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from denizen import ops
from denizen.ops import _library

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def _ask_again() -> Iterator[None]:
    """What was found out about this machine is forgotten before and after."""
    _library._has_triton.cache_clear()
    yield
    _library._has_triton.cache_clear()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretends a GPU of some capability, with Triton or without."""
    find = importlib.util.find_spec

    def pretend(capability: tuple[int, int] = (9, 0), triton: bool = True, fault: str | None = None) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *args: capability)
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *a: (object() if triton else None) if name == "triton" else find(name),
        )
        monkeypatch.setattr(_library, "_fault_of_triton", lambda: fault)

    return pretend


@pytest.mark.parametrize("capability", [(7, 0), (7, 5), (8, 0), (9, 0), (12, 0)])
def test_a_gpu_that_is_new_enough_takes_triton(machine: Any, capability: tuple[int, int]) -> None:
    machine(capability)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ops.variant(CUDA) == "triton"


@pytest.mark.parametrize(
    ("pretended", "reason"),
    [
        ({"capability": (6, 1)}, r"the GPU has capability \(6, 1\), Triton needs 7\.0"),
        ({"capability": (5, 2)}, r"the GPU has capability \(5, 2\)"),
        ({"triton": False}, "triton is not installed"),
        ({"fault": "Failed to find C compiler."}, "Triton does not work: Failed to find C compiler"),
    ],
)
def test_other_gpus_take_plain_torch_and_say_so_once(machine: Any, pretended: dict[str, Any], reason: str) -> None:
    machine(**pretended)
    with pytest.warns(UserWarning, match=reason) as said:
        assert [ops.variant(CUDA) for _ in range(5)] == ["reference"] * 5
    assert len(said) == 1
    assert "equal results" in str(said[0].message)


def test_triton_is_asked_whether_it_can_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its driver is built from C when it is first used, long before a kernel of ours would fail."""
    runtime = pytest.importorskip("triton.runtime")

    def fails() -> None:
        raise RuntimeError("Failed to find C compiler. Please specify via CC\nand more")

    monkeypatch.setattr(runtime.driver, "_active", SimpleNamespace(get_current_target=lambda: "sm_90"))
    assert _library._fault_of_triton() is None
    monkeypatch.setattr(runtime.driver, "_active", SimpleNamespace(get_current_target=fails))
    assert _library._fault_of_triton() == "Failed to find C compiler. Please specify via CC"


def test_the_cpu_asks_for_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", None)
    assert ops.variant(torch.device("cpu")) in ("numba", "reference")
    with ops.reference_only():
        assert ops.variant(CUDA) == ops.variant(torch.device("cpu")) == "reference"


def test_amd_takes_triton_but_no_ptx(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm goes by the name of CUDA in torch; draws stay kernels of their own there."""
    machine((9, 4))
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert ops.variant(CUDA) == "triton"
    assert ops.fuse_draws() is False
