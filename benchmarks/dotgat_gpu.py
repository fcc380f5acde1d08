"""Agent attention network: the fast form against the plain reference, a training step by phases and in whole.

    python benchmarks/dotgat_gpu.py [--device cpu] [--parts step scaling int8 recompute] [--out RESULT.json]

Checked first, in the same call: the fast form equals the reference in float64 (1e-10), and in the timed precision its
error to float64 is at most twice that of the reference; a case that fails is timed and marked INVALID.

`forward`, `backward`, `optimizer` are medians between events in one stream, `total` the median of whole steps without
events in between, so phases need not add up to it. `peak` is what torch allocated at most, from a reset for each case.
Cases take turns and the first is run again at the end (`drift`). A captured step is one CUDA graph: no phases.
On the CPU sizes are small, captured cases are left out, and times are no claim but a proof that the script works.
"""

import argparse
import itertools
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from denizen.nn import DotGATConfig, DynamicDotGAT, DynamicDotGATReference, SmallWorld, quantize_int8, sense_columns

BENCHMARK = DotGATConfig(num_agents=20, num_features=25, social=SmallWorld())
TIMES, WARM_UP, STEPS, ROUNDS = 50, 10, 50, 3
PRECISIONS = {"float32": torch.float32, "tf32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
CASES = (  # form, how torch.compile is asked (None: not), whether the whole step is one graph
    ("reference", None, False), ("reference", "default", False), ("fast", None, False), ("fast", "default", False),
    ("fast", "reduce-overhead", False), ("fast", "max-autotune-no-cudagraphs", False), ("fast", None, True),
    ("fast", "default", True), ("reference", "default", True),
)  # fmt: skip


class Case:
    """A network with data and optimizer; `step` is one step of training."""

    def __init__(self, config: DotGATConfig, form: str, mode: str | None, graph: bool, precision: str, batch: int,
                 device: str, **options: Any) -> None:  # fmt: skip
        torch.manual_seed(0)
        sensing = sense_columns(config.num_agents, config.num_features, 0.2)
        reference = DynamicDotGATReference(config, sensing)
        plain: nn.Module = reference if form == "reference" else DynamicDotGAT.from_reference(reference, **options)
        self.plain = plain.to(device).train()
        self.model = torch.compile(self.plain, mode=mode, fullgraph=True, dynamic=False) if mode else self.plain
        self.dtype, self.device, self.graph = PRECISIONS[precision], device, None
        self.x = torch.randn(batch, TIMES, config.num_features, device=device)
        self.y = torch.randn(batch, TIMES, 1, config.num_outputs, device=device)
        cuda = device == "cuda"
        self.optimizer = torch.optim.AdamW(self.plain.parameters(), 1e-3, fused=True, capturable=cuda)
        self.scaler = torch.amp.GradScaler(device, enabled=precision == "float16")
        self.name = f"{form}{' ' + mode if mode else ''}{' graph' if graph else ''}"
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        self.tf32 = precision == "tf32"
        if graph:
            self._capture()

    def forward(self) -> torch.Tensor:
        """The loss, under autocast."""
        with torch.autocast(self.device, self.dtype, enabled=self.dtype != torch.float32):
            return (self.model(self.x).outputs - self.y).square().mean()

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
        self.graph.replay() if self.graph is not None else self.eager()

    def _capture(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.eager()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.eager()
        self.graph = graph


def wait(device: str) -> None:
    torch.cuda.synchronize() if device == "cuda" else None


def total(case: Case, steps: int) -> float:
    """Milliseconds of a step, over `steps` in one unbroken stream."""
    wait(case.device)
    began = time.perf_counter()
    for _ in range(steps):
        case.step()
    wait(case.device)
    return (time.perf_counter() - began) * 1e3 / steps


def phases(case: Case, steps: int) -> dict[str, float]:
    """Median milliseconds of each phase."""
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


def kernels(case: Case) -> int | None:
    """Kernels of a step that the device ran."""
    if case.device != "cuda":
        return None
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        case.step()
        wait(case.device)
    return sum(event.count for event in seen.key_averages() if event.device_time_total > 0) or None


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
    model.zero_grad()
    with torch.autocast(device, dtype, enabled=dtype in (torch.float16, torch.bfloat16)):
        h, y = model(x)
        loss = h.double().sin().sum() + y.double().square().sum()
    loss.backward()
    return [h.detach().double(), y.detach().double()]


def _relative(truth: list[torch.Tensor], found: list[torch.Tensor]) -> float:
    return max(float((a - b).norm() / a.norm()) for a, b in zip(truth, found, strict=True))


def allocated(device: str) -> int:
    """Bytes that are allocated now; the peak is counted from here."""
    if device != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def peak(case: Case, before: int) -> dict[str, float]:
    """MiB at the peak beyond what others had `before` the case was made, and what weights and optimizer hold.

    Of a step; of warming up and recording where the step is one graph, whose replays allocate nothing.
    """
    if case.device != "cuda":
        return {}
    held = sum(t.numel() * t.element_size() for t in case.plain.state_dict().values()) * 3 / 2**20
    if case.graph is None:
        torch.cuda.reset_peak_memory_stats()
        case.step()
        wait(case.device)
    return {
        "peak_mib": (torch.cuda.max_memory_allocated() - before) / 2**20,
        "weights_and_optimizer_mib": held,
    }


def step_part(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A step of every case, one case on the device at a time, in `ROUNDS` turns."""
    rows: list[dict[str, Any]] = []
    cases = [c for c in CASES if args.device == "cuda" or (not c[2] and c[1] is None)]
    verdicts = {precision: errors(BENCHMARK, precision, args.device) for precision in args.precisions}
    for batch in args.batches:
        for precision in args.precisions:
            made = []
            _fresh(args.device)
            for form, mode, graph in cases:
                before, began = allocated(args.device), time.perf_counter()
                try:
                    case = Case(BENCHMARK, form, mode, graph, precision, batch, args.device)
                    for _ in range(args.warm_up):
                        case.step()
                    wait(args.device)
                except Exception as error:  # a mode that this machine cannot do is a line of the table
                    rows.append({"case": f"{form} {mode} {graph}", "batch": batch, "error": str(error)[:300]})
                    continue
                row = {
                    "case": case.name,
                    "batch": batch,
                    "precision": precision,
                    "ready_s": time.perf_counter() - began,
                }
                row |= peak(case, before)
                made.append((case, row, []))
            for _ in range(args.rounds):
                for case, _, times in made:
                    times.append(total(case, args.steps))
            for case, row, times in made:
                row |= {"total_ms": statistics.median(times), "best_ms": min(times), "kernels": kernels(case)}
                if case.graph is None:
                    row |= {f"{name}_ms": value for name, value in phases(case, args.steps).items()}
                row |= {"error": verdicts[precision]["fast"], "valid": verdicts[precision]["ok"]}
                row["samples_per_s"] = batch * 1e3 / row["total_ms"]
                rows.append(row)
            if made:
                made[0][1]["drift"] = total(made[0][0], args.steps) / made[0][1]["total_ms"]
            _ratios([row for _, row, _ in made])
            del made
    return rows


def _ratios(rows: list[dict[str, Any]]) -> None:
    by_name = {row["case"]: row["total_ms"] for row in rows}
    for row in rows:
        for name in ("reference", "reference default"):
            if name in by_name:
                row[f"times faster than {name}"] = by_name[name] / row["total_ms"]


def scaling_part(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Sparse graphs up to thousands of agents; dense ones as long as they are small."""
    rows = []
    for agents in args.agents:
        world = SmallWorld(rewire_prob=0.1)
        for kind in ("sparse", "dense") if agents <= 1024 else ("sparse",):
            _fresh(args.device)
            before = allocated(args.device)
            social = world.graph(agents) if kind == "sparse" else world
            config = DotGATConfig(
                num_agents=agents, num_features=25, hidden=32, num_heads=1, message_steps=2, social=social
            )
            case = Case(config, "fast", None, False, args.precisions[-1], 1, args.device)
            case.step()
            row = {"agents": agents, "kind": kind, "total_ms": total(case, max(1, args.steps // 10))}
            rows.append(row | peak(case, before))
            del case
    return rows


def int8_part(args: argparse.Namespace) -> dict[str, Any]:
    """Inference in eight bits: error, time and bytes beside float32 and bfloat16."""
    torch.manual_seed(0)
    model = DynamicDotGAT(BENCHMARK, sense_columns(20, 25, 0.2)).to(args.device).eval().requires_grad_(False)
    quantized, x = quantize_int8(model), torch.randn(args.batches[-1], TIMES, 25, device=args.device)
    expected, found = model(x).outputs, quantized(x).outputs
    row: dict[str, Any] = {"relative_error": float((found - expected).norm() / expected.norm())}
    for name, one in (("float32", model), ("int8", quantized)):
        row[f"{name}_mib"] = sum(t.numel() * t.element_size() for t in one.state_dict().values()) / 2**20
        row[f"{name}_ms"] = _inference(one, x, args)
    with torch.autocast(args.device, torch.bfloat16):
        row["bfloat16_ms"] = _inference(model, x, args)
    return row


def _inference(model: nn.Module, x: torch.Tensor, args: argparse.Namespace) -> float:
    for _ in range(2):
        model(x)
    wait(args.device)
    began = time.perf_counter()
    for _ in range(args.steps):
        model(x)
    wait(args.device)
    return (time.perf_counter() - began) * 1e3 / args.steps


def recompute_part(args: argparse.Namespace) -> list[dict[str, Any]]:
    """What recomputing message steps costs and saves."""
    rows = []
    for again in (False, True):
        _fresh(args.device)
        before = allocated(args.device)
        batch = args.batches[-1]
        case = Case(BENCHMARK, "fast", None, False, args.precisions[-1], batch, args.device, checkpoint_steps=again)
        case.step()
        kept = {"saved_mib": saved(case) / 2**20}
        rows.append({"checkpoint_steps": again, "total_ms": total(case, args.steps), **kept, **peak(case, before)})
    return rows


def saved(case: Case) -> int:
    """Bytes that a forward keeps for the backward, each storage once, weights aside."""
    own = {t.untyped_storage().data_ptr() for t in case.plain.state_dict().values()}
    seen: dict[int, int] = {}
    keep = []  # so that no address comes twice

    def pack(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
            keep.append(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        case.forward()
    return sum(seen.values())


def _fresh(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()
    torch._dynamo.reset()


def machine(device: str) -> dict[str, Any]:
    def told(*words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()

    return {
        "command": sys.argv, "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor(),
        "threads": torch.get_num_threads(), "torch": torch.__version__, "python": platform.python_version(),
        "driver": told("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") if device == "cuda" else "",
        "commit": told("git", "rev-parse", "HEAD"), "changed": bool(told("git", "status", "--porcelain", "-uno")),
        "seed": 0, "config": repr(BENCHMARK), "times": TIMES,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--parts", nargs="+", default=["step", "scaling", "int8", "recompute"])
    parser.add_argument("--batches", type=int, nargs="+")
    parser.add_argument("--agents", type=int, nargs="+")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    cuda = args.device == "cuda"
    args.batches = args.batches or ([8, 16, 32, 64] if cuda else [2])
    args.agents = args.agents or ([64, 256, 1024, 4096] if cuda else [64, 256])
    args.precisions = args.precisions or (["float32", "tf32", "float16", "bfloat16"] if cuda else ["float32"])
    args.warm_up, args.steps, args.rounds = (WARM_UP, STEPS, ROUNDS) if cuda else (1, 2, 3)
    parts = {"step": step_part, "scaling": scaling_part, "int8": int8_part, "recompute": recompute_part}
    results: dict[str, Any] = {"machine": machine(args.device)}
    for name in args.parts:
        results[name] = parts[name](args)
        print(name, json.dumps(results[name], indent=1), flush=True)
        if args.out:
            args.out.write_text(json.dumps(results, indent=1) + "\n")  # after each part: a cut-off run keeps the others
    bad = [row for row in results.get("step", []) if not row.get("valid", True)]
    for row in bad:
        print("INVALID", row["case"], row["precision"], row["error"])
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
