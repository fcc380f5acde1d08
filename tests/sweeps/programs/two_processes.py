"""Sweeps in several processes, one of which fails; each writes what it is told."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pytest
import torch
import torch.distributed as dist

import denizen as dz
from denizen.sweeps import sweep
from denizen.zoo.sir import SIR
from inside import Inside

dist.init_process_group("gloo")
said = Path(f"{dist.get_rank()}.txt").open("w")  # noqa: SIM115  # two would write into each other's lines


def line(theta, worlds):
    if theta.max() > 5:
        raise dz.errors.ModelError("too large")
    return theta.sum(1, keepdim=True) + torch.tensor(worlds)[:, None]


for _ in range(2):  # the second time all of it is in the folder, which the first process alone reads
    found = sweep(line, {"a": [1, 2, 3, 4, 5]}, steps=1, replicates=3, progress=False, out="s")
    print(found["output"].flatten().tolist(), file=said)
    dist.barrier()
around = torch.arange(40)
ring = SIR(dz.Graph.from_edges(around, (around + 1) % 40, 40, directed=False), infect_rate=0.3)
Inside(pytest.MonkeyPatch()).memory_for_sweeps(20_000 + 40_000 * dist.get_rank())  # room for other numbers of rows
options = {"steps": 4, "replicates": 3, "progress": False}
print(len(sweep(ring, {"infect_rate": [0.1, 0.2, 0.3, 0.4, 0.5]}, **options)), file=said)
try:
    sweep(line, {"a": [1, 2, 3, 4, 6]}, steps=1, replicates=3, progress=False)
except dz.errors.DenizenError as error:
    print(error, file=said)
said.close()
dist.barrier()
dist.destroy_process_group()
