"""Hard runs of the models that can run relaxed keep the numbers that they had before draws took their mask apart.

The checksums were recorded with the code of November 2026 whose probabilities were gated by `sign` and `where=`.
"""

import hashlib

import pytest

import denizen as dz
from denizen.zoo.covid import covid
from denizen.zoo.seir import SEIR
from denizen.zoo.sir import SIR


def contacts():
    return dz.Graph.from_edges(dz.space.generators.erdos_renyi(1000, 10.0, seed=1))


def layers():
    graph = contacts()
    return dz.space.Layers({"a": graph, "b": graph}, strength={"b": [0.1, 0.5]})


def city(**options):
    return covid(dz.population.load("synthetic:astoria:8000"), reference=True, isolation=[0.3] * 6, **options)


MODELS = [
    pytest.param(lambda: SIR(contacts()), 1.0, "f0c652c9d376c4ff", id="sir"),
    pytest.param(
        lambda: SIR(layers(), infectious_phases=3, infectious_days=6.0), 1.0, "f4309792c8394796", id="sir in phases"
    ),
    pytest.param(lambda: SIR(contacts()), 0.5, "4308de2216de5079", id="sir by half days"),
    pytest.param(lambda: SEIR(contacts(), infect_rate=0.08, latent_days=3.0), 1.0, "81f8fff78f052dd2", id="seir"),
    pytest.param(
        lambda: SEIR(contacts(), infect_rate=0.08, latent_days=3.0, latent_phases=2, infectious_phases=4),
        1.0,
        "d68e487ef956b0e7",
        id="seir in phases",
    ),
    pytest.param(city, 1.0, "f52ae33cec2bca67", id="covid"),
    pytest.param(lambda: city(sample_deaths=True), 1.0, "a570ccf500d18da6", id="covid with deaths"),
]


def checksum_of(model, dt, device):
    run = dz.simulate(model, 30, replicates=3, seed=7, dt=dt, device=device)
    found = hashlib.sha256(b"".join(run[name].cpu().contiguous().numpy().tobytes() for name in model.all_series))
    return found.hexdigest()[:16]


@pytest.mark.parametrize(("build", "dt", "checksum"), MODELS)
def test_hard_runs_have_the_numbers_that_they_had(build, dt, checksum):
    assert checksum_of(build(), dt, "cpu") == checksum


@pytest.mark.cuda
@pytest.mark.parametrize(("build", "dt", "checksum"), MODELS[:5])  # whose series are counts
def test_hard_runs_have_these_numbers_on_a_gpu(build, dt, checksum):
    """Captured where steps suffice; draws and sums have the same bits on every device."""
    assert checksum_of(build(), dt, "cuda") == checksum
