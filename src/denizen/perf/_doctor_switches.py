"""Settings that are other while a finding is taken out of a step; each is put back."""

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor

from denizen.perf._tf32 import tf32


@contextlib.contextmanager
def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Generator[None]:
    """Put what `wrap` makes of an attribute in its place within the block."""
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, wrap(before))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def tensor_cores() -> contextlib.AbstractContextManager[None]:
    """Products of float32 matrices may use them."""
    return tf32(True, torch.backends.cuda.matmul)


@contextlib.contextmanager
def no_debugging() -> Generator[None]:
    """No detection of anomalies, and none to be switched on; no deterministic algorithms."""
    anomaly, nan = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    switch, deterministic = torch.set_anomaly_enabled, torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    switch(False)
    torch.use_deterministic_algorithms(False)
    torch.set_anomaly_enabled = lambda *_, **__: None
    try:
        yield
    finally:
        torch.set_anomaly_enabled = switch
        switch(anomaly, nan)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


@contextlib.contextmanager
def no_scaler() -> Generator[None]:
    """Gradient scalers pass everything on."""
    scaler = torch.amp.GradScaler
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(scaler, "scale", lambda _: lambda _, outputs: outputs))
        stack.enter_context(replaced(scaler, "unscale_", lambda _: lambda *_, **__: None))
        stack.enter_context(
            replaced(scaler, "step", lambda _: lambda _, optimizer, *args, **kwargs: optimizer.step(*args, **kwargs))
        )
        stack.enter_context(replaced(scaler, "update", lambda _: lambda *_, **__: None))
        yield


@contextlib.contextmanager
def no_graph_kept() -> Generator[None]:
    """Backward passes free their graph."""

    def wrap(original: Any) -> Any:
        def backward(tensor: Tensor, gradient: Any = None, retain_graph: Any = None, *args: Any, **kwargs: Any) -> None:
            original(tensor, gradient, False if retain_graph else retain_graph, *args, **kwargs)

        return backward

    with replaced(Tensor, "backward", wrap):
        yield


# Kinds that a setting takes out, wherever their line is.
SWITCHES = {
    "dtype-fp32": tensor_cores, "debug-left-on": no_debugging, "host-sync-scaler": no_scaler,
    "graph-retention": no_graph_kept,
}  # fmt: skip
