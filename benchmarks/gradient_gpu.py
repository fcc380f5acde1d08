"""The gradient of the COVID curve by R over 23 steps: checks it, then times it beside the forward runs.

    python benchmarks/gradient_gpu.py [--device cpu] [--agents 37518 8400000] [--out RESULT.json]

Checked first, in the same call: the slopes equal those of an eager run without recomputation, are finite and not zero
for any week, and are the same bits with recomputation. Times are milliseconds for all 23 steps, the best of five calls;
memory is the most that torch held during them. `forward` is the relaxed run alone, made as the gradient is (compiled,
captured on CUDA); `hard` the run without relaxation. Kernels are counted with torch's profiler, for each step.

Compiling takes most of the time, so each size's gradient, its forward runs and the check of recomputation are processes
that compile side by side; they are timed in turns once all of them are ready. Each says what took how long.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from _turns import turn
from torch.profiler import ProfilerActivity, profile

import denizen as dz
from denizen.run import Gradient, Precision, _compile, _rollout
from denizen.run._cuda_graph import CapturedFunction
from denizen.run._rollout import Rollout, Schedule
from denizen.zoo.covid import Covid, covid

STEPS, ROUNDS = 23, 5


def curve(series: Any) -> torch.Tensor:
    """What is differentiated: all infections."""
    return series["daily_infected"].sum(dim=1).mean()


def made(model: Covid, device: str, **options: Any) -> Gradient:
    """A gradient by R."""
    return Gradient(model, curve, STEPS, wrt=["R"], relax=dz.relax.StraightThrough(), device=device, **options)


def check(gradient: Gradient, truth: torch.Tensor, loss: torch.Tensor) -> dict[str, Any]:
    """Slopes of a compiled gradient against those of an eager one that recomputes nothing."""
    for _ in range(3):
        value = gradient()
    gradient.check()
    slopes = gradient.gradients["R"]
    assert torch.isfinite(slopes).all(), slopes
    assert (slopes != 0).all(), slopes
    torch.testing.assert_close(value, loss, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(slopes, truth, rtol=1e-3, atol=1e-3)
    return {
        "infections": float(loss),
        "slopes": truth.tolist(),
        "path": gradient.path,
        "graphs": gradient._rollout.graphs,
        "largest relative difference": float(((slopes - truth) / truth).abs().max()),
    }


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
def timed(function: Callable[[], Any], device: str, what: str) -> dict[str, float]:
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
    print(f"    {what}: {row}", flush=True)
    return row


def forward_alone(model: Covid, device: str, compiled: bool) -> Callable[[], Any]:
    """The relaxed run without a backward pass, compiled and captured as the gradient is."""
    gradient = made(model, device, compile=False)
    if compiled:
        _compile.fuse_draws()
    old, backend = gradient._rollout, _compile.BACKEND if compiled else None
    schedule = Schedule.of(STEPS, None)
    side = gradient._sides[0]
    rollout = Rollout(side.stepper, len(side.labels[1]), old._places, old._used, schedule, backend)

    def run() -> None:
        with _compile._quiet(), torch.no_grad():
            curve(rollout.run(gradient._keys(side.worlds)).series)

    if device != "cuda" or not compiled:
        run()
        return run
    captured = CapturedFunction(run, "runs")
    captured.capture()
    return captured


def hard_alone(model: Covid, device: str, compiled: bool) -> Callable[[], Any]:
    """The run without relaxation."""
    run = dz.simulate(model, 6, seed=0, device=device, compile=compiled)
    if run._capture is None:
        return lambda: dz.simulate(model, STEPS, device=device, compile=False)
    start = run._stepper.start()
    start.bad = torch.zeros_like(run._run_state.bad)
    return lambda: run._capture.run(start, STEPS)


class Clock:
    """Says what took how long since the last word."""

    def __init__(self, who: str) -> None:
        self.who, self.began, self.laps = who, time.perf_counter(), dict[str, float]()

    def lap(self, what: str) -> None:
        """So called."""
        now = time.perf_counter()
        self.laps[what], self.began = now - self.began, now
        print(f"[{self.who}] {what}: {self.laps[what]:.1f} s", flush=True)


def population(agents: int, clock: Clock) -> Covid:
    """The model of a size."""
    model = covid(dz.population.synthetic("astoria", agents, networks=["0"]))
    clock.lap("built")
    return model


def part_recomputation(agents: int, device: str, compiled: bool, narrow: torch.dtype | None) -> dict[str, Any]:
    """Whether recomputation changes nothing; with short pieces, which compile in a third of the time."""
    clock = Clock("recomputation")
    _rollout.PIECE = min(2, _rollout.PIECE)
    small = covid(dz.population.synthetic("astoria", 5_003, networks=["0"]), R=[9.0, 9.0, 9.0])
    same = check_recomputation(small, device, compiled)
    clock.lap("compared")
    print(f"recomputation gives the same {'bits' if same else 'slopes, but for rounding'}", flush=True)
    ready()
    return {"same bits": same, "seconds": clock.laps}


def part_gradient(agents: int, device: str, compiled: bool, narrow: torch.dtype | None) -> dict[str, Any]:
    """The gradient of a size: check, then times."""
    clock = Clock(f"{agents:,} gradient")
    model = population(agents, clock)
    eager = made(model, device, compile=False)
    loss, truth = eager(), eager.gradients["R"].clone()
    del eager
    _fresh(device)
    clock.lap("eager gradient")
    gradient = made(model, device, compile=compiled)
    clock.lap("compiled and run forward")
    gradient()
    clock.lap("compiled backward and what remains, first call")
    gradient()
    clock.lap("captured")
    row: dict[str, Any] = {"check": check(gradient, truth, loss)}
    row["choice"] = {"checkpoint": gradient.checkpoint, "piece": gradient._rollout.schedule.piece, **gradient.bytes}
    others = {}
    if narrow is not None:
        found = Precision({"exposed": narrow}, Covid, dz.relax.StraightThrough(), STEPS)
        others["narrow"] = made(model, device, compile=compiled, precision=found)
        for _ in range(2):
            others["narrow"]()
        clock.lap("narrow compiled and captured")
    _fresh(device)
    ready()
    row["gradient"] = timed(gradient, device, f"{agents:,} gradient")
    del gradient
    _fresh(device)
    row |= {name: timed(other, device, f"{agents:,} {name}") for name, other in others.items()}
    return {**row, "seconds": clock.laps}


def part_forward(agents: int, device: str, compiled: bool, narrow: torch.dtype | None) -> dict[str, Any]:
    """The runs of a size without a gradient."""
    clock = Clock(f"{agents:,} forward")
    model = population(agents, clock)
    forward = forward_alone(model, device, compiled)
    clock.lap("forward compiled and captured")
    hard = hard_alone(model, device, compiled)
    clock.lap("hard compiled and captured")
    _fresh(device)
    ready()
    row = {name: timed(call, device, f"{agents:,} {name}") for name, call in (("forward", forward), ("hard", hard))}
    return {**row, "seconds": clock.laps}


PARTS = {"recomputation": part_recomputation, "gradient": part_gradient, "forward": part_forward}


def ready() -> None:
    """Tell the process that started this one that nothing is to be compiled any more."""
    path = os.environ.get("DENIZEN_BENCH_READY")
    if path:
        Path(path).touch()


def together(arguments: argparse.Namespace) -> dict[str, Any]:
    """The results of all parts, which compile side by side and are timed in turns."""
    began = time.perf_counter()
    jobs = [("recomputation", 0), *((part, n) for n in arguments.agents for part in ("gradient", "forward"))]
    with tempfile.TemporaryDirectory() as where:
        folder, running = Path(where), {}
        for part, n in jobs:
            name = f"{part}-{n}"
            command = [sys.executable, __file__, "--device", arguments.device, "--piece", str(arguments.piece)]
            command += ["--part", part, "--agents", str(n), "--out", str(folder / name)]
            command += ["--narrow", arguments.narrow] * bool(arguments.narrow) + ["--eager"] * arguments.eager
            told = {"DENIZEN_BENCH_LOCK": str(folder / "lock"), **os.environ, "DENIZEN_BENCH_AFTER": str(folder / "go")}
            told["DENIZEN_BENCH_READY"] = str(folder / f"{name}.ready")
            running[name] = subprocess.Popen(command, env=told)
        try:
            while not all(
                (folder / f"{name}.ready").exists() or child.poll() is not None for name, child in running.items()
            ):
                time.sleep(0.1)
            print(f"all ready after {time.perf_counter() - began:.1f} s", flush=True)
            ready()
            (folder / "go").touch()
            codes = {name: child.wait() for name, child in running.items()}
        finally:
            for child in running.values():
                child.kill()
        print(f"all done after {time.perf_counter() - began:.1f} s", flush=True)
        found = {name: json.loads((folder / name).read_text()) for name, code in codes.items() if code == 0}
        if len(found) < len(codes):
            raise SystemExit(f"failed: {sorted(set(codes) - set(found))}; the others found {json.dumps(found)}")
    rows = {}
    for n in arguments.agents:
        gradient, forward = found[f"gradient-{n}"], found[f"forward-{n}"]
        seconds = {"gradient": gradient.pop("seconds"), "forward": forward.pop("seconds")}
        ratio = gradient["gradient"]["ms"] / forward["forward"]["ms"]
        rows[f"{n:,}"] = {**gradient, **forward, "seconds": seconds, "ratio": ratio}
    return {"recomputation_equal": found["recomputation-0"]["same bits"], "rows": rows}


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
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    _rollout.PIECE = arguments.piece
    device, compiled = arguments.device, arguments.device == "cuda" and not arguments.eager
    if arguments.part:
        narrow = getattr(torch, arguments.narrow) if arguments.narrow else None
        arguments.out.write_text(json.dumps(PARTS[arguments.part](arguments.agents[0], device, compiled, narrow)))
        return
    found = together(arguments)
    rows = found["rows"]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    card = torch.cuda.get_device_name() if device == "cuda" else "CPU, one thread" * (torch.get_num_threads() == 1)
    result = {"device": card, "torch": torch.__version__, "commit": commit.strip(), "steps": STEPS, **found}
    print(json.dumps(result), flush=True)
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
