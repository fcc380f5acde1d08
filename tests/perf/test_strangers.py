"""Strangers' training code under the budget and the doctor: right line and kind, and silence where all is well."""

import linecache
import runpy
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import denizen as dz

HELP = runpy.run_path(str(Path(__file__).with_name("marked.py")))
FILES = ("strangers", "strangers_forms", "strangers_harmless", "strangers_missed", "loader_parsing")
blamed, PROGRAMS = HELP["blamed"], HELP["programs"](*FILES)
COUNTED = ("host-sync-", "h2d-", "roundtrip", "d2h-", "graph-break")


@pytest.fixture(autouse=True)
def fresh_compiler(monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr("torch.distributions.Distribution._validate_args", True)


def by_budget(program):
    guard = dz.budget(graphs=1)
    with suppress(dz.errors.BudgetError), guard:
        step = program(guard.device)
        for number in guard.steps(4):
            step(number)
    return [one for one in guard.report.findings if one.counted]


def limited(kind, line):
    """Whether a budget counts it by itself; weights copied on the device are allocations, of which it must be told."""
    return kind.startswith(COUNTED) or (kind == "state-copy" and "cpu" in line)


def by_doctor(program):
    return dz.doctor(make=program, rank=False).faults


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about their code
@pytest.mark.parametrize("tool", [by_budget, by_doctor])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told_of_it(name, tool, capsys):
    program, marks = PROGRAMS[name], blamed(PROGRAMS[name])
    file = program.__code__.co_filename
    kinds = {
        number: {kind for kind in there if tool is by_doctor or limited(kind, linecache.getline(file, number))}
        for number, there in marks.items()
    }
    assert bool(marks) == name.startswith("faulty_")
    found = defaultdict(set)
    for one in tool(program):
        assert one.file == file
        assert one.period == "every step"
        found[one.line].add(one.kind)
    assert set(found) == {number for number, there in kinds.items() if there}
    for number, there in found.items():
        assert there <= kinds[number]
