"""`denizen.perf` is for any PyTorch loop: it needs nothing of the engines beside it."""

import json
import subprocess
import sys

ENGINES = [
    "model",
    "nn",
    "ops",
    "population",
    "relax",
    "rl",
    "rng",
    "run",
    "space",
    "tools",
    "zoo",
    "compat",
    "app",
    "_tree",
]


def loaded_by(code: str) -> set[str]:
    """Modules of denizen that a process has loaded after some code."""
    code += "\nimport json, sys; print(json.dumps([name for name in sys.modules if name.startswith('denizen')]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_every_name_of_perf_loads_no_engine():
    loaded = loaded_by("import denizen.perf\nfor name in dir(denizen.perf): getattr(denizen.perf, name)")
    assert {"denizen.perf._doctor.doctor", "denizen.perf._bench.bench"} <= loaded
    assert not {f"denizen.{engine}" for engine in ENGINES} & loaded


def test_what_counts_loads_no_verdict():
    loaded = loaded_by("import denizen.perf.watch")
    assert not {name for name in loaded if name.startswith(("denizen.perf._", "denizen.perf.simulated"))}
