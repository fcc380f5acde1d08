"""Agent attention network: the fast form against the plain reference, a training step by phases and in whole.

    python benchmarks/dotgat_gpu.py [--cases "reference default" "fast default captured"] [--batches 32 8]
        [--precisions bfloat16 float16] [--parts step kernels scaling int8 recompute] [--out RESULT.json] [--device cpu]

Each line is printed, and the result written, as soon as it is measured. Without options: eight cases of a step, what
matters most first, in about 90 s. `--cases all` takes every mode of torch.compile; max-autotune alone
compiles for minutes.

Checked first, in the same call: the fast form equals the reference in float64 (1e-10), and in the timed precision its
error to float64 is at most twice that of the reference; a case that fails is timed and marked INVALID.

`forward`, `backward`, `optimizer` are medians between events in one stream, `total` the median of whole steps without
events in between, so phases need not add up to it; of a captured step they are differences between graphs that end one
phase later each. `peak` is what torch allocated at most, from a reset for each case. `drift` is the first case, timed
again at the end. `kernels` are those of the step as it is before capture.
On the CPU sizes are small, captured cases are left out, and times are no claim but a proof that the script works.
"""

import argparse
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
from _dotgat import (
    BENCHMARK,
    PRECISIONS,
    ROUNDS,
    STEPS,
    TIMES,
    WARM_UP,
    Case,
    errors,
    kernels,
    peak,
    phases,
    timed,
    wait,
)
from _dotgat_kernels import kernel_rows

from denizen.nn import DotGATConfig, DynamicDotGAT, SmallWorld, quantize_int8, sense_columns

PRODUCT = "fast default captured"
DEFAULT = (
    "reference default",
    PRODUCT,
    "fast default",
    "fast",
    "reference",
)
ALL = (
    *DEFAULT,
    "unfused default captured",
    "serial default captured",
    "fast captured",
    "reference default captured",
    "fast reduce-overhead",
    "fast max-autotune-no-cudagraphs",
)
LONGEST = 14  # kernels of a step that are told by name


class Report:
    """What was measured until now; written after every line, so that a cut-off run keeps what it had."""

    def __init__(self, out: Path | None, found: dict[str, Any]) -> None:
        self.out, self.found = out, found

    def add(self, part: str, row: dict[str, Any]) -> None:
        """Print a line, save all."""
        self.found.setdefault(part, []).append(row)
        print(part, json.dumps(row), flush=True)
        self.save()

    def save(self) -> None:
        """All of it, to the file."""
        if self.out:
            self.out.write_text(json.dumps(self.found, indent=1) + "\n")


def step_part(args: argparse.Namespace, report: Report) -> None:
    """A step of every case, in the order asked for: precision by precision, batch by batch, case by case."""
    for precision in args.precisions:
        try:
            verdict = errors(BENCHMARK, precision, args.device)
        except Exception as error:  # the times are wanted even so, marked
            verdict = {"fast": None, "ok": False, "failed": f"{type(error).__name__}: {error}"[:1000]}
        report.add("errors", {"precision": precision, **verdict})
        for batch in args.batches:
            # Other batches and precisions than the first tell how the product scales; the reference is compiled once.
            first = (precision, batch) == (args.precisions[0], args.batches[0])
            names = args.cases or (DEFAULT if first else (PRODUCT,))
            _step_group([name for name in names if args.device == "cuda" or len(name.split()) == 1],
                        precision, batch, verdict, args, report)  # fmt: skip


def _step_group(names: list[str], precision: str, batch: int, verdict: dict[str, Any], args: argparse.Namespace,
                report: Report) -> None:  # fmt: skip
    _fresh(args.device)
    totals: dict[str, float] = {}
    made: dict[str, Case] = {}  # by form and mode: a captured step takes the compiled network of the same words
    first: tuple[str, Case, Callable[[], None] | None] | None = None
    for name in names:
        row: dict[str, Any] = {"case": name, "batch": batch, "precision": precision}
        began = time.perf_counter()
        words = name.removesuffix(" captured")
        try:
            case = made.get(words) or Case(BENCHMARK, words, precision, batch, args.device)
            made[words], case.replay = case, None
            for _ in range(args.warm_up):
                case.step()
            wait(args.device)
            row["ready_s"] = round(time.perf_counter() - began, 2)
            if args.longest:
                row |= kernels(case, args.longest)
            torch.cuda.reset_peak_memory_stats() if args.device == "cuda" else None
            case.replay = case.captured(case.eager) if name.endswith("captured") else None
            row |= _timed(case, args)
        except Exception as error:  # a mode that this machine cannot do is a line of the table
            report.add("step", row | {"failed": f"{type(error).__name__}: {error}"[:400]})
            continue
        first = first or (name, case, case.replay)
        totals[name] = row["total_ms"]
        row |= {f"times faster than {n}": totals[n] / row["total_ms"] for n in ("reference", "reference default")
                if n in totals and n != name}  # fmt: skip
        row |= {"error": verdict["fast"], "valid": verdict["ok"]}
        report.add("step", row)
    if first is not None:
        name, case, case.replay = first
        drift = timed(case.step, args.device, args.steps) / totals[name]
        report.add("drift", {"case": name, "batch": batch, "precision": precision, "drift": drift})


