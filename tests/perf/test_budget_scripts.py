"""Training scripts in the manner of the field: a budget finds their faults, and is quiet about the mended ones."""

import re
import runpy
from collections import defaultdict
from pathlib import Path

import pytest

import denizen as dz

SCRIPTS = Path(__file__).with_name("scripts")
NAMES = ["supervised", "ppo", "abm", "diffusion", "finetune"]
MARK = re.compile(r"  # ([a-z0-9 -]+)$")


@pytest.fixture(autouse=True)
def validated(monkeypatch):
    """As in a fresh process: whoever used torch.compile has switched the validation of distributions off."""
    monkeypatch.setattr("torch.distributions.Distribution._validate_args", True)


def report_of(name, variant, steps=4, warmup=1):
    guard = dz.budget(device="simulated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(guard), "__exit__", lambda self, *_: setattr(self, "report", self._region.close(True)))
        step = runpy.run_path(str(SCRIPTS / f"{name}.py"))[variant](guard.device)
        with guard:
            for _ in guard.steps(steps, warmup):
                step()
    return guard.report


@pytest.mark.parametrize("name", NAMES)
def test_every_fault_of_a_script_is_told(name):
    report = report_of(name, "make")
    lines = (SCRIPTS / f"{name}.py").read_text().splitlines()
    expected = {number: set(mark[1].split()) for number, line in enumerate(lines, 1) if (mark := MARK.search(line))}
    found = defaultdict(set)
    for finding in report.findings:
        if finding.counted:
            assert finding.file.endswith(f"{name}.py")
            found[finding.line].add(finding.kind)
    assert set(found) == set(expected), str(report)
    for line, kinds in found.items():
        assert kinds <= expected[line], (line, kinds)


@pytest.mark.parametrize("name", NAMES)
def test_a_mended_script_is_silent(name):
    report = report_of(name, "mended")
    assert report.ok, str(report)
    assert not [finding for finding in report.findings if finding.counted]
    assert report.ops > 0
