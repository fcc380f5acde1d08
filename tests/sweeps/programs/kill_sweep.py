"""Kill a sweep with SIGKILL at random moments, go on, kill it again, until it is done; then compare.

A program of its own, so that every attempt is a fork of a process that has imported everything but started no thread.
Usage: python kill_sweep.py FOLDER SEED KILLS
"""

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pytest
import safetensors.torch  # noqa: F401
import torch

import denizen as dz
from denizen.run import StateFolder
from denizen.sweeps import load, sweep
from denizen.zoo.sir import SIR
from inside import Inside

Inside(pytest.MonkeyPatch()).small_launches(80)  # two rows of a launch
StateFolder.due = lambda self: True  # save after every launch, so that kills meet saves
around = torch.arange(40)
MODEL = SIR(dz.Graph.from_edges(around, (around + 1) % 40, 40, directed=False), infect_rate=0.3, seed_share=0.1)
DESIGN = {"infect_rate": [0.1 * k for k in range(1, 13)], "infectious_phases": [1, 2]}


def swept(folder: Path | None) -> dz.sweeps.Sweep:
    return sweep(MODEL, DESIGN, steps=6, replicates=5, progress=False, out=folder)


def forked(work) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def main() -> None:
    folder, seed, kills = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    draw, killed = random.Random(seed), 0
    while True:
        child, began = forked(lambda: swept(folder)), time.monotonic()
        if killed < kills:
            time.sleep(draw.uniform(0.02, 0.5))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        elif os.WEXITSTATUS(status):
            sys.exit("an attempt failed")
        else:
            break
        if (folder / "manifest.json").exists():
            load(folder)  # whatever the manifest names is there and whole
    print(f"{killed} kills, the last attempt took {time.monotonic() - began:.1f} s")
    whole, found = swept(None), load(folder)
    assert found.sets == whole.sets
    assert all(torch.equal(found[name], whole[name]) for name in whole.series_names)


main()
