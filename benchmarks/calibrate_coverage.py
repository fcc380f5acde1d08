"""How often the intervals of `dz.calibrate` hold the truth: many true values, one observed world each.

    python benchmarks/calibrate_coverage.py [--cases sir seir …] [--truths 100] [--out RESULT.json]

sir: 10,000 agents, 100 days, rate and days of infection, from daily cases. seir: 10,000 agents, 100 days, rate, latent
and infectious days, from daily cases and the number of the infectious. chain: a chain-binomial SIR of 10,000 people
without agents, cheap enough for hundreds of truths. jobs: 1,000 people who lose and find jobs, two rates, from the
weekly number of the hired, of which half are written down with Poisson noise, and the number of the unemployed measured
with normal errors every fourth day. covid: a town of 2,000 with 40 ill at the start, six weekly R, from 42 days of
cases, with a walk from week to week as prior, which the true values are drawn from.
True values scatter by 15 % (sd of the logarithm) around the middle, of covid as the prior says; the search begins at
0.7 times the middle.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import json
import multiprocessing
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import LogNormal

import denizen as dz
from denizen.space import generators
from denizen.zoo.covid import covid
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir

AGENTS, DAYS, SPREAD, BEGIN = 10_000, 100, 0.15, 0.7
FLAT = 100.0  # sd of a logarithm: as good as no prior
WEEKS, WALK, FIRST = 6, 0.4, LogNormal(np.log(4.0), 0.3)  # of covid: R of the first week, and steps of its logarithm


@dataclasses.dataclass(frozen=True)
class Case:
    """What is fitted: where the search begins, the middle of the truths, and what is observed of a run or of a row."""

    start: Any
    middle: dict[str, float]
    priors: Any
    targets: Callable[[dict[str, np.ndarray], np.random.Generator], dict[str, Any]]
    steps: int = DAYS


def epidemic(make: Callable, middle: dict[str, float], series: Sequence[str]) -> Case:
    graph = dz.Graph.from_edges(generators.erdos_renyi(AGENTS, 10.0, seed=0))
    start = make(graph, **{key: BEGIN * value for key, value in middle.items()})
    return Case(start, middle, list(middle), lambda seen, rng: {name: seen[name] for name in series})


def chain(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    """Daily cases of a chain-binomial SIR, binomials by their normal approximation, rounded: `[B, days]`."""
    rate, days = theta.double().numpy().T
    drawn = np.stack([np.random.default_rng([1, world]).normal(size=(DAYS, 2)) for world in worlds])
    well, ill = np.full(len(theta), 0.99 * AGENTS), np.full(len(theta), 0.01 * AGENTS)
    cases = np.zeros((len(theta), DAYS))
    for day in range(DAYS):
        caught = binomial(well, 1 - np.exp(-10 * rate * ill / AGENTS), drawn[:, day, 0])
        healed = binomial(ill, 1 / np.maximum(days, 1), drawn[:, day, 1])
        well, ill, cases[:, day] = well - caught, ill + caught - healed, caught
    return torch.as_tensor(cases)


def binomial(num: np.ndarray, prob: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    return np.clip(np.round(num * prob + np.sqrt(num * prob * (1 - prob)) * drawn), 0, num)


class Working(dz.State):
    """Who has a job."""

    employed: Tensor = dz.mask("agents")


class Jobs(dz.Model):
    """People lose and find jobs; at the start nobody has one."""

    lose: Tensor = dz.param(0.03, low=0.0)
    find: Tensor = dz.param(0.1, low=0.0)
    num_agents: int = 1_000

    def init(self, rng: dz.rng.Rng) -> Working:
        """Nobody has a job."""
        return Working(employed=rng.bernoulli("employed", torch.zeros(self.num_agents, device=self.lose.device)))

    def step(self, now: Any, rng: dz.rng.Rng) -> Working:
        """Some of the employed lose theirs, some of the others find one."""
        lost = rng.event("lose", self.lose.expand(self.num_agents), where=now.employed)
        found = rng.event("find", self.find.expand(self.num_agents), where=1 - now.employed)
        rng.record("hired", found)
        return now.replace(employed=now.employed * (1 - lost) + found)

    @dz.series
    def hired(self, events: dz.rng.Events) -> Tensor:
        """Those who found one in the step."""
        return events["hired"].sum()

    @dz.series
    def unemployed(self, now: Any) -> Tensor:
        """Those without at the end of the step."""
        return (1 - now.employed).sum()


def jobs_seen(seen: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, Any]:
    hired = rng.poisson(0.5 * seen["hired"].reshape(-1, 7).sum(1))
    unemployed = seen["unemployed"][3::4] + 10 * rng.normal(size=len(seen["unemployed"][3::4]))
    return {
        "hired": dz.fit.Target(hired, every=7, report=0.5, noise=dz.fit.Poisson()),
        "unemployed": dz.fit.Target(unemployed, every=4, noise=dz.fit.Normal(10.0), scale="identity"),
    }


def jobs() -> Case:
    middle = {"lose": 0.03, "find": 0.1}
    return Case(Jobs(**{key: BEGIN * value for key, value in middle.items()}), middle, list(middle), jobs_seen, 56)


def town() -> Case:
    size, ill = 2_000, 40
    people = dz.population.synthetic("astoria", size=size)
    stages = np.zeros_like(people.column("disease_stages"))
    there = np.unique(np.concatenate(people.networks["0"][:2]))
    stages[np.random.default_rng(1).choice(there, ill, replace=False)] = 2
    people = dataclasses.replace(people, columns={**people.columns, "disease_stages": stages})
    priors = {"R": dz.fit.Steps(every=7, prior=dz.fit.Walk(WALK, first=FIRST))}
    return Case(
        covid(people, R=[4.0]),
        {},
        priors,
        lambda seen, rng: {"daily_infected": seen["daily_infected"]},
        7 * WEEKS,
    )


CASES: dict[str, Callable[[], Case]] = {
    "sir": lambda: epidemic(sir, {"infect_rate": 0.05, "infectious_days": 7.0}, ["cases"]),
    "seir": lambda: epidemic(
        seir, {"infect_rate": 0.05, "latent_days": 3.0, "infectious_days": 7.0}, ["cases", "infectious"]
    ),
    "chain": lambda: Case(
        chain,
        {"rate": 0.05, "days": 7.0},
        {"rate": LogNormal(np.log(BEGIN * 0.05), FLAT), "days": LogNormal(np.log(BEGIN * 7.0), FLAT)},
        lambda seen, rng: {"cases": seen["cases"]},
    ),
    "jobs": jobs,
    "covid": town,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    options.add_argument("--truths", type=int, default=100)
    options.add_argument("--first", type=int, default=0, help="number of the first truth")
    options.add_argument("--minutes", type=float, default=np.inf, help="of each case, after which no truth is begun")
    options.add_argument("--device")
    options.add_argument("--jobs", type=int, default=1, help="processes; CPU seconds are counted for one alone")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    rows = {}
    for name in given.cases:
        rows[name] = row = measure(name, given)
        print(f"{name}: {row['truths']} truths, {row['runs']:.0f} runs and {row['cpu_s']:.1f} CPU s a fit ({card})")
        for parameter, one in row["parameters"].items():
            low, high = one["between"]
            print(
                f"  {parameter:<16} 90 % interval holds {one['held']} of {row['truths']} ({low:.0%} to {high:.0%}), "
                f"error {one['rms']:.1%} rms, stated {one['sd']:.1%}, mean {one['bias']:+.2f} sd",
                flush=True,
            )
        if given.out:
            found = {"card": card, "torch": torch.__version__, "python": platform.python_version(), "commit": head}
            given.out.write_text(json.dumps({**found, "rows": rows}, indent=1) + "\n")


def drawn(case: Case, number: int) -> dict[str, np.ndarray]:
    """True values."""
    rng = np.random.default_rng(number)
    if case.middle:
        scatter = np.exp(SPREAD * rng.normal(size=len(case.middle)))
        return {key: np.asarray(value * one) for (key, value), one in zip(case.middle.items(), scatter, strict=True)}
    steps = np.concatenate([[FIRST.loc + FIRST.scale * rng.normal()], WALK * rng.normal(size=WEEKS - 1)])
    return {"R": np.exp(np.cumsum(steps))}


def observed(case: Case, truth: dict[str, np.ndarray], number: int, device: str | None) -> dict[str, Any]:
    seed = 10_000 + number
    if isinstance(case.start, dz.Model):
        run = dz.simulate(
            case.start.replace(**{k: v.tolist() for k, v in truth.items()}), case.steps, seed=seed, device=device
        )
        seen = {name: run[name][0].double().cpu().numpy() for name in case.start.all_series}
    else:
        seen = {"cases": case.start(torch.tensor([[float(v) for v in truth.values()]]), [1_000_000 + seed])[0].numpy()}
    return case.targets(seen, np.random.default_rng([seed, 1]))


@functools.cache
def case_of(name: str) -> Case:
    """Built once in a process."""
    return CASES[name]()


def fitted(name: str, number: int, device: str | None, ends: float) -> tuple[Any, ...] | None:
    """(distances in sd, sds, runs, labels) of one truth; None where it is too late to begin."""
    if time.time() > ends:
        return None
    case = case_of(name)
    truth = drawn(case, number)
    targets = observed(case, truth, number, device)
    options = {} if not isinstance(case.start, dz.Model) else {"device": device}
    fit = dz.calibrate(case.start, targets, priors=case.priors, seed=number, progress=False, **options)
    interval = fit.interval(0.9)
    low, high, at, true = (
        np.log(np.concatenate([np.reshape(values[key], -1) for key in truth]))
        for values in (
            {key: bounds[0] for key, bounds in interval.items()},
            {key: bounds[1] for key, bounds in interval.items()},
            fit.params,
            truth,
        )
    )
    sd = (high - low) / 2 / 1.6448536
    labels = [key if value.ndim == 0 else f"{key}[{k}]" for key, value in truth.items() for k in range(value.size)]
    return (at - true) / sd, sd, fit.runs, labels


def measure(name: str, given: argparse.Namespace) -> dict:
    cpu, numbers = time.process_time(), range(given.first, given.first + given.truths)
    arguments = zip(
        *[(name, number, given.device, time.time() + 60 * given.minutes) for number in numbers], strict=True
    )
    if given.jobs == 1:
        found = list(map(fitted, *arguments))
    else:
        spawned = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(given.jobs, spawned) as pool:
            found = list(pool.map(fitted, *arguments))
    z, sds, runs, (labels, *_) = zip(*[one for one in found if one is not None], strict=True)
    num, away, stated = len(z), np.array(z), np.array(sds)
    held = (np.abs(away) <= 1.6448536).sum(0)
    parameters = {
        label: {
            "held": int(held[k]),
            "between": exact_interval(int(held[k]), num),
            "rms": float(np.sqrt(((away * stated)[:, k] ** 2).mean())),
            "sd": float(np.sqrt((stated[:, k] ** 2).mean())),
            "bias": float(away[:, k].mean()),
        }
        for k, label in enumerate(labels)
    }
    spent = (time.process_time() - cpu) / num
    return {"truths": num, "runs": float(np.mean(runs)), "cpu_s": spent, "parameters": parameters}


def exact_interval(held: int, num: int) -> tuple[float, float]:
    """95 % interval of a share (Clopper and Pearson 1934)."""
    from scipy.stats import beta

    low = float(beta.ppf(0.025, held, num - held + 1)) if held else 0.0
    return low, float(beta.ppf(0.975, held + 1, num - held)) if held < num else 1.0


if __name__ == "__main__":
    main()
