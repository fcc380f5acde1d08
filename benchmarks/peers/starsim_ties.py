"""SIR with Starsim over partnerships, one at a time: `ss.DynamicNetwork` with random pairing of those who seek."""

# ruff: noqa: D101, D102

import numpy as np
import starsim as ss
from _worker import serve

given = {}


class Couples(ss.DynamicNetwork):
    def __init__(self, **kwargs):
        super().__init__()
        self.define_pars(seek=ss.bernoulli(p=given["seek"]), duration=ss.expon(scale=given["mean"]))
        self.update_pars(**kwargs)
        self.dist = ss.random(name="couples")

    def add_pairs(self):
        free = self.sim.people.alive & (self.sim.people.age >= 0)  # a copy
        free[self.edges.p1] = False
        free[self.edges.p2] = False
        seeks = self.pars.seek.filter(free.uids)
        seeks = seeks[np.argsort(self.dist.rvs(seeks), kind="stable")]
        pairs = len(seeks) // 2
        p1, p2 = seeks[:pairs], seeks[pairs : 2 * pairs]
        self.append(p1=p1, p2=p2, beta=np.ones_like(p1), dur=self.pars.duration.rvs(p1))


def setup(**settings):
    given.update(settings)


def run(steps, seed):
    disease = ss.SIR(
        beta=ss.perday(given["rate"]),
        init_prev=ss.bernoulli(p=0.01),
        dur_inf=ss.expon(scale=given["days"]),
        p_death=ss.bernoulli(p=0),
    )
    sim = ss.Sim(
        n_agents=given["agents"],
        diseases=disease,
        networks=Couples(),
        start=ss.days(0),
        dur=ss.days(steps - 1),
        dt=ss.days(1),
        rand_seed=seed,
        verbose=0,
        copy_inputs=False,
    )
    sim.init()

    def finish(_):
        edges = sim.networks[0].edges
        return {
            "paired": 2 * len(edges.p1) / given["agents"],
            "attack": float(1 - sim.diseases[0].susceptible.mean()),
        }

    return sim.run, finish


serve(setup, run, {"starsim": ss.__version__, "numpy": np.__version__})
