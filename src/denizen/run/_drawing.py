"""How agents can be drawn, kept beside their snapshots: names of stages, places on a map, a small contact network."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from denizen.model import Stage
from denizen.space import Graph

if TYPE_CHECKING:
    from denizen.run._run import Run

MOST_AGENTS, MOST_EDGES = 1_000, 10_000  # of a network that a screen can show


def levels(run: "Run") -> dict[str, tuple[str, ...]]:
    """Names of the stages of each field that snapshots keep, where it has such."""
    store, state = run._snapshots, run.state
    kept = {name: getattr(state, name) for name in (store.forms if store else ())}
    return {name: tuple(value.levels) for name, value in kept.items() if isinstance(value, Stage)}


def arrays(run: "Run") -> dict[str, Tensor]:
    """``x`` and ``y``, float32 `[agents]`, and ``edges``, int32 `[2, edges]`, as far as there are such.

    Places are those that `Snapshots` was given, else the model's own ``x`` and ``y``.
    """
    model, agents = run.model, run.model.num_agents
    store = run._snapshots
    x, y = (store and store.places) or (getattr(model, "x", None), getattr(model, "y", None))
    found = {}
    if all(isinstance(part, Tensor) and part.shape == (agents,) for part in (x, y)):
        found = {"x": x.detach().float().cpu().clone(), "y": y.detach().float().cpu().clone()}  # type: ignore[union-attr]
    graph = next((value for value in vars(model).values() if isinstance(value, Graph)), None)
    if graph is not None and graph.num_agents == agents <= MOST_AGENTS and graph.num_edges <= 2 * MOST_EDGES:
        found["edges"] = _edges(graph)
    return found


def _edges(graph: Graph) -> Tensor:
    """Each pair of neighbours once, `[2, pairs]`."""
    pointers, sources = graph.in_ptr.cpu().numpy(), graph.in_idx.cpu().numpy()
    targets = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    pairs = np.stack([np.minimum(sources, targets), np.maximum(sources, targets)])
    pairs = np.unique(pairs[:, pairs[0] != pairs[1]], axis=1)
    return torch.from_numpy(pairs.astype(np.int32))
