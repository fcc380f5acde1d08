"""The task `sir` of sbibm, observation 1: draws of neural posteriors beside the reference posterior, by C2ST.

    pip download --no-deps sbibm -d DIR
    python benchmarks/sbibm_sir.py DIR/sbibm-1.1.0-py2.py3-none-any.whl

The wheel is read as an archive and never imported. C2ST is the accuracy of a classifier (sbi's, a perceptron) that
tells two sets of draws apart: 0.5 is perfect. Published means over ten observations with 10,000 simulations: NPE 0.680,
SNPE 0.561, SMC-ABC 0.626, rejection 0.838 (Lueckmann et al. 2021, main_paper.csv).
"""

import argparse
import bz2
import io
import os
import time
import warnings
import zipfile

import numpy as np
import torch
from torch.distributions import LogNormal

import denizen as dz

FILES = "sbibm/tasks/sir/files/num_observation_1/"
PEOPLE, SEEN, EVERY, VALUES, SUBSTEPS = 1e6, 1_000, 17, 10, 4
PRIORS = {"beta": LogNormal(np.log(0.4), 0.5), "gamma": LogNormal(np.log(0.125), 0.2)}


def infected(theta: np.ndarray) -> np.ndarray:
    """Shares `[B, 10]` who are infected at every 17th day, by Runge-Kutta steps of a quarter of a day."""
    beta, gamma = theta.T
    s, i = np.full(len(theta), 1 - 1 / PEOPLE), np.full(len(theta), 1 / PEOPLE)

    def slope(s: np.ndarray, i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return -beta * s * i, beta * s * i - gamma * i

    found, h = [i], 1 / SUBSTEPS
    for _ in range(VALUES - 1):
        for _ in range(EVERY * SUBSTEPS):
            a = slope(s, i)
            b = slope(s + h / 2 * a[0], i + h / 2 * a[1])
            c = slope(s + h / 2 * b[0], i + h / 2 * b[1])
            d = slope(s + h * c[0], i + h * c[1])
            s, i = (x + h / 6 * (a[k] + 2 * b[k] + 2 * c[k] + d[k]) for k, x in ((0, s), (1, i)))
        found.append(i)
    return np.clip(np.stack(found, axis=1), 0, 1)


def sir(theta: torch.Tensor, worlds: list[int]) -> torch.Tensor:
    shares = infected(theta.numpy())
    rows = zip(shares, worlds, strict=True)
    return torch.as_tensor(np.stack([np.random.default_rng([1, w]).binomial(SEEN, p) for p, w in rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", help="of sbibm")
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--method", choices=("NPE", "NLE", "NRE"), default="NPE")
    parser.add_argument("--flow", help="of NPE and NLE; default: theirs")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with zipfile.ZipFile(given.wheel) as wheel:
        observed = np.loadtxt(io.BytesIO(wheel.read(FILES + "observation.csv")), delimiter=",", skiprows=1)
        packed = wheel.read(FILES + "reference_posterior_samples.csv.bz2")
    reference = np.loadtxt(io.BytesIO(bz2.decompress(packed)), delimiter=",", skiprows=1)
    flow = {} if given.flow is None else {"flow": given.flow}
    method = getattr(dz.fit, given.method)(given.simulations, given.rounds, draws=len(reference), **flow)
    began = time.process_time()
    fit = dz.calibrate(
        sir, {"y": dz.fit.Target(observed)}, priors=PRIORS, method=method, seed=given.seed, progress=False
    )
    spent = time.process_time() - began
    samples = fit.samples(len(reference))
    draws = np.stack([samples["beta"], samples["gamma"]], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sbi.utils.metrics import c2st

        score = float(c2st(*(torch.as_tensor(x, dtype=torch.float32) for x in (draws, reference)), classifier="mlp"))
    print(
        f"{given.method} {getattr(method, 'flow', '')}, {given.simulations:,} simulations, {given.rounds} rounds, "
        f"seed {given.seed}: C2ST {score:.3f}"
    )
    for name, column, known in zip(PRIORS, draws.T, reference.T, strict=True):
        print(f"{name}: {column.mean():.4f} ± {column.std():.4f}, reference {known.mean():.4f} ± {known.std():.4f}")
    print(f"{spent:.0f} CPU s, {fit.trace[-1].shown}; torch {torch.__version__}, {os.cpu_count()} cores")
    print(*fit.notes, sep="\n")


if __name__ == "__main__":
    main()
