"""Six weekly reproduction numbers of COVID, fitted to a curve: by hand, by slopes by differences, by relaxed slopes.

    python benchmarks/calibrate_covid.py [--seeds 5] [--size 5000] [--device cuda] [--full] [--out RESULT.json]

5,000 people, 42 days; the truth is 6, 5, 3, 4, 2, 2, the search begins at 4. Two data sets: the mean curve of 256
worlds, where the error is that of the search, and the curve of one world, where the data's own noise bounds what can be
known: the last column is the standard deviation that `GaussNewton` states. At equal runs, `GaussNewton` is read off its
trace.
`--full` adds `Gradient` until it rests.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import denizen as dz
from denizen.zoo.covid import covid

TRUTH, START, DAYS, RUNS, LR = np.array([6.0, 5.0, 3.0, 4.0, 2.0, 2.0]), 4.0, 42, 160, 0.1
SERIES = "daily_infected"


class Positive(torch.nn.Module):
    """R as the exponential of what is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.log = torch.nn.Parameter(torch.full((len(TRUTH),), START).log())

    def forward(self) -> dict[str, torch.Tensor]:
        """By name."""
        return {"R": self.log.exp()}


def by_hand(model: dz.Model, curve: np.ndarray, seed: int, device: str | None) -> tuple[np.ndarray, int]:
    """Adam on the squared distance of a relaxed run's own mean: what users write."""
    source, observed = Positive(), root(torch.tensor(curve, dtype=torch.float32, device=device))
    gradient = dz.run.Gradient(
        model,
        lambda series: ((root(series[SERIES]).mean(0) - observed) ** 2).mean(),
        DAYS,
        wrt=source,
        relax=dz.relax.StraightThrough(),
        replicates=4,
        seed=seed,
        device=device,
        optimizer=lambda params: torch.optim.Adam(params, lr=LR),
    )
    for _ in range(RUNS // 4):
        gradient()
        gradient.worlds.add_(4)
    return source()["R"].detach().cpu().numpy(), RUNS


def root(values: torch.Tensor) -> torch.Tensor:
    """As calibrations compare counts."""
    return (values.clamp(min=0) + 0.375).sqrt()


def fitted(model: dz.Model, curve: np.ndarray, seed: int, device: str | None, method: object, replicates: int = 16):
    return dz.calibrate(
        model,
        {SERIES: curve},
        priors=["R"],
        method=method,
        replicates=replicates,
        seed=seed,
        device=device,
        progress=False,
    )


def by_slopes(iterations: int, replicates: int) -> Callable:
    def run(model: dz.Model, curve: np.ndarray, seed: int, device: str | None) -> tuple[np.ndarray, int]:
        method = dz.fit.Gradient(dz.relax.StraightThrough(), iterations=iterations, polish=0)
        fit = fitted(model, curve, seed, device, method, replicates)
        return fit.params["R"], fit.trace[-1].runs

    return run


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--size", type=int, default=5_000)
    options.add_argument("--device")
    options.add_argument("--full", action="store_true")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    model = covid(dz.population.synthetic("astoria", size=given.size), R=[START] * len(TRUTH))
    truth = model.replace(R=TRUTH.tolist())
    worlds = dz.simulate(truth, DAYS, seed=77, replicates=256, device=given.device)[SERIES].double().cpu()
    mean = (root(worlds).mean(0) ** 2 - 0.375).clamp(min=0).numpy()
    rows: dict[str, dict] = {}
    for data in ("mean curve", "one world"):
        for seed in range(given.seeds):
            curve = mean if data == "mean curve" else worlds[seed].numpy()
            measure(rows, data, model, curve, seed, given.device, given.full)
    card = torch.cuda.get_device_name() if (given.device or "").startswith("cuda") else "CPU"
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"{given.size:,} people, {DAYS} days, {given.seeds} seeds; {card}, torch {torch.__version__}, commit {head}")
    print(f"{'data':<12}{'method':<26}{'runs':>6}{'CPU s':>8}{'wall s':>8}{'largest error':>15}{'rms':>7}{'stated':>8}")
    for (data, name), row in ((key.split("|"), row) for key, row in rows.items()):
        error = np.array(row["errors"])
        largest, rms = abs(error).max(1).mean(), np.sqrt((error**2).mean())
        stated = f"{np.sqrt(np.mean(np.square(row['stated']))):8.2f}" if row["stated"] else ""
        times = f"{np.mean(row['cpu']):8.1f}{np.mean(row['wall']):8.1f}" if row["cpu"] else f"{'':16}"
        print(f"{data:<12}{name:<26}{np.mean(row['runs']):6.0f}{times}{largest:15.2f}{rms:7.2f}{stated}")
    if given.out:
        found = {"card": card, "torch": torch.__version__, "commit": head, "rows": rows}
        given.out.write_text(json.dumps(found, indent=1) + "\n")


def measure(
    rows: dict, data: str, model: dz.Model, curve: np.ndarray, seed: int, device: str | None, full: bool
) -> None:
    """Add what each method finds."""
    methods: dict[str, Callable] = {"by hand": by_hand, "Gradient, equal runs": by_slopes(25, 8)}
    if full:
        methods["Gradient, until it rests"] = by_slopes(200, 16)
    for name, method in methods.items():
        cpu, wall = time.process_time(), time.perf_counter()
        found, runs = method(model, curve, seed, device)
        add(rows, f"{data}|{name}", found, runs, time.process_time() - cpu, time.perf_counter() - wall)
    cpu, wall = time.process_time(), time.perf_counter()
    fit = fitted(model, curve, seed, device, dz.fit.GaussNewton())
    spent = time.process_time() - cpu, time.perf_counter() - wall
    last = max(k for k in range(1, len(fit.trace)) if fit.trace[k - 1].runs <= RUNS)
    early = np.exp(fit.trace[last].free)  # where the steps before have led
    add(rows, f"{data}|GaussNewton, equal runs", early, fit.trace[last - 1].runs)
    add(rows, f"{data}|GaussNewton", fit.params["R"], fit.trace[-1].runs, *spent)
    ends = np.log(fit.interval(0.68269)["R"])
    rows[f"{data}|GaussNewton"]["stated"].append((fit.params["R"] * (ends[1] - ends[0]) / 2).tolist())


def add(rows: dict, key: str, found: np.ndarray, runs: int, cpu: float | None = None, wall: float = 0.0) -> None:
    row = rows.setdefault(key, {"errors": [], "runs": [], "cpu": [], "wall": [], "stated": []})
    row["errors"].append((np.asarray(found) - TRUTH).tolist())
    row["runs"].append(runs)
    if cpu is not None:
        row["cpu"].append(cpu)
        row["wall"].append(wall)


if __name__ == "__main__":
    main()
