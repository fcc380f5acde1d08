"""Sobol's indices against functions whose indices are known in closed form."""

import math

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.sweeps import Saltelli, sweep

pytest.importorskip("SALib")
ALONE = {"steps": 1, "replicates": 1, "progress": False}


def test_ishigami():
    """T. Ishigami, T. Homma, 1990, with a = 7 and b = 0.1; the variances in closed form."""
    a, b = 7.0, 0.1

    def ishigami(theta, worlds):
        x = theta.T
        return (torch.sin(x[0]) + a * torch.sin(x[1]) ** 2 + b * x[2] ** 4 * torch.sin(x[0]))[:, None]

    first = 0.5 * (1 + b * math.pi**4 / 5) ** 2
    second, both = a**2 / 8, 8 * b**2 * math.pi**8 / 225
    whole = first + second + both
    ends = (-math.pi, math.pi)
    found = sweep(ishigami, Saltelli(2048, dict.fromkeys("xyz", ends), second_order=True), **ALONE).indices("output")
    assert np.allclose(found.first, [first / whole, second / whole, 0], atol=0.02)
    assert np.allclose(found.total, [(first + both) / whole, second / whole, both / whole], atol=0.02)
    assert found.second is not None
    assert abs(found.second[0, 2] - both / whole) < 0.03
    within = np.abs(found.first - [first / whole, second / whole, 0]) <= 2 * found.first_interval
    assert within.all()
    assert [row[0] for row in found.rows()] == ["x", "y", "z"]


def test_a_line_has_the_shares_of_its_slopes():
    found = sweep(lambda theta, worlds: theta @ torch.tensor([[3.0], [2.0], [1.0]], dtype=torch.float64),
                  Saltelli(256, {"a": (0, 1), "b": (4, 5), "c": (-1, 0)}), **ALONE)  # fmt: skip
    assert len(found) == 256 * 5
    indices = found.indices("output", "last")
    assert np.allclose(indices.first, [9 / 14, 4 / 14, 1 / 14], atol=0.02)
    assert np.allclose(indices.total, indices.first, atol=0.02)
    assert "of output, last" in str(indices)


def test_indices_of_a_model_and_their_picture(ring, tmp_path):
    design = Saltelli(4, {"infect_rate": (0.1, 0.5), "infectious_phases": (1, 2)})
    found = sweep(ring, design, steps=4, replicates=2, progress=False, out=tmp_path / "s")
    read = dz.sweeps.load(tmp_path / "s").indices("cases")
    assert np.array_equal(read.total, found.indices("cases").total)
    read.plot(tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 1000


def test_what_has_no_indices_is_told(ring):
    found = sweep(ring, {"infect_rate": [0.1, 0.2]}, steps=2, replicates=1, progress=False)
    with pytest.raises(InputError, match=r"design Grid, expected dz.sweeps.Saltelli"):
        found.indices("cases")
    same = sweep(lambda theta, worlds: 0 * theta[:, :1], Saltelli(2, {"a": (0, 1)}), **ALONE)
    with pytest.raises(InputError, match="is 0 in every set, so there is no variance to explain"):
        same.indices("output")
    with pytest.raises(InputError, match="count=3, expected a power of two"):
        sweep(ring, Saltelli(3, {"infect_rate": (0, 1)}), steps=2, progress=False)
