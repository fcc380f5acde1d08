"""What lies between a simulated series and the numbers written down: dates, delays, late reports, fitted numbers."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Beta, Gamma, LogNormal, Normal, Uniform

import denizen as dz
from denizen.errors import InputError
from models_to_fit import Rain

MONDAY = "2020-03-02"
WEEKS = ["2020-03-02", "2020-03-09", "2020-03-16"]
Target = dz.fit.Target


@pytest.mark.parametrize(
    "dates",
    [
        WEEKS,
        [datetime.date(2020, 3, day) for day in (2, 9, 16)],
        [datetime.datetime(2020, 3, day, 12) for day in (2, 9, 16)],
        np.array(WEEKS, dtype="datetime64[D]"),
        pandas.Series(pandas.to_datetime(WEEKS)),
        pandas.to_datetime(WEEKS),
        pandas.Series(WEEKS),
        pandas.to_datetime(WEEKS).tz_localize("Asia/Tokyo"),
        pandas.Series(pandas.to_datetime(WEEKS)).dt.tz_localize("America/New_York"),
        polars.Series(WEEKS).str.to_date(),
        polars.Series(WEEKS).str.to_datetime().dt.replace_time_zone("Asia/Tokyo"),
        polars.Series(WEEKS),
    ],
    ids=lambda dates: type(dates).__name__,
)
def test_dates_of_many_kinds(dates: Any) -> None:
    target = Target([1, 2, 3], dates=dates, every=7)
    assert target.dates.tolist() == [datetime.date(2020, 3, day) for day in (2, 9, 16)]


def growth(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    """A size that begins at 100 and grows at a rate, and scatters a little."""
    drawn = torch.as_tensor(np.stack([np.random.default_rng([3, world]).normal(size=60) for world in worlds]))
    return 100 * torch.exp(theta[:, :1] * torch.arange(60)) * torch.exp(0.02 * drawn)


RATE = {"rate": Uniform(0.0, 0.2)}


def test_the_rate_is_right_where_the_dates_are() -> None:
    """Pitfall: a week taken to begin a day early gives a start of e^-r, which the rate has to make up for."""
    series = growth(torch.tensor([[0.05]]), [77])[0].numpy()
    weekly = series[2:58].reshape(8, 7).sum(1)  # from Wednesday on, where step 1 is a Monday
    dates = [np.datetime64("2020-03-04") + 7 * k for k in range(8)]
    found = {}
    for shift in (0, 1):
        target = Target(weekly, dates=[one + shift for one in dates], every=7)
        found[shift] = dz.calibrate(growth, {"x": target}, priors=RATE, start=MONDAY, progress=False)
    low, high = found[0].interval(0.99)["rate"]
    assert low < 0.05 < high
    assert found[0].params["rate"] == pytest.approx(0.05, abs=5e-4)
    assert found[1].params["rate"] < 0.05 - 8e-4


def test_missing_dates_are_gaps_or_zeros() -> None:
    dates = ["2020-03-02", "2020-03-16", "2020-03-23"]
    gaps = Target([1, 3, 4], dates=dates, every=7, missing="gap")
    assert gaps.values.tolist()[:1] + gaps.values.tolist()[2:] == [1, 3, 4]
    assert np.isnan(gaps.values[1])
    assert gaps.dates[1] == np.datetime64("2020-03-09")
    zeros = Target([[1, 1], [3, 3], [4, 4]], dates=dates, every=7, missing="zero")
    assert zeros.values[1].tolist() == [0, 0]
    assert zeros.last == 28


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dates": WEEKS[:2]}, "dates has 2 dates and values 3 numbers"),
        ({"dates": [WEEKS[1], WEEKS[0], WEEKS[2]]}, "dates has 2020-03-02 after 2020-03-09, .*sort both by date"),
        ({"dates": [WEEKS[0], WEEKS[2], WEEKS[1]]}, "dates has 2020-03-09 after 2020-03-16, .*sort both by date"),
        ({"dates": [WEEKS[0], WEEKS[0], WEEKS[2]]}, "dates has 2020-03-02 twice"),
        (
            {"dates": [WEEKS[0], WEEKS[1], "2020-03-23"]},
            "2020-03-09 to 2020-03-23, expected 2020-03-16 between.*missing",
        ),
        ({"dates": [*WEEKS[:2], "2020-03-17"]}, "8 days, expected a multiple of every=7"),
        ({"dates": WEEKS, "every": 1}, "expected 2020-03-03 between them.*every=7 if a value is of 7 days"),
        ({"dates": [*WEEKS[:2], "March"]}, "expected ISO texts"),
        ({"dates": [1, 2, 3]}, r"dates=\[1, 2, 3\], expected ISO texts"),
        ({"dates": "2020-03-02"}, "dates='2020-03-02', expected ISO texts"),
        ({"dates": [*WEEKS[:2], None]}, "no date at position 2"),
        ({"dates": WEEKS, "first": 3}, "first=3 and dates, expected one of them"),
        ({"dates": WEEKS, "dated": "middle"}, "dated='middle', .*valid: end, start"),
        ({"missing": "gap"}, "missing='gap' without dates"),
        ({"dates": WEEKS, "missing": "nan"}, "missing='nan'"),
        ({"delay": [0.7, 0.7]}, "at most 1 together"),
        ({"delay": [-0.1, 0.7]}, "expected probabilities"),
        ({"delay": []}, "expected probabilities"),
        ({"delay": "gamma"}, "expected probabilities"),
        ({"delay": Normal(2.0, 3.0)}, "expected a distribution of times from 0 on"),
        ({"delay": scipy.stats.norm(2, 3)}, "expected a distribution of times from 0 on"),
        ({"delay": Gamma}, "expected probabilities"),
        ({"delay": Gamma(torch.ones(2), 1.0)}, "expected a distribution of one number"),
        ({"truncation": [0.9, 0.5, 0.3, 0.1]}, "of at most 3 last values"),
        ({"truncation": [0.0]}, "expected shares above 0"),
        ({"truncation": 0.5}, "expected shares above 0"),
        ({"people": 0}, "people=0"),
        ({"report": [0.5, 0.5]}, r"report has shape \(2,\), expected one number, or one for each group: \(\)"),
        (
            {"values": [1.5, 2, 3], "noise": dz.fit.Poisson()},
            r"values\[0\] is 1.5, and noise=Poisson is of whole counts",
        ),
        ({"values": [-1, 2, 3], "noise": dz.fit.Poisson(), "scale": "identity"}, r"values\[0\] is -1, expected counts"),
    ],
)
def test_wrong_observations_are_told(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Target(**{"values": [1, 2, 3], "every": 7, **options})


def test_what_does_not_go_with_dates_is_told() -> None:
    class Weekly(Rain):
        time_unit = "week"

    given = {"x": Target([1, 2, 3], dates=WEEKS, every=7)}
    with pytest.raises(InputError, match=r"targets\['x'\] begins on 2020-03-02, before start=2020-03-03"):
        dz.calibrate(growth, given, priors=RATE, start="2020-03-03")
    with pytest.raises(InputError, match="start='2020-03-03', and no target has dates"):
        dz.calibrate(growth, {"x": [1, 2, 3]}, priors=RATE, start="2020-03-03")
    for text in ("soon", "1", "2020", "2020-03"):
        with pytest.raises(InputError, match=f"start='{text}', expected ISO texts"):
            dz.calibrate(growth, given, priors=RATE, start=text)
    with pytest.raises(InputError, match="expected ISO texts"):
        dz.fit.Target([1, 2], every=31, dates=["2020-01", "2020-02"])
    with pytest.raises(InputError, match="the model's time_unit is 'week'"):
        dz.calibrate(Weekly(), {"wet": given["x"]}, device="cpu")


@pytest.mark.parametrize("delay", [Gamma(4.0, 1.0), scipy.stats.gamma(4), LogNormal(1.0, 0.4), scipy.stats.expon(0, 3)])
def test_a_distribution_becomes_a_kernel_of_its_mean(delay: Any) -> None:
    """What happens evenly within a step and is written down a time d later is found floor(u + d) steps on: mean E d."""
    kernel = Target([1], delay=delay).kernel.shares
    mean = float(delay.mean() if callable(delay.mean) else delay.mean)
    assert 1 - 1.1e-3 < kernel.sum() <= 1
    assert (kernel * np.arange(len(kernel))).sum() == pytest.approx(mean, abs=0.05)
    rng = np.random.default_rng(0)
    times = rng.random(100_000) + delay_draws(delay, rng)
    found = np.bincount(np.floor(times).astype(int), minlength=len(kernel))
    assert found[: len(kernel)] / 100_000 == pytest.approx(kernel, abs=0.006)


def delay_draws(delay: Any, rng: np.random.Generator) -> np.ndarray:
    if hasattr(delay, "rvs"):
        return delay.rvs(100_000, random_state=rng)
    torch.manual_seed(0)
    return delay.sample((100_000,)).numpy()


def test_a_delay_moves_flows_and_levels() -> None:
    series = np.zeros((2, 10))
    series[0, 2], series[1, 5] = 10, 4
    seen = Target(np.zeros(10), delay=[0.25, 0.5, 0.25]).windows(series, "flow")
    assert seen[0].tolist() == [0, 0, 2.5, 5, 2.5, 0, 0, 0, 0, 0]
    assert seen[1].tolist() == [0, 0, 0, 0, 0, 1, 2, 1, 0, 0]
    level = Target(np.zeros(2), every=5, delay=[0, 1]).windows(np.arange(10.0)[None], "level")
    assert level.tolist() == [[3, 8]]
    groups = Target(np.zeros((10, 3)), delay=[0.5, 0.5]).windows(np.ones((2, 10, 3)), "flow")
    assert groups[:, :, 1].tolist() == [[0.5] + [1.0] * 9] * 2


def test_a_target_is_read_back(tmp_path: Path) -> None:
    dates = ["2020-03-02", "2020-03-16", "2020-03-23", "2020-03-30"]
    target = Target(
        [1, 3, 4, 6], dates=dates, every=7, missing="gap", delay=Gamma(4.0, 1.0), truncation=[0.5], report=0.4
    )
    priors = {**RATE, "x.report": Beta(2.0, 2.0)}
    fit = dz.calibrate(growth, {"x": target}, priors=priors, start="2020-03-01", progress=False)
    fit.save(tmp_path / "fit")
    again = dz.fit.Fit.load(tmp_path / "fit", model=growth)
    assert again.params == fit.params
    assert (again.curve(3)["x"] == fit.curve(3)["x"]).all()


def test_what_is_written_down_later_than_the_kernel_is_told() -> None:
    values = growth(torch.tensor([[0.05]]), [77])[0, :30]
    short = dz.calibrate(growth, {"x": Target(values, delay=[0.5, 0.3])}, priors=RATE, progress=False)
    assert any("20.0% lie beyond the 2 steps of its delay" in note for note in short.notes)
    whole = dz.calibrate(growth, {"x": Target(values, delay=Gamma(4.0, 1.0))}, priors=RATE, progress=False)
    assert not any("lie beyond" in note for note in whole.notes)


def test_late_reports_lower_the_last_values() -> None:
    series = np.full((1, 6), 10.0)
    target = Target(np.zeros(3), every=2, truncation=[0.8, 0.3], report=0.5)
    assert target.windows(series, "flow").tolist() == [[10, 8, 3]]
    assert target.ahead(1).windows(np.full((1, 8), 10.0), "flow").tolist() == [[10, 8, 3, 10]]
    with pytest.raises(InputError, match="truncation is of the last values, which are kept back here"):
        dz.calibrate(growth, {"x": target}, priors=RATE, holdout=1)


def test_a_share_for_each_group_and_people() -> None:
    target = Target(np.zeros((2, 2)), report=[0.5, 0.25], people=4)
    assert target.windows(np.ones((1, 2, 2)), "flow").tolist() == [[[2, 1], [2, 1]]]


def test_rows_have_numbers_of_their_own() -> None:
    target = Target(np.zeros(4), delay=Gamma(4.0, 1.0), noise=dz.fit.NegativeBinomial(3))
    known = target.known(
        {"report": np.array([0.5, 1.0]), "delay": np.array([0.01, 30.0]), "size": np.array([1.0, 1e6])}
    )
    seen = known.windows(np.full((2, 4), 100.0), "flow")
    assert seen[0] == pytest.approx(50, rel=0.02)
    assert seen[1].max() < 1
    spread = known.noise.draw(np.full((2, 4), 100.0), np.array([[0.1, 0.5, 0.5, 0.9]] * 2))
    assert np.ptp(spread[0]) > 5 * np.ptp(spread[1])


def test_a_share_is_fitted_beside_a_series_seen_whole() -> None:
    """Sizes are seen whole, cases in part: rate and share are both found."""

    def both(theta: Tensor, worlds: Sequence[int]) -> dict[str, Tensor]:
        size = growth(theta, worlds)
        return {"size": size, "cases": size}

    truth = growth(torch.tensor([[0.05]]), [77])[0, :30].numpy()
    seen = np.random.default_rng(2).poisson(0.3 * truth)
    targets = {"size": Target(truth, kind="level"), "cases": Target(seen, report=0.6, noise=dz.fit.Poisson())}
    fit = dz.calibrate(both, targets, priors={**RATE, "cases.report": Beta(1.0, 1.0)}, progress=False)
    assert list(fit.params) == ["rate", "cases.report"]
    for name, value in (("rate", 0.05), ("cases.report", 0.3)):
        low, high = fit.interval(0.99)[name]
        assert low < value < high
        assert high - low < 0.2 * value
    assert fit.forecast(3, draws=5)["cases"].shape == (5, 3)


def test_the_scatter_of_counts_is_fitted() -> None:
    """60 counts of one negative binomial: maximum likelihood of them alone has a standard error of about 20 %."""

    def level(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        return theta.expand(-1, 60)

    truth, errors, covered = 8.0, [], 0
    for seed in range(8):
        counts = np.random.default_rng([4, seed]).negative_binomial(truth, truth / (truth + 50), size=60)
        target = Target(counts, noise=dz.fit.NegativeBinomial(20))
        priors = {"mean": Uniform(1.0, 500.0), "x.size": LogNormal(2.0, 2.0)}
        fit = dz.calibrate(level, {"x": target}, priors=priors, replicates=32, seed=seed, progress=False)
        errors.append(np.log(fit.params["x.size"] / truth))
        low, high = fit.interval(0.9)["x.size"]
        covered += low < truth < high
    assert covered >= 5  # of 8 at 0.9: fewer has probability 0.005
    assert abs(np.mean(errors)) < 0.3
    assert np.std(errors) < 0.5


def test_the_mean_of_a_delay_is_fitted() -> None:
    def pulse(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        series = torch.zeros(len(theta), 30)
        series[:, 3] = 1_000 * theta[:, 0]
        return series

    seen = Target(np.zeros(30), delay=Gamma(8.0, 8.0 / 6.0)).windows(pulse(torch.ones(1, 1), [0]).numpy(), "flow")[0]
    counts = np.random.default_rng(1).poisson(seen)
    target = Target(counts, delay=Gamma(8.0, 2.0), noise=dz.fit.Poisson())
    priors = {"size": LogNormal(0.0, 1.0), "x.delay": LogNormal(1.4, 0.6)}
    fit = dz.calibrate(pulse, {"x": target}, priors=priors, progress=False)
    low, high = fit.interval(0.99)["x.delay"]
    assert low < 6 < high
    assert high - low < 2


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ({**RATE, "x.reprt": None}, "expected a torch distribution"),  # of a function every name is a parameter
        ({**RATE, "x.report": Beta(1.0, 1.0), "x.people": None}, "'x.people', expected one of them"),
        ({**RATE, "x.report": Normal(0.0, 1.0)}, "outside the bounds of the parameter, 0 to 1"),
        ({**RATE, "x.report": None}, r"x.report=1.0 lies on a bound \(0 to 1\)"),
        ({**RATE, "x.size": None}, "too few values in a row to say how they scatter, expected 6"),
        ({"x.people": None}, "expected a parameter of the function as well"),
    ],
)
def test_wrong_numbers_of_a_target_are_told(priors: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        dz.calibrate(growth, {"x": Target([1, 2, 3], noise=dz.fit.NegativeBinomial(3))}, priors=priors, progress=False)
