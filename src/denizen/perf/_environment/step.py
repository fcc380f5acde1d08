"""Where a step really computes, and whether compiled code runs in it: seen by running it, not by asking settings."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from denizen.perf._environment.environment import CHANGE, NOTE, OK, Fact
from denizen.perf._profile.profile import profile
from denizen.perf._profile.report import ProfileReport
from denizen.perf.watch._compiled import graphs_compiled

REGION = "Torch-Compiled Region"  # what torch's profiler calls a call of compiled code


def of_step(step: Callable[[], Any]) -> Iterator[Fact]:
    """Facts of one step, which is called four times: once alone, three times by `profile`."""
    graphs, began = graphs_compiled(), time.perf_counter()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    first, graphs = time.perf_counter() - began, graphs_compiled() - graphs
    report = profile(step, plain=1, warm_up=1, active=1)
    yield used(report)
    yield compiled(report, graphs, first, report.plain_times[0])
    yield from products(report)


def used(report: ProfileReport) -> Fact:
    """Whether the GPU does the work."""
    ops = sum(op.calls for op in report.operators if op.name.startswith("aten::"))
    if report.on_device:
        share = f"busy {report.busy_share:.0%} of the step" if report.busy_share is not None else "nothing measured"
        return Fact("CUDA used", "yes", OK, f"{report.kernels} kernels on {report.device} in a step, {share}")
    if not torch.cuda.is_available():
        return Fact("CUDA used", "no", NOTE, f"{ops} operators in a step, all on the CPU: there is no CUDA device")
    advice = "move the model and every batch there: model.to('cuda'), batch.to('cuda', non_blocking=True)"
    return Fact("CUDA used", "no", CHANGE, f"{ops} operators in a step and not one kernel on a GPU", advice)


def compiled(report: ProfileReport, graphs: int, first: float, later: float) -> Fact:
    """Whether compiled code runs in the step."""
    regions = sum(op.calls for op in report.operators if op.name.startswith(REGION))
    times = f"first call {_time(first)}, later ones {_time(later)}"
    if regions:
        new = f", {graphs} compiled in the first call" if graphs else ", compiled before"
        return Fact("compile active", "yes", OK, f"{regions} calls of compiled code in a step{new}; {times}")
    advice = "step = torch.compile(step) where launching costs more than computing; dz.doctor(step) says"
    if graphs:
        evidence = f"{graphs} graphs were compiled in the first call, and none runs in later ones; {times}"
        return Fact("compile active", "no", CHANGE, evidence, "look for recompilations: dz.doctor(step)")
    return Fact("compile active", "no", NOTE, f"no compiled region runs in a step; {times}", advice)


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def products(report: ProfileReport) -> Iterator[Fact]:
    """By which kernels float32 products are done, as their names say; nothing where the names do not."""
    names = [kernel.name.lower() for kernel in report.device_ops]
    gemms = [name for name in names if "gemm" in name]
    tensor_cores = [name for name in gemms if "tf32" in name or "tensorop_s1688gemm" in name]
    plain = [name for name in gemms if "sgemm" in name or "f32f32_f32f32" in name]
    if tensor_cores:
        yield Fact("matrix products", "TF32", OK, f"kernel {tensor_cores[0][:60]}")
    elif plain:
        advice = "dz.tools.set_fast_defaults() for TF32, dz.tools.Amp for bfloat16; check with dz.perf.equivalent"
        yield Fact("matrix products", "float32 without tensor cores", CHANGE, f"kernel {plain[0][:60]}", advice)
