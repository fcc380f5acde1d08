"""Every kind of fault: the doctor names the right line, kind and class; it is silent on mended code and look-alikes."""

import runpy
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import denizen as dz

HELP = runpy.run_path(str(Path(__file__).with_name("marked.py")))
blamed, PROGRAMS = HELP["blamed"], HELP["programs"]("faults", "doctor_faults", "loader_workers", "loader_collate")
# What the doctor calls by a name of its own: batches of a loader.
ALSO = {"h2d-pageable": {"loader-pin"}, "h2d-fresh": {"loader-pin"}}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch.distributions.Distribution.set_default_validate_args(True)  # the compiler switches it off


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.startswith("faulty_")])
def test_fault_is_told_at_its_line(name, capsys):
    report, expected = dz.doctor(make=PROGRAMS[name]), blamed(PROGRAMS[name])
    found = defaultdict(set)
    for one in report.faults:
        assert one.file == PROGRAMS[name].__code__.co_filename, str(report)
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


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.startswith("mended_")])
def test_mended_is_silent(name, capsys):
    report = dz.doctor(make=PROGRAMS[name])
    assert report.ok, str(report)
    assert report.verdict == "nothing worth changing"


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.startswith("harmless_")])
def test_lookalike_is_silent(name, capsys):
    report = dz.doctor(make=PROGRAMS[name])
    assert report.ok, str(report)
