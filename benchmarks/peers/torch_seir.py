"""SEIR in plain torch as most would write it: gather over all edges, `index_add` by target."""

import numpy as np
import torch
from _worker import serve

graph = {}


def setup(path, agents, threads, **disease):
    torch.set_num_threads(threads)
    edges = np.load(path)
    graph.update(source=torch.from_numpy(edges["source"]).long(), target=torch.from_numpy(edges["target"]).long())
    graph.update(agents=agents, **disease)


@torch.no_grad()
def epidemic(steps, seed):
    rng = torch.Generator().manual_seed(seed)
    n, latent, infectious = graph["agents"], graph["latent"], graph["infectious"]
    age = ((torch.rand(n, generator=rng) < graph["seeds"]) * (latent + 1)).to(
        torch.int8
    )  # days since infection, 0: never
    cases = torch.zeros(steps)
    escape = float(np.log1p(-graph["b"]))
    for t in range(steps):
        active = ((age > latent) & (age <= latent + infectious)).float()
        pressure = torch.zeros(n).index_add_(0, graph["target"], active[graph["source"]])
        caught = (age == 0) & (torch.rand(n, generator=rng) < -torch.expm1(escape * pressure))
        age = torch.where(age > 0, (age + 1).clamp(max=latent + infectious + 1), caught.to(torch.int8))
        cases[t] = caught.sum()
    return age, cases


def run(steps, seed):
    return lambda: epidemic(steps, seed), lambda out: {
        "attack": float((out[0] > 0).float().mean()),
        "cases": out[1].tolist(),
    }


serve(setup, run, {"torch": torch.__version__})
