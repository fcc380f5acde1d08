"""How fast a device copies: the measured ceiling that memory-bound work is held against."""

import functools
import time
from collections.abc import Callable
from pathlib import Path

import torch

CACHES = 4  # times the last-level cache, so that no copy is served from it
UNKNOWN_CACHE = 32 << 20
ROUNDS = 5
COPIES = 4  # in a round


def copy_rate(device: torch.device) -> float:
    """Bytes per second read and written by a copy within the device's memory; measured once per process.

    On the CPU by as many threads as torch uses at the time. The buffer is four times the last-level cache; a device
    with less free memory than two of them gets a smaller one, and may then copy faster than its memory.
    """
    threads = torch.get_num_threads() if device.type == "cpu" else 0
    index = torch.cuda.current_device() if device.type == "cuda" and device.index is None else device.index
    return _measured(device.type, index, threads)


@functools.cache
def _measured(kind: str, index: int | None, threads: int) -> float:
    device = torch.device(kind) if index is None else torch.device(kind, index)
    size = CACHES * last_level_cache(device)
    if kind == "cuda":
        size = min(size, torch.cuda.mem_get_info(device)[0] // 4)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)  # touched, so that no page is first mapped while the clock runs
    clock = _cuda_seconds if kind == "cuda" else _seconds
    seconds = min(clock(lambda: target.copy_(source)) for _ in range(ROUNDS))
    return 2 * size * COPIES / seconds


def _seconds(copy: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(COPIES):
        copy()
    return time.perf_counter() - began


def _cuda_seconds(copy: Callable[[], object]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(COPIES):
        copy()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def last_level_cache(device: torch.device) -> int:
    """Bytes of the largest cache, or 32 MiB where the machine does not say."""
    if device.type == "cuda":
        return getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or UNKNOWN_CACHE
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = file.read_text().strip()
            sizes.append(int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]])
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return max(sizes, default=UNKNOWN_CACHE)
