"""SIR with denizen over partnerships, one at a time."""

# ruff: noqa: D101, D102

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import torch
from _worker import serve
from edges_gpu import LEVELS, Moving

import denizen as dz
from denizen.space import Ties

given = {}


class Partnered(dz.State):
    stage: dz.model.Stage = dz.stage("agents", levels=LEVELS)
    partner: torch.Tensor = dz.count("agents", "slots")
    until: torch.Tensor = dz.count("agents", "slots")


class Couples(Moving):
    seek: float = 0.1
    mean: float = 10.0

    def init(self, rng):
        ties = Ties.none(self.num_agents, 1)
        return Partnered(stage=rng.bernoulli("seed", 0.01), partner=ties.who, until=ties.until)

    def met(self, now, rng, infected):
        ties = Ties(now.partner, now.until, now.time.step)
        seeks = (ties.degree() < 1) * rng.bernoulli("seek", self.seek)
        ties = ties.form(rng, "pair", seeks, rng.exponential("lasts", 1 / self.mean, where=seeks))
        return ties.sum(infected), {"partner": ties.who, "until": ties.until}

    @dz.series
    def ever(self, now):
        return self.num_agents - now.stage.is_("susceptible").sum()


def setup(agents, seek, mean, rate, days, compile):
    model = Couples(num_agents=agents, infect_rate=rate, days=days, seek=seek, mean=mean)
    given.update(model=model, agents=agents, compile=compile)
    dz.simulate(model, 3, device="cpu", compile=compile)  # kernels come from numba's cache, or are compiled now


def run(steps, seed):
    def finish(run):
        paired = (run.state.until > steps - 1).sum()  # at the end, as Starsim counts them
        return {"paired": float(paired) / given["agents"], "attack": float(run["ever"][0, -1]) / given["agents"]}

    begun = dz.simulate(given["model"], 2, seed=seed, device="cpu", compile=given["compile"])
    assert begun.stats()["path"] == ("native" if given["compile"] else "eager")
    return lambda: begun.extend(steps - 2), finish


torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
serve(setup, run, {"denizen": dz.__version__, "torch": torch.__version__})
