"""The random graphs that all contestants share, written once as npz files."""

import numpy as np


def random_graph(path, num_agents, mean_degree, seed):
    """A directed random graph whose in-degrees are Poisson in the limit; int32 `source` and `target`, by target.

    Args:
        path: npz file to write; kept where it exists.
        num_agents: N; edges are N * mean_degree less the self-loops (10 on average).
        mean_degree: mean number of in-neighbours.
        seed: of the graph.
    """
    if path.is_file():
        return path
    rng = np.random.default_rng(seed)
    num = num_agents * mean_degree
    target = np.sort(rng.integers(0, num_agents, num, dtype=np.int32))
    source = rng.integers(0, num_agents, num, dtype=np.int32)
    keep = source != target
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, source=source[keep], target=target[keep])
    return path
