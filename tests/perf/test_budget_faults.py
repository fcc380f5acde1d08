"""Every kind of fault: the right line and kind; silence on the mended program and on look-alikes."""

import runpy
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import denizen as dz

HELP = runpy.run_path(str(Path(__file__).with_name("marked.py")))
blamed, PROGRAMS = HELP["blamed"], HELP["programs"]("faults", "field", "field_harmless")


@pytest.fixture(autouse=True)
def validated(monkeypatch):
    """As in a fresh process: whoever used torch.compile has switched the validation of distributions off."""
    monkeypatch.setattr("torch.distributions.Distribution._validate_args", True)


def run(program, device=None, steps=4):
    """The report of a program's steps."""
    guard = dz.budget(device=device)
    with suppress(dz.errors.BudgetError), guard:
        step = program(guard.device)
        for i in guard.steps(steps):
            step(i)
            if device == "cuda":  # what a step asked for is there in the next one, whoever else uses the card
                torch._C._cuda_synchronize()
    return guard.report


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.startswith("faulty_")])
def test_fault_is_told_at_its_line(name, capsys):
    program = PROGRAMS[name]
    report = run(program)
    expected, found = blamed(program), defaultdict(set)
    for finding in report.findings:
        if finding.counted:
            assert finding.file == program.__code__.co_filename
            assert finding.period == "every step"
            assert finding.fix
            found[finding.line].add(finding.kind)
    assert not report.ok
    assert set(found) == set(expected), str(report)
    for line, kinds in expected.items():
        assert found[line] <= kinds, str(report)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if not name.startswith("faulty_")])
def test_what_is_mended_or_harmless_is_silent(name, capsys):
    assert not blamed(PROGRAMS[name])
    report = run(PROGRAMS[name])
    assert report.ok, str(report)
    assert not any(finding.counted for finding in report.findings)
