"""SEIR with Starsim on a static directed network, fixed durations, no deaths: `ss.SEIR` where the version has it.

Starsim 3.3, which the goal of "25 times" was measured with, has no `ss.SEIR`; there it is `ss.SIR` with a latent state
added the way Starsim's own examples do.
"""

# ruff: noqa: D102

import numpy as np
import starsim as ss
from _worker import serve

graph = {}

if hasattr(ss, "SEIR"):

    class SEIR(ss.SEIR):
        """Seeds start infectious, as in every other contestant; the rest is Starsim's own."""

        def init_post(self):
            cases = super().init_post()
            self.exposed[cases] = False
            self.infectious[cases] = True
            self.ti_infectious[cases] = 0
            self.ti_recovered[cases] = graph["infectious"]
            return cases

else:

    class SEIR(ss.SIR):
        """`ss.SIR` with a latent state before it."""

        def __init__(self, dur_exp, **pars):
            super().__init__(**pars)
            self.define_pars(dur_exp=dur_exp)
            self.define_states(ss.BoolState("exposed"), ss.FloatArr("ti_infectious"))
            self.seeding = True

        @property
        def infectious(self):
            return self.infected

        def init_post(self):
            cases = super().init_post()
            self.seeding = False
            return cases

        def step_state(self):
            begin = (self.exposed & (self.ti_infectious <= self.ti)).uids
            self.exposed[begin] = False
            self.infected[begin] = True
            super().step_state()

        def set_prognoses(self, uids, sources=None):
            super().set_prognoses(uids, sources)
            if self.seeding:
                return
            wait = self.pars.dur_exp.rvs(uids)
            self.infected[uids] = False
            self.exposed[uids] = True
            self.ti_infectious[uids] = self.ti + wait
            self.ti_recovered[uids] = self.ti_recovered[uids] + wait


def setup(path, agents, **disease):
    edges = np.load(path)
    graph.update(source=edges["source"], target=edges["target"], agents=agents, **disease)


def run(steps, seed):
    disease = SEIR(
        beta={"contacts": [graph["b"], 0.0]},
        init_prev=ss.bernoulli(p=graph["seeds"]),
        dur_exp=ss.constant(v=graph["latent"]),
        dur_inf=ss.constant(v=graph["infectious"]),
        p_death=ss.bernoulli(p=0),
    )
    network = ss.Network(
        name="contacts", p1=graph["source"], p2=graph["target"], beta=np.ones(len(graph["source"]), dtype=np.float32)
    )
    sim = ss.Sim(
        n_agents=graph["agents"],
        diseases=disease,
        networks=network,
        start=0,
        dur=steps - 1,
        dt=1,
        rand_seed=seed,
        verbose=0,
        copy_inputs=False,
    )
    sim.init()

    def finish(_):
        done = sim.diseases[0]
        cases = [float(x) for x in done.results.new_infections]
        return {"attack": float(1 - done.susceptible.mean()), "cases": cases}

    return sim.run, finish


serve(setup, run, {"starsim": ss.__version__, "numpy": np.__version__})
