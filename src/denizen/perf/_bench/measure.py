"""What one step does and takes: counts in one pass, memory in another, times in others."""

import contextlib
import itertools
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.perf._bench.variant import Variant
from denizen.perf.watch import counting, profiled
from denizen.perf.watch._calls import replaced
from denizen.perf.watch._compiler import graphs_compiled
from denizen.perf.watch._memory import peak_bytes, wait
from denizen.perf.watch._tf32 import takes_tf32

ROUND = 0.02  # seconds that a round takes at least
MOST = 1000  # steps in a round
BACKWARD, OPTIMIZER, REST = "backward", "optimizer", "forward"
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "convolution", "_scaled_mm", "dot")
_ATTENTION = "_scaled_dot_product"

Step = Callable[[], Any]


class Phases:
    """Calls `mark` with the name of the phase that begins: forward, backward, optimizer.

    Args:
        mark: called with the name.
        optimizers: whether to hear of them, by hooks. Compiled code is guarded by the hooks that optimizers have: an
            optimizer within it would be compiled again for them.
    """

    def __init__(self, mark: Callable[[str], None], optimizers: bool = True) -> None:
        self._mark, self._optimizers = mark, optimizers

    @contextlib.contextmanager
    def watched(self) -> Generator[None]:
        """Hear of calls of `backward`, `torch.autograd.grad` and of optimizers within the block."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        with ExitStack() as stack:
            for name in ("backward", "grad"):
                stack.enter_context(replaced(torch.autograd, name, self._wrapped))
            if self._optimizers:
                before = register_optimizer_step_pre_hook(lambda *_: self._mark(OPTIMIZER))
                after = register_optimizer_step_post_hook(lambda *_: self._mark(REST))
                stack.callback(before.remove)
                stack.callback(after.remove)
            yield

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._mark(BACKWARD)
            try:
                return function(*args, **kwargs)
            finally:
                self._mark(REST)

        return call


# --- counts -----------------------------------------------------------------------------------------------------------


def counts_of(step: Step, variant: Variant, device: torch.device, graphs: int) -> dict[str, Any]:
    """What one step does; it has been warmed up.

    Args:
        step: as it is run.
        variant: its precision.
        device: where it works.
        graphs: that were compiled so far for it.

    Returns:
        Numbers by name, and ``matmuls``: matrix products by dtype, ``phases``: operations by phase.
    """
    before = graphs_compiled()
    ops: Counter[str] = Counter()
    with variant.active(device):
        step()
        again = graphs_compiled() - before
        with torch.compiler.set_stance("force_eager"), counting(device) as seen, _Products(device) as products:
            since = {"phase": REST, "ops": 0}

            def mark(phase: str) -> None:
                ops[since["phase"]] += len(seen.ops) - since["ops"]
                since.update(phase=phase, ops=len(seen.ops))

            with Phases(mark).watched():
                step()
            mark(REST)
        kernels = len(seen.ops)
        if device.type == "cuda":
            with profiled(device) as profile:
                step()
            kernels = len(profile.kernels)
    return {
        "kernels": kernels,
        "ops": len(seen.ops),
        "host_reads": sum(seen.host_reads.values()),
        "transfers": seen.to_device.count + seen.to_host.count,
        "transfer_bytes": seen.to_device.bytes + seen.to_host.bytes,
        "bytes_moved": sum(seen.moved.values()),
        "allocations": seen.allocations,
        "graphs": graphs,
        "recompiles": again,
        "matmuls": dict(products.seen),
        "phases": dict(ops),
    }


class _Products(TorchDispatchMode):
    """Counts matrix products by the precision that they are computed in."""

    supports_higher_order_operators = True

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self._cuda = device.type == "cuda"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(getattr(func, "_schema", None), "name", "").removeprefix("aten::")
        if name in _PRODUCTS or name.startswith(_ATTENTION) or name == "convolution_backward":
            first = next((arg for arg in args if isinstance(arg, Tensor)), None)
            if first is not None:
                self.seen[self._precision(first, name)] += 1
        return func(*args, **(kwargs or {}))

    def _precision(self, tensor: Tensor, name: str) -> str:
        switch: Any = torch.backends.cudnn if "conv" in name else torch.backends.cuda.matmul
        if self._cuda and tensor.dtype is torch.float32 and takes_tf32(switch):
            return "tf32"
        return str(tensor.dtype).removeprefix("torch.")


def peak_of(step: Step, variant: Variant, device: torch.device) -> int:
    """Bytes that one step holds at most beyond what was held before."""
    with variant.active(device), ExitStack() as stack:
        if device.type != "cuda":
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        peak = stack.enter_context(peak_bytes(device))
        step()
        stack.close()
    return peak.nbytes


# --- times ------------------------------------------------------------------------------------------------------------


def steps_per_round(step: Step, variant: Variant, device: torch.device) -> int:
    """How many steps make a round long enough to be timed."""
    steps = 1
    while steps < MOST and (taken := round_of(step, variant, device, steps) * steps / 1e3) < ROUND:
        steps = min(MOST, max(2 * steps, math.ceil(0.9 * steps * ROUND / max(taken, 1e-6))))
    return steps


def round_of(step: Step, variant: Variant, device: torch.device, steps: int) -> float:
    """Milliseconds of a step: the device is waited for before and after the round, not within.

    One step goes before, untimed: the round of another case has had the caches for itself.
    """
    with variant.active(device):
        step()
        wait(device)
        began = time.perf_counter()
        for _ in range(steps):
            step()
        wait(device)
        return (time.perf_counter() - began) * 1e3 / steps


def phases_of(
    step: Step, variant: Variant, device: torch.device, steps: int, compiled: bool = False
) -> dict[str, list[float]]:
    """Milliseconds of each phase in each of some steps, which run on without waiting for the device.

    An optimizer within compiled code has no phase of its own: it cannot be told there.

    Args:
        step: as it is run.
        variant: its precision.
        device: where it works.
        steps: to time.
        compiled: whether some of it is.
    """
    hear = not compiled or _hooks_pass(step, variant, device)
    marks: list[list[tuple[str, Any]]] = []

    def mark(phase: str) -> None:
        marks[-1].append((phase, _now(device)))

    with Phases(mark, hear).watched(), variant.active(device):
        wait(device)
        for _ in range(steps):
            marks.append([(REST, _now(device))])
            step()
            mark("")
        wait(device)
    times: dict[str, list[float]] = {}
    for step_marks in marks:
        taken: Counter[str] = Counter()
        for (phase, begin), (_, end) in itertools.pairwise(step_marks):
            taken[phase] += begin.elapsed_time(end) if device.type == "cuda" else (end - begin) * 1e3
        for phase, value in taken.items():
            times.setdefault(phase, []).append(value)
    return times


def _hooks_pass(step: Step, variant: Variant, device: torch.device) -> bool:
    """Whether compiled code runs as it is while optimizers have hooks; one step tells."""
    with variant.active(device), torch.compiler.set_stance("fail_on_recompile"), Phases(lambda _: None).watched():
        try:
            step()
        except RuntimeError as error:
            if "fail_on_recompile" not in str(error):
                raise
            return False
    return True


def _now(device: torch.device) -> Any:
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def interval(a: list[float], b: list[float]) -> tuple[float, float, float]:
    """Median of b/a over rounds that ran side by side, with its 95 % bootstrap interval."""
    import numpy as np

    ratios = np.array(b) / np.array(a)
    drawn = np.random.default_rng(0).integers(0, len(ratios), (2000, len(ratios)))
    low, high = np.quantile(np.median(ratios[drawn], axis=1), (0.025, 0.975))
    return statistics.median(ratios.tolist()), float(low), float(high)
