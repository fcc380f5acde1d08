"""The cases whose costs benchmarks/doctor_gpu.py measures on a GPU: here, their kind and line."""

import sys
from pathlib import Path

import pytest

import denizen as dz

HERE = str(Path(__file__).parents[2] / "benchmarks")
sys.path.insert(0, HERE)
from _doctor_cases import CASES, blamed  # noqa: E402

sys.path.remove(HERE)


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_fault_is_told_and_the_mended_step_passes(name):
    kind, faulty, mended = CASES[name]
    report = dz.doctor(make=faulty, rank=False)
    assert [(one.kind, (one.file, one.line)) for one in report.faults] == [(kind, blamed(faulty))]
    assert dz.doctor(make=mended, rank=False).ok
