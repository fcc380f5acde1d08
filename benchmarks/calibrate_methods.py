"""Every method of `dz.calibrate` on one task: runs, CPU seconds, errors, stated deviations, cover.

    python benchmarks/calibrate_methods.py [--methods gauss_newton abc …] [--truths 4] [--device cuda] [--out FILE.json]
    python benchmarks/calibrate_methods.py --equal-loss 2 20 [--truths 4]

SIR with 10,000 agents over 100 days, rate and days of infection from the daily cases of one world. True values scatter
by 15 % (sd of the logarithm) around 0.05 and 7; priors are log-uniform, 0.01 to 0.15 and 2 to 15; searches begin at 0.7
times 0.05 and 7. It ends with an error where a method's errors are larger than the deviations that it states.

`--equal-loss` asks how many runs, each of so many person-days, a search needs until a place has 1.5 times the loss that
the truth itself has in expectation. In the place of a model stands a function of so many numbers: daily counts, each
number the logarithm of a week's growth. The last iterations of CMAES and TPE, which have slopes, are not counted.
"""

import argparse
import json
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.distributions import ExpTransform, Normal, TransformedDistribution, Uniform

import denizen as dz
from denizen.space import generators
from denizen.zoo.sir import sir

AGENTS, DAYS, SPREAD, BEGIN = 10_000, 100, 0.15, 0.7
MIDDLE = {"infect_rate": 0.05, "infectious_days": 7.0}
# Method and replicates. 2,000 runs are what rejection and NPE had in the comparison; chains need more.
METHODS = {
    "gauss_newton": (dz.fit.GaussNewton(), 16),
    "cmaes": (dz.fit.CMAES(), 16),
    "tpe": (dz.fit.TPE(), 16),
    "abc": (dz.fit.ABCSMC(runs=2_000, particles=400, keep=200), 16),
    "synthetic": (dz.fit.SyntheticLikelihood(burn_in=30, iterations=50), 8),
}
NEAR_TRUTH = 1.5  # times the loss that the truth itself has in expectation: there a search has arrived


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options.add_argument("--truths", type=int, default=4)
    options.add_argument("--device")
    options.add_argument("--equal-loss", nargs="+", type=int, metavar="NUMBERS")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    card = torch.cuda.get_device_name() if given.device == "cuda" else platform.processor() or "CPU"
    print(f"{card}, torch {torch.__version__}, Python {platform.python_version()}, {head}")
    if given.equal_loss:
        rows = {str(num): equal_loss(num, given.truths) for num in given.equal_loss}
    else:
        rows = compare(given.methods, given.truths, given.device)
    if given.out:
        found = {"card": card, "torch": torch.__version__, "commit": head, "rows": rows}
        given.out.write_text(json.dumps(found, indent=1) + "\n")


