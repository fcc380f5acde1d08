"""`denizen report`, and the page that commands write at their end."""

import html
import json
import re
import shutil
from pathlib import Path

import pytest

import denizen as dz
from denizen.errors import ModelError
from denizen.rl import read_metrics
from denizen.space.generators import erdos_renyi
from denizen.zoo.sir import sir as sir_of

STORED = Path(__file__).parents[1] / "data" / "folders_2026_11"


def charts_of(page: Path) -> list[dict]:
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)[1])


def words_of(page: Path) -> str:
    """What a reader sees of a page, but for its charts."""
    text = page.read_text(encoding="utf-8").partition("<main>")[2].partition("</main>")[0]
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", text).split()))


@pytest.fixture(scope="module")
def sir(tmp_path_factory, prepared) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "sir"
    prepared(
        "run", "sir", "--agents", 300, "--steps", 12, "--replicates", 4, "--set", "infect_rate=0.2", "--out", folder
    )
    return folder


def test_a_run_ends_with_its_page(sir):
    page = sir / "report.html"
    charts = charts_of(page)
    assert [chart["curves"][0]["name"] for chart in charts] == ["cases", "infected", "recovered"]
    assert all(len(chart["curves"][0]["x"]) == 12 and "low" in chart["curves"][0] for chart in charts)
    words = words_of(page)
    assert "denizen run sir --agents 300 --steps 12 --replicates 4 --set infect_rate=0.2" in words
    assert "Totals, peaks and ends" in words
    assert "torch 2." in words


def test_the_page_shows_the_numbers_of_the_run(sir):
    import numpy as np

    from denizen import run

    saved = run.load(sir)
    low, middle, high = np.quantile(saved["cases"].double().numpy(), (0.05, 0.5, 0.95), axis=0)
    shown = charts_of(sir / "report.html")[0]["curves"][0]
    for name, expected in (("y", middle), ("low", low), ("high", high)):
        np.testing.assert_allclose(shown[name], expected, rtol=1e-5)


def test_runs_stand_beside_each_other(denizen, sir):
    shutil.copytree(sir, "other")
    code, out, err = denizen("report", str(sir), "other", "--out", "pages/two.html")
    assert (code, err) == (0, "")
    assert "pages/two.html" in out
    assert [curve["name"] for curve in charts_of(Path("pages/two.html"))[0]["curves"]] == [str(sir), "other"]
    assert denizen("report", str(sir), "other", "--quiet") == (0, "report.html\n", "")


def test_what_cannot_be_reported_is_told(denizen, sir, monkeypatch):
    for words, message in (
        ([], "denizen report needs RUN, a run folder"),
        (["nowhere"], "nowhere does not exist"),
        ([str(sir), "--out", "page.pdf"], "--out page.pdf: expected a name that ends in .html"),
        ([str(sir), "--out", f"{sir}/manifest.json/page.html"], "could not be written"),
        ([str(sir), str(STORED / "training_ppo")], "a report is of runs of one kind: "),
    ):
        code, out, err = denizen("report", *words)
        assert (code, out) == (2, "")
        assert message in err
        assert len(err.splitlines()) == 1
    monkeypatch.setenv("PATH", "")
    code, _, err = denizen("report", str(sir), "--pdf")
    assert code == 2
    assert "--pdf needs Chromium" in err


def test_a_report_that_cannot_be_written_does_not_fail_the_run(denizen, monkeypatch):
    from denizen.errors import StorageError
    from denizen.report import Page

    def full(self, path):
        raise StorageError(f"report {path} could not be written: No space left on device")

    monkeypatch.setattr(Page, "write", full)
    code, out, err = denizen("run", "sir", "--agents", "50", "--steps", "2", "--replicates", "1", "--out", "r")
    assert (code, err) == (0, "")
    assert "no report: report r/report.html could not be written: No space left on device" in out


def test_runs_with_a_start_are_drawn_over_dates(denizen):
    model = sir_of(erdos_renyi(60, 6.0, seed=0))
    for name, start in (("a", "2020-03-01"), ("b", "2020-03-01"), ("c", None)):
        dz.simulate(model, 5, replicates=2, start=start, out=name, device="cpu")
    days = [18322 + day for day in range(5)]  # since 1970
    for words, dated in ((["report", "a"], 3), (["compare", "a", "b"], 6), (["report", "a", "c"], 0)):
        assert denizen(*words, "--out", "page.html")[0] == 0
        charts = charts_of(Path("page.html"))
        over = [chart for chart in charts if chart.get("dates")]
        assert len(over) == dated
        assert all(chart["curves"][0]["x"] == days and not chart["x_label"] for chart in over)
    assert "2020-03-01" in words_of(Path("page.html"))  # among the settings


def test_a_run_that_was_not_begun_by_the_command_line(denizen):
    shutil.copytree(STORED / "simulation_python", "r")
    assert denizen("report", "r")[0] == 0
    words = words_of(Path("r/report.html"))
    assert "To repeat" not in words
    assert "seir" in words.lower()


# --- trainings --------------------------------------------------------------------------------------------------------


def test_a_training_shows_returns_settings_and_a_film(denizen):
    shutil.copytree(STORED / "training_ppo", "r")
    assert denizen("report", "r")[0] == 0
    page = Path("r/report.html")
    rows = read_metrics("r")
    shown = charts_of(page)[0]["curves"][0]
    assert shown["y"] == pytest.approx([row["return_mean"] for row in rows], rel=1e-5)
    assert shown["x"] == [row["steps"] for row in rows]
    words = words_of(page)
    assert "Return in worlds of the validation" in words
    assert "denizen train cartpole --algo ppo" in words
    assert "r was killed: 3 updates so far" in words
    assert page.read_text(encoding="utf-8").count("data:image/gif;base64,") == 1


