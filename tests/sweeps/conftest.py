"""What tests of sweeps share."""

import pytest
import torch

import denizen as dz
from denizen.zoo.sir import SIR


@pytest.fixture(scope="session")
def ring() -> SIR:
    """Forty agents in a ring."""
    around = torch.arange(40)
    graph = dz.Graph.from_edges(around, (around + 1) % 40, 40, directed=False)
    return SIR(graph, infect_rate=0.3, seed_share=0.1)
