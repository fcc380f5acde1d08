"""Results beside each other: pairs, intervals that cover, and what cannot be compared."""

import numpy as np
import pytest
import torch
from scipy import stats

import denizen as dz
from denizen.errors import InputError
from denizen.run import Difference
from denizen.space import generators
from denizen.zoo.sir import SIR, sir

SIZE = 400


@pytest.fixture(scope="module")
def model() -> SIR:
    return sir(generators.erdos_renyi(SIZE, 10.0, seed=0), infect_rate=0.04)


def simulated(model: SIR, **options: object) -> dz.run.Run:
    rows = {} if "worlds" in options else {"replicates": 24}
    return dz.simulate(model, **{"steps": 30, "device": "cpu", **rows, **options})  # type: ignore[arg-type]


def test_pairs_of_a_run_tell_more_than_independent_runs(model: SIR) -> None:
    run, other = simulated(model), simulated(model.replace(infect_rate=0.03))
    found = run.compare(other)
    row = found["cases"]
    away = (other["cases"].sum(1) - run["cases"].sum(1)).double()
    less = float((away < 0).double().mean() + (away == 0).double().mean() / 2)
    assert (row.difference, row.less) == pytest.approx((float(away.mean()), less))
    assert [row.low, row.high] == pytest.approx(np.quantile(away, [0.05, 0.95]).tolist())
    exact = stats.ttest_rel(other["cases"].sum(1), run["cases"].sum(1)).confidence_interval(0.9)
    assert (row.mean_low, row.mean_high) == pytest.approx(tuple(exact), rel=1e-5)
    assert row.independent is not None
    assert row.independent > 24
    assert found.paired
    assert "24 worlds of 30 steps, with the same draws on both sides" in str(found)
    same: Difference = run.compare(run)["cases"]
    assert (same.difference, same.mean_low, same.high, same.independent) == (0, 0, 0, None)


def test_worlds_are_paired_by_number(model: SIR) -> None:
    less = model.replace(infect_rate=0.03)
    run, other = simulated(model), simulated(less, worlds=[9, 3, 5, 700], steps=40)
    found = run.compare(other, names=("before", "after"))
    assert found == simulated(model, worlds=[3, 5, 9]).compare(
        simulated(less, worlds=[3, 5, 9]), names=("before", "after")
    )
    assert (found.worlds, found.steps) == (3, 30)


def test_rows_of_parameters_are_paired_where_worlds_stand_alike(model: SIR) -> None:
    given = {"worlds": [0, 0, 1, 1], "params": {"infect_rate": torch.tensor([0.04, 0.02] * 2)}}
    run, other = simulated(model, **given), simulated(model.replace(infectious_days=3.0), **given)
    assert run.compare(other)["cases"].difference == pytest.approx(
        float((other["cases"].sum(1) - run["cases"].sum(1)).double().mean())
    )
    with pytest.raises(InputError, match="nothing says which belong together"):
        run.compare(simulated(model, worlds=[0, 1]))


def test_other_seeds_are_compared_as_independent(model: SIR) -> None:
    run, other = simulated(model), simulated(model, seed=1, replicates=10)
    found = run.compare(other)
    row = found["cases"]
    welch = stats.ttest_ind(other["cases"].sum(1), run["cases"].sum(1), equal_var=False).confidence_interval(0.9)
    assert (row.mean_low, row.mean_high) == pytest.approx(tuple(welch), rel=1e-5)
    assert (found.paired, row.independent) == (False, None)
    assert "which share no random numbers" in str(found)


def test_a_stored_run_compares_as_the_run_does(model: SIR, tmp_path) -> None:
    run, other = simulated(model, out=tmp_path / "a"), simulated(model.replace(infect_rate=0.03))
    assert dz.run.load(tmp_path / "a").compare(other) == run.compare(other)


def test_what_cannot_be_compared_is_told(model: SIR) -> None:
    run = simulated(model)
    with pytest.raises(InputError, match=r"steps of 1 day and of 0.5 day"):
        run.compare(simulated(model, dt=0.5))
    with pytest.raises(InputError, match="no steps yet"):
        run.compare(simulated(model, steps=0))
    with pytest.raises(InputError, match="1 replicate in common, expected 2"):
        run.compare(simulated(model, replicates=1))
    with pytest.raises(InputError, match="expected a Run"):
        run.compare(model)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="level=2"):
        run.compare(run, level=2)
    with pytest.raises(InputError, match=r"at most 0\.999"):  # further out quantiles would be wrong
        run.compare(run, level=0.9999)
    for names in ("ab", ("a",), 5):
        with pytest.raises(InputError, match=r"names=.*, expected two names"):
            run.compare(run, names=names)  # type: ignore[arg-type]
