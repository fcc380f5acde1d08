"""The benchmark behind the timeline of docs/how-it-is-fast.md: a flag for each row, and the stages that a CPU runs."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "stages_gpu.py"


def test_each_row_of_the_timeline_is_a_stage() -> None:
    page = (ROOT / "docs" / "how-it-is-fast.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)`", page, re.MULTILINE)
    assert tuple(rows) == runpy.run_path(str(SCRIPT))["STAGES"]


def test_stages_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "stages.json"
    stages = ["loop", "tensors", "kernels", "captured"]
    monkeypatch.setattr(
        sys, "argv", ["stages_gpu.py", "--device", "cpu", "--agents", "500", "--out", str(out), "--stage", *stages]
    )
    runpy.run_path(str(SCRIPT), run_name="__main__")
    found = json.loads(out.read_text())["ms"]
    assert list(found) == ["500 loop", "500 tensors", "500 kernels"]
    assert all(ms > 0 for ms in found.values())
    assert "captured  needs a GPU" in capsys.readouterr().out
