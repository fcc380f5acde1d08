"""What macOS and Windows lack is hidden on Linux: the core imports, and runs with the same numbers.

It shows that nothing of the core rests on these modules and calls, not that denizen works there.
"""

import json
import os
import subprocess
import sys

import pytest

import denizen as dz
from denizen._atomic import status_now
from denizen.space.generators import erdos_renyi
from denizen.zoo.sir import sir

MODULES = ("fcntl", "resource", "termios", "pwd", "grp", "triton")
CALLS = ("getuid", "geteuid", "sched_getaffinity", "statvfs", "fork", "sysconf", "sysconf_names")
HIDE = f"""
import sys, os
for name in {MODULES}:
    sys.modules[name] = None
for name in {CALLS}:
    delattr(os, name)
"""
PROGRAM = """
import json, sys
import denizen as dz
from denizen._atomic import status_now
from denizen.perf import environment
from denizen.space.generators import erdos_renyi
from denizen.zoo.sir import sir

model = sir(erdos_renyi(300, mean_degree=8, seed=1))
dz.simulate(model, steps=6, replicates=2, device="cpu", out=sys.argv[1], compile=False)
run = dz.run.resume(sys.argv[1], model, steps=10, device="cpu")
environment()
print(json.dumps([run["cases"].tolist(), status_now(run.folder, "running")]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="hides what Linux has")
def test_the_core_runs_without_what_others_lack(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HIDE + PROGRAM, str(tmp_path / "seen")],
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
    assert status_now(tmp_path / "seen", "running") == "killed"
