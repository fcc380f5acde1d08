"""Folders that somebody else made: nothing in them ends the server, holds it up, leads it outside or bends a number."""

import csv
import io
import json
import os
import random
import threading
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

from starlette.testclient import TestClient

from denizen.ui import make_app
from ui_runs import simulated, trained

ODD = [float("nan"), float("inf"), -1, 10**400, 1 << 60, "\ud800", "=1+1", [], {}, [[{}]], None, True, "x" * 100_000]
WHAT = ("runs", "run", "curves", "agents")


def ask(folder: Path) -> TestClient:
    return TestClient(make_app([folder]), base_url="http://127.0.0.1")


def answered(client: TestClient, id: str) -> list[dict]:
    """All answers on a run, each of them JSON; within a time in which nothing waits for a pipe."""
    found: list[dict] = []

    def look() -> None:
        for what in WHAT:
            answer = client.get(f"/api/{what}", params={"id": id, "field": "ill"})
            assert answer.status_code == 200
            found.append(json.loads(answer.content, parse_constant=pytest.fail))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it waits for a pipe"
    assert len(found) == len(WHAT)
    return found


def places(value, before=()):
    yield before
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(one, (*before, key))


def test_a_manifest_with_any_value_anywhere_is_answered(tmp_path):
    simulated(tmp_path / "odd", 4)
    file, drawn = tmp_path / "odd" / "manifest.json", random.Random(0)
    text = file.read_text()
    where = [place for place in places(json.loads(text)) if place]
    client = ask(tmp_path)
    for place in drawn.sample(where, 25):
        told = holder = json.loads(text)
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = drawn.choice(ODD)
        file.write_text(json.dumps(told))
        assert answered(client, "0:odd")[0]["runs"][0]["name"] == "odd"
    told = json.loads(text)
    told["series"][0]["name"] = "another"  # of a file whose bands are held by now
    file.write_text(json.dumps(told))
    assert "expected ['another'" in answered(client, "0:odd")[2]["runs"][0]["error"]
    told = json.loads(text)
    told["settings"] = json.loads('{"a":' * 900 + "1" + "}" * 900)
    file.write_text(json.dumps(told))
    assert answered(client, "0:odd")[0]["runs"][0]["status"] == "damaged"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_pipes_and_devices_are_never_waited_for(tmp_path):
    simulated(tmp_path / "village", 4)
    trained(tmp_path / "pole")
    for seed in ("seed-0", "seed-1"):
        trained(tmp_path / "seeds" / seed)
    (tmp_path / "seeds" / "seed-0" / "manifest.json").unlink()
    pipes = ["pole/metrics.jsonl", "pole/log.txt", "pole/.lock", "pole/a.json", "a.json", "seeds/seed-0/manifest.json"]
    pipes += [f"village/metrics/{next((tmp_path / 'village' / 'metrics').iterdir()).name}"]
    pipes += ["village/snapshots/ill/zarr.json"]
    told = json.loads((tmp_path / "pole" / "manifest.json").read_text())
    (tmp_path / "pole" / "manifest.json").write_text(json.dumps(told | {"status": "running"}))
    for name in pipes:
        (tmp_path / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / name)
    client = ask(tmp_path)
    _, _, curves, _ = answered(client, "0:pole")
    assert "no ordinary file" in curves["runs"][0]["error"]
    _, run, curves, _ = answered(client, "0:village")
    assert "no ordinary file" in curves["runs"][0]["error"]
    assert "no ordinary file" in run["snapshots_error"]
    answered(client, "0:seeds")


def test_links_of_a_run_lead_nowhere_else(tmp_path):
    root = tmp_path / "runs"
    secret = trained(tmp_path / "secret")
    trained(root / "pole")
    (root / "taken").mkdir()
    (root / "taken" / "manifest.json").symlink_to(secret / "manifest.json")
    (root / "pole" / "metrics.jsonl").unlink()
    (root / "pole" / "metrics.jsonl").symlink_to(secret / "metrics.jsonl")
    (root / "seeds").mkdir()
    for seed in ("seed-0", "seed-1"):
        (root / "seeds" / seed).symlink_to(secret)
    client = ask(root)
    told = client.get("/api/runs").json()["runs"]
    assert [(row["name"], row["status"]) for row in told] == [("pole", "killed"), ("taken", "damaged")]
    assert "leads out of" in told[1]["error"]
    assert "leads out of" in client.get("/api/curves", params={"id": "0:pole"}).json()["runs"][0]["error"]


def test_a_file_of_gigabytes_is_told_and_not_read(tmp_path):
    folder = trained(tmp_path / "pole")
    with open(folder / "metrics.jsonl", "ab") as file:
        file.truncate(1 << 42)  # sparse
    assert "larger than" in ask(tmp_path).get("/api/curves", params={"id": "0:pole"}).json()["runs"][0]["error"]


def test_json_beside_runs_may_hold_anything(tmp_path):
    trained(tmp_path / "pole")
    row = {"run": "a", "mean": float("nan"), "low": float("-inf"), "high": 1e9}
    (tmp_path / "pole" / "evaluation.json").write_text(json.dumps([row]))
    finding = {"kind": "\ud800", "cost": {"seconds": float("nan")}, "evidence": ["\ud800"]}
    (tmp_path / "doctor.json").write_text(json.dumps({"verdict": "\udfff", "findings": [finding]}))
    client = ask(tmp_path)
    (told,) = client.get("/api/run", params={"id": "0:pole"}).json()["files"]["evaluations"]
    assert told["rows"] == [{"run": "a", "mean": None, "low": None, "high": 1e9}]
    (report,) = client.get("/api/findings").json()["reports"]
    assert report["findings"][0]["seconds"] is None


def test_names_of_folders_may_be_any_bytes(tmp_path):
    try:
        simulated(tmp_path / os.fsdecode(b"odd-\xff"), 2, every=None)
    except OSError:
        pytest.skip("this file system takes names of text only")
    client = ask(tmp_path)
    (row,) = client.get("/api/runs").json()["runs"]
    assert client.get("/api/curves", params={"id": row["id"]}).json()["runs"][0]["curves"]
    assert client.get("/api/csv", params={"id": row["id"]}).status_code == 200


def test_other_ports_of_this_machine_may_not_ask(tmp_path):
    assert ask(tmp_path).get("/api/runs", headers={"sec-fetch-site": "same-site"}).status_code == 403


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_runs_of_one_name_stay_apart(tmp_path):
    for k, parent in enumerate(("a", "b")):
        simulated(tmp_path / parent / "run", 2, seed=k, every=None)
    client = ask(tmp_path)
    told = client.get("/api/curves", params={"id": ["0:a/run", "0:b/run"]}).json()["runs"]
    assert [run["name"] for run in told] == ["a/run", "b/run"]
    rows = csv.DictReader(io.StringIO(client.get("/api/csv", params={"id": ["0:a/run", "0:b/run"]}).text))
    assert {row["run"] for row in rows} == {"a/run", "b/run"}