def compare(methods: list[str], truths: int, device: str | None) -> dict:
    graph = dz.Graph.from_edges(generators.erdos_renyi(AGENTS, 10.0, seed=0))
    start = sir(graph, **{name: BEGIN * value for name, value in MIDDLE.items()})
    priors = {"infect_rate": log_uniform(0.01, 0.15), "infectious_days": log_uniform(2.0, 15.0)}
    print(f"{'method':<14}{'runs':>8}{'CPU s':>8}{'s':>8}   error of rate, days (rms)   stated sd   in 90 %   at rest")
    rows = {}
    for name in methods:
        method, replicates = METHODS[name]
        errors, sds, held, runs, rest = [], [], np.zeros(2, dtype=int), [], 0
        cpu, wall = time.process_time(), time.perf_counter()
        for number in range(truths):
            scatter = np.exp(SPREAD * np.random.default_rng(number).normal(size=2))
            truth = {key: float(value * factor) for (key, value), factor in zip(MIDDLE.items(), scatter, strict=True)}
            seen = dz.simulate(start.replace(**truth), DAYS, seed=10_000 + number, device=device)["cases"][0]
            fit = dz.calibrate(
                start,
                {"cases": seen},
                priors=priors,
                method=method,
                replicates=replicates,
                seed=number,
                device=device,
                progress=False,
            )
            interval = fit.interval(0.9)
            held += [interval[key][0] <= value <= interval[key][1] for key, value in truth.items()]
            errors.append([np.log(fit.params[key] / value) for key, value in truth.items()])
            sds.append([np.log(high / low) / 2 / 1.645 for low, high in interval.values()])
            runs.append(fit.runs)
            rest += fit.converged
        spent = (time.process_time() - cpu) / truths, (time.perf_counter() - wall) / truths
        rms, stated = (np.sqrt(np.mean(np.square(one), axis=0)) for one in (errors, sds))
        print(
            f"{name:<14}{np.median(runs):>8,.0f}{spent[0]:>8.1f}{spent[1]:>8.1f}   {rms[0]:>10.1%}, {rms[1]:.1%}"
            f"{'':>8}{stated[0]:.1%}, {stated[1]:.1%}   {held[0]}, {held[1]} of {truths}   {rest} of {truths}",
            flush=True,
        )
        # Errors of a fit that is right have mean square 1 in stated deviations: 3.5 standard errors above is no chance.
        square = float(np.mean((np.array(errors) / np.array(sds)) ** 2))
        if square > 1 + 3.5 * np.sqrt(2 / (2 * truths)):
            raise SystemExit(f"{name}: errors are {square**0.5:.1f} times the stated deviations")
        rows[name] = {
            "runs": float(np.median(runs)),
            "cpu_s": spent[0],
            "s": spent[1],
            "rms": rms.tolist(),
            "sd": stated.tolist(),
            "held": held.tolist(),
            "truths": truths,
        }
    return rows


def log_uniform(low: float, high: float) -> TransformedDistribution:
    return TransformedDistribution(Uniform(np.log(low), np.log(high)), [ExpTransform()])


def waves(num: int) -> Callable[[Tensor, Sequence[int]], Tensor]:
    """Weekly growth `[B, P]` in, daily counts of P weeks out: a curve that each number bends from its week on."""
    table = torch.as_tensor(np.random.default_rng(1).normal(size=(20_000, 7 * num)))

    def curves(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        noise = table[torch.as_tensor(worlds) % len(table)]
        mean = 400 * torch.exp((theta.double().repeat_interleave(7, dim=1) / 7).cumsum(1))
        return (mean + (mean + 0.01 * mean**2).sqrt() * noise).clamp(min=0)

    return curves


def equal_loss(num: int, truths: int) -> dict:
    """Runs until a place has 1.5 times the truth's expected loss, by method; infinite where none has."""
    model, found = waves(num), {}
    priors = {f"growth_{k}": Normal(0.0, 0.5) for k in range(num)}
    methods = {
        "gauss_newton": dz.fit.GaussNewton(),
        "cmaes": dz.fit.CMAES(runs=20_000),
        "tpe": dz.fit.TPE(runs=20_000, trials=1_000, together=20),
    }
    for name, method in methods.items():
        needed = []
        for number in range(truths):
            theta = torch.as_tensor(np.random.default_rng([3, number]).normal(size=(1, num)) * 0.5)
            seen = model(theta, [19_000 + number])[0].numpy()
            fit = dz.calibrate(
                model, {"y": seen}, priors=priors, method=method, replicates=16, seed=number, progress=False
            )
            target = NEAR_TRUTH * exact_loss(model, theta, seen)
            searched = [one for one in fit.trace if name == "gauss_newton" or np.isnan(one.step)]
            places = [(one.runs, one.free) for one in searched]
            if name == "gauss_newton":
                places.append((fit.runs, fit._solution.free))
            arrived = [runs for runs, free in places if exact_loss(model, torch.as_tensor(free)[None], seen) <= target]
            needed.append(arrived[0] if arrived else np.inf)
        found[name] = float(np.median(needed))
        print(f"{num} numbers, {name}: {found[name]:,.0f} runs (median; {needed})", flush=True)
    print(
        f"{num} numbers: TPE needs {found['tpe'] / found['gauss_newton']:.1f} times the runs of the default", flush=True
    )
    return found


def exact_loss(model: Callable, theta: Tensor, seen: np.ndarray) -> float:
    curves = model(theta.expand(512, -1), range(512)).numpy()
    return float(((np.sqrt(curves + 0.375).mean(0) - np.sqrt(seen + 0.375)) ** 2).mean())


if __name__ == "__main__":
    main()
