"""The gradient of the COVID curve by R over 23 steps: checks it, then times it beside the forward runs.

    python benchmarks/gradient_gpu.py [--device cpu] [--agents 37518 8400000] [--out RESULT.json]

Checked first, in the same call: the slopes equal those of an eager run without recomputation, are finite and not zero
for any week, and are the same bits with recomputation. Times are milliseconds for all 23 steps, the best of five calls;
memory is the most that torch held during them. `forward` is the relaxed run alone, made as the gradient is (compiled,
captured on CUDA); `hard` the run without relaxation. Kernels are counted with torch's profiler, for each step.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from _turns import turn
from torch.profiler import ProfilerActivity, profile

import denizen as dz
from denizen.run import Gradient, Precision, _compile, _gradient, _rollout
from denizen.run._rollout import Rollout, Schedule
from denizen.zoo.covid import Covid, covid

STEPS, ROUNDS = 23, 5


def curve(series: Any) -> torch.Tensor:
    """What is differentiated: all infections."""
    return series["daily_infected"].sum(dim=1).mean()


def made(model: Covid, device: str, **options: Any) -> Gradient:
    """A gradient by R."""
    return Gradient(model, curve, STEPS, wrt=["R"], relax=dz.relax.StraightThrough(), device=device, **options)


def check(model: Covid, device: str, compiled: bool) -> dict[str, Any]:
    """Slopes against those of an eager run that recomputes nothing."""
    eager = made(model, device, compile=False)
    loss, truth = eager(), eager.gradients["R"].clone()
    found: dict[str, Any] = {"infections": float(loss), "slopes": truth.tolist()}
    del eager
    whole = made(model, device, compile=compiled)
    for _ in range(3):
        value = whole()
    whole.check()
    slopes = whole.gradients["R"]
    assert torch.isfinite(slopes).all(), slopes
    assert (slopes != 0).all(), slopes
    torch.testing.assert_close(value, loss, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(slopes, truth, rtol=1e-3, atol=1e-3)
    found["largest relative difference"] = float(((slopes - truth) / truth).abs().max())
    found["path"], found["graphs"] = whole.path, whole._rollout.graphs
    return found


def check_recomputation(model: Covid, device: str, compiled: bool) -> bool:
    """Whether recomputation gives the same bits; it must give the same slopes to 1e-6."""
    plain, again = (made(model, device, compile=compiled, checkpoint=block) for block in (None, 8))
    same = True
    for _ in range(3):
        torch.testing.assert_close(plain(), again(), rtol=1e-6, atol=0.0)
        torch.testing.assert_close(plain.gradients["R"], again.gradients["R"], rtol=1e-6, atol=1e-6)
        same = same and torch.equal(plain.gradients["R"], again.gradients["R"])
    return same


@turn()
def timed(function: Callable[[], Any], device: str) -> dict[str, float]:
    """Milliseconds of the best call, GiB at the peak, kernels a step."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(ROUNDS + 1):
        wait()
        began = time.perf_counter()
        function()
        wait()
        times.append((time.perf_counter() - began) * 1e3)
    row = {"ms": min(times[1:])}
    if device == "cuda":
        row["gib"] = torch.cuda.max_memory_reserved() / 2**30
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            function()
            wait()
        events = [event for event in seen.key_averages() if event.device_time_total > 0]
        row["kernels_per_step"] = sum(event.count for event in events) / STEPS
        row["busy_ms"] = sum(event.device_time_total for event in events) / 1e3
    return row


def forward_alone(gradient: Gradient) -> Callable[[], Any]:
    """The relaxed run without a backward pass, compiled and captured where the gradient is."""
    old = gradient._rollout
    backend = _compile.BACKEND if gradient._compiles else None
    schedule = Schedule.of(STEPS, None)
    rollout = Rollout(gradient._stepper, len(gradient._labels[1]), old._places, old._used, schedule, backend)

    def run() -> None:
        with torch.no_grad():
            curve(rollout.run(gradient._keys()).series)

    if gradient.path != "captured":
        run()
        return run
    _gradient.aside(run)
    return _gradient.record(run).replay


