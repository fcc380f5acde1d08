"""Every kind of fault: the doctor names the right line, kind and class; it is silent on mended code and look-alikes."""

import re
import runpy
import textwrap
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import denizen as dz

HERE = Path(__file__).parent
SHARED, OWN = runpy.run_path(str(HERE / "snippets.py")), runpy.run_path(str(HERE / "doctor_snippets.py"))
FAULTS = {**SHARED["FAULTS"], **OWN["FAULTS"]}
LOOKALIKES = {**SHARED["LOOKALIKES"], **OWN["LOOKALIKES"]}
MARK = re.compile(r"  # ([a-z0-9 -]+)$")
# What the doctor calls by a name of its own: batches of a loader.
ALSO = {"h2d-pageable": {"loader-pin"}, "h2d-fresh": {"loader-pin"}}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch.distributions.Distribution.set_default_validate_args(True)  # the compiler switches it off


def examine(source, tmp_path):
    source = textwrap.dedent(source).strip() + "\n"
    file = tmp_path / "snippet.py"
    file.write_text(source)

    def make(device):
        names = {"device": device, "torch": torch, "nn": nn, "F": F, "np": np, "dz": dz}
        exec(compile(source, file, "exec"), names)
        return names["step"]

    return dz.doctor(make=make), source


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_told_at_its_line(name, tmp_path, capsys):
    report, source = examine(FAULTS[name][0], tmp_path)
    expected = {n: set(m[1].split()) for n, line in enumerate(source.splitlines(), 1) if (m := MARK.search(line))}
    found = defaultdict(set)
    for one in report.faults:
        assert one.file.endswith("snippet.py"), str(report)
        assert one.period == "every step", str(report)
        assert one.fix
        assert one.evidence
        found[one.line].add(one.kind)
    for line, kinds in expected.items():
        allowed = kinds.union(*(ALSO.get(kind, set()) for kind in kinds))
        assert found[line] & allowed, str(report)
    for line, kinds in found.items():
        wanted = expected.get(line, set())
        assert kinds <= wanted.union(*(ALSO.get(kind, set()) for kind in wanted)), str(report)


@pytest.mark.parametrize("name", FAULTS)
def test_mended_is_silent(name, tmp_path, capsys):
    report, _ = examine(FAULTS[name][1], tmp_path)
    assert report.ok, str(report)
    assert report.verdict == "nothing worth changing"


@pytest.mark.parametrize("name", LOOKALIKES)
def test_lookalike_is_silent(name, tmp_path, capsys):
    report, _ = examine(LOOKALIKES[name], tmp_path)
    assert report.ok, str(report)
