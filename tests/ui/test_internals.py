"""Numbers and limits of the page's server."""

import numpy as np
import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

from tests.ui.test_hostile import ask

from denizen._results import banded
from denizen.ui import _runs
from denizen.ui._server import Access, is_loopback


def test_folders_in_circles_end(tmp_path, monkeypatch):
    monkeypatch.setattr(_runs, "LOOKS", 50)
    for k in range(8):
        (tmp_path / f"again-{k}").symlink_to(tmp_path)
    assert ask(tmp_path).get("/api/runs").json()["cut"]


def test_bands_with_gaps_are_those_of_numpy():
    values = np.random.default_rng(0).standard_normal((7, 20))
    np.testing.assert_allclose(banded(values), np.quantile(values, (0.05, 0.5, 0.95), axis=0))
    values[2, 3] = values[:, 5] = np.nan
    whole = np.quantile(values, (0.05, 0.5, 0.95), axis=0)
    np.testing.assert_allclose(banded(values), whole)
    assert np.isnan(whole[:, 3]).all()
    some = banded(values, gaps=True)
    np.testing.assert_allclose(some[:, 3], np.quantile(np.delete(values[:, 3], 2), (0.05, 0.5, 0.95)))
    assert np.isnan(some[:, 5]).all()


def test_tokens_are_compared_in_constant_time(monkeypatch):
    seen = []
    monkeypatch.setattr("secrets.compare_digest", lambda *pair: seen.append(pair) or False)
    assert not Access("token").known("other")
    assert seen == [(b"other", b"token")]


def test_which_addresses_need_a_token():
    assert all(map(is_loopback, ("127.0.0.1", "127.3.2.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.7", "box.example")))
