"""`denizen calibrate`, and `show` and `resume` of its folder."""

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import denizen as dz
from denizen.run import Run
from denizen.space import generators
from denizen.zoo.sir import sir

TOWN = ["sir", "--agents", "400", "--mean-degree", "8", "--seed", "3", "--set", "infect_rate=0.04"]
WEEKLY = ["--date", "week", "--missing", "gap", "--every", "7", "--column"]
FIT = ["--targets", "cases.csv", "--column", "cases", "--every", "7", "--replicates", "4"]
BOTH = [*TOWN, *FIT, "--fit", "infect_rate", "--holdout", "1"]


@pytest.fixture(scope="module")
def weekly():
    town = generators.erdos_renyi(400, 8.0, seed=3)
    daily = dz.simulate(sir(town, infect_rate=0.06), 35, seed=99, device="cpu")["cases"][0]
    return daily.reshape(-1, 7).sum(1).int().tolist()


@pytest.fixture(scope="module")
def table(weekly):
    first = np.datetime64("2020-03-01")
    rows = "".join(f"{first + 7 * k},{n},a\n" for k, n in enumerate(weekly))
    return f"week,cases,words\n{rows}"


@pytest.fixture
def cases(denizen, table):
    """The folder of `denizen` has a table."""
    Path("cases.csv").write_text(table)
    return denizen


@pytest.fixture(scope="module")
def whole(prepared, tmp_path_factory, table):
    """What `BOTH` gives, for tests that begin with it: its folder."""
    place = tmp_path_factory.mktemp("whole")
    with contextlib.chdir(place):
        Path("cases.csv").write_text(table)
        prepared("calibrate", *BOTH, "--out", "whole", "--quiet")
    return place / "whole"


@pytest.fixture(scope="module")
def fitted(prepared, tmp_path_factory):
    """A small calibration, for tests that begin with one and leave it as it is: its folder."""
    place = tmp_path_factory.mktemp("fitted")
    (place / "few.csv").write_text("cases\n3\n4\n6\n9\n12\n")
    words = ["sir", "--agents", "300", "--mean-degree", "8", "--seed", "3", "--fit", "infect_rate", "--quiet"]
    words += ["--targets", place / "few.csv", "--column", "cases", "--replicates", "2", "--option", "iterations=1"]
    prepared("calibrate", *words, "--out", place / "r")
    return place / "r"


def interrupted_at(monkeypatch, launch):
    """Ctrl-C comes in that launch."""
    real, calls = Run.extend, []

    def extend(*args, **options):
        calls.append(1)
        if len(calls) == launch:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(Run, "extend", extend)


def test_a_curve_is_fitted(cases, weekly, pictures):
    code, out, err = cases("calibrate", *BOTH, "--out", "r")
    assert (code, err) == (0, "")
    for words in ("infect_rate", "90% interval", "runs", "of persistence", "picture     r/fit.png", "run folder  r"):
        assert words in out
    assert Path("r/corner.png").stat().st_size > 10_000
    assert out.strip().splitlines()[-1] == "run folder  r"
    model = sir(generators.erdos_renyi(400, 8.0, seed=3), infect_rate=0.04)
    target = dz.fit.Target(np.array(weekly), every=7)
    fit = dz.calibrate(
        model, {"cases": target}, priors=["infect_rate"], holdout=1, replicates=4, seed=3, device="cpu", progress=False
    )
    assert dz.fit.Fit.load("r").params == fit.params
    code, again, err = cases("show", "r")
    assert (code, err) == (0, "")
    for words in ("denizen.zoo.sir.model.SIR, 400 agents", "finished", "infect_rate"):
        assert words in again


def test_ctrl_c_says_how_to_go_on(cases, whole, monkeypatch):
    with monkeypatch.context() as patched:
        interrupted_at(patched, 3)
        code, _, err = cases("calibrate", *BOTH, "--out", "r")
    assert code == 130
    assert err == "interrupted; 2 launches are safe, go on with: denizen resume r\n"
    code, out, _ = cases("show", "r")
    assert code == 0
    assert "interrupted, 2 launches" in out
    assert "denizen resume r" in out
    Path("cases.csv").unlink()  # the folder has what was observed
    code, out, err = cases("resume", "r")
    assert (code, err) == (0, "")
    assert "r: interrupted, 2 launches" in out
    fit, again = (dz.fit.Fit.load(folder) for folder in (whole, "r"))
    assert (again.params, again.interval(), again.runs) == (fit.params, fit.interval(), fit.runs)


