"""`denizen sweep`: designs in words, the folder, and what resume and show do with it."""

import json
import re
from pathlib import Path

import polars
import pytest
import torch

from denizen import run, sweeps

SMALL = ["--agents", "60", "--steps", "5", "--replicates", "3", "--out", "out"]
GRID = ["sweep", "sir", "--grid", "infect_rate=0.02,0.3", "infectious_phases=1,2", *SMALL]


def test_a_grid_has_the_bits_of_single_runs(denizen, pictures):
    code, out, err = denizen(*GRID, "--set", "infectious_days=6")
    assert (code, err) == (0, ""), err
    assert "mean (5–95 %) over 3 replicates" in out
    assert "run folder  out" in out
    for name in ("manifest.json", "sweep.parquet", "summary.csv", "plot.png"):
        assert Path("out", name).stat().st_size > 0
    found = sweeps.load("out")
    assert [list(values.values()) for values in found.sets] == [[0.02, 1], [0.02, 2], [0.3, 1], [0.3, 2]]
    for k, values in ((1, found.sets[1]), (2, found.sets[2])):
        pairs = [f"{name}={value}" for name, value in values.items()]
        code, _, err = denizen("run", "sir", *SMALL[:-1], f"one-{k}", "--set", *pairs, "infectious_days=6")
        assert (code, err) == (0, ""), err
        alone = run.load(f"one-{k}")
        assert all(torch.equal(alone[name], found[name][k]) for name in found.series_names)
    code, out, _ = denizen("show", "out")
    assert code == 0
    assert "12 of 12 runs" in out
    assert "infectious_phases" in out


def test_a_report_shows_the_sweep(denizen):
    denizen(*GRID)
    page = Path("out/report.html").read_text()
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', page, re.DOTALL)[1])
    # Of each series a chart over each name, and a panel for each rate with a curve for each number of phases.
    assert len(charts) == 3 * (2 + 2)
    found = sweeps.load("out")
    curve = charts[6]["curves"][1]
    assert curve["name"] == "infectious_phases=2"
    assert curve["y"] == found["cases"][1].double().median(dim=0).values.tolist()
    over = charts[0]["curves"][0]
    assert over["x"] == [0.02, 0.3]
    means = found.measure("cases").mean(1)[[0, 2]].tolist()
    assert over["y"] == pytest.approx(means, rel=1e-5)
    assert "denizen sweep sir --grid infect_rate=0.02,0.3 infectious_phases=1,2 --steps 5 --replicates 3" in page
    code, out, err = denizen("report", "out", "--out", "again.html")
    assert (code, err) == (0, "")
    code, out, err = denizen("export", "out", "--csv", "--netcdf", "--out", "files/out")
    assert (code, err) == (0, "")
    assert polars.read_csv("files/out.csv").columns == found.to_polars().columns
    code, out, err = denizen("sweep", "sir", "--sobol", "2", "infect_rate=0.1..0.5", "--indices", *SMALL[:-1], "sobol")
    assert (code, err) == (0, ""), err
    assert "of cases, total" in out
    assert "share of the variance" in Path("sobol/report.html").read_text()


def test_an_interrupted_sweep_is_resumed(denizen, monkeypatch):
    extend, left = run.Run.extend, [1]

    def stopped(self, *args, **options):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return extend(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(run.Run, "extend", stopped)
        code, _, err = denizen(*GRID)
    assert code == 130
    assert "6 of 12 runs" in err
    assert "denizen resume out" in err
    code, out, _ = denizen("show", "out")
    assert "interrupted" in out
    code, out, err = denizen("resume", "out", "--quiet")
    assert (code, out.strip(), err) == (0, "out", "")
    assert json.loads(Path("out/manifest.json").read_text())["status"] == "finished"
    denizen(*GRID[:-1], "whole")
    one, other = sweeps.load("out"), sweeps.load("whole")
    assert all(torch.equal(one[name], other[name]) for name in one.series_names)
    code, _, err = denizen("resume", "out", "--steps", "3")
    assert code == 2
    assert "a sweep has its number of steps" in err


def test_lists_and_spreads(denizen):
    Path("sets.csv").write_text("infect_rate,infectious_days\n0.1,4\n0.2,5\n")
    code, _, err = denizen("sweep", "sir", "--from", "sets.csv", *SMALL)
    assert (code, err) == (0, ""), err
    assert polars.read_csv("out/summary.csv")["infect_rate"].to_list() == [0.1, 0.2]
    code, _, err = denizen("sweep", "sir", "--latin", "3", "infect_rate=0.1..0.2", "seed_share", *SMALL[:-1], "latin")
    assert (code, err) == (0, ""), err
    rates = polars.read_csv("latin/summary.csv")["infect_rate"].to_list()
    assert len(rates) == 3
    assert all(0.1 <= rate <= 0.2 for rate in rates)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--grid", "infect_rat=1"], "'infect_rat': SIR has nothing of that name to sweep; did you mean 'infect_rate'"),
        (["--grid", "infect_rate=-1"], "infect_rate = -1: expected at least 0"),
        (["--grid", "infect_rate="], "--grid infect_rate=: expected NAME=VALUE"),
        (["--grid", "infect_rate=1", "--sobol", "4", "infect_rate=1..2"], "give only one of"),
        (["--sobol", "infect_rate=1..2"], "expected the number of sets first"),
        (["--sobol", "4"], "--sobol 4: of what?"),
        (["--sobol", "4", "infect_rate=1-2"], "--sobol infect_rate=1-2: expected different NAMEs or NAME=LOW..HIGH"),
        (["--sobol", "4", "infect_rate"], "--sobol: infect_rate declares no upper bound; give its range, such as inf"),
        (["--sobol", "5", "infect_rate=1..2"], "--sobol: count=5, expected a power of two"),
        (["--latin", "4", "infect_rate=1..2", "--indices"], "--indices are of the design --sobol"),
        (["--from", "none.csv"], "none.csv cannot be read"),
        (["--grid", "infect_rate=1", "--series", "case"], "--series has 'case'; did you mean 'cases'"),
        (["--grid", "infect_rate=1", "--ranks", "0"], "--ranks 0: expected a whole number, at least 1"),
        (["--grid", "infect_rate=1", "--ranks", "2", "--ray"], "--ranks and --ray"),
        (["--grid", "infect_rate=1", "--stepz", "2"], "did you mean --steps"),
    ],
    ids=range(15),
)
def test_what_cannot_be_meant_is_one_line(denizen, words, message):
    code, _, err = denizen("sweep", "sir", *words, "--agents", "60")
    assert code == 2
    assert message in " ".join(err.split())
    assert not Path("runs").exists()
