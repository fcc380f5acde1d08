"""The order in which a breadth-first search finds agents, which no public name shows."""

import numpy as np

from denizen.population._synthetic import _discovery


def test_discovery_visits_every_component_breadth_first():
    # 0-1, 1-2, 1-3, 3-4 and 5-6, 6-7: neighbour lists in CSR order
    degrees = np.array([1, 3, 1, 2, 1, 1, 2, 1])
    other = np.array([1, 0, 2, 3, 1, 1, 4, 3, 6, 5, 7, 6], dtype=np.int32)
    assert _discovery(degrees, other).tolist() == [1, 0, 2, 3, 4, 5, 6, 7]
