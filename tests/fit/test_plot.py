"""Pictures of fits: what is drawn, by the parts of the figure."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

import denizen as dz
from denizen.errors import StorageError

TIMES = torch.arange(12) / 12


def groups(theta: Tensor, worlds: Sequence[int]) -> dict[str, Tensor]:
    noise = torch.as_tensor(np.stack([np.random.default_rng([5, world]).normal(size=(12, 3)) for world in worlds]))
    found = theta[:, None, None, 0] + theta[:, None, None, 1] * TIMES[:, None] + torch.arange(3) + 0.3 * noise
    return {"of groups": found, "of one": found[:, :, 0]}


@pytest.fixture(scope="module")
def fit() -> dz.fit.Fit:
    seen = groups(torch.tensor([[1.0, 2.0]]), [999])
    targets = {name: dz.fit.Target(one[0], scale="identity") for name, one in seen.items()}
    priors = {"level": Normal(0.0, 3.0), "slope": Normal(0.0, 3.0)}
    return dz.calibrate(groups, targets, priors=priors, holdout=3, progress=False)


def test_a_panel_for_each_target_and_the_search(fit: dz.fit.Fit, tmp_path: Path) -> None:
    figure = fit.plot(tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 10_000
    axes = {axis.get_title(loc="left"): axis for axis in figure.axes if axis.get_visible()}
    assert list(axes) == ["of groups", "of one", "search: loss", "search: parameters"]
    data, held_out = (line.get_xydata() for line in axes["of one"].lines if line.get_marker() == "o")
    target = fit._experiment.targets["of one"]
    assert np.array_equal(data[:, 1], target.values)
    assert np.array_equal(data[:, 0], np.arange(1, 10))
    assert np.array_equal(held_out[:, 1], fit.held_out["of one"])
    assert {text.get_text() for text in axes["search: parameters"].texts} == {"level", "slope"}


def test_bands_hold_draws_of_the_fit(fit: dz.fit.Fit) -> None:
    axis = fit.plot().axes[1]
    wide = axis.collections[0].get_paths()[0].vertices[:, 1]
    values = fit._experiment.targets["of one"].values
    assert wide.min() < values.min() + 0.5
    assert wide.max() > values.max() - 0.5


def test_a_corner_has_marginals_and_pairs(fit: dz.fit.Fit, tmp_path: Path) -> None:
    figure = fit.corner(tmp_path / "corner.pdf")
    assert (tmp_path / "corner.pdf").exists()
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert len(shown) == 3
    assert {axis.get_xlabel() for axis in shown} == {"", "level", "slope"}


def test_nothing_that_is_drawn_moves_torchs_generator(fit: dz.fit.Fit) -> None:
    before = torch.get_rng_state()
    fit.corner()
    fit.plot()
    assert torch.get_rng_state().equal(before)


def test_a_picture_that_cannot_be_written_is_told(fit: dz.fit.Fit, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="could not be written"):
        fit.plot(tmp_path)
