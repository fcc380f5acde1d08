"""A sweep by a cluster of Ray's on this machine beside one without."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pytest
import ray
import torch

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.sweeps import Ray, load, sweep
from denizen.zoo.sir import SIR
from inside import Inside

DESIGN = {"infect_rate": [0.1, 0.3, 0.5], "infectious_phases": [1, 2]}
OPTIONS = {"steps": 4, "replicates": 2, "progress": False}


def same(one, other):
    assert one.sets == other.sets
    assert one.series_names == other.series_names
    for name in one.series_names:
        assert torch.equal(one[name], other[name])


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
around = torch.arange(40)
graph = dz.Graph.from_edges(around, (around + 1) % 40, 40, directed=False)
model = SIR(graph, infect_rate=0.3, seed_share=0.1)
Inside(pytest.MonkeyPatch()).small_launches(80)
assert Ray().workers == 2
same(sweep(model, DESIGN, executor=Ray(), out="s", **OPTIONS), sweep(model, DESIGN, **OPTIONS))
same(load("s"), sweep(model, DESIGN, **OPTIONS))


def fails(theta, worlds):
    raise ModelError("no")


with pytest.raises(ModelError, match=r"sweep: set \d \(a=\d\) in world 0: no"):
    sweep(fails, {"a": [1, 2, 3]}, steps=1, replicates=1, executor=Ray(), progress=False)
with pytest.raises(InputError, match="gpus=64, and the cluster has 2 CPUs, 0 GPUs"):
    sweep(model, DESIGN, executor=Ray(gpus=64), **OPTIONS)
ray.shutdown()
print("the same")