def _timed(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """Times and memory of a case that is warm."""
    found: dict[str, Any] = peak(case)
    times = [timed(case.step, case.device, args.steps) for _ in range(args.rounds)]
    found |= {"total_ms": statistics.median(times), "best_ms": min(times)}
    found |= {f"{name}_ms": value for name, value in phases(case, args.steps).items()}
    return found | {"samples_per_s": case.x.shape[0] * 1e3 / found["total_ms"]}


def scaling_part(args: argparse.Namespace, report: Report) -> None:
    """Sparse graphs up to thousands of agents; dense ones as long as they are small."""
    for agents in args.agents:
        world = SmallWorld(rewire_prob=0.1)
        for kind in ("sparse", "dense") if agents <= 1024 else ("sparse",):
            _fresh(args.device)
            social = world.graph(agents) if kind == "sparse" else world
            config = DotGATConfig(
                num_agents=agents, num_features=25, hidden=32, num_heads=1, message_steps=2, social=social
            )
            case = Case(config, "fast", args.precisions[0], 1, args.device)
            case.step()
            row = {"agents": agents, "kind": kind}
            row["total_ms"] = timed(case.step, args.device, max(1, args.steps // 10))
            report.add("scaling", row | peak(case))
            del case


def int8_part(args: argparse.Namespace, report: Report) -> None:
    """Inference in eight bits: error, time and bytes beside float32 and bfloat16."""
    torch.manual_seed(0)
    model = DynamicDotGAT(BENCHMARK, sense_columns(20, 25, 0.2)).to(args.device).eval().requires_grad_(False)
    quantized, x = quantize_int8(model), torch.randn(args.batches[-1], TIMES, 25, device=args.device)
    expected, found = model(x).outputs, quantized(x).outputs
    row: dict[str, Any] = {"relative_error": float((found - expected).norm() / expected.norm())}
    for name, one in (("float32", model), ("int8", quantized)):
        row[f"{name}_mib"] = sum(t.numel() * t.element_size() for t in one.state_dict().values()) / 2**20
        row[f"{name}_ms"] = timed(lambda one=one: one(x), args.device, args.steps)
    with torch.autocast(args.device, torch.bfloat16):
        row["bfloat16_ms"] = timed(lambda: model(x), args.device, args.steps)
    report.add("int8", row)


def recompute_part(args: argparse.Namespace, report: Report) -> None:
    """What recomputing message steps costs and saves."""
    for again in (False, True):
        _fresh(args.device)
        batch = args.batches[0]
        case = Case(BENCHMARK, "fast", args.precisions[0], batch, args.device, checkpoint_steps=again)
        case.step()
        row = {"checkpoint_steps": again, "batch": batch, "saved_mib": saved(case) / 2**20}
        report.add("recompute", row | {"total_ms": timed(case.step, args.device, args.steps)} | peak(case))


def kernels_part(args: argparse.Namespace, report: Report) -> None:
    """Each kernel by itself, over tiles."""
    kernel_rows(args.device, PRECISIONS[args.precisions[0]], args.batches[0], lambda row: report.add("kernels", row))


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
    parser.add_argument(
        "--parts", nargs="+", default=["step"], choices=("step", "kernels", "scaling", "int8", "recompute")
    )
    parser.add_argument("--cases", nargs="+", help="words as in the table, or all")
    parser.add_argument("--batches", type=int, nargs="+")
    parser.add_argument("--agents", type=int, nargs="+")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS)
    parser.add_argument("--longest", type=int, default=LONGEST, help="kernels to name; 0 profiles nothing")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    cuda = args.device == "cuda"
    args.cases = list(ALL) if args.cases == ["all"] else args.cases
    args.batches = args.batches or ([32, 8] if cuda else [2])
    args.agents = args.agents or ([64, 256, 1024, 4096] if cuda else [64, 256])
    args.precisions = args.precisions or (["bfloat16", "float16"] if cuda else ["float32"])
    args.warm_up, args.steps, args.rounds = (WARM_UP, STEPS, ROUNDS) if cuda else (1, 2, 3)
    parts: dict[str, Callable[[argparse.Namespace, Report], None]] = {
        "step": step_part, "scaling": scaling_part, "int8": int8_part, "recompute": recompute_part,
        "kernels": kernels_part,
    }  # fmt: skip
    report = Report(args.out, {"machine": machine(args.device)})
    for name in args.parts:
        parts[name](args, report)
    bad = [row for row in report.found.get("step", []) if not row.get("valid", True)]
    for row in bad:
        print("INVALID", row["case"], row["precision"], row["error"])
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
