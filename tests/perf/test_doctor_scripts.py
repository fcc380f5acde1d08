"""Training scripts in the manner of the field: the doctor finds what counting finds and more, and passes the mended."""

import re
import runpy
from collections import defaultdict
from pathlib import Path

import pytest

import denizen as dz

SCRIPTS = Path(__file__).with_name("scripts")
SLOW = pytest.mark.slow
NAMES = ["supervised", "abm", "diffusion", pytest.param("ppo", marks=SLOW), pytest.param("finetune", marks=SLOW)]
MARK = re.compile(r"  # ([a-z0-9 -]+)$")
# The doctor's own names for some of what a budget counts: batches of a loader, both ways of a value as one.
ALSO = {"h2d-fresh": {"loader-pin", "roundtrip"}, "host-sync-copy": {"roundtrip"}, "h2d-pageable": {"loader-pin"}}
BEYOND = {"dtype-fp64", "dense-quadratic", "launch-bound", "graph-retention", "grad-memset", "no-grad-missing"}
# A rollout whose steps follow from each other: true, and only compiling or capturing it helps.
LEFT = {"ppo": {"launch-bound"}}


def faults(name, variant):
    report = dz.doctor(make=runpy.run_path(str(SCRIPTS / f"{name}.py"))[variant], device="simulated", steps=4)
    found = defaultdict(set)
    for one in report.faults:
        assert one.file.endswith(f"{name}.py")
        found[one.line].add(one.kind)
    return found, report


@pytest.mark.parametrize("name", NAMES)
def test_every_fault_of_a_script_is_told(name):
    found, report = faults(name, "make")
    lines = (SCRIPTS / f"{name}.py").read_text().splitlines()
    expected = {number: set(mark[1].split()) for number, line in enumerate(lines, 1) if (mark := MARK.search(line))}
    for line, kinds in expected.items():
        assert found[line] & kinds.union(*(ALSO.get(kind, set()) for kind in kinds)), (line, str(report))
    for line, kinds in found.items():
        wanted = expected.get(line, set())
        assert kinds - BEYOND <= wanted.union(*(ALSO.get(kind, set()) for kind in wanted)), (line, str(report))


@pytest.mark.parametrize("name", NAMES)
def test_a_mended_script_passes(name):
    found, report = faults(name, "mended")
    assert set().union(*found.values()) <= LEFT.get(name, set()), str(report)
