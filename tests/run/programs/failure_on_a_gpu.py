"""A run whose process can use CUDA no more after step 20."""

import sys

import torch

import denizen as dz
from denizen.run import Run, Snapshots
from denizen.zoo.sir import SIR

ring = torch.arange(200)
model = SIR(dz.Graph.from_edges(ring, (ring + 1) % 200, 200, directed=False), infect_rate=0.3, seed_share=0.05)
take = Run._take


def fails(run, run_state, start, *rest):
    if start >= 20:
        torch.zeros(3, device="cuda")[torch.tensor([10], device="cuda")]
    return take(run, run_state, start, *rest)


run = dz.simulate(
    model,
    20,
    replicates=2,
    snapshots=Snapshots(2, slots=2),
    out=sys.argv[1],
    device="cuda",
    compile=sys.argv[2] == "True",
)
Run._take = fails
run.extend(20)
