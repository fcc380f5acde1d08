"""What each agent sees: columns of a series, or entries of a matrix."""

import dataclasses
import math

import torch
from torch import Tensor

from denizen import _arguments
from denizen._arguments import whole
from denizen.errors import InputError

_TRIES = 20


def sense_columns(num_agents: int, num_features: int, share: float, seed: int = 0) -> Tensor:
    """Each agent sees `round(share * num_features)` columns, at least one: float32 `[agents, features]` of 0 and 1."""
    whole("sense_columns", "num_agents", num_agents, low=1)
    whole("sense_columns", "num_features", num_features, low=1)
    _arguments.share("sense_columns", "share", share)
    seen = max(1, round(share * num_features))
    order = torch.rand(num_agents, num_features, generator=torch.Generator().manual_seed(seed)).argsort(1)
    return torch.zeros(num_agents, num_features).scatter(1, order[:, :seen], 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class EntrySensing:
    """Which entries of a matrix are known at all, and to whom.

    Attributes:
        known: bool `[times, features]`.
        seen: bool `[agents, times, features]`, each within `known`.
        overlap_mean, overlap_variance: Jaccard overlap over pairs of agents; NaN for a single agent.
        clipped: share of agents whose endowment was cut to the known set.
        coverage: share of the known set that someone sees.
    """

    known: Tensor
    seen: Tensor
    overlap_mean: float
    overlap_variance: float
    clipped: float
    coverage: float


def sense_entries(
    num_agents: int,
    times: int,
    features: int,
    *,
    density: float = 0.5,
    share: float = 0.2,
    inequality: float = 0.0,
    rank: int = 1,
    hide_last: bool = False,
    seed: int = 0,
) -> EntrySensing:
    """A known set of entries and what each agent gets of it.

    The known set has `round(density * times * features)` entries, with at least `rank` in every (visible) row and every
    column. The mean endowment is (1 - share) known / agents + share known; sizes follow a Dirichlet distribution.

    Args:
        num_agents: agents.
        times: rows.
        features: columns.
        density: share of entries that are known.
        share: 0 divides the known set among agents on average, 1 lets each see as much as all of it.
        inequality: 0 gives equal endowments, 1 very unequal ones.
        rank: entries needed in each row and column.
        hide_last: whether the last row is known to nobody.
        seed: equal seeds give equal masks.

    Raises:
        InputError: an argument out of range, or no such known set after 20 draws.
    """
    whole("sense_entries", "num_agents", num_agents, low=1)
    whole("sense_entries", "times", times, low=1 + hide_last)
    whole("sense_entries", "features", features, low=1)
    for name, value in (("density", density), ("share", share), ("inequality", inequality)):
        _arguments.share("sense_entries", name, value)
    generator = torch.Generator().manual_seed(seed)
    rows = times - hide_last
    size = min(round(density * times * features), rows * features)
    known = _known_set(rows, features, size, rank, generator)
    mean = (1 - share) * size / num_agents + share * size
    wanted = (num_agents * mean * _dirichlet(num_agents, inequality, seed)).round()
    sizes = wanted.clamp(max=size).long()
    places = known.flatten().nonzero()[:, 0]
    seen = torch.zeros(num_agents, rows * features, dtype=torch.bool)
    for agent, own in enumerate(sizes.tolist()):
        seen[agent, places[torch.randperm(size, generator=generator)[:own]]] = True
    overlap = _overlaps(seen)
    full = torch.zeros(num_agents, times, features, dtype=torch.bool)
    full[:, :rows] = seen.view(num_agents, rows, features)
    everything = torch.zeros(times, features, dtype=torch.bool)
    everything[:rows] = known
    return EntrySensing(
        everything,
        full,
        float(overlap.mean()),
        float(overlap.var(correction=0)) if len(overlap) else math.nan,
        float((wanted > size).float().mean()),
        float(seen.any(0).sum()) / max(size, 1),
    )


def _known_set(rows: int, features: int, size: int, rank: int, generator: torch.Generator) -> Tensor:
    for _ in range(_TRIES):
        known = torch.zeros(rows * features, dtype=torch.bool)
        known[torch.randperm(rows * features, generator=generator)[:size]] = True
        known = known.view(rows, features)
        if int(known.sum(0).min()) >= rank and int(known.sum(1).min()) >= rank:
            return known
    raise InputError(
        f"sense_entries: no {size} known entries of {rows} x {features} with at least rank={rank} in every row and "
        f"column were found in {_TRIES} draws: raise density= or lower rank="
    )


def _dirichlet(num_agents: int, inequality: float, seed: int) -> Tensor:
    """Shares p of agents: Dirichlet of alpha, log alpha = (1 - g^1.2) log 50 + g^1.2 log 0.01."""
    import numpy as np

    bent = inequality**1.2
    alpha = math.exp((1 - bent) * math.log(50) + bent * math.log(0.01))
    drawn = np.random.default_rng(seed).dirichlet(np.full(num_agents, alpha))
    return torch.from_numpy(np.nan_to_num(drawn, nan=1 / num_agents))


def _overlaps(seen: Tensor) -> Tensor:
    """Jaccard overlap of every pair of agents."""
    both = seen.float() @ seen.float().T
    size = both.diagonal()
    either = size[:, None] + size - both
    pairs = torch.triu_indices(len(seen), len(seen), 1)
    return (both / either.clamp(min=1))[pairs[0], pairs[1]]
