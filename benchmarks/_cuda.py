"""What the GPU benchmarks share: graphs made on the device, timed replays, the card and the versions."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch
from _turns import turn
from torch.profiler import ProfilerActivity, profile

import denizen as dz
from denizen.run import Run


def random_graph(agents: int, degree: int, seed: int = 0, device: str = "cuda") -> dz.Graph:
    """A graph with `degree` random in-neighbours for each agent, built on the device: 10^9 edges take seconds."""
    generator = torch.Generator(device).manual_seed(seed)
    edges = agents * degree
    source = torch.randint(0, agents, (edges,), generator=generator, dtype=torch.int32, device=device)
    in_ptr = torch.arange(0, edges + 1, degree, device=device)
    order = torch.argsort(source)
    out_ptr = torch.zeros(agents + 1, dtype=torch.int64, device=device)
    out_ptr[1:] = torch.bincount(source, minlength=agents).cumsum(0)
    most = int((out_ptr[1:] - out_ptr[:-1]).max())
    out_idx = torch.div(order, degree, rounding_mode="floor").to(torch.int32)
    none = torch.zeros(0, dtype=torch.int32, device=device)
    return dz.Graph(agents, in_ptr, source, out_ptr, out_idx, none, None, 1.0, degree, most)


def captured(model: dz.Model, worlds: int = 1, **options: Any) -> Run:
    """A run that has made its first steps and is compiled and captured."""
    run = dz.simulate(model, 6, seed=1, replicates=worlds, device="cuda", compile=True, **options)
    assert run.stats()["path"] == "captured", run.stats()
    return run


@turn()
def replay_ms(run: Run, steps: int, times: int = 5) -> float:
    """Milliseconds a step of `steps` steps from the start: graphs as they are replayed, the best of a few."""
    capture, start = run._capture, run._stepper.start()
    assert capture is not None
    start.bad = torch.zeros_like(run._run_state.bad)
    best = float("inf")
    for _ in range(times + 1):
        capture._chunks.forget()
        capture._chunks.load(start)
        torch.cuda.synchronize()
        began = time.perf_counter()
        capture.run(start, steps)
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - began) / steps * 1e3)
    return best


def kernels(run: Run, steps: int = 64, skip: int = 64, most: int = 5) -> tuple[float, float, list[str]]:
    """(launches a step, busy milliseconds a step, the longest kernels) of a chunk `skip` steps after the start."""
    capture, start = run._capture, run._stepper.start()
    assert capture is not None
    start.bad = torch.zeros_like(run._run_state.bad)
    later, _ = capture.run(start, skip)
    capture.run(later, steps)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        capture.run(later, steps)
        torch.cuda.synchronize()
    events = sorted((e for e in seen.key_averages() if e.device_time_total), key=lambda e: -e.device_time_total)
    top = [f"{e.key[:60]} {e.count / steps:.2f} x {e.device_time_total / e.count:.2f} us" for e in events[:most]]
    return sum(e.count for e in events) / steps, sum(e.device_time_total for e in events) / steps / 1e3, top


def event_us(call: Callable[[], Any], repeats: int = 20) -> float:
    """Device microseconds of a call, the best of `repeats`."""
    best = float("inf")
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) * 1e3)
    return best


def copy_rate() -> float:
    """Bytes a second that a large copy moves, read and written."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / (event_us(lambda: target.copy_(source)) * 1e-6)


def facts(device: str = "cuda") -> dict[str, str]:
    """Card, versions, commit (where git is installed)."""
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        head = ""
    card = torch.cuda.get_device_name() if device == "cuda" else device
    return {"card": card, "torch": torch.__version__, "commit": head.strip()}
