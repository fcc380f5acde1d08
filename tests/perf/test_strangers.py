"""Strangers' training code under the budget and the doctor: right line and kind, and silence where all is well."""

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

HERE = Path(__file__).parent
FAULTS = runpy.run_path(str(HERE / "strangers_snippets.py"))["FAULTS"]
FORMS = [runpy.run_path(str(HERE / f"strangers_{name}.py")) for name in ("forms", "programs")]
CASES = [(name, "faulty", faulty) for name, (faulty, _) in FAULTS.items()]
CASES += [(name, "mended", mended) for name, (_, mended) in FAULTS.items()]
CASES += [(name, "faulty", source) for forms in FORMS for name, source in forms["HOSTILE"].items()]
CASES += [(name, "harmless", source) for forms in FORMS for name, source in forms["LOOKALIKES"].items()]
MARK = re.compile(r"  # ([a-z0-9 -]+)$")
COUNTED = ("host-sync-", "h2d-", "roundtrip", "d2h-", "graph-break")


@pytest.fixture(autouse=True)
def fresh_compiler(monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr("torch.distributions.Distribution._validate_args", True)


def names(device):
    return {"device": device, "torch": torch, "nn": nn, "F": F, "np": np, "dz": dz}


def by_budget(code):
    guard = dz.budget(graphs=1)
    here = names(guard.device)
    with suppress(dz.errors.BudgetError), guard:
        exec(code, here)
        for number in guard.steps(4):
            here["step"](number)
    return [one for one in guard.report.findings if one.counted]


def limited(kind, line):
    """Whether a budget counts it by itself; weights copied on the device are allocations, of which it must be told."""
    return kind.startswith(COUNTED) or (kind == "state-copy" and "cpu" in line)


def by_doctor(code):
    def make(device):
        here = names(device)
        exec(code, here)
        return here["step"]

    return dz.doctor(make=make, rank=False).faults


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about their code
@pytest.mark.parametrize("tool", [by_budget, by_doctor])
@pytest.mark.parametrize(("name", "state", "source"), CASES, ids=[f"{state}: {name}" for name, state, _ in CASES])
def test_what_is_told_of_it(name, state, source, tool, tmp_path, capsys):
    source = textwrap.dedent(source).strip() + "\n"
    file = tmp_path / "snippet.py"
    file.write_text(source)
    marks = {
        number: mark[1].split() for number, line in enumerate(source.splitlines(), 1) if (mark := MARK.search(line))
    }
    kinds = {
        number: {kind for kind in there if tool is by_doctor or limited(kind, source.splitlines()[number - 1])}
        for number, there in marks.items()
    }
    assert bool(marks) == (state == "faulty")
    found = defaultdict(set)
    for one in tool(compile(source, file, "exec")):
        assert one.file == str(file)
        assert one.period == "every step"
        found[one.line].add(one.kind)
    assert set(found) == {number for number, there in kinds.items() if there}
    for number, there in found.items():
        assert there <= kinds[number]
