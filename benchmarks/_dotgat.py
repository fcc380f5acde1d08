"""Cases of the agent attention network's benchmark: how they are made, timed, counted and checked."""

import copy
import itertools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from _dotgat_plain import PlainDotGAT
from _turns import turn
from torch import nn
from torch.profiler import ProfilerActivity, profile

from denizen.nn import DotGATConfig, DynamicDotGAT, DynamicDotGATReference, SmallWorld, sense_columns

BENCHMARK = DotGATConfig(num_agents=20, num_features=25, social=SmallWorld())
TIMES, WARM_UP, STEPS, ROUNDS = 50, 5, 50, 3
PRECISIONS = {"float32": torch.float32, "tf32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Case:
    """A network with data and optimizer; `step` is one step of training.

    Its name says what it is: the form (plain: as the published network computes; reference: ours to be read; fast;
    unfused: fast without its own kernels; serial: fast in one stream), how torch.compile is asked, if it is, and
    `captured` where the whole step is one CUDA graph.
    """

    def __init__(
        self, config: DotGATConfig, name: str, precision: str, batch: int, device: str, **options: Any
    ) -> None:
        form, *rest = name.split()
        mode = " ".join(word for word in rest if word != "captured")
        torch.manual_seed(0)
        self.before = allocated(device)
        sensing = sense_columns(config.num_agents, config.num_features, 0.2)
        reference = DynamicDotGATReference(config, sensing)
        if form in ("plain", "reference"):
            made: nn.Module = PlainDotGAT(config, sensing) if form == "plain" else reference
            made.load_state_dict(reference.state_dict())
        else:
            made = DynamicDotGAT.from_reference(reference, **options)
        self.plain = made.to(device).train()
        self.serial = form == "serial"
        if form == "unfused":
            self.plain._fuses = lambda h, times: False
        self.model = torch.compile(self.plain, mode=mode, fullgraph=True, dynamic=False) if mode else self.plain
        self.dtype, self.device, self.tf32 = PRECISIONS[precision], device, precision == "tf32"
        self.x = torch.randn(batch, TIMES, config.num_features, device=device)
        self.y = torch.randn(batch, TIMES, 1, config.num_outputs, device=device)
        cuda = device == "cuda"
        self.optimizer = torch.optim.AdamW(self.plain.parameters(), 1e-3, fused=True, capturable=cuda)
        self.scaler = torch.amp.GradScaler(device, enabled=precision == "float16")
        self.replay: Callable[[], None] | None = None

    def forward(self) -> torch.Tensor:
        """The loss, under autocast."""
        with torch.autocast(self.device, self.dtype, enabled=self.dtype != torch.float32):
            return (self.model(self.x).outputs - self.y).square().mean()

    def forward_backward(self) -> None:
        """Gradients, left where they are."""
        self.scaler.scale(self.forward()).backward()
        self.optimizer.zero_grad(set_to_none=True)

    def eager(self, mark: Callable[[str], None] = lambda name: None) -> None:
        """A step, told by phases."""
        mark("begin")
        loss = self.forward()
        mark("forward")
        self.scaler.scale(loss).backward()
        mark("backward")
        self.scaler.unscale_(self.optimizer) if self.scaler.is_enabled() else None
        nn.utils.clip_grad_norm_(self.plain.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        mark("optimizer")
        self.optimizer.zero_grad(set_to_none=True)
        mark("zero_grad")

    def step(self) -> None:
        """A step as this case takes it."""
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        self.replay() if self.replay is not None else self.eager()

    def captured(self, work: Callable[[], Any]) -> Callable[[], None]:
        """`work` as one CUDA graph: what replays it."""
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        from denizen.nn.kernels import _cuda_message_steps

        usual, here = _cuda_message_steps.Aside, torch.cuda.current_stream()  # no other: each has a workspace of 32 MiB
        _cuda_message_steps.Aside = _cuda_message_steps.Inline if self.serial else usual
        for _ in range(2):
            work()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=here):
            work()
        _cuda_message_steps.Aside = usual
        return graph.replay


def wait(device: str) -> None:
    torch.cuda.synchronize() if device == "cuda" else None


@turn()
def timed(work: Callable[[], Any], device: str, steps: int) -> float:
    """Milliseconds of `work`, over `steps` in one unbroken stream."""
    work()
    wait(device)
    began = time.perf_counter()
    for _ in range(steps):
        work()
    wait(device)
    return (time.perf_counter() - began) * 1e3 / steps


def phases(case: Case, steps: int) -> dict[str, float]:
    """Median milliseconds of each phase: between events, or between graphs that end one phase later each."""
    if case.replay is not None:
        forward = timed(case.captured(case.forward), case.device, steps)
        both = timed(case.captured(case.forward_backward), case.device, steps)
        whole = timed(case.step, case.device, steps)
        return {"forward": forward, "backward": both - forward, "optimizer": whole - both}
    rows: list[list[tuple[str, Any]]] = []
    for _ in range(steps):
        row: list[tuple[str, Any]] = []

        def mark(name: str, row: list[tuple[str, Any]] = row) -> None:
            if case.device == "cuda":
                event = torch.cuda.Event(enable_timing=True)
                event.record()
                row.append((name, event))
            else:
                row.append((name, time.perf_counter()))

        case.eager(mark)
        rows.append(row)
    wait(case.device)
    found: dict[str, list[float]] = {}
    for row in rows:
        for (_, before), (name, after) in itertools.pairwise(row):
            span = before.elapsed_time(after) if case.device == "cuda" else (after - before) * 1e3
            found.setdefault(name, []).append(span)
    return {name: statistics.median(spans) for name, spans in found.items()}


def kernels(case: Case, longest: int) -> dict[str, Any]:
    """Kernels that the device ran in each phase, and the `longest` of a step: calls, microseconds, name."""
    if case.device != "cuda":
        return {}

    def seen(work: Callable[[], Any]) -> tuple[int, list[Any], Any]:
        wait(case.device)
        with profile(activities=[ProfilerActivity.CUDA]) as told:
            kept = work()
            wait(case.device)
        events = [event for event in told.key_averages() if event.self_device_time_total > 0]
        return sum(event.count for event in events), events, kept

    forward, _, loss = seen(case.forward)
    backward, _, _ = seen(lambda: case.scaler.scale(loss).backward())
    case.optimizer.zero_grad(set_to_none=True)
    step, events, _ = seen(case.eager)
    events.sort(key=lambda event: -event.self_device_time_total)
    return {
        "kernels": {"forward": forward, "backward": backward, "optimizer": step - forward - backward},
        "device_us": round(sum(event.self_device_time_total for event in events)),
        "longest": [[e.count, round(e.self_device_time_total), e.key[:110]] for e in events[:longest]],
    }


def errors(config: DotGATConfig, precision: str, device: str) -> dict[str, Any]:
    """Relative errors to the reference in float64, of values and gradients, and whether they will do."""
    torch.manual_seed(0)
    sensing = sense_columns(config.num_agents, config.num_features, 0.2)
    truth = DynamicDotGATReference(config, sensing).double().to(device).eval()
    x = torch.randn(2, TIMES, config.num_features, dtype=torch.float64, device=device)
    expected = _run(truth, x, torch.float64, device)
    found: dict[str, Any] = {}
    exact = _relative(expected, _run(DynamicDotGAT.from_reference(truth), x, torch.float64, device))
    single = DynamicDotGATReference(config, sensing).to(device).eval()
    single.load_state_dict({name: value.float() for name, value in truth.state_dict().items()})
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    dtype = PRECISIONS[precision]
    found["reference"] = _relative(expected, _run(single, x.float(), dtype, device))
    found["fast"] = _relative(expected, _run(DynamicDotGAT.from_reference(single), x.float(), dtype, device))
    # In float32 both are rounding alone: 1e-5 will do there, whatever the other's error.
    floor = 1e-5 if precision == "float32" else 0.0
    found["float64"] = exact
    found["ok"] = exact <= 1e-10 and found["fast"] <= max(2 * found["reference"], floor)
    return found


def _run(model: nn.Module, x: torch.Tensor, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """Hidden states, outputs, and all gradients in one vector, in the order and form of the reference."""
    model.zero_grad()
    with torch.autocast(device, dtype, enabled=dtype in (torch.float16, torch.bfloat16)):
        h, y = model(x)
        loss = h.double().sin().sum() + y.double().square().sum()
    loss.backward()
    with torch.no_grad():  # a network whose weights are the gradients, for its conversion to the reference
        holder = copy.deepcopy(model)
        for mine, theirs in zip(holder.parameters(), model.parameters(), strict=True):
            mine.copy_(theirs.grad)
        plain = holder.to_reference() if isinstance(holder, DynamicDotGAT) else holder
        grads = torch.cat([weight.double().flatten() for _, weight in sorted(plain.named_parameters())])
    return [h.detach().double(), y.detach().double(), grads]


def _relative(truth: list[torch.Tensor], found: list[torch.Tensor]) -> float:
    errors = [float((a - b).norm() / a.norm()) for a, b in zip(truth, found, strict=True)]
    return max(errors) if all(map(math.isfinite, errors)) else math.inf


def allocated(device: str) -> int:
    """Bytes that are allocated now; the peak is counted from here."""
    if device != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def peak(case: Case) -> dict[str, float]:
    """MiB at the peak beyond what others had before the case was made, and what weights and optimizer hold.

    Of a step; of warming up and recording where the step is one graph, whose replays allocate nothing.
    """
    if case.device != "cuda":
        return {}
    held = sum(t.numel() * t.element_size() for t in case.plain.state_dict().values()) * 3 / 2**20
    if case.replay is None:
        torch.cuda.reset_peak_memory_stats()
        case.step()
        wait(case.device)
    return {
        "peak_mib": (torch.cuda.max_memory_allocated() - case.before) / 2**20,
        "weights_and_optimizer_mib": held,
    }
