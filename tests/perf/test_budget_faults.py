"""Every kind of fault: the right line and kind; silence on the mended snippet and on look-alikes."""

import re
import runpy
import textwrap
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import denizen as dz

SNIPPETS = runpy.run_path(str(Path(__file__).with_name("snippets.py")))
FAULTS, LOOKALIKES = SNIPPETS["FAULTS"], SNIPPETS["LOOKALIKES"]
FIELD = runpy.run_path(str(Path(__file__).with_name("field_snippets.py")))
MARK = re.compile(r"  # ([a-z0-9 -]+)$")


@pytest.fixture(autouse=True)
def validated(monkeypatch):
    """As in a fresh process: whoever used torch.compile has switched the validation of distributions off."""
    monkeypatch.setattr("torch.distributions.Distribution._validate_args", True)


def wanted(source):
    """Kinds to blame, by line."""
    lines = source.splitlines()
    return {number: set(mark[1].split()) for number, line in enumerate(lines, 1) if (mark := MARK.search(line))}


def run(source, tmp_path, device=None, steps=4):
    """The report of a snippet's steps, and its source."""
    source = textwrap.dedent(source).strip() + "\n"
    file = tmp_path / "snippet.py"
    file.write_text(source)
    guard = dz.budget(device=device)
    names = {"device": guard.device, "torch": torch, "nn": nn, "F": F, "np": np}
    with suppress(dz.errors.BudgetError), guard:
        exec(compile(source, file, "exec"), names)
        for i in guard.steps(steps):
            names["step"](i)
            if device == "cuda":  # what a step asked for is there in the next one, whoever else uses the card
                torch._C._cuda_synchronize()
    return guard.report, source


def check_fault(report, source):
    expected, found = wanted(source), defaultdict(set)
    for finding in report.findings:
        if finding.counted:
            assert finding.file.endswith("snippet.py")
            assert finding.period == "every step"
            assert finding.fix
            found[finding.line].add(finding.kind)
    assert not report.ok
    assert set(found) == set(expected), str(report)
    for line, kinds in expected.items():
        assert found[line] <= kinds, str(report)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_told_at_its_line(name, tmp_path, capsys):
    check_fault(*run(FAULTS[name][0], tmp_path))


@pytest.mark.parametrize("name", FAULTS)
def test_mended_is_silent(name, tmp_path, capsys):
    report, _ = run(FAULTS[name][1], tmp_path)
    assert report.ok, str(report)
    assert not any(finding.counted for finding in report.findings)


@pytest.mark.parametrize("name", LOOKALIKES)
def test_lookalike_is_silent(name, tmp_path, capsys):
    report, _ = run(LOOKALIKES[name], tmp_path)
    assert report.ok, str(report)
    assert not any(finding.counted for finding in report.findings)


@pytest.mark.parametrize("name", FIELD["FAULTY"])
def test_line_of_the_field_is_told(name, tmp_path, capsys):
    check_fault(*run(FIELD["FAULTY"][name], tmp_path))


@pytest.mark.parametrize("name", FIELD["QUIET"])
def test_right_code_of_the_field_is_silent(name, tmp_path, capsys):
    report, _ = run(FIELD["QUIET"][name], tmp_path)
    assert report.ok, str(report)
    assert not any(finding.counted for finding in report.findings)
