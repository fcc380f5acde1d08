"""Scripts that ask for CUDA by name, in the ways people do, examined from the command line without a GPU."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch

from denizen import app

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for CUDA where there is none")
MARK = re.compile(r"  # ([a-z0-9-]+)$")
SCRIPTS = sorted((Path(__file__).with_name("programs") / "by_name").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_it_finds_the_simulated_device(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["denizen", "doctor", f"{script}:make", "--json"])
    with pytest.raises(SystemExit):
        app.main()
    told = json.loads(capsys.readouterr().out)
    assert len(SCRIPTS) == 4
    assert told["device"].startswith("simulated")
    lines = script.read_text().splitlines()
    marked = {(number, mark[1]) for number, line in enumerate(lines, 1) if (mark := MARK.search(line))}
    assert {(one["line"], one["kind"]) for one in told["findings"] if one["level"] != "note"} == marked
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.Stream()
