"""Which device work goes to, how long it takes there, and how one that failed is told."""

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from denizen.errors import InputError
from denizen.perf.watch import SIMULATED, out_of_memory

VARIABLE = "DENIZEN_DEVICE"
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
FAILURES = ("CUDA error", "CUDA driver error", "device-side assert", "CUBLAS_STATUS", "CUSPARSE_STATUS", "cuDNN error")


def choose_device(device: torch.device | str | None, who: str = "simulate") -> tuple[torch.device, str]:
    """The device to run on, and why.

    Args:
        device: as the caller gave it; None takes `DENIZEN_DEVICE` of the environment where it is set, else CUDA where
            torch sees a device that works, else the CPU.
        who: the function that messages name.

    Raises:
        InputError: no such device here.
    """
    if device is not None:
        return _checked(device, f"{who}: device={device!r}"), "as asked"
    named = os.environ.get(VARIABLE, "").strip()
    if named:
        return _checked(named, f"{who}: the environment variable {VARIABLE}={named!r}"), f"{VARIABLE} says so"
    if not torch.cuda.is_available():
        return torch.device("cpu"), "torch sees no CUDA device"
    fault = _fault()
    if fault is None:
        return torch.device("cuda"), "torch sees it"
    warnings.warn(f"{who}: the CUDA device does not work, so the run takes the CPU: {fault}", stacklevel=3)
    return torch.device("cpu"), f"the CUDA device does not work: {fault}"


def _checked(device: torch.device | str, told: str) -> torch.device:
    if not isinstance(device, str | torch.device):  # a number is whatever accelerator torch takes for its own
        raise InputError(f"{told} is not a device; expected 'cpu' or 'cuda'")
    try:
        target = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"{told} is not a device; expected 'cpu' or 'cuda'") from error
    if target.type not in ("cpu", "cuda", SIMULATED):  # torch knows the last one once a budget or doctor asks for it
        raise InputError(f"{told}, expected 'cpu' or 'cuda'")
    if target.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"{told}, but {no_cuda()}; use device='cpu'")
    if target.type == "cuda" and (target.index or 0) >= torch.cuda.device_count():
        raise InputError(f"{told}, but torch sees {torch.cuda.device_count()} CUDA devices, from 0")
    return target


def no_cuda() -> str:
    """Why there is no CUDA device, as far as torch tells."""
    built = "" if torch.version.cuda else ", since it is built for CPUs only"
    return f"torch sees no CUDA device here{built}"


def on_its_device(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """A method during which CUDA's current device is that of its object (`_device`).

    Triton launches on the current device and CUDA graphs record its streams, wherever the tensors lie.
    """

    @functools.wraps(method)
    def there(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._device.type != "cuda":
            return method(self, *args, **kwargs)
        with torch.cuda.device(self._device):
            return method(self, *args, **kwargs)

    return there


def make_current(device: torch.device) -> None:
    """Where a GPU was asked for by number, make it CUDA's current one: what learns launches from many places."""
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)


@functools.cache
def _fault() -> str | None:
    """What goes wrong when the first CUDA device is used; None where nothing does."""
    try:
        torch.ones(1, device="cuda").add_(1).item()
    except RuntimeError as error:
        return str(error).strip().partition("\n")[0]
    return None


def device_failed(error: BaseException) -> bool:
    """Whether an error means that nothing on the device can be read any more."""
    if not isinstance(error, RuntimeError) or out_of_memory(error):
        return False
    return isinstance(error, torch.AcceleratorError) or any(words in str(error) for words in FAILURES)


LAUNCHING = 1_000_000  # cycles, about 0.6 ms, for which the device waits while the host launches


def device_ms(launch: Callable[[], object]) -> float:
    """Milliseconds that the current CUDA device takes for what `launch` launches; the host waits until it is done.

    The device is held until all is launched: a launch takes as long as a sum over the neighbours of a million agents,
    and the host's part varies.
    """
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(LAUNCHING)
    before.record()
    launch()
    after.record()
    after.synchronize()
    return before.elapsed_time(after)
