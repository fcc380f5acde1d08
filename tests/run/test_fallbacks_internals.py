"""Where a capture fails, or a GPU has no Triton: one message, eager steps."""

import importlib.util
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.run.test_fallbacks import model

import denizen as dz
from denizen.ops import _library
from denizen.run import _compile
from denizen.run._compile import try_capture, try_compile

CUDA = torch.device("cuda")


@pytest.mark.compile
def test_a_capture_that_fails_leaves_the_run_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of CUDA is here, so the capture fails after it has compiled."""
    plain = dz.simulate(model(), 12, compile=False)
    run = dz.simulate(model(), 3, compile=False)
    monkeypatch.setattr(_compile, "BACKEND", "eager")
    monkeypatch.setattr(torch.cuda, "Stream", lambda: (_ for _ in ()).throw(RuntimeError("CUDA error: not here")))
    with pytest.warns(UserWarning, match="CUDA error: not here") as said:
        assert try_capture(run._stepper, run._run_state) is None
    assert len(said) == 1
    assert torch.equal(run.extend(9)["cases"], plain["cases"])


MISSING = pytest.mark.parametrize("missing", ["capability", "triton", "compiler"])


def lacking(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of capability 6.0, no Triton, or no C compiler for Triton to build with."""
    find = importlib.util.find_spec
    if missing == "capability":
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *args: (6, 0))
        return
    there = lambda name, *args: None if name == "triton" and missing == "triton" else find(name, *args)
    monkeypatch.setattr("importlib.util.find_spec", there)
    if missing == "compiler":
        if not torch.cuda.is_available():
            monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *args: (9, 0))
        monkeypatch.setattr(_library, "_fault_of_triton", lambda: "Failed to find C compiler")


@pytest.fixture
def _asked_anew() -> Iterator[None]:
    _library._has_triton.cache_clear()
    yield
    _library._has_triton.cache_clear()


@MISSING
@pytest.mark.usefixtures("_asked_anew")
def test_a_gpu_without_triton_compiles_nothing_and_says_so_once(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(missing, monkeypatch)
    run_state: Any = types.SimpleNamespace(step=types.SimpleNamespace(device=CUDA))
    stepper: Any = None  # is not touched
    with pytest.warns(UserWarning, match="plain torch, with equal results") as said:
        found = dz.ops.variant(CUDA), try_capture(stepper, run_state), try_compile(stepper, run_state, {})
    assert found == ("reference", None, "eager")
    assert len(said) == 1


@pytest.mark.cuda
@MISSING
@pytest.mark.usefixtures("_asked_anew")
def test_a_run_on_a_gpu_without_triton_is_eager_and_equal(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host = dz.simulate(model("covid"), 20, replicates=2, device="cpu")
    lacking(missing, monkeypatch)
    with pytest.warns(UserWarning, match="plain torch, with equal results") as said:
        run = dz.simulate(model("covid"), 20, replicates=2, device="cuda", compile=True)
    assert len(said) == 1
    stats = run.stats(count=True)
    assert (stats["path"], stats["ops"]) == ("eager", "reference")  # plain sums over neighbours read sizes on the host
    for series in host.series_names:
        assert torch.equal(host[series], run[series].cpu())
