"""An epidemic among moving agents in eager torch, as such models are written; `make` with faults, `mended` without.

`make(device)` and `mended(device)` return a function that does one tick. A comment names the fault of its line; in
parentheses: not one that counting can see.
"""

import numpy as np
import torch

AGENTS, RADIUS, WELL, ILL, IMMUNE = 200, 0.05, 0, 1, 2
GRID = 20  # cells of the mended model: as wide as RADIUS


def agents(device):
    torch.manual_seed(0)
    where = torch.rand(AGENTS, 2)
    state = torch.zeros(AGENTS, dtype=torch.long)
    state[:20] = ILL
    return where.to(device), state.to(device), torch.zeros(AGENTS).to(device)


def make(device):
    where, state, days = agents(device)
    random = np.random.default_rng(0)
    history, world = [], {"where": where}

    def step():
        walk = torch.from_numpy(random.normal(0, 0.01, (AGENTS, 2))).to(device)  # h2d-fresh
        world["where"] = (world["where"] + walk) % 1  # (dtype-fp64)
        distances = torch.cdist(world["where"], world["where"])  # (dense-quadratic)
        ill = (state == ILL).nonzero().squeeze(1)  # host-sync-nonzero
        exposed = (distances[ill] < RADIUS).any(0) & (state == WELL)
        dice = torch.rand(AGENTS).to(device)  # h2d-fresh
        caught = exposed & (dice < 0.4)
        if caught.any():  # host-sync-bool
            state[caught] = ILL
            days[caught] = torch.zeros(AGENTS, device=device)[caught]  # host-sync-boolindex
        days[state == ILL] += 1  # host-sync-boolindex
        for agent in range(3):  # (launch-bound)
            if state[agent] == ILL and days[agent] > 14:  # host-sync-bool
                state[agent] = IMMUNE
        state[(state == ILL) & (days > 14)] = IMMUNE
        counts = [(state == kind).sum().item() for kind in (WELL, ILL, IMMUNE)]  # host-sync-item
        kinds, sizes = torch.unique(state, return_counts=True)  # host-sync-nonzero
        history.append(days.mean().cpu())  # d2h-accumulate
        return counts, kinds, sizes

    return step


def mended(device):
    where, state, days = agents(device)
    kinds = torch.arange(3, device=device)
    strides, shifts = torch.tensor([GRID, 1]).to(device), torch.arange(-1, 2, device=device)
    around = torch.cartesian_prod(shifts, shifts)
    history, tick = torch.zeros(1000, 4, device=device), [0]

    def step():
        walk = torch.randn(AGENTS, 2, device=device) * 0.01
        where.add_(walk).remainder_(1)
        cells = (where * GRID).long().clamp(max=GRID - 1)
        near = (cells[:, None] + around) % GRID
        ill = torch.zeros(GRID * GRID, device=device)
        ill.index_add_(0, (cells * strides).sum(1), (state == ILL).float())
        exposed = (ill[(near * strides).sum(2)].sum(1) > 0) & (state == WELL)
        caught = exposed & (torch.rand(AGENTS, device=device) < 0.4)
        days.copy_(torch.where(caught, 0.0, days + (state == ILL)))
        state.masked_fill_(caught, ILL)
        state.masked_fill_((state == ILL) & (days > 14), IMMUNE)
        counts = (state[:, None] == kinds).sum(0)
        history[tick[0] % 1000] = torch.cat([counts.float(), days.mean()[None]])
        tick[0] += 1
        return history

    return step
