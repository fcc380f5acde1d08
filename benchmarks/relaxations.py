"""How far relaxations are off, by model and horizon, against central differences: `dz.relax.measure`, as tables.

    python benchmarks/relaxations.py [MODEL ...] [--agents 1000] [--steps 20 40 100] [--worlds 128] [--out RESULT.json]

SIR and SEIR on random contacts (10 an agent), COVID on a synthetic Astoria with the original's R of 14.25, and voters,
who take over what their contacts think and what a campaign says. What is differentiated is the total of new infections
over all steps, of the voters the total of those in favour. Runs on the CPU and on CUDA (--device).
"""

import argparse
import json
import math
import subprocess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import denizen as dz
from denizen.relax import Logistic, MeanField, Measured, OneFlip, ScoreFunction, StraightThrough, measure
from denizen.space import generators
from denizen.zoo.covid import covid
from denizen.zoo.seir import SEIR
from denizen.zoo.sir import SIR

RELAXATIONS = (StraightThrough(), Logistic(), MeanField(), ScoreFunction(), OneFlip())


class Opinions(dz.State):
    """Who is in favour."""

    favour: Tensor = dz.mask("agents")


class Voters(dz.Model):
    """Each voter takes over the opinion of a contact at rate `pace`; a campaign wins whoever is against."""

    contacts: dz.Graph
    pace: Tensor = dz.param(0.3, low=0.0, unit="1/week")
    campaign: Tensor = dz.param(0.02, low=0.0, unit="1/week")

    def init(self, rng: dz.rng.Rng) -> Opinions:
        """A third is in favour."""
        return Opinions(favour=rng.bernoulli("first", 1 / 3))

    def step(self, now: Opinions, rng: dz.rng.Rng) -> Opinions:
        """Listen, and follow."""
        against, heard = 1 - now.favour, self.contacts.mean(now.favour)
        won = against * rng.event("win", self.pace * heard + self.campaign, where=against)
        lost = now.favour * rng.event("lose", self.pace * (1 - heard), where=now.favour)
        return now.replace(favour=now.favour + won - lost)

    @dz.series
    def favour(self, now: Opinions) -> Tensor:
        """Those in favour."""
        return now.favour.sum()


def contacts(agents: int) -> dz.Graph:
    """Random contacts, 10 an agent."""
    return dz.Graph.from_edges(generators.erdos_renyi(agents, 10.0, seed=1))


MODELS = {
    "sir": lambda agents: SIR(contacts(agents), infect_rate=0.05, infectious_days=7.0),
    "seir": lambda agents: SEIR(contacts(agents), infect_rate=0.08, latent_days=3.0, infectious_days=7.0),
    "covid": lambda agents: covid(dz.population.load(f"synthetic:astoria:{agents}"), reference=True),
    "voters": lambda agents: Voters(contacts(agents)),
}
WRT = {"covid": ["R"]}


def main() -> None:
    """Measure, print, write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help=", ".join(MODELS))
    options.add_argument("--agents", type=int, default=1000)
    options.add_argument("--steps", type=int, nargs="+", default=[20, 40, 100])
    options.add_argument("--worlds", type=int, default=128)
    options.add_argument("--device")
    options.add_argument("--out", type=Path, help="results are added to this file")
    given = options.parse_args()
    rows = []
    for name in given.models:
        for steps in given.steps:
            model = MODELS[name](given.agents)
            found = measure(
                model,
                steps,
                wrt=WRT.get(name),
                relaxations=RELAXATIONS,
                worlds=given.worlds,
                device=given.device,
            )
            print(found, flush=True)
            rows.append(row(name, given.agents, found))
    print(markdown(rows))
    if given.out:
        before = json.loads(given.out.read_text()) if given.out.exists() else []
        given.out.write_text(json.dumps(before + rows, indent=1) + "\n")


def row(name: str, agents: int, found: Measured) -> dict[str, Any]:
    """What one call found, as it is written."""
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    slopes = [{k: None if v != v else v for k, v in vars(slope).items()} for slope in found.slopes]
    facts = {"device": device, "torch": torch.__version__, "commit": head}
    return {"model": name, "agents": agents, "steps": found.steps, "best": found.best, "slopes": slopes, **facts}


def markdown(rows: list[dict[str, Any]]) -> str:
    """Ratio and, in brackets, noise of one world over the slope: a line a parameter, model and horizon."""
    names = [repr(relax).partition("(")[0] for relax in RELAXATIONS]
    lines = [f"| model, steps | by | differences | {' | '.join(names)} |", "|---" * (len(names) + 3) + "|"]
    for one in rows:
        for param in dict.fromkeys(slope["param"] for slope in one["slopes"]):
            mine = [slope for slope in one["slopes"] if slope["param"] == param]
            true = mine[0]["slope"]
            cells = [f"{true:.3g} ± {mine[0]['error']:.2g} ({mine[0]['noise'] / abs(true):.2f})"]
            for slope in mine[1:]:
                clear = slope["ratio"] is not None and math.isfinite(slope["ratio"])
                noise = slope["noise"] / abs(true)
                cells.append(f"{slope['ratio']:.2f} ± {slope['ratio_error']:.2f} ({noise:.2f})" if clear else "-")
            lines.append(f"| {one['model']}, {one['steps']} | {param} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
