"""Ranks of the truth: right posteriors pass, wrong ones fail, and the test has the size that it states."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

import denizen as dz
import posteriors
from denizen.errors import InputError

TARGETS = {"y": dz.fit.Target(np.zeros(posteriors.VALUES), scale="identity")}
PRIORS = {"theta": Normal(0.0, 2.0)}


def normal_mean(theta: torch.Tensor, worlds: Sequence[int]) -> torch.Tensor:
    return posteriors.normal_mean(theta, [world % posteriors.WORLDS for world in worlds])


def two_means(theta: torch.Tensor, worlds: Sequence[int]) -> torch.Tensor:
    """Each value is the sum of both, with sd 1: the posterior has a strong correlation."""
    return normal_mean(theta.sum(1, keepdim=True), worlds)


@dataclasses.dataclass(frozen=True)
class Exact:
    """The posterior itself of a sum of parameters, or one that is wrong by intent."""

    stretch: float = 1.0
    shift: float = 0.0
    correlated: bool = True

    def solve(self, experiment: Any, replicates: int, tell: Any) -> dz.fit.Solution:
        size = len(experiment.parameters.labels)
        covariance = np.linalg.inv(np.eye(size) / 4 + posteriors.VALUES * np.ones((size, size)))
        mean = covariance @ np.full(size, experiment.observed.sum())
        if not self.correlated:
            covariance = np.diag(np.diag(covariance))
        generator = experiment.generator()
        draws = generator.multivariate_normal(mean, self.stretch**2 * covariance, 500)
        draws += self.shift * np.sqrt(np.diag(covariance))
        return dz.fit.Solution(mean, None, (), 0, True, 1.0, draws)


def found(method: Any, num: int = 200, **options: Any) -> dz.fit.Ranks:
    given = {"priors": PRIORS, "method": method, "num": num, "progress": False, **options}
    return dz.fit.sbc(options.pop("model", normal_mean), TARGETS, **{k: v for k, v in given.items() if k != "model"})


def test_a_right_posterior_passes_and_covers_what_it_says() -> None:
    ranks = found(Exact())
    assert ranks.passed()
    assert set(ranks.ranks) == {"theta"}
    for level in (0.5, 0.9):
        error = np.sqrt(level * (1 - level) / 200)
        assert ranks.coverage(level)["theta"] == pytest.approx(level, abs=3 * error)


@pytest.mark.parametrize(
    "wrong", [Exact(stretch=0.7), Exact(stretch=1.5), Exact(shift=0.4)], ids=["narrow", "wide", "aside"]
)
def test_wrong_posteriors_fail(wrong: Exact) -> None:
    ranks = found(wrong)
    assert not ranks.passed()
    assert ranks.p()["theta"] < 0.01
    assert "OUTSIDE" in str(ranks)


def test_coverage_of_a_narrow_posterior_is_that_of_its_width() -> None:
    expected = 2 * stats.norm.cdf(0.6 * stats.norm.ppf(0.95)) - 1
    assert found(Exact(stretch=0.6), 400).coverage(0.9)["theta"] == pytest.approx(expected, abs=0.075)  # 3 errors


def test_a_wrong_correlation_is_seen_by_all_together_alone() -> None:
    given = {"model": two_means, "priors": {"a": Normal(0.0, 2.0), "b": Normal(0.0, 2.0)}}
    right, wrong = found(Exact(), 600, **given), found(Exact(correlated=False), 600, **given)
    assert right.passed()
    p = wrong.p()
    assert p["together"] < 0.01
    assert min(p["a"], p["b"]) > 0.05
    assert set(right.coverage(0.9)) == {"a", "b"}


@pytest.mark.parametrize(("num", "draws"), [(50, 99), (200, 19)])
def test_uniform_ranks_leave_the_band_as_often_as_stated(num: int, draws: int) -> None:
    generator = np.random.default_rng(3)
    p = [dz.fit.Ranks({"x": generator.integers(0, draws + 1, num)}, draws, 0, ()).p()["x"] for _ in range(1_000)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.021)  # 3 standard errors
    low, high = dz.fit.Ranks({"x": np.zeros(num, dtype=int)}, draws, 0, ()).band(num)
    uniform = np.arange(1, draws + 2) / (draws + 1)
    assert (low <= uniform).all()
    assert (uniform <= high).all()
    sets = generator.integers(0, draws + 1, (2_000, num))
    share = np.stack([(sets <= k).mean(1) for k in range(draws + 1)], axis=1)
    inside = ((share >= low - 1e-9) & (share <= high + 1e-9)).all(1).mean()
    assert inside == pytest.approx(0.95, abs=0.021)


def test_a_network_is_trained_once() -> None:
    rows = []

    def function(theta: torch.Tensor, worlds: Sequence[int]) -> torch.Tensor:
        rows.append(len(theta))
        return normal_mean(theta, worlds)

    method = dz.fit.NPE(1_500, flow="mdn")
    ranks = found(method, 100, model=function)
    assert sum(rows) == 100 + 1_500
    assert ranks.p()["theta"] > 0.001
    assert (found(method, 100).ranks["theta"] == ranks.ranks["theta"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", [dz.fit.NPE(8_000, flow="zuko_maf"), dz.fit.ABCSMC(1_200, particles=400, keep=200)])
def test_methods_of_ours_pass(method: Any) -> None:
    assert found(method, 150).passed()


def test_targets_whose_dates_begin_later_are_simulated_in_their_places() -> None:
    dates = np.datetime64("2026-01-03") + np.arange(posteriors.VALUES - 2)
    targets = {"y": dz.fit.Target(np.zeros(posteriors.VALUES - 2), dates=dates, scale="identity")}

    @dataclasses.dataclass(frozen=True)
    class Looks:
        def solve(self, experiment: Any, replicates: int, tell: Any) -> dz.fit.Solution:
            assert experiment.targets["y"].first == 3
            assert experiment.steps == posteriors.VALUES
            return dz.fit.Solution(np.zeros(1), np.eye(1), (), 0, True, 1.0)

    given: dict[str, Any] = {"priors": PRIORS, "method": Looks(), "num": 10, "progress": False}
    assert dz.fit.sbc(normal_mean, targets, start="2026-01-01", **given).failed == 0


def test_gaps_stay_and_failures_are_told() -> None:
    @dataclasses.dataclass(frozen=True)
    class Failing:
        share: float

        def solve(self, experiment: Any, replicates: int, tell: Any) -> dz.fit.Solution:
            assert len(experiment.observed) == 7
            if experiment.seed % 10 < 10 * self.share:
                raise InputError("no such luck")
            return dz.fit.Solution(np.zeros(1), np.eye(1), (), 0, True, 1.0)

    targets = {"y": dz.fit.Target([np.nan, *np.zeros(7)], scale="identity")}
    given: dict[str, Any] = {"priors": PRIORS, "num": 20, "progress": False}
    ranks = dz.fit.sbc(normal_mean, targets, method=Failing(0.2), **given)
    assert ranks.failed == 4
    assert "4 fits failed and are left out, the first: no such luck" in str(ranks)
    with pytest.raises(InputError, match="sbc: 12 of 20 fits failed, the first: no such luck"):
        dz.fit.sbc(normal_mean, targets, method=Failing(0.6), **given)


@dataclasses.dataclass(frozen=True)
class Stopping(Exact):
    """Notes the seed of each fit in a file, and stops at the one that a file names."""

    where: str = ""

    def solve(self, experiment: Any, replicates: int, tell: Any) -> dz.fit.Solution:
        home = Path(self.where)
        if (home / "stop").exists() and experiment.seed == int((home / "stop").read_text()):
            raise KeyboardInterrupt
        with open(home / "fits", "a") as file:
            file.write(f"{experiment.seed}\n")
        if experiment.seed == 5:
            raise InputError("no such luck")
        return super().solve(experiment, replicates, tell)


def test_a_folder_keeps_every_fit(tmp_path: Path, command_line: Any) -> None:
    method, home = Stopping(where=str(tmp_path)), tmp_path / "ranks"
    (tmp_path / "stop").write_text("12")
    with pytest.raises(KeyboardInterrupt) as stopped:
        found(method, 20, out=home)
    assert "12 entries are safe; the same call goes on" in stopped.value.__notes__[0]  # the data, and 11 fits
    assert "12 entries" in command_line("show", home)[1]
    (tmp_path / "stop").unlink()
    ranks = found(method, 20, out=home)
    assert (tmp_path / "fits").read_text().split() == [str(seed) for seed in range(1, 21)]  # each once
    alone = found(method, 20)
    assert (ranks.ranks["theta"] == alone.ranks["theta"]).all()
    assert ranks.notes == alone.notes == ("1 fits failed and are left out, the first: no such luck",)
    again = found(method, 20, out=home)
    assert (again.ranks["theta"] == ranks.ranks["theta"]).all()
    assert (again.draws, again.failed, again.notes) == (ranks.draws, 1, ranks.notes)
    assert str(again) == str(ranks)
    assert len((tmp_path / "fits").read_text().split()) == 40
    assert "Ranks of the truth" in command_line("show", home)[1]
    for other in ({"num": 30}, {"seed": 1}, {"draws": 9}, {"priors": {"theta": Normal(0.0, 1.0)}}):
        with pytest.raises(InputError, match=r"sbc: .*was begun with something else: "):
            found(method, **{"num": 20, "out": home, **other})


@pytest.mark.slow
def test_a_folder_keeps_the_network(tmp_path: Path) -> None:
    rows, method, stop = [], dz.fit.NPE(300, flow="mdn", epochs=3), [True]

    def function(theta: torch.Tensor, worlds: Sequence[int]) -> torch.Tensor:
        rows.append(len(theta))
        return normal_mean(theta, worlds)

    def learn(self: Any, experiment: Any, tell: Any) -> Any:
        learned = whole(self, experiment, tell)
        if stop:
            raise KeyboardInterrupt
        return learned

    whole = dz.fit.NPE.learn
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dz.fit.NPE, "learn", learn)
        with pytest.raises(KeyboardInterrupt):
            found(method, 12, model=function, out=tmp_path / "ranks")
        before = sum(rows)
        stop.clear()
        ranks = found(method, 12, model=function, out=tmp_path / "ranks")
    assert sum(rows) == before == 12 + 300
    assert (ranks.ranks["theta"] == found(method, 12, model=function).ranks["theta"]).all()


def test_a_picture(tmp_path: Path) -> None:
    found(Exact(), 50).plot(tmp_path / "ranks.png")
    assert (tmp_path / "ranks.png").stat().st_size > 5_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num": 2}, "sbc: num=2"),
        ({"draws": 3}, "sbc: draws=3"),
        ({"method": dz.fit.NPE}, "sbc: method="),
        ({"priors": {}}, "sbc: priors="),
    ],
)
def test_wrong_arguments_are_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        found(**{"method": Exact(), **given})
