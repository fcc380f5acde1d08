"""Where agents are drawn: by places, as a network, on a grid, or in the order of their numbers."""

import base64
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

from starlette.testclient import TestClient

import denizen as dz
from denizen.run import Snapshots
from denizen.space.generators import erdos_renyi
from denizen.ui import make_app
from denizen.zoo.sir import sir
from ui_runs import Village


class Fire(dz.State):
    trees: Tensor = dz.mask("rows", "columns")
    heat: Tensor = dz.real("rows", "columns")


class Forest(dz.Model):
    """A grid in which a fire goes to the right."""

    rows: int = 3
    columns: int = 4
    num_agents: int = 1

    def init(self, rng) -> Fire:
        trees = torch.ones(self.rows, self.columns, dtype=torch.int8)
        return Fire(trees=trees, heat=torch.arange(12.0).reshape(3, 4))

    def step(self, now: Fire, rng) -> Fire:
        return now.replace(heat=now.heat.roll(1, 1))

    @dz.series
    def total(self, now: Fire) -> Tensor:
        """Heat of all."""
        return now.heat.sum()


class Walkers(dz.State):
    x: Tensor = dz.real("agents")
    y: Tensor = dz.real("agents")
    tired: Tensor = dz.mask("agents")


class Walk(dz.Model):
    """Agents who walk to the right."""

    agents: int = 5

    @property
    def num_agents(self) -> int:
        return self.agents

    def init(self, rng) -> Walkers:
        at = torch.arange(float(self.agents))
        return Walkers(x=at, y=-at, tired=torch.zeros(self.agents, dtype=torch.int8))

    def step(self, now: Walkers, rng) -> Walkers:
        return now.replace(x=now.x + 1)

    @dz.series
    def furthest(self, now: Walkers) -> Tensor:
        """The furthest of all."""
        return now.x.max()


def frame(folder: Path, field: str, place: int = 1) -> dict:
    """What the page gets."""
    client = TestClient(make_app([folder]), base_url="http://127.0.0.1")
    told = client.get("/api/agents", params={"id": "0:.", "field": field, "place": place}).json()
    for name, dtype in (("values", "<f4"), ("x", "<f4"), ("y", "<f4"), ("edges", "<i4")):
        if name in told:
            told[name] = np.frombuffer(base64.b64decode(told[name]), dtype)
    return told


def kept(model: dz.Model, folder: Path, **snapshots) -> Path:
    dz.simulate(model, 2, out=folder, snapshots=Snapshots(1, **snapshots), progress=False)
    return folder


def test_given_places_make_a_map(tmp_path):
    x, y = torch.rand(30), torch.rand(30)
    told = frame(kept(Village(), tmp_path / "run", places=(x, y)), "stage")
    assert told["form"] == "points"
    np.testing.assert_array_equal(told["x"], x.numpy())
    np.testing.assert_allclose(told["box"], [x.min(), x.max(), y.min(), y.max()])


def test_a_map_of_many_agents_has_some_of_them_and_counts_all(tmp_path):
    x = torch.arange(60_000.0)
    told = frame(kept(Village(agents=60_000), tmp_path / "run", places=(x, x)), "ill")
    assert len(told["values"]) == len(told["x"]) == 20_000
    assert told["each"] == 3
    assert sum(told["counts"].values()) == told["total"] == 60_000


def test_fields_x_and_y_move_the_agents(tmp_path):
    folder = kept(Walk(), tmp_path / "run")
    assert frame(folder, "tired", 0)["x"].tolist() == [0, 1, 2, 3, 4]
    assert frame(folder, "tired", 2)["x"].tolist() == [2, 3, 4, 5, 6]


def test_a_small_network_comes_with_each_pair_once(tmp_path):
    graph = dz.Graph.from_edges([0, 1, 1, 2, 3], [1, 0, 2, 1, 3], num_agents=4)
    told = frame(kept(sir(graph), tmp_path / "run"), "stage")
    assert told["form"] == "network"
    assert told["edges"].reshape(2, -1).tolist() == [[0, 1], [1, 2]]
    assert told["names"] == ["susceptible", "infected", "recovered"]


def test_a_large_network_is_a_square_of_agents(tmp_path):
    folder = kept(sir(erdos_renyi(1_500, mean_degree=2, seed=0)), tmp_path / "run")
    assert not (folder / "drawing.safetensors").exists()
    told = frame(folder, "stage")
    assert (told["form"], told["width"], told["height"]) == ("cells", 39, 39)
    assert np.isfinite(told["values"]).sum() == 1_500


def test_a_grid_stays_one(tmp_path):
    told = frame(kept(Forest(), tmp_path / "run"), "heat")
    assert (told["width"], told["height"], told["kind"]) == (4, 3, "number")
    assert told["values"].reshape(3, 4)[0].tolist() == [3, 0, 1, 2]


def test_a_drawing_that_was_damaged_is_told(tmp_path):
    folder = kept(Village(), tmp_path / "run", places=(torch.rand(30), torch.rand(30)))
    (folder / "drawing.safetensors").write_bytes(b"")
    assert "differs from what was written" in frame(folder, "ill")["error"]
    assert dz.run.load(folder).steps == 2  # the run itself is whole


@pytest.mark.parametrize("places", [(torch.rand(29), torch.rand(30)), (torch.rand(30),), (1, 2), 7])
def test_places_of_another_number_are_refused(tmp_path, places):
    with pytest.raises(dz.errors.InputError, match=r"snapshots\.places .*expected x and y, \[30\] each"):
        kept(Village(), tmp_path / "run", places=places)


def test_places_stay_where_a_run_goes_on(tmp_path):
    folder = kept(Village(), tmp_path / "run", places=(torch.rand(30), torch.rand(30)))
    dz.run.resume(folder, Village(), steps=3)
    assert frame(folder, "ill", 5)["form"] == "points"
