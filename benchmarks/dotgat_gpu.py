"""Agent attention network: the fast form against the published network's manner, a training step by phases and whole.

    python benchmarks/dotgat_gpu.py [--parts step table modes precisions levers scaling int8 recompute memory roofline
        kernels] [--cases "plain default" "fast default captured"] [--batches 32 8] [--precisions bfloat16 float16]
        [--out RESULT.json] [--device cpu]

Each line is printed, and the result written, as soon as it is measured; the last line of a part is its time. What
parts show, and about how long they take on an H100:

    step        the goals: the product beside the plain form eager and compiled, in one run, batches 32 and 8; 150 s
    table       forward, backward, optimizer, total and peak at batches 8 to 64, beside the ratios once claimed; 60 s
    modes       the ways of torch.compile beside the captured graph, each in a process with a limit; 120 s
    precisions  float32, tf32, float16, bfloat16, captured; 80 s
    levers      what each lever adds, one after the other; 90 s
    scaling     sparse graphs up to 4,096 agents; 30 s
    int8, recompute, memory, roofline   a few seconds to 20 s each
    kernels     each kernel over tiles; 40 s

Checked first, in the same call: the fast form equals the reference in float64 (1e-10), and in the timed precision its
error to float64 is at most twice that of the reference; a case that fails is timed and marked INVALID.

`forward`, `backward`, `optimizer` are medians between events in one stream, `total` the median of whole steps without
events in between, so phases need not add up to it; of a captured step they are differences between graphs that end one
phase later each. `peak` is what torch allocated at most, from a reset for each case, beside the 32 MiB that the library
of matrix products takes once: the check has taken them. `rounds` are whole steps again, case by case in turn; `ratio`
is of these. `kernels` are those of the step as it is before capture; `device_us` is the sum of their times.
On the CPU sizes are small, captured cases are left out, and times are no claim but a proof that the script works.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
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
from _dotgat_parts import claimed, floors, live_at_peak, within

from denizen.nn import DotGATConfig, DynamicDotGAT, SmallWorld, quantize_int8, sense_columns

PRODUCT = "fast default captured"
DEFAULT = (PRODUCT, "plain default", "plain", "fast default", "fast captured", "fast")
ALL = (
    *DEFAULT,
    "reference default",
    "reference",
    "unfused default captured",
    "serial default captured",
    "plain default captured",
)
MODES = ("fast default", "fast reduce-overhead", "fast max-autotune", PRODUCT)
LEVERS = (  # each with one more than the one before
    ("the published manner", "plain"),
    ("attention with fewer copies, the bias built once", "reference"),
    ("agents first, projections joined, the mask in the embedding", "unfused"),
    ("a kernel for each sublayer", "fast"),
    ("the rest compiled", "fast default"),
    ("one graph", "serial default captured"),
    ("gradients of weights beside the rest", PRODUCT),
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
            _step_group(_here(names, args), precision, batch, verdict, args, report)


def _step_group(
    names: list[str],
    precision: str,
    batch: int,
    verdict: dict[str, Any],
    args: argparse.Namespace,
    report: Report,
    part: str = "step",
) -> dict[str, dict[str, Any]]:
    """Rows of cases, by name; then all of them again in turn, and how many times faster the product is."""
    _fresh(args.device)
    rows: dict[str, dict[str, Any]] = {}
    made: dict[str, Case] = {}  # by form and mode: a captured step takes the compiled network of the same words
    replays: dict[str, tuple[Case, Callable[[], None] | None]] = {}
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
            report.add(part, row | {"failed": f"{type(error).__name__}: {error}"[:400]})
            continue
        replays[name] = case, case.replay
        rows[name] = row | {"error": verdict["fast"], "valid": verdict["ok"]}
        report.add(part, rows[name])
    if len(rows) > 1:
        _again(rows, replays, args, report)
    return rows


def _again(
    rows: dict[str, dict[str, Any]],
    replays: dict[str, tuple[Case, Callable[[], None] | None]],
    args: argparse.Namespace,
    report: Report,
) -> None:
    """All cases in turn, several times: what drifts, drifts for all of them."""
    times: dict[str, list[float]] = {name: [] for name in replays}
    for _ in range(args.rounds):
        for name, (case, case.replay) in replays.items():
            times[name].append(timed(case.step, args.device, args.steps))
    first = next(iter(rows.values()))
    common = {name: first[name] for name in ("batch", "precision")}
    middle = {name: statistics.median(spans) for name, spans in times.items()}
    for name in rows:
        rows[name]["round_ms"] = middle[name]
    report.add("rounds", common | {"total_ms": middle, "best_ms": {name: min(spans) for name, spans in times.items()}})
    if PRODUCT in rows:
        for name in rows:
            ratio = {"median": middle[name] / middle[PRODUCT], "best": min(times[name]) / min(times[PRODUCT])}
            if "device_us" in rows[name]:
                ratio["device"] = rows[name]["device_us"] / rows[PRODUCT]["device_us"]
            row = common | {"of": name, "to": PRODUCT, **ratio, "valid": rows[name]["valid"]}
            report.add("ratio", row) if name != PRODUCT else None


def _timed(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """Times and memory of a case that is warm."""
    found: dict[str, Any] = peak(case)
    times = [timed(case.step, case.device, args.steps) for _ in range(args.rounds)]
    found |= {"total_ms": statistics.median(times), "best_ms": min(times)}
    found |= {f"{name}_ms": value for name, value in phases(case, args.steps).items()}
    return found | {"samples_per_s": case.x.shape[0] * 1e3 / found["total_ms"]}


def _here(names: Iterable[str], args: argparse.Namespace) -> list[str]:
    """Those of the cases that the device can take."""
    return [name for name in names if args.device == "cuda" or len(name.split()) == 1]


def table_part(args: argparse.Namespace, report: Report) -> None:
    """By batch, and the published claims beside what is found."""
    precision = args.precisions[0]
    verdict = errors(BENCHMARK, precision, args.device)
    for batch in (8, 16, 32, 64) if args.device == "cuda" else (1, 2):
        rows = _step_group(
            _here(args.cases or (PRODUCT, "plain"), args), precision, batch, verdict, args, report, "table"
        )
        if {PRODUCT, "plain"} <= rows.keys():
            found = claimed(rows["plain"], rows[PRODUCT])
            report.add("claims", {"batch": batch, "valid": verdict["ok"], **found})


def modes_part(args: argparse.Namespace, report: Report) -> None:
    """Each way of torch.compile in a process of its own: none sees what another left, none takes for ever."""
    for name in _here(args.cases or (MODES if args.device == "cuda" else ("fast",)), args):
        words = [
            __file__,
            "--parts",
            "step",
            "--cases",
            name,
            "--batches",
            str(args.batches[0]),
            "--precisions",
            args.precisions[0],
            "--device",
            args.device,
            "--longest",
            "0",
        ]
        report.add("modes", within(words, name, args.limit))


def precisions_part(args: argparse.Namespace, report: Report) -> None:
    """The product in each precision; in float32 the kernels are not taken."""
    for precision in ("float32", "tf32", "float16", "bfloat16") if args.device == "cuda" else ("float32", "bfloat16"):
        verdict = errors(BENCHMARK, precision, args.device)
        name = PRODUCT if args.device == "cuda" else "fast"
        _step_group([name], precision, args.batches[0], verdict, args, report, "precisions")


def levers_part(args: argparse.Namespace, report: Report) -> None:
    """One lever after the other."""
    verdict = errors(BENCHMARK, args.precisions[0], args.device)
    rows = _step_group(
        _here((name for _, name in LEVERS), args), args.precisions[0], args.batches[0], verdict, args, report, "levers"
    )
    before = None
    for what, name in LEVERS:
        if name in rows:
            now = rows[name]["round_ms"]
            report.add(
                "gains",
                {
                    "lever": what,
                    "case": name,
                    "round_ms": now,
                    "times": before and before / now,
                    "valid": rows[name]["valid"],
                },
            )
            before = now


def roofline_part(args: argparse.Namespace, report: Report) -> None:
    """What arithmetic and memory allow at least, beside what was measured in this call."""
    for batch in args.batches:
        found = [row for row in report.found.get("step", []) if row["case"] == PRODUCT and row["batch"] == batch]
        report.add("roofline", floors(BENCHMARK, TIMES, batch, found[0] if found else {}))


def memory_part(args: argparse.Namespace, report: Report) -> None:
    """The largest tensors that are alive at the peak of an uncaptured step."""
    if args.device == "cuda":
        _fresh(args.device)
        case = Case(BENCHMARK, "fast default", args.precisions[0], args.batches[0], args.device)
        for _ in range(3):
            case.step()
        for row in live_at_peak(case.step):
            report.add("memory", {"batch": args.batches[0], **row})


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
        return t.detach()  # itself, an output would hold the node that holds it

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
        "command": sys.argv,
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "driver": told("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") if device == "cuda" else "",
        "commit": told("git", "rev-parse", "HEAD"),
        "changed": bool(told("git", "status", "--porcelain", "-uno")),
        "seed": 0,
        "config": repr(BENCHMARK),
        "times": TIMES,
    }


PARTS: dict[str, Callable[[argparse.Namespace, Report], None]] = {
    "step": step_part,
    "table": table_part,
    "modes": modes_part,
    "precisions": precisions_part,
    "levers": levers_part,
    "scaling": scaling_part,
    "int8": int8_part,
    "recompute": recompute_part,
    "memory": memory_part,
    "roofline": roofline_part,
    "kernels": kernels_part,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--parts", nargs="+", default=["step"], choices=PARTS)
    parser.add_argument("--cases", nargs="+", help="words as in the table, or all")
    parser.add_argument("--batches", type=int, nargs="+")
    parser.add_argument("--agents", type=int, nargs="+")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS)
    parser.add_argument("--longest", type=int, default=LONGEST, help="kernels to name; 0 profiles nothing")
    parser.add_argument("--limit", type=int, default=120, help="seconds for each of the modes")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    cuda = args.device == "cuda"
    args.cases = list(ALL) if args.cases == ["all"] else args.cases
    args.batches = args.batches or ([32, 8] if cuda else [2])
    args.agents = args.agents or ([64, 256, 1024, 4096] if cuda else [64, 256])
    args.precisions = args.precisions or (["bfloat16", "float16"] if cuda else ["float32"])
    args.warm_up, args.steps, args.rounds = (WARM_UP, STEPS, ROUNDS) if cuda else (1, 2, 3)
    if cuda:  # all work in one stream: each stream that multiplies matrices keeps a workspace of 32 MiB
        torch.cuda.set_stream(torch.cuda.Stream())
    report = Report(args.out, {"machine": machine(args.device)})
    for name in args.parts:
        began = time.perf_counter()
        PARTS[name](args, report)
        report.add("seconds", {"part": name, "s": round(time.perf_counter() - began, 1)})
    rows = [row for part in ("step", "table", "precisions", "levers") for row in report.found.get(part, [])]
    bad = [row for row in rows if not row.get("valid", True)]
    for row in bad:
        print("INVALID", row["case"], row["precision"], row["error"])
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
