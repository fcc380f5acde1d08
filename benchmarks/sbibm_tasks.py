"""Tasks of sbibm, observation 1: draws of neural posteriors beside the reference posterior, by C2ST.

    pip download --no-deps sbibm -d DIR
    python benchmarks/sbibm_tasks.py DIR/sbibm-1.1.0-py2.py3-none-any.whl [--task sir | lotka_volterra]

The wheel is read as an archive and never imported. C2ST is the accuracy of a classifier (sbi's, a perceptron) that
tells two sets of draws apart: 0.5 is perfect. Published means over ten observations of `sir` with 10,000 simulations:
NPE 0.680, SNPE 0.561, SMC-ABC 0.626, rejection 0.838 (Lueckmann et al. 2021, main_paper.csv).
"""

import argparse
import bz2
import io
import os
import time
import warnings
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.distributions import LogNormal

import denizen as dz

LOG_SD = 0.1  # of what is observed of hares and lynxes


def paths(slope: Callable[..., tuple[np.ndarray, ...]], start: Sequence[float], theta: np.ndarray, times: np.ndarray):
    """States `[variables, B, times]` by Runge-Kutta steps of at most 1/40: whole parts of what lies between times."""
    now = np.repeat(np.array(start)[:, None], len(theta), axis=1)
    found, numbers = [now], theta.T
    for gap in np.diff(times):
        steps = int(np.ceil(gap * 40))
        h = gap / steps
        for _ in range(steps):
            a = np.stack(slope(now, numbers))
            b = np.stack(slope(now + h / 2 * a, numbers))
            c = np.stack(slope(now + h / 2 * b, numbers))
            now = now + h / 6 * (a + 2 * b + 2 * c + np.stack(slope(now + h * c, numbers)))
        found.append(now)
    return np.stack(found, axis=2)


def sir(theta: torch.Tensor, worlds: list[int]) -> torch.Tensor:
    """Of 1,000 tested among 1,000,000 those found infected at every 17th day."""

    def slope(now: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, ...]:
        flow = numbers[0] * now[0] * now[1]
        return -flow, flow - numbers[1] * now[1]

    shares = paths(slope, (1 - 1e-6, 1e-6), theta.numpy(), np.arange(10) * 17.0)[1].clip(0, 1)
    rows = zip(shares, worlds, strict=True)
    return torch.as_tensor(np.stack([np.random.default_rng([1, w]).binomial(1_000, p) for p, w in rows]))


def lotka_volterra(theta: torch.Tensor, worlds: list[int]) -> torch.Tensor:
    """Logarithms of hares and lynxes at ten times in 20 days: [10 of hares, 10 of lynxes]."""

    def slope(now: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, ...]:
        (x, y), (a, b, c, d) = now, numbers
        return a * x - b * x * y, d * x * y - c * y

    with np.errstate(over="ignore", invalid="ignore"):
        found = paths(slope, (30.0, 1.0), theta.numpy(), np.arange(10) * 2.1)
    logs = np.log(np.nan_to_num(found, nan=1e-10).clip(1e-10, 1e4)).transpose(1, 0, 2).reshape(len(theta), 20)
    noise = np.stack([np.random.default_rng([1, w]).normal(size=20) for w in worlds])
    return torch.as_tensor(logs + LOG_SD * noise)


TASKS: dict[str, tuple[Any, dict[str, LogNormal]]] = {
    "sir": (sir, {"beta": LogNormal(np.log(0.4), 0.5), "gamma": LogNormal(np.log(0.125), 0.2)}),
    "lotka_volterra": (
        lotka_volterra,
        {name: LogNormal(loc, 0.5) for name, loc in zip("abcd", (-0.125, -3.0, -0.125, -3.0), strict=True)},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", help="of sbibm")
    parser.add_argument("--task", choices=list(TASKS), default="sir")
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--method", choices=("NPE", "NLE", "NRE"), default="NPE")
    parser.add_argument("--flow", help="of NPE and NLE; default: theirs")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    simulator, priors = TASKS[given.task]
    files = f"sbibm/tasks/{given.task}/files/num_observation_1/"
    with zipfile.ZipFile(given.wheel) as wheel:
        observed = np.loadtxt(io.BytesIO(wheel.read(files + "observation.csv")), delimiter=",", skiprows=1)
        packed = wheel.read(files + "reference_posterior_samples.csv.bz2")
    reference = np.loadtxt(io.BytesIO(bz2.decompress(packed)), delimiter=",", skiprows=1)
    scale: Any = "sqrt"
    if given.task == "lotka_volterra":
        observed, scale = np.log(observed), "identity"
    flow = {} if given.flow is None else {"flow": given.flow}
    method = getattr(dz.fit, given.method)(given.simulations, given.rounds, draws=len(reference), **flow)
    began = time.process_time()
    fit = dz.calibrate(
        simulator,
        {"y": dz.fit.Target(observed, scale=scale)},
        priors=priors,
        method=method,
        seed=given.seed,
        progress=False,
    )
    spent = time.process_time() - began
    samples = fit.samples(len(reference))
    draws = np.stack([samples[name] for name in priors], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sbi.utils.metrics import c2st

        score = float(c2st(*(torch.as_tensor(x, dtype=torch.float32) for x in (draws, reference)), classifier="mlp"))
    print(
        f"{given.task}: {given.method} {getattr(method, 'flow', '')}, {given.simulations:,} simulations, "
        f"{given.rounds} rounds, seed {given.seed}: C2ST {score:.3f}"
    )
    for name, column, known in zip(priors, draws.T, reference.T, strict=True):
        print(f"{name}: {column.mean():.4f} ± {column.std():.4f}, reference {known.mean():.4f} ± {known.std():.4f}")
    print(f"{spent:.0f} CPU s, {fit.trace[-1].shown}; torch {torch.__version__}, {os.cpu_count()} cores")
    print(*fit.notes, sep="\n")


if __name__ == "__main__":
    main()
