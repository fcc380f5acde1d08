"""A GPU's counters, as its driver tells them: utilisation, memory, power."""

from collections.abc import Callable
from typing import Any

import torch


def gpu_reader(device: torch.device) -> Callable[[], list[tuple[str, float]]] | None:
    """What reads the device's counters; None without nvidia-ml-py, or where the driver does not answer."""
    try:
        import pynvml  # type: ignore[import-not-found]

        pynvml.nvmlInit()
        handle = _handle(pynvml, device)
    except Exception:  # a missing library, driver or right is no reason to fail
        return None
    reads: list[tuple[str, Callable[[], float]]] = [
        ("utilisation %", lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        ("memory GiB", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30),
        ("power W", lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
        ("temperature °C", lambda: pynvml.nvmlDeviceGetTemperature(handle, 0)),
        ("SM clock MHz", lambda: pynvml.nvmlDeviceGetClockInfo(handle, 1)),
    ]

    def read() -> list[tuple[str, float]]:
        found = []
        for name, value in reads:
            try:
                found.append((name, float(value())))
            except Exception:  # cards that have no such sensor
                continue
        return found

    return read


def _handle(pynvml: Any, device: torch.device) -> Any:
    """The driver's handle of torch's device: its numbers differ under CUDA_VISIBLE_DEVICES."""
    number = device.index if device.index is not None else torch.cuda.current_device()
    uuid = getattr(torch.cuda.get_device_properties(number), "uuid", None)
    if uuid is None:
        return pynvml.nvmlDeviceGetHandleByIndex(number)
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
