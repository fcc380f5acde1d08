"""A process may compile as many models as it likes."""

import warnings

import pytest
import torch
from tests.run.played import one_graph, own_code

import denizen as dz
from denizen.zoo.sir import sir


@pytest.mark.compile
@torch._dynamo.config.patch(recompile_limit=3)  # 8 as torch comes; monkeypatch would leave none
def test_more_models_compile_than_torch_compiles_variants_of_a_function(eager_backend):
    for agents in range(20, 25):
        graph = dz.Graph.from_edges([0, 1], [1, 2], agents)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = dz.simulate(sir(graph), 4, replicates=1 + agents % 2, compile=True)
        assert run.stats()["path"] == "compiled"
        assert torch.equal(run["cases"], dz.simulate(sir(graph), 4, replicates=1 + agents % 2)["cases"])


@torch.no_grad()
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.compile
@torch._dynamo.config.patch(recompile_limit=3)
def test_a_decorated_function_compiles_for_as_many_models():
    for size in range(1, 6):
        compiled = one_graph(own_code(doubled), "eager")
        assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 2.0))
