"""The page's server: what it answers, to whom, and that it reads nothing else, nothing torn and nothing twice."""

import base64
import csv
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

from starlette.testclient import TestClient

import denizen as dz
from denizen.errors import InputError
from denizen.ui import make_app
from ui_runs import lengthened, simulated, trained

ODD = """<script>alert(1)</script> "quoted" 'name'\nsecond line"""


def ask(folders, **options) -> TestClient:
    return TestClient(make_app(folders, **options), base_url="http://127.0.0.1:8421")


def unpacked(text: str, dtype: str = "<f8") -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A simulation, a training, several seeds, and something damaged."""
    root = tmp_path_factory.mktemp("runs")
    simulated(root / "village")
    trained(root / "pole")
    trained(root / "seeds", "training_seeds")
    (root / "broken").mkdir()
    (root / "broken" / "manifest.json").write_text("{")
    return root


def test_a_sweep_counts_its_runs_and_not_the_steps_of_each(tmp_path):
    def stops(theta, worlds):
        if theta.max() > 2:
            raise KeyboardInterrupt
        return theta

    dz.sweeps.sweep(stops, {"a": [1]}, steps=1, replicates=3, out=tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        dz.sweeps.sweep(stops, [{"a": 1}, {"a": 3}], steps=1, replicates=3, out=tmp_path / "part", progress=False)
    rows = {row["name"]: row for row in ask([tmp_path]).get("/api/runs").json()["runs"]}
    told = {name: [row[key] for key in ("count", "goal", "counted")] for name, row in rows.items()}
    assert told == {"whole": [3, 3, "runs"], "part": [0, 6, "runs"]}


def test_list_has_every_run_with_its_facts(runs):
    told = ask([runs]).get("/api/runs").json()
    rows = {row["name"]: row for row in told["runs"]}
    assert {"village", "pole", "seeds", "broken"} <= rows.keys()
    assert (
        rows["village"] | {"kind": "simulation", "what": "Village", "status": "finished", "count": 12}
        == rows["village"]
    )
    assert rows["village"]["keys"] == {"replicates": "3", "agents": "30", "seed": "0"}
    assert rows["pole"]["kind"] == "training"
    assert rows["seeds"]["keys"]["seed"].endswith("seeds")
    assert rows["broken"]["status"] == "damaged"
    assert "not valid JSON" in rows["broken"]["error"]


def test_list_is_sent_again_only_where_it_differs(tmp_path):
    simulated(tmp_path / "a", 2, every=None)
    client = ask([tmp_path])
    have = client.get("/api/runs").json()["version"]
    assert client.get("/api/runs", params={"have": have}).json() == {"same": True}
    simulated(tmp_path / "b", 2, every=None)
    told = client.get("/api/runs", params={"have": have}).json()
    assert [row["name"] for row in told["runs"]] == ["a", "b"]


def test_curves_are_those_of_the_run(runs):
    (run,) = ask([runs]).get("/api/curves", params={"id": "0:village"}).json()["runs"]
    curve = next(curve for curve in run["curves"] if curve["name"] == "cases")
    values = dz.run.load(runs / "village")["cases"].double().numpy()
    assert curve["about"] == "New cases in the step."
    for name, quantile in (("low", 0.05), ("y", 0.5), ("high", 0.95)):
        np.testing.assert_allclose(unpacked(curve[name]), np.quantile(values, quantile, axis=0))
    assert unpacked(curve["x"]).tolist() == list(range(1, 13))


def test_long_curves_are_thinned_and_keep_their_extremes(tmp_path):
    simulated(tmp_path / "long", 2, every=None)
    lengthened(tmp_path / "long", 10_000)
    values = dz.run.load(tmp_path / "long")["wealth_left"].double().numpy()
    middle = np.quantile(values, 0.5, axis=0)
    (run,) = ask([tmp_path]).get("/api/curves", params={"id": "0:long", "width": "300"}).json()["runs"]
    curve = next(curve for curve in run["curves"] if curve["name"] == "wealth_left")
    x, y, low, high = (unpacked(curve[name]) for name in ("x", "y", "low", "high"))
    assert curve["points"] == 10_000
    assert len(x) <= 600
    assert (np.diff(x) >= 0).all()
    np.testing.assert_allclose([y.min(), y.max()], [middle.min(), middle.max()])
    np.testing.assert_allclose(y, middle[(x - 1).astype(int)])
    np.testing.assert_allclose(low.min(), np.quantile(values, 0.05, axis=0).min())
    np.testing.assert_allclose(high.max(), np.quantile(values, 0.95, axis=0).max())
    assert (low <= y).all()
    assert (y <= high).all()


def test_csv_has_every_point_of_the_chosen_series(runs):
    text = ask([runs]).get("/api/csv", params={"id": ["0:village", "0:pole"], "series": ["cases", "entropy"]}).text
    rows = list(csv.DictReader(io.StringIO(text)))
    cases = [float(row["middle"]) for row in rows if row["series"] == "cases"]
    np.testing.assert_allclose(cases, np.median(dz.run.load(runs / "village")["cases"].numpy(), axis=0))
    assert {row["run"] for row in rows} == {"village", "pole"}
    assert {row["series"] for row in rows} == {"cases", "entropy"}


def test_several_seeds_of_a_training_have_bands(runs):
    (run,) = ask([runs]).get("/api/curves", params={"id": "0:seeds"}).json()["runs"]
    assert all("low" in curve for curve in run["curves"])


def test_agents_are_counted_whole_and_thinned(tmp_path):
    simulated(tmp_path / "big", 2, replicates=2, every=1, agents=100_000)
    client = ask([tmp_path])
    about = client.get("/api/run", params={"id": "0:big"}).json()["snapshots"]
    assert about["steps"] == [0, 1, 2]
    assert [(field["name"], field["kind"]) for field in about["fields"]] == [
        ("ill", "share"),
        ("stage", "levels"),
        ("wealth", "number"),
    ]
    ill = dz.run.load(tmp_path / "big").snapshots.at(2)["ill"][1]
    asked = {"id": "0:big", "field": "ill", "place": "2", "replicate": "1"}
    frame = client.get("/api/agents", params=asked).json()
    assert frame["counts"] == {"0": int((ill == 0).sum()), "1": int((ill == 1).sum())}
    cells = unpacked(frame["values"], "<f4")
    assert frame["width"] * frame["height"] == len(cells) <= 256 * 257
    assert np.nansum(cells) * frame["each"] == pytest.approx(float(ill.sum()))
    assert client.get("/api/agents", params=asked | {"field": "stage"}).json()["names"] == ["well", "ill", "immune"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"field": "illl"}, "did you mean 'ill'?"),
        ({"field": "ill", "place": "99"}, "there is none of these numbers"),
        ({"field": "ill", "place": "-1"}, "expected a whole number"),
        ({"field": "ill", "replicate": "3"}, "there is none of these numbers"),
    ],
)
def test_what_is_not_there_is_said(runs, asked, told):
    assert told in ask([runs]).get("/api/agents", params={"id": "0:village", **asked}).json()["error"]


# --- nothing else -----------------------------------------------------------------------------------------------------

OUTSIDE = ["0:../secret", "0:..", "0:village/../../secret", "0:/etc", "1:village", "-1:village", "0:", "", "0:link"]


def test_nothing_outside_the_folders_is_read(tmp_path):
    root = tmp_path / "runs"
    simulated(tmp_path / "secret", 2, every=None)
    simulated(root / "village", 2, every=None)
    (root / "link").symlink_to(tmp_path / "secret")
    client = ask([root])
    assert [row["name"] for row in client.get("/api/runs").json()["runs"]] == ["village"]
    for name in OUTSIDE:
        assert client.get("/api/run", params={"id": name}).json() == {"gone": True}
        assert client.get("/api/curves", params={"id": name}).json()["runs"][0].get("gone")


def test_a_run_that_becomes_a_link_outwards_is_gone(tmp_path):
    root = tmp_path / "runs"
    simulated(tmp_path / "secret", 2, every=None)
    simulated(root / "village", 2, every=None)
    client = ask([root])
    client.get("/api/runs")
    shutil.rmtree(root / "village")
    (root / "village").symlink_to(tmp_path / "secret")
    assert client.get("/api/run", params={"id": "0:village"}).json() == {"gone": True}


def test_only_pictures_films_and_reports_are_sent(tmp_path):
    simulated(tmp_path / "village", 2, every=None)
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "village" / "plot.png").write_bytes(b"picture")
    (tmp_path / "village" / "linked.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "village" / "report.html").write_text("<script>1</script>")
    client = ask([tmp_path])
    files = client.get("/api/run", params={"id": "0:village"}).json()["files"]
    assert (files["pictures"], files["reports"]) == (["plot.png"], ["report.html"])
    assert client.get("/api/file", params={"id": "0:village", "name": "plot.png"}).content == b"picture"
    for name in ("linked.png", "../secret.png", "manifest.json", "log.txt", str(tmp_path / "secret.png")):
        assert client.get("/api/file", params={"id": "0:village", "name": name}).status_code == 404
    report = client.get("/api/file", params={"id": "0:village", "name": "report.html"})
    assert report.headers["content-security-policy"].startswith("sandbox allow-scripts")


@pytest.mark.parametrize(
    "path", ["/assets/../_server.py", "/assets/%2e%2e/_server.py", "/assets/LICENSE.d3", "/nothing"]
)
def test_other_paths_are_not_found(runs, path):
    assert ask([runs]).get(path).status_code == 404


def test_every_answer_has_the_headers_and_scripts_are_files(runs):
    client = ask([runs])
    for path in ("/", "/assets/ui.js", "/api/runs", "/nothing"):
        policy = client.get(path).headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy.partition("style-src")[0]
    page = client.get("/").text
    assert page.count("<script") == page.count('<script src="/assets/')
    assert " on" not in page.replace("only", "")
    assert "http" not in page


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_reads(runs, method):
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    client = ask([runs])
    assert client.request(method, "/api/runs").status_code == 405
    client.get("/api/runs")
    client.get("/api/curves", params={"id": "0:village"})
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before


def test_names_are_texts(tmp_path):
    folder = tmp_path / ODD.replace("/", "⁄")
    simulated(folder, 2, every=None)
    answer = ask([tmp_path]).get("/api/runs")
    assert answer.headers["content-type"] == "application/json"
    assert [row["name"] for row in answer.json()["runs"]] == [folder.name]
    text = ask([tmp_path]).get("/api/csv", params={"id": f"0:{folder.name}"}).text
    assert next(csv.DictReader(io.StringIO(text, newline="")))["run"] == folder.name


# --- who may ask ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8421", "127.0.0.1.evil.example", "", "192.168.1.7"])
def test_a_name_that_was_made_to_lead_here_is_refused(runs, host):
    assert ask([runs]).get("/api/runs", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8421", "localhost", "LOCALHOST:9000", "[::1]:8421"])
def test_names_of_this_machine_are_served(runs, host):
    assert ask([runs]).get("/api/runs", headers={"host": host}).status_code == 200


def test_other_sites_may_not_ask(runs):
    assert ask([runs]).get("/api/runs", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_elsewhere_a_token_is_needed(runs):
    client = ask([runs], token="right-token", hosts=["box.example"])
    for path in ("/", "/api/runs", "/assets/ui.js", "/?token=wrong", "/?token=", "/api/runs?token=ö"):
        assert client.get(path).status_code == 401
    assert client.get("/", headers={"cookie": "denizen_0=right-token"}).status_code == 401
    answer = client.get("/?token=right-token", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]
    assert client.get("/api/runs").status_code == 200  # by its cookie
    assert client.get("/api/runs", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/api/runs", headers={"host": "box.example"}).status_code == 200


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        make_app([tmp_path / "nowhere"])


# --- torn, gone, damaged, growing -------------------------------------------------------------------------------------


def test_a_damaged_file_is_told_and_the_rest_is_served(tmp_path):
    simulated(tmp_path / "good", 3)
    simulated(tmp_path / "bad", 3)
    part = next((tmp_path / "bad" / "metrics").iterdir())
    part.write_bytes(part.read_bytes()[:-7])
    next((tmp_path / "bad" / "snapshots" / "ill").glob("c.*")).write_bytes(b"short")
    client = ask([tmp_path])
    good, bad = client.get("/api/curves", params={"id": ["0:good", "0:bad"]}).json()["runs"]
    assert len(good["curves"]) == 2
    assert "differs from what was written" in bad["error"]
    told = client.get("/api/agents", params={"id": "0:bad", "field": "ill"}).json()
    assert "damaged" in told["error"]


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"format": 3}', '{"kind": "simulation"}', "[" * 100_000, "\x00\xff"]
)
def test_any_manifest_is_answered(tmp_path, text):
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "manifest.json").write_text(text, encoding="latin-1")
    client = ask([tmp_path])
    for what in ("runs", "run", "curves", "agents"):
        assert client.get(f"/api/{what}", params={"id": "0:odd"}).status_code == 200
    assert client.get("/api/runs").json()["runs"][0]["name"] == "odd"
    assert client.get("/api/curves", params={"id": "0:odd"}).json()["runs"][0]["error"]


def test_a_half_written_row_of_metrics_waits_for_its_end(tmp_path):
    folder = trained(tmp_path / "pole")
    client = ask([tmp_path])

    def points() -> int:
        (run,) = client.get("/api/curves", params={"id": "0:pole"}).json()["runs"]
        return next(curve for curve in run["curves"] if curve["name"] == "entropy")["points"]

    whole, cut = (folder / "metrics.jsonl").read_text().rsplit("\n", 1)
    assert cut  # as the kill of that training left it
    (folder / "metrics.jsonl").write_text(f"{whole}\n")
    before = points()
    row = json.loads(whole.splitlines()[-1])
    line = json.dumps(row | {"step": row["step"] + 1, "steps": row["steps"] + 64}) + "\n"
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(line[:20])
        file.flush()
        assert points() == before
        file.write(line[20:])
    assert points() == before + 1


def test_a_file_of_metrics_that_was_trimmed_is_read_anew(tmp_path):
    folder = trained(tmp_path / "pole")
    client = ask([tmp_path])
    client.get("/api/curves", params={"id": "0:pole"})
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)[:-1]  # the last one was cut by a kill
    (folder / "new").write_text("".join(lines[:-1]))
    os.replace(folder / "new", folder / "metrics.jsonl")  # as a training that goes on does
    (run,) = client.get("/api/curves", params={"id": "0:pole"}).json()["runs"]
    assert max(curve["points"] for curve in run["curves"]) == len(lines) - 1


def test_what_was_read_is_not_read_again(tmp_path):
    run = simulated(tmp_path / "village", 6)
    app = make_app([tmp_path])
    client, reader = TestClient(app, base_url="http://127.0.0.1"), app.app.state.page.reader
    told = client.get("/api/curves", params={"id": "0:village"}).json()["runs"][0]
    first = reader.bytes_read
    assert first == sum(path.stat().st_size for path in (tmp_path / "village" / "metrics").iterdir())
    for _ in range(3):
        same = client.get("/api/curves", params={"id": "0:village", "have": told["version"]}).json()["runs"][0]
        assert same["same"]
    assert reader.bytes_read == first
    run.extend(4)
    grown = client.get("/api/curves", params={"id": "0:village", "have": told["version"]}).json()["runs"][0]
    assert grown["curves"][0]["points"] == 10
    newest = max((tmp_path / "village" / "metrics").iterdir())
    assert reader.bytes_read == first + newest.stat().st_size


def test_a_run_that_vanishes_is_gone(tmp_path):
    simulated(tmp_path / "village", 2)
    client = ask([tmp_path])
    client.get("/api/runs")
    shutil.rmtree(tmp_path / "village")
    for what in ("run", "agents", "csv"):
        assert client.get(f"/api/{what}", params={"id": "0:village", "field": "ill"}).json() == {"gone": True}
    assert client.get("/api/curves", params={"id": "0:village"}).json()["runs"] == [{"id": "0:village", "gone": True}]
    assert client.get("/api/runs").json()["runs"] == []


def test_reports_of_the_doctor_are_shown_by_line(tmp_path):
    finding = {"kind": "host-sync-item", "file": "train.py", "line": 3, "code": "loss.item()", "level": "severe"}
    (tmp_path / "doctor.json").write_text(json.dumps({"verdict": "1 line to change", "findings": [finding, 7]}))
    (tmp_path / "other.json").write_text("[1, 2]")
    client = ask([tmp_path])
    assert client.get("/api/runs").json()["findings"] == 1
    (report,) = client.get("/api/findings").json()["reports"]
    assert (report["verdict"], report["findings"][0]["code"]) == ("1 line to change", "loss.item()")
