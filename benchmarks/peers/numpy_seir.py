"""SEIR in plain numpy: gather over all edges, `bincount` by target."""

import numpy as np
from _worker import serve

graph = {}


def setup(path, agents, **disease):
    edges = np.load(path)
    graph.update(
        source=edges["source"].astype(np.int64), target=edges["target"].astype(np.int64), agents=agents, **disease
    )


def epidemic(steps, seed):
    rng = np.random.default_rng(seed)
    n, latent, infectious = graph["agents"], graph["latent"], graph["infectious"]
    age = np.where(rng.random(n) < graph["seeds"], latent + 1, 0).astype(np.int8)  # days since infection, 0: never
    cases = np.zeros(steps, dtype=np.int64)
    escape = np.log1p(-graph["b"])
    for t in range(steps):
        active = (age > latent) & (age <= latent + infectious)
        pressure = np.bincount(graph["target"], weights=active[graph["source"]], minlength=n)
        caught = (age == 0) & (rng.random(n) < -np.expm1(escape * pressure))
        age = np.where(age > 0, np.minimum(age + 1, latent + infectious + 1), caught).astype(np.int8)
        cases[t] = caught.sum()
    return age, cases


def run(steps, seed):
    return lambda: epidemic(steps, seed), lambda out: {"attack": float((out[0] > 0).mean()), "cases": out[1].tolist()}


serve(setup, run, {"numpy": np.__version__})
