"""Settings that are other while a finding is taken out of a step; each is put back."""

import contextlib
from collections.abc import Callable, Generator, Iterable
from typing import Any

import torch

from denizen.perf.watch._replaced import replaced
from denizen.perf.watch._tf32 import tf32


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
    try:
        with replaced(torch, "set_anomaly_enabled", lambda _: lambda *_, **__: None):
            yield
    finally:
        switch(anomaly, nan)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


@contextlib.contextmanager
def no_scaler(things: Iterable[Any] = ()) -> Generator[None]:
    """Gradient scalers pass everything on, those among some things."""
    with contextlib.ExitStack() as stack:
        for scaler in things:
            if isinstance(scaler, torch.amp.GradScaler):
                for name, passes in _PASSING.items():
                    stack.enter_context(replaced(scaler, name, lambda _, passes=passes: passes))
        yield


_PASSING: dict[str, Callable[..., Any]] = {
    "scale": lambda outputs: outputs,
    "unscale_": lambda *_, **__: None,
    "step": lambda optimizer, *args, **kwargs: optimizer.step(*args, **kwargs),
    "update": lambda *_, **__: None,
}


# Kinds that a setting takes out, wherever their line is.
SWITCHES: dict[str, Callable[[Iterable[Any]], contextlib.AbstractContextManager[None]]] = {
    "dtype-fp32": lambda _: tensor_cores(),
    "debug-left-on": lambda _: no_debugging(),
    "host-sync-scaler": no_scaler,
}
