"""SIR with births and deaths with denizen: everybody meets ten others a day at random."""

# ruff: noqa: D101, D102

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import torch
from _worker import serve

import denizen as dz
from denizen.model import alive, births, deaths

given = {}


class People(dz.State):
    living: torch.Tensor = alive("agents")
    stage: dz.model.Stage = dz.stage("agents", levels=("susceptible", "infected", "recovered"))


class Renewed(dz.Model):
    num_agents: int = 110_000
    start: int = 100_000
    infect_rate: torch.Tensor = dz.param(0.03, low=0.0)
    days: torch.Tensor = dz.param(10.0, low=0.1)
    turnover: torch.Tensor = dz.param(0.001, low=0.0)
    contacts: float = 10.0

    def init(self, rng):
        living = torch.arange(self.num_agents) < self.start
        stage = dz.model.Stage(rng.bernoulli("seed", 0.01), ("susceptible", "infected", "recovered"))
        return People(living=living.to(torch.int8), stage=stage)

    def step(self, now, rng):
        susceptible, infected = now.stage.is_("susceptible"), now.stage.is_("infected")
        pressure = self.contacts * infected.sum() / now.living.sum()
        caught = rng.event("catch", self.infect_rate * pressure.expand(self.num_agents), where=susceptible)
        healed = rng.event("heal", 1 / self.days, where=infected)
        stage = now.stage.move(healed, "recovered", source="infected").move(caught, "infected", source="susceptible")
        born, died = rng.event("bear", self.turnover), rng.event("die", self.turnover)
        now = now.replace(stage=stage)
        return births(deaths(now, died, "agents"), rng, born, "agents", stage="susceptible")

    @dz.series
    def susceptible(self, now):
        return now.stage.is_("susceptible").sum()

    @dz.series
    def people(self, now):
        return now.living.sum()


def setup(agents, rate, days, turnover, compile):
    model = Renewed(num_agents=agents + agents // 10, start=agents, infect_rate=rate, days=days, turnover=turnover)
    given.update(model=model, compile=compile)
    dz.simulate(model, 3, device="cpu", compile=compile)  # kernels come from numba's cache, or are compiled now


def run(steps, seed):
    def finish(run):
        people = float(run["people"][0, -1])
        return {"people": people, "susceptible": float(run["susceptible"][0, -1]) / people}

    begun = dz.simulate(given["model"], 2, seed=seed, device="cpu", compile=given["compile"])
    assert begun.stats()["path"] == ("native" if given["compile"] else "eager")
    return lambda: begun.extend(steps - 2), finish


torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
serve(setup, run, {"denizen": dz.__version__, "torch": torch.__version__})
