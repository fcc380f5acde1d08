"""What macOS and Windows lack is hidden on Linux: the core imports, and runs with the same numbers.

It shows that nothing of the core rests on these modules and calls, not that denizen works there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import denizen as dz
from denizen.space.generators import erdos_renyi
from denizen.zoo.sir import sir

PROGRAM = Path(__file__).with_name("programs") / "without_unix.py"


@pytest.mark.skipif(sys.platform != "linux", reason="hides what Linux has")
def test_the_core_runs_without_what_others_lack(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), str(tmp_path / "seen")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cases, status = json.loads(done.stdout)
    model = sir(erdos_renyi(300, mean_degree=8, seed=1))
    assert cases == dz.simulate(model, steps=16, replicates=2, device="cpu", compile=False)["cases"].tolist()
    assert status == "running"  # without locks nobody can tell that nothing works on it
    assert dz.run.load(tmp_path / "seen").status == "killed"