def test_seeds_of_a_training_are_one_curve(denizen):
    shutil.copytree(STORED / "training_seeds", "r")
    assert denizen("report", "r")[0] == 0
    (curve,) = charts_of(Path("r/report.html"))[0]["curves"]
    assert curve["x"] == [64, 128]
    assert "r, seed 1, was" in words_of(Path("r/report.html"))


def test_a_world_that_fails_to_draw_itself_leaves_the_film_out(denizen, monkeypatch):
    from denizen.zoo.cartpole import CartPole

    monkeypatch.setattr(CartPole, "draw", lambda self, now: 1 / 0)
    shutil.copytree(STORED / "training_ppo", "r")
    assert denizen("report", "r")[0] == 0
    assert "data:image/gif" not in Path("r/report.html").read_text(encoding="utf-8")


def test_trainings_stand_beside_each_other_also_those_of_python(denizen):
    for name in ("training_grpo", "training_ppo_python"):
        shutil.copytree(STORED / name, name)
    assert denizen("report", "training_grpo", "training_ppo_python")[0] == 0
    curves = charts_of(Path("report.html"))[0]["curves"]
    assert [curve["name"] for curve in curves] == ["training_grpo", "training_ppo_python"]
    assert [curve["colour"] for curve in curves] == [0, 1]


# --- calibrations -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, prepared, sir) -> Path:
    from denizen import run

    place = tmp_path_factory.mktemp("fits")
    cases = run.load(sir)["cases"][0].reshape(-1, 2).sum(1).int().tolist()
    (place / "cases.csv").write_text("\n".join(map(str, ["cases", *cases])) + "\n")
    words = ["--agents", 300, "--targets", place / "cases.csv", "--column", "cases", "--every", 2, "--replicates", 4]
    words += ["--fit", "infect_rate=LogNormal(-2,0.5)", "--holdout", 2, "--option", "iterations=2"]
    prepared("calibrate", "sir", *words, "--out", place / "fit")
    return place / "fit"


def test_a_calibration_ends_with_its_page(fitted):
    page = fitted / "report.html"
    data, marginal, *search = charts_of(page)
    assert [curve["name"] for curve in data["curves"]] == ["fit", "forecast", "data", "held out"]
    assert [len(curve["x"]) for curve in data["curves"]] == [4, 3, 4, 2]
    assert [curve["name"] for curve in marginal["curves"]] == ["fit", "prior"]
    assert [chart["curves"][0]["name"] for chart in search] == ["loss", "infect_rate"]
    words = words_of(page)
    for told in ("Scores of the forecast", "What the data say", "LogNormal(-2,0.5)", "--holdout 2 --replicates 4"):
        assert told in words


def test_a_calibration_is_reported_again_with_the_same_curves(denizen, fitted):
    shutil.copytree(fitted, "fit")
    shutil.copytree(fitted, "other")
    assert denizen("report", "fit")[0] == 0
    assert charts_of(Path("fit/report.html")) == charts_of(fitted / "report.html")
    assert denizen("report", "fit", "other")[0] == 0
    assert "Estimate (90% interval)" in words_of(Path("report.html"))


def test_a_fit_whose_draws_cannot_be_simulated_is_reported_all_the_same(denizen, fitted, monkeypatch):
    def fails(*_, **__):
        raise ModelError("rng.bernoulli('heal') got a value out of range")

    monkeypatch.setattr(dz.fit.Target, "windows", fails)
    assert denizen("report", str(fitted), "--out", "r.html")[0] == 0
    told = "Draws of the fit could not be simulated: rng.bernoulli('heal')"
    assert told in words_of(Path("r.html"))


# --- others -----------------------------------------------------------------------------------------------------------


def test_agents_that_talk_are_reported(denizen):
    shutil.copytree(STORED / "dotgat", "r")
    Path("r/attention.png").write_bytes(b"a picture")
    assert denizen("report", "r")[0] == 0
    page = Path("r/report.html")
    rows = json.loads(Path("r/manifest.json").read_text())["metrics"]
    loss = charts_of(page)[0]["curves"]
    assert [curve["name"] for curve in loss] == ["training", "validation"]
    assert loss[0]["y"] == pytest.approx([row["loss"] for row in rows], rel=1e-5)
    assert "data:image/png;base64,YSBwaWN0dXJl" in page.read_text(encoding="utf-8")


def test_an_experiment_is_reported_from_its_report(denizen):
    Path("e/report").mkdir(parents=True)
    Path("e/experiment.json").write_text('{"name": "learners", "seeds": 2, "modes": ["fruits"]}')
    code, _, err = denizen("report", "e")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "e/report/report.md" in err
    Path("e/report/curves.png").write_bytes(b"a picture")
    Path("e/report/report.md").write_text(
        "# PPO and GRPO\n\n| setting |  |\n| --- | --- |\n| steps | 4M |\n\n## Scores\n\n"
        "| world | score |\n| --- | --- |\n| fruits | 12.5 |\n\nA <sentence>.\n\n![Score over steps](curves.png)\n"
    )
    assert denizen("report", "e")[0] == 0
    page = Path("e/report.html").read_text(encoding="utf-8")
    assert "<h1>PPO and GRPO</h1>" in page
    assert "<h2>Scores</h2>" in page
    assert 'alt="Score over steps"' in page
    assert "fruits 12.5" in words_of(Path("e/report.html"))
    assert "A <sentence>." in words_of(Path("e/report.html"))
