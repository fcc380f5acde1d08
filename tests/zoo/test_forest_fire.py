"""The forest fire: it burns what is joined to the left side, and crosses from the published density on."""

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.space import Grid
from denizen.zoo.forest_fire import CRITICAL, ForestFire, forest_fire


class Planted(ForestFire):
    """A forest whose trees are given."""

    trees: torch.Tensor | None = None

    def init(self, rng):
        return super().init(rng).replace(stage=self.trees * (1 + self._column(0, self.trees.device)))


def burnt(trees, neighbours, steps):
    """(cells burnt, whether the fire crossed) for trees `[rows, columns]`."""
    grid = Grid(tuple(trees.shape), torus=False, neighbours=neighbours)
    run = dz.simulate(Planted(grid, trees=trees.flatten()), steps, compile=False, device="cpu")
    assert int(run["burning"][0, -1]) == 0
    return run.state.stage.is_("ash").reshape(trees.shape), int(run["crossed"][0, -1])


@pytest.mark.parametrize("neighbours", ["von_neumann", "moore"])
def test_what_is_joined_to_the_left_burns(neighbours):
    ndimage = pytest.importorskip("scipy.ndimage")
    trees = (torch.rand((24, 30), generator=torch.Generator().manual_seed(1)) < CRITICAL[neighbours]).to(torch.int8)
    found, _ = burnt(trees, neighbours, 120)
    joined = [[0, 1, 0], [1, 1, 1], [0, 1, 0]] if neighbours == "von_neumann" else [[1] * 3] * 3
    label, _ = ndimage.label(trees.numpy(), joined)
    label = torch.from_numpy(label)
    expected = torch.isin(label, label[:, 0][label[:, 0] > 0])
    assert torch.equal(found != 0, expected)


def test_a_fire_is_stopped_by_a_gap_that_touches_at_corners():
    """Exactly one of two happens: trees cross by sides, or bare cells cross the other way by sides and corners."""
    generator = torch.Generator().manual_seed(2)
    outcomes = set()
    for _ in range(8):
        trees = (torch.rand((12, 12), generator=generator) < 0.6).to(torch.int8)
        crossed, barred = burnt(trees, "von_neumann", 60)[1], burnt((1 - trees).T, "moore", 60)[1]
        assert crossed + barred == 1
        outcomes.add(crossed)
    assert outcomes == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["von_neumann", "moore"])
def test_the_burnt_share_jumps_at_the_published_density(neighbours):
    """At the critical density a square is crossed half of the time; 0.08 to either side hardly ever, or always."""
    critical, forests = CRITICAL[neighbours], 100
    densities = torch.tensor([critical - 0.08, critical, critical + 0.08]).repeat_interleave(forests)
    model = forest_fire(rows=48, columns=48, neighbours=neighbours)
    run = dz.simulate(model, 300, replicates=3 * forests, params={"density": densities}, compile=False, device="cpu")
    assert int(run["burning"][:, -1].max()) == 0
    crossed, share = (run[name][:, -1].double().reshape(3, forests).mean(1) for name in ("crossed", "burnt"))
    assert crossed[0] < 0.1
    assert abs(crossed[1] - 0.5) < 4 * 0.5 / forests**0.5
    assert crossed[2] > 0.9
    assert share[0] < 0.4
    assert share[2] > 0.8


def test_wrong_arguments():
    for wrong, told in (
        ({"neighbours": "neumann"}, "von_neumann"),
        ({"rows": 1}, "rows=1"),
        ({"densty": 0.1}, "density"),
        ({"density": 1.5}, "density"),
    ):
        with pytest.raises(InputError, match=told):
            forest_fire(**wrong)
