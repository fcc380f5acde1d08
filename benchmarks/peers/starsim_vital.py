"""SIR with births and deaths with Starsim: everybody meets ten others a day at random."""

import numpy as np
import starsim as ss
from _worker import serve

given = {}


def setup(**settings):
    given.update(settings)


def run(steps, seed):
    disease = ss.SIR(
        beta=ss.perday(given["rate"]),
        init_prev=ss.bernoulli(p=0.01),
        dur_inf=ss.expon(scale=given["days"]),
        p_death=ss.bernoulli(p=0),
    )
    yearly = 1_000 * 365 * given["turnover"]  # both count in thousands a year
    sim = ss.Sim(
        n_agents=given["agents"],
        diseases=disease,
        networks=ss.RandomNet(n_contacts=10),
        demographics=[ss.Births(birth_rate=yearly), ss.Deaths(death_rate=yearly)],
        start=ss.days(0),
        dur=ss.days(steps - 1),
        dt=ss.days(1),
        rand_seed=seed,
        verbose=0,
        copy_inputs=False,
    )
    sim.init()

    def finish(_):
        alive = sim.people.alive
        return {"people": float(alive.sum()), "susceptible": float(sim.diseases[0].susceptible.mean())}

    return sim.run, finish


serve(setup, run, {"starsim": ss.__version__, "numpy": np.__version__})
