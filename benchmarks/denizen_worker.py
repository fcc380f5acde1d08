"""denizen as a contestant, and the cases that only denizen has: COVID, batches of replicates, loading, active sets.

The SEIR here is written as an author would, with a history field for fixed dwell times; `zoo.seir` is a case too.
"""

# ruff: noqa: D101, D102

import math
from pathlib import Path

import torch
from _worker import serve
from torch import Tensor

import denizen as dz
from denizen.zoo import seir as zoo_seir
from denizen.zoo.covid import covid

held = {}


class People(dz.State):
    exposed: dz.model.History = dz.history("agents")  # days since infection


class SEIR(dz.Model):
    contacts: dz.Graph
    infect_rate: Tensor = dz.param(0.03, low=0.0)
    seed_share: Tensor = dz.param(0.01, low=0.0, high=1.0)
    latent: int = 5
    infectious: int = 7

    def init(self, rng):
        seeds = rng.bernoulli("seed", self.seed_share).to(torch.int16)
        return People(exposed=dz.model.History.start(seeds * (self.latent + 1), length=self.latent + self.infectious))

    def step(self, now, rng):
        active = now.exposed.within(self.latent + 1, self.latent + self.infectious)
        pressure = self.contacts.sum(active, where=now.exposed.never())
        caught = rng.event("catch", self.infect_rate * pressure)
        return now.replace(exposed=now.exposed.record(caught))

    @dz.series
    def cases(self, before, now):
        return (before.exposed.never() - now.exposed.never()).sum()


def hazard(prob):
    return -math.log1p(-prob)


def seir(path, agents, b, latent, infectious, seeds):
    graph = dz.Graph.from_file(path, num_agents=agents)
    return SEIR(graph, infect_rate=hazard(b), seed_share=seeds, latent=latent, infectious=infectious)


def seir_zoo(path, agents, b, latent, infectious, seeds):
    return zoo_seir.seir(
        dz.Graph.from_file(path, num_agents=agents),
        infect_rate=hazard(b),
        seed_share=seeds,
        latent_days=latent,
        latent_phases=latent,
        infectious_days=infectious,
        infectious_phases=infectious,
    )


def covid_on(population, agents, reference):
    people = dz.population.synthetic(population, size=agents) if agents else dz.population.load(population)
    return covid(people, reference=reference)


def still_epidemic(path, agents, share):
    """The same number of infectious at every step: nobody recovers, and almost nobody catches it, though all may."""
    return seir(path, agents, b=1e-9, latent=1, infectious=100, seeds=share)


CASES = {"seir": seir, "seir_zoo": seir_zoo, "covid": covid_on, "still": still_epidemic}


def setup(case, threads, compile=None, **arguments):
    torch.set_num_threads(threads)
    held.update(case=case, compile=compile)
    if case == "load":
        return None
    held["model"] = CASES[case](**arguments)
    dz.simulate(held["model"], steps=3, compile=compile)  # kernels come from numba's cache or are compiled now
    contacts = held["model"].contacts
    return {"agents": contacts.num_agents, "edges": contacts.num_edges}


def load(path, agents):
    return dz.simulate(seir(path, agents, b=0.03, latent=5, infectious=7, seeds=0.01), steps=0)


def run(steps=0, seed=0, replicates=1, path=None, agents=0):
    if held["case"] == "load":
        return lambda: load(Path(path), agents), lambda run: {"edges": run.model.contacts.num_edges}
    begun = dz.simulate(held["model"], steps=0, seed=seed, replicates=replicates, compile=held["compile"])
    if held["compile"]:
        begun.extend(2)  # the step is written between the first and the second

    def finish(run):
        name = "daily_infected" if "daily_infected" in run.series_names else "cases"
        stats = run.stats()
        answer = {"cases": run[name].to(torch.float64).mean(dim=0).tolist(), "path": stats["path"], "ops": stats["ops"]}
        answer["total"] = run[name].sum(dim=1).tolist()
        if held["case"] != "covid":
            state = run.state
            never = state.exposed.never() if isinstance(state, People) else state.stage.is_("susceptible")
            answer["attack"] = 1 - float(never.float().mean())
        if held["case"] == "still":
            answer["active"] = int(((state.exposed.value > 1) & (state.exposed.value <= 101)).sum())
        return answer

    return lambda: begun.extend(steps), finish


if __name__ == "__main__":
    serve(setup, run, {"denizen": dz.__version__, "torch": torch.__version__})
