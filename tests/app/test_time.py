"""`--start` and `--dt`: dates and lengths of a step from the command line, kept in folders and resumed."""

import shutil

import numpy as np
import polars
import pytest
import torch

import denizen as dz

SMALL = ("--agents", "60", "--set", "seed_share=0.2", "--dt", "0.5", "--start", "2020-03-01", "--steps", "6")


def test_a_run_has_dates_and_goes_on_with_them(denizen):
    code, out, _ = denizen("run", "sir", *SMALL, "--replicates", "2", "--out", "run")
    assert code == 0
    assert "3 days in steps of 0.5 from 2020-03-01 × 2 replicates" in out
    assert denizen("resume", "run", "--steps", "2")[0] == 0
    run = dz.run.load("run")
    assert (run.start, run.dt, run.steps) == ("2020-03-01", 0.5, 8)
    dates = run.to_polars()["date"].unique().sort().to_numpy()
    assert dates[[0, 1, -1]].astype("datetime64[h]").tolist() == [
        np.datetime64(day, "h").item() for day in ("2020-03-01T00", "2020-03-01T12", "2020-03-04T12")
    ]


def test_a_file_may_have_a_date(denizen, tmp_path):
    (tmp_path / "run.toml").write_text('model = "sir"\nagents = 40\nsteps = 2\ndt = 0.25\nstart = 2020-03-01\n')
    assert denizen("run", "--config", "run.toml", "--replicates", "1", "--out", "run")[0] == 0
    assert (dz.run.load("run").start, dz.run.load("run").dt) == ("2020-03-01", 0.25)


def test_a_sweep_has_the_dates_and_bits_of_runs(denizen):
    grid = ("--grid", "infect_rate=0.02,0.1", "--replicates", "2")
    code, out, err = denizen("sweep", "sir", *grid, *SMALL, "--out", "sweep")
    assert code == 0, err
    found = dz.sweeps.load("sweep")
    assert (found.start, found.dt) == ("2020-03-01", 0.5)
    assert polars.read_parquet("sweep/sweep.parquet")["date"][1].isoformat() == "2020-03-01T12:00:00"
    assert found.to_xarray()["date"].shape == (6,)
    assert denizen("run", "sir", *SMALL, "--set", "infect_rate=0.1", "--replicates", "2", "--out", "run")[0] == 0
    assert torch.equal(found["cases"][1], dz.run.load("run")["cases"])
    code, out, _ = denizen("resume", "sweep")  # which has all, with the same start
    assert code == 0
    shutil.rmtree("sweep")


def test_quantities_and_steps_of_other_lengths(denizen):
    assert denizen("run", "sir", *SMALL, "--set", "infectious_days=1 week", "--out", "run")[0] == 0
    code, _, err = denizen("run", "sir", *SMALL, "--set", "infectious_days=3/week")
    assert (code, "'/week' cannot be converted to 'day'" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "sir", "--start", "soon"), "--start: 'soon' is not a date; expected YYYY-MM-DD"),
        (("run", "sir", "--dt", "0"), "--dt 0: expected a number above 0"),
        (("run", "sir", "--agents", "40", "--dt", "30"), "infectious_days=7 is shorter than 1 phase of a step"),
        (("sweep", "sir", "--grid", "infect_rate=0.1", "--dt", "-1"), "--dt -1: expected a number above 0"),
        (("check", "cartpole", "--dt"), "--dt: cartpole is a world"),
        (("check", "sir", "--dt", "--until", "0"), "check: until=0.0, expected a number above 0"),
    ],
)
def test_what_cannot_be_meant_is_one_line(denizen, words, told):
    code, _, err = denizen(*words)
    assert code == 2
    assert told in err
    assert len(err.strip().splitlines()) == 1
