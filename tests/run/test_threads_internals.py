"""How many threads a run on the CPU takes."""

import pytest
import torch

from denizen.run._machine import calm_threads


@pytest.mark.parametrize(("elements", "threads"), [(0, 1), (499_999, 1), (500_000, 2), (1_000_000, 4), (10**8, 8)])
def test_as_many_as_a_population_keeps_busy(elements: int, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    try:
        with calm_threads(elements):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 8
    finally:
        torch.set_num_threads(before)
