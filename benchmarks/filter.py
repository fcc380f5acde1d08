"""A particle filter on COVID: checks against what is known, then times beside plain simulation of the same worlds.

    python benchmarks/filter.py [--device cuda] [--agents 37518] [--particles 1024] [--days 130] [--out RESULT.json]

Check: the likelihood of a linear Gaussian model within 3 standard errors of Kalman's; on CUDA, the same filter as on
the CPU, eager and captured. Times: the steps of a warm run without and with the filter, from the same start, observed
weekly and daily; captured on CUDA; on a CPU eager, in CPU time. Goal on one H200: at most 10 % over plain simulation.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import _cuda
import numpy as np
import torch
from _turns import turn
from torch import Tensor

import denizen as dz
from denizen.fit._particles import Particles
from denizen.run._sieve import again
from denizen.zoo.covid import covid

TIMES = 4  # of each; the best counts


class Place(dz.State):
    """Where the walker is."""

    x: Tensor = dz.real("agents")


class Walker(dz.Model):
    """A stationary AR(1) process."""

    num_agents: int = 1

    def init(self, rng: dz.rng.Rng) -> Place:
        """Its stationary law."""
        return Place(x=rng.normal("start") / 0.6)

    def step(self, now: Any, rng: dz.rng.Rng) -> Place:
        """0.8 of its distance, and a normal number."""
        return now.replace(x=0.8 * now.x + rng.normal("move"))

    @dz.series
    def place(self, now: Any) -> Tensor:
        """Where it is."""
        return now.x.sum()


def check_kalman(device: str) -> dict[str, float]:
    """The mean of the likelihood over seeds against the exact one."""
    values = np.random.default_rng(0).normal(size=20) * 1.8
    mean, variance, exact = 0.0, 1 / 0.36, 0.0
    for value in values:
        mean, variance = 0.8 * mean, 0.64 * variance + 1
        total = variance + 0.49
        exact -= 0.5 * (math.log(2 * math.pi * total) + (value - mean) ** 2 / total)
        mean, variance = mean + variance / total * (value - mean), variance * 0.49 / total
    target = {"place": dz.fit.Target(values, scale="identity", noise=dz.fit.Normal(0.7))}
    found = [dz.fit.filter(Walker(), target, seed=seed, device=device).log_likelihood for seed in range(30)]
    ratio = np.exp(np.array(found) - exact)
    error = float(ratio.std(ddof=1) / math.sqrt(len(ratio)))
    assert abs(ratio.mean() - 1) < 3 * error, (ratio.mean(), error)
    return {"ratio": float(ratio.mean()), "se": error}


def targets(cases: np.ndarray, every: int) -> dict[str, dz.fit.Target]:
    """Daily cases of one world, a third of them reported, with a negative binomial scatter."""
    days = len(cases) // every * every
    seen = np.random.default_rng(1).poisson(cases[:days].reshape(-1, every).sum(1) / 3).astype(float)
    return {"daily_infected": dz.fit.Target(seen, every=every, report=1 / 3, noise=dz.fit.NegativeBinomial(20))}


def check_devices(model: dz.Model, cases: np.ndarray) -> dict[str, float]:
    """The filter on the GPU, eager and captured, against that on the CPU."""
    observed = targets(cases[:28], 7)
    here = dz.fit.filter(model, observed, particles=128, device="cpu")
    found = [dz.fit.filter(model, observed, particles=128, device="cuda", compile=way) for way in (False, True)]
    for there in found:
        assert abs(there.log_likelihood - here.log_likelihood) < 1e-6, (there.log_likelihood, here.log_likelihood)
    return {"cpu": here.log_likelihood, "cuda": found[0].log_likelihood, "captured": found[1].log_likelihood}


@turn()
def times(model: dz.Model, observed: dict[str, dz.fit.Target], options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds a step: plain, and through the filter."""
    (name,) = observed
    own = Particles(
        "filter",
        model,
        observed,
        {name: "flow"},
        particles=options.particles,
        steps=observed[name].last,
        seed=0,
        device=options.device,
        compile=options.device == "cuda",
    )
    run, worlds = own.run, range(options.particles)
    clock = time.perf_counter if options.device == "cuda" else time.process_time  # others may use a CPU as well
    best = {"plain": math.inf, "filter": math.inf}
    weigher = None
    for turn_ in range(TIMES + 1):  # the first compiles and captures
        for way in best:
            again(run, worlds, {})
            wait(options.device)
            began = clock()
            if way == "plain":
                run.extend(own.steps)
            else:
                weigher = own.weigher(0)
                own.walk(weigher)
                assert math.isfinite(float(weigher.log_likelihood))
            wait(options.device)
            if turn_:
                best[way] = min(best[way], (clock() - began) / own.steps * 1e3)
    assert weigher is not None
    drawn = sum(int(one < options.particles / 2) for one in weigher.effective)
    return {
        **{f"{way}_ms": value for way, value in best.items()},
        "over": best["filter"] / best["plain"] - 1,
        "observations": len(observed[name].values),
        "drawn_anew": drawn,
        "path": run.stats()["path"],
    }


def wait(device: str) -> None:
    """For what was launched."""
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--agents", type=int, default=37_518)
    parser.add_argument("--particles", type=int, default=1_024)
    parser.add_argument("--days", type=int, default=130)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    people = dz.population.synthetic("astoria", options.agents, networks=["0"])
    model = covid(people, symmetrize=True)
    cases = dz.simulate(model, options.days, seed=99, device=options.device)["daily_infected"][0].cpu().numpy()
    found: dict[str, Any] = {**_cuda.facts(options.device), "kalman": check_kalman(options.device)}
    if options.device == "cuda":
        small = covid(dz.population.synthetic("astoria", 2_000, networks=["0"]), symmetrize=True)
        few = dz.simulate(small, 28, seed=99, device="cpu")["daily_infected"][0].numpy()
        found["devices"] = check_devices(small, few)
    for label, every in (("weekly", 7), ("daily", 1)):
        found[label] = times(model, targets(cases, every), options)
        print(
            label, {key: round(value, 4) if isinstance(value, float) else value for key, value in found[label].items()}
        )
    if options.device == "cuda":
        found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
