"""Whatever is read by one call, and read and thrown away between rows, the rows are the same."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from denizen import tools
from denizen.tools import _mapped


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("npy") / "values.npy"
    np.save(path, np.random.default_rng(0).normal(size=(500, 3, 2)).astype(np.float32))
    return path


@given(
    st.lists(st.integers(-500, 499), max_size=60), st.sampled_from([0, 64, 1 << 20]), st.sampled_from([1, 100, 1 << 20])
)
def test_any_rows_in_any_order(path, rows, gap, run):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_mapped, "GAP", gap)
        patch.setattr(_mapped, "RUN", run)
        got = tools.MappedDataset(path)[rows]
    assert got.equal(torch.from_numpy(np.load(path))[rows])
    assert got.dtype is torch.float32