@pytest.mark.slow
def test_the_same_command_goes_on(cases, monkeypatch):
    with monkeypatch.context() as patched:
        interrupted_at(patched, 3)
        assert cases("calibrate", *BOTH, "--out", "r")[0] == 130
    code, _, err = cases("calibrate", *BOTH, "--out", "r", "--replicates", "6")
    assert code == 2
    assert "replicates is 6 here and was 4" in err
    assert cases("calibrate", *BOTH, "--out", "r")[0] == 0


def test_scenarios_are_compared(cases, whole):
    shutil.copytree(whole, "r")
    code, out, err = cases("export", "r", "--csv", "--netcdf")
    assert (code, out, err) == (0, "r.csv\nr.nc\n", "")
    drawn = np.loadtxt("r.csv", delimiter=",", skiprows=1)
    (samples,) = dz.fit.Fit.load("r").samples(1_000).values()
    assert (drawn == samples).all()
    code, out, err = cases("compare", "r", "--b", "infect_rate=0.01", "--draws", "8")
    assert (code, err) == (0, "")
    fit = dz.fit.Fit.load("r", sir(generators.erdos_renyi(400, 8.0, seed=3), infect_rate=0.04), device="cpu")
    told = str(fit.compare(fit.scenario({"infect_rate": 0.01}), draws=8))
    assert [line.rstrip() for line in out.splitlines()] == told.splitlines()
    code, out, err = cases("compare", "r", "r", "--a", "infect_rate=0.05", "--draws", "8", "--steps", "9")
    assert (code, err) == (0, "")
    assert [line.rstrip() for line in out.splitlines()][:2] == ["a: infect_rate=0.05", "b: r"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["r"], "give one calibration with --a or --b NAME=VALUE, or two calibrations"),
        (["r", "--b", "infect_rat=1"], "--b infect_rat=1: r has no such parameter; did you mean 'infect_rate'"),
        (["r", "--b", "infect_rate=x"], "--b infect_rate=x: expected a number"),
        (["r", "--b", "infect_rate=-1"], "--b infect_rate = -1: expected at least 0"),
        (["r", "--b", "infect_rate=1", "--draws", "1"], "--draws 1: expected a whole number, at least 2"),
        (["r", "--b", "infect_rate=1", "--out", "x.png"], "--out is for simulations and trainings"),
        (["r", "nowhere"], "run folder nowhere does not exist"),
        (["r", "--model", "city.py:A", "--b", "infect_rate=1"], "begun with sir of the zoo; leave city.py:A out"),
    ],
)
def test_what_cannot_be_compared_is_one_line(fitted, denizen, words, message):
    Path("r").symlink_to(fitted)
    code, out, err = denizen("compare", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_model_of_a_file(cases, monkeypatch):
    Path("town.py").write_text(
        "from denizen.space import generators\nfrom denizen.zoo.sir import sir\n\n\n"
        "def town():\n    return sir(generators.erdos_renyi(200, 8.0, seed=3), infect_rate=0.06)\n"
    )
    with monkeypatch.context() as patched:
        interrupted_at(patched, 2)
        code, _, err = cases("calibrate", "town.py:town", *FIT, "--fit", "infect_rate", "--out", "r")
    assert code == 130
    assert "denizen resume r" in err
    assert "town.py:town" in err
    code, _, err = cases("resume", "r")
    assert code == 2
    assert "a file runs only where you name it: denizen resume r" in err
    assert cases("resume", "r", "town.py:town")[0] == 0
    code, _, err = cases("compare", "r", "--b", "infect_rate=0.02")
    assert code == 2
    assert err.rstrip().endswith("town.py:town")
    assert "a file runs only where you name it: add --model " in err
    code, out, err = cases("compare", "r", "--b", "infect_rate=0.02", "--draws", "2", "--model", "town.py:town")
    assert (code, err) == (0, "")
    assert "b: infect_rate=0.02" in out
    Path("town.py").write_text(Path("town.py").read_text() + "\n")
    code, _, err = cases("resume", "r", "town.py:town")
    assert code == 2
    assert "town.py has changed since r was begun with it" in err


def test_priors_noise_and_settings_of_the_method(cases):
    words = ["--fit", "infect_rate=LogNormal(-3,0.2), seed_share=Beta(2,100)", "--noise", "negative-binomial:20"]
    method = ["--option", "iterations=2", "--option", "polish=1"]
    code, _, err = cases("calibrate", *TOWN, *FIT, *words, *method, "--report", "0.5", "--out", "r", "--quiet")
    assert (code, err) == (0, "")
    asked = json.loads(Path("r/manifest.json").read_text())["asked"]
    assert asked["method"] == {"object": "GaussNewton", "with": {"iterations": 2, "polish": 1}}
    (target,) = (one for _, one in asked["targets"]["map"])
    assert target["with"]["report"] == 0.5
    assert target["with"]["noise"] == {"object": "NegativeBinomial", "with": {"size": 20.0}}
    (rate, seeds) = asked["priors"]["map"]
    assert rate[0] == "infect_rate"
    assert rate[1]["distribution"] == "LogNormal"
    assert seeds[1]["distribution"] == "Beta"


def test_what_a_method_refuses_leaves_no_folder(cases):
    words = ["--method", "particle-filter", "--fit", "infect_rate=LogNormal(-3,1)"]
    code, _, err = cases("calibrate", "sir", "--agents", "30", *FIT, *words)
    assert code == 2
    assert "has no noise" in err
    assert not Path("runs").exists()


@pytest.mark.slow
def test_dates_place_the_rows(cases):
    words = [*TOWN, *FIT, "--fit", "infect_rate,report", "--report", "0.9", "--quiet"]
    assert cases("calibrate", *words, "--first", "8", "--out", "a")[0] == 0
    assert cases("calibrate", *words, "--date", "week", "--start", "2020-02-23", "--out", "b")[0] == 0
    one, other = (dz.fit.Fit.load(folder) for folder in "ab")
    assert set(one.params) == {"infect_rate", "cases.report"}
    assert one.params == other.params


@pytest.mark.parametrize(
    ("word", "name"),
    [("gauss-newton", "GaussNewton"), ("cmaes", "CMAES"), ("npe", "NPE"), ("nle", "NLE"), ("nre", "NRE")],
)
def test_methods_have_words(cases, word, name):
    settings = ", ".join(sorted(field.name for field in dataclasses.fields(getattr(dz.fit, name))))
    told = cases("calibrate", "sir", "--agents", "30", *FIT, "--method", word, "--option", "nothing=1")
    assert told[::2] == (2, f"error --option nothing=1: unknown; valid: {settings}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--targets FILE.csv is needed"),
        (["--targets", "none.csv", "--column", "cases"], "there is no such file"),
        (["--targets", "cases.csv"], "--column SERIES[=COLUMN] is needed"),
        (["--targets", "cases.csv", "--column", "case"], "--column case: cases.csv has no such column; did you mean"),
        (["--targets", "cases.csv", "--column", "case=cases"], "targets has 'case'; did you mean 'cases'"),
        (["--targets", "cases.csv", "--column", "cases="], "expected SERIES or SERIES=COLUMN"),
        (["--targets", "cases.csv", "--column", "cases", "--column", "cases"], "each series once"),
        (["--targets", "cases.csv", "--column", "cases=words"], "column 'words', line 2: 'a' is not a number"),
        ([*FIT, "--fit", "infect_rat"], "did you mean 'infect_rate'"),
        ([*FIT, "--fit", "infect_rate,,"], "expected different names"),
        ([*FIT, "--fit", "infect_rate=Logn(1,2)"], "expected a distribution such as LogNormal(-3,0.5)"),
        ([*FIT, "--fit", "infect_rate=LogNormal(1)"], "expected LogNormal(loc, scale)"),
        ([*FIT, "--fit", "infect_rate=LogNormal(1,-2)"], "expected LogNormal(loc, scale)"),
        ([*FIT, "--fit", "infect_rate=Normal(0,1)"], "outside the bounds"),
        ([*FIT, "--noise", "poison"], "did you mean 'poisson'"),
        ([*FIT, "--noise", "negative-binomial:-1"], "expected a number above 0"),
        ([*FIT, "--report", "0"], "--report 0.0, expected a share above 0"),
        ([*FIT, "--method", "gauss"], "--method gauss: valid: "),
        ([*FIT, "--option", "iteration=3"], "did you mean 'iterations'"),
        ([*FIT, "--option", "iterations=0"], "--option iterations=0: expected a whole number, at least 1"),
        ([*FIT, "--start", "2020-03-01"], "--start: give --date COLUMN too"),
        ([*FIT, "--date", "week", "--start", "1"], "--start: '1' is not a date; expected YYYY-MM-DD"),
        ([*FIT, "--date", "words"], "column 'words', line 2: 'a' is not a date"),
        ([*FIT, "--date", "week", "--start", "2020-03-02"], "before --start 2020-03-02"),
        ([*FIT, "--date", "week", "--first", "3"], "--first 3 and dates"),
        (["--targets", "gap.csv", *FIT[2:], "--date", "week"], "say --missing gap if nothing was observed"),
        (["--targets", "order.csv", *FIT[2:], "--date", "week"], "after 2020-03-29, expected them in order"),
        (
            ["--targets", "odd.csv", "--column", "cases=below"],
            "'below', line 4: -4, expected counts of at least 0; correct",
        ),
        (
            ["--targets", "odd.csv", *WEEKLY, "cases=below", "--noise", "poisson"],
            "'below', line 4: -4, expected counts",
        ),
        (
            ["--targets", "odd.csv", *WEEKLY, "cases=half", "--noise", "poisson"],
            "line 3: 2.5, and --noise poisson is of",
        ),
        (["--targets", "odd.csv", "--column", "cases=none"], "column 'none': nothing but gaps"),
        (["--targets", "semicolons.csv", *FIT[2:]], "its header has 2 names with semicolons between; expected commas"),
        (["--targets", "bytes.csv", *FIT[2:]], "line 1 is no text"),
        ([*FIT, "--holdout", "5"], "--holdout 5 leaves nothing"),
        ([*FIT, "--replicates", "1"], "--replicates 1"),
        ([*FIT, "--steps", "5"], "reaches to step 35, beyond --steps 5"),
        ([*FIT, "--out", "taken"], "not empty"),
        ([*FIT, "--set", "infect_rate=0"], "lies on a bound"),
    ],
)
def test_mistakes_get_one_line_and_code_2(cases, words, message):
    Path("taken").mkdir()
    Path("taken/mine").write_text("")
    lines = Path("cases.csv").read_text().splitlines(keepends=True)
    Path("gap.csv").write_text("".join([*lines[:3], *lines[4:]]))
    odd = "week,below,half,none\n2020-03-01,1,1,\n2020-03-15,2,2.5,\n2020-03-22,-4,3,\n"
    Path("odd.csv").write_text(odd)
    Path("order.csv").write_text("".join([lines[0], lines[1], lines[5], *lines[2:5]]))
    Path("semicolons.csv").write_text("week;cases\n2020-03-01;3\n")
    Path("bytes.csv").write_bytes(b"\x00\x01\x7f,\x02\n1,2\n")
    code, out, err = cases("calibrate", "sir", "--agents", "30", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error ")
    assert len(err.splitlines()) == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--fit", "infect_rate", "--method", "abcsmc"], '--fit "infect_rate=LogNormal(-3,0.5)"'),
        (["--fit", "infect_rate=LogNormal(-3,1)", "--method", "particle-filter"], "--noise negative-binomial:10"),
    ],
)
def test_what_a_method_needs_is_told_by_its_flag(cases, words, flag):
    code, out, err = cases("calibrate", "sir", "--agents", "30", *FIT, *words)
    assert (code, out) == (2, "")
    assert flag in err
    assert len(err.splitlines()) == 1


def test_a_calibration_from_python_is_shown_and_goes_on_there(denizen):
    model = sir(generators.erdos_renyi(300, 8.0, seed=3), infect_rate=0.06)
    options = {"priors": ["infect_rate"], "replicates": 4, "device": "cpu", "progress": False}
    dz.calibrate(model, {"cases": [3.0, 4.0, 6.0, 9.0, 12.0]}, **options, out="r")
    code, out, err = denizen("show", "r")
    assert (code, err) == (0, "")
    assert "SIR, 300 agents" in out
    code, _, err = denizen("resume", "r")
    assert code == 2
    assert "begun from Python" in err
