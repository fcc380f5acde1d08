"""How far a step is from what the device can do: bytes, operations, launches, and how long it was busy."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import torch

from denizen.perf._doctor.operations import Operations
from denizen.perf._doctor.passes import Profiled
from denizen.perf.watch._copy_rate import copy_rate
from denizen.perf.watch._operations import SIMULATED
from denizen.perf.watch._tf32 import takes_tf32

ROWS = {"cuda": 4096, "cpu": 1024}
LAUNCHES = 2000
LAUNCH_SHARE, BUSY_SHARE = 0.8, 0.5  # of a step: bound by launches


@dataclasses.dataclass(frozen=True)
class Roofline:
    """What a step moves and computes, against the measured peaks of its device.

    Attributes:
        launches: operations of a step; kernels, where it was profiled.
        bytes: read and written by these operations, each on its own.
        least_bytes: of distinct memory that the step reads and did not make, the least that any form of it reads.
        flops: of matrix products and convolutions.
        bandwidth: bytes per second of a large copy; None where the device is simulated, as for all times.
        peak: FLOP per second of a large matrix product in float32, with the settings in force.
        peak64: the same in float64, where the step has such products.
        launch: seconds of the host for one small operation.
        by_ops: share of the step that its operations need at these peaks.
        fused: share that one kernel would need.
        busy: share of the step in which kernels ran: the union of their intervals.
        exposed_copies: share in which copies ran and no kernel.
        idle: seconds of a profiled step in which no kernel ran, by cause (see `denizen.perf.attribute`).
        launch_bound: whether launching takes the time; None where it is not known.
        errors: what contradicts itself, such as a share above 1.
    """

    launches: int
    bytes: int
    least_bytes: int
    flops: int
    bandwidth: float | None = None
    peak: float | None = None
    peak64: float | None = None
    launch: float | None = None
    by_ops: float | None = None
    fused: float | None = None
    busy: float | None = None
    exposed_copies: float | None = None
    idle: dict[str, float] | None = None
    launch_bound: bool | None = None
    errors: tuple[str, ...] = ()


def roofline(device: torch.device, operations: Operations, step: float, profiled: Profiled | None) -> Roofline | None:
    """Of the last step whose operations were examined; None without any."""
    last = operations.steps[-1] if operations.steps else -1
    ops = [op for op in operations.ops if op.step == last]
    if not ops:
        return None
    counted = Roofline(
        len(ops), sum(op.bytes for op in ops), sum(operations.inputs.values()), sum(op.flops for op in ops)
    )
    if device.type == SIMULATED or not step:
        return counted
    bandwidth, peak, launch = copy_rate(device), product_rate(device), launch_cost(device)
    double = any(op.flops and op.dtype == torch.float64 for op in ops)
    by_ops = sum(max(op.bytes / bandwidth, op.flops / peak) for op in ops) / step
    fused = max(counted.least_bytes / bandwidth, counted.flops / peak) / step
    errors = [
        f"the {name} bound is {share:.2f} of the step, above 1: what it works on fits into a cache, or a count is wrong"
        for name, share in (("operation-wise", by_ops), ("fused", fused))
        if share > 1
    ]
    ran = _ran(profiled, step) if profiled is not None else {}
    share = ran.get("busy")
    if share is not None and share > 1:
        errors.append(f"kernels ran for {share:.2f} of a plain step, above 1: the profiled steps were not like it")
    launches = ran.get("launches", counted.launches)
    bound = None if share is None else launches * launch >= LAUNCH_SHARE * step and share < BUSY_SHARE
    return dataclasses.replace(
        counted,
        launches=launches,
        bandwidth=bandwidth,
        peak=peak,
        peak64=product_rate(device, torch.float64) if double else None,
        launch=launch,
        by_ops=by_ops,
        fused=fused,
        busy=share,
        exposed_copies=ran.get("exposed"),
        idle=ran.get("idle"),
        launch_bound=bound,
        errors=tuple(errors),
    )


def _ran(profiled: Profiled, step: float) -> dict[str, Any]:
    """From the profile, by the time of a plain step: under the profiler the host is slower."""
    report = profiled.report
    if report is None or not report.steps or not report.window:
        return {}
    window = step * report.steps
    return {
        "busy": report.busy / window,
        "exposed": report.exposed_copies / window,
        "launches": round(report.kernels / report.steps),
        "idle": {idle.cause: idle.seconds / report.steps for idle in report.idle},
    }


def product_rate(device: torch.device, dtype: torch.dtype = torch.float32) -> float:
    """FLOP per second of a large product of matrices; measured once for each setting of precision."""
    threads = torch.get_num_threads() if device.type == "cpu" else 0
    return _product_rate(device.type, device.index, threads, takes_tf32(torch.backends.cuda.matmul), dtype)


@functools.cache
def _product_rate(kind: str, index: int | None, threads: int, fast: bool, dtype: torch.dtype) -> float:
    device = torch.device(kind) if index is None else torch.device(kind, index)
    rows = ROWS.get(kind, 1024)
    with torch.no_grad():
        a = torch.ones(rows, rows, device=device, dtype=dtype)
        out = torch.empty_like(a)
        seconds = min(_timed(device, lambda: torch.mm(a, a, out=out), 3) for _ in range(3))
    return 2 * rows**3 / seconds


@functools.cache
def launch_cost(device: torch.device) -> float:
    """Seconds that the host takes for one small operation, without waiting for the device."""
    with torch.no_grad():
        tiny = torch.ones(1, device=device)
        tiny.add_(1)
        best = float("inf")
        for _ in range(3):
            began = time.perf_counter()
            for _ in range(LAUNCHES):
                tiny.add_(1)
            best = min(best, time.perf_counter() - began)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
    return best / LAUNCHES


def _timed(device: torch.device, work: Callable[[], object], times: int) -> float:
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    for _ in range(times):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - began) / times