def hard_alone(model: Covid, device: str, compiled: bool) -> Callable[[], Any]:
    """The run without relaxation."""
    run = dz.simulate(model, 6, seed=0, device=device, compile=compiled)
    if run._capture is None:
        return lambda: dz.simulate(model, STEPS, device=device, compile=False)
    start = run._stepper.start()
    start.bad = torch.zeros_like(run._carry.bad)
    return lambda: run._capture.run(start, STEPS)


def twice(gradient: Gradient) -> Gradient:
    """The gradient, called as often as it takes to compile and capture it."""
    for _ in range(2):
        gradient()
    return gradient


def measure(agents: int, device: str, compiled: bool, narrow: torch.dtype | None) -> dict[str, Any]:
    """One size: check, then times."""
    began = time.perf_counter()
    model = covid(dz.population.synthetic("astoria", agents, networks=["0"]))
    row: dict[str, Any] = {"build_s": time.perf_counter() - began, "check": check(model, device, compiled)}
    _fresh(device)
    row["hard"] = timed(hard_alone(model, device, compiled), device)
    _fresh(device)
    began = time.perf_counter()
    gradient = twice(made(model, device, compile=compiled))
    row["ready_s"] = time.perf_counter() - began
    row["choice"] = {"checkpoint": gradient.checkpoint, "piece": gradient._rollout.schedule.piece, **gradient.bytes}
    row["gradient"] = timed(gradient, device)
    row["forward"] = timed(forward_alone(gradient), device)
    if narrow is not None:
        found = Precision({"exposed": narrow}, Covid, dz.relax.StraightThrough(), STEPS)
        row["narrow"] = timed(twice(made(model, device, compile=compiled, precision=found)), device)
    row["ratio"] = row["gradient"]["ms"] / row["forward"]["ms"]
    return row


def _fresh(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()


def main() -> None:
    """Check, time, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--agents", type=int, nargs="*", default=[37_518, 8_400_000])
    parser.add_argument("--piece", type=int, default=_rollout.PIECE, help="steps compiled together")
    parser.add_argument("--narrow", choices=["float16", "bfloat16"], help="also with the history's columns in 16 bits")
    parser.add_argument("--eager", action="store_true", help="compile nothing; the default on the CPU")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    _rollout.PIECE = arguments.piece
    device, compiled = arguments.device, arguments.device == "cuda" and not arguments.eager
    small = covid(dz.population.synthetic("astoria", 5_003, networks=["0"]), R=[9.0, 9.0, 9.0])
    same = check_recomputation(small, device, compiled)
    print(f"recomputation gives the same {'bits' if same else 'slopes, but for rounding'}", flush=True)
    narrow = getattr(torch, arguments.narrow) if arguments.narrow else None
    rows = {}
    for agents in arguments.agents:
        rows[f"{agents:,}"] = measure(agents, device, compiled, narrow)
        print(agents, json.dumps(rows[f"{agents:,}"]), flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    card = torch.cuda.get_device_name() if device == "cuda" else "CPU, one thread" * (torch.get_num_threads() == 1)
    result = {"device": card, "torch": torch.__version__, "commit": commit.strip(), "steps": STEPS}
    result |= {"recomputation_equal": same, "rows": rows}
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1))
    print(
        f"{'agents':>10s}{'what':>10s}{'ms':>10s}{'of forward':>12s}{'GiB':>8s}{'kernels a step':>16s}{'busy ms':>9s}"
    )
    for name, row in rows.items():
        for what in ("hard", "forward", "gradient", *(["narrow"] if "narrow" in row else [])):
            now = row[what]
            print(
                f"{name:>10s}{what:>10s}{now['ms']:10.3f}{now['ms'] / row['forward']['ms']:12.2f}"
                f"{now.get('gib', 0):8.2f}{now.get('kernels_per_step', 0):16.1f}{now.get('busy_ms', 0):9.3f}"
            )
        print(f"{'':>10s}checkpoint {row['choice']['checkpoint']}, {row['choice']['step'] / 2**20:.1f} MiB kept a step")


if __name__ == "__main__":
    main()
