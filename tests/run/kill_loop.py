"""Kill a run with SIGKILL at random moments, resume it, and kill it again, until it is done; then compare.

A program of its own, so that every attempt is a fork of a process that has imported everything but started no thread.
Usage: python kill_loop.py FOLDER STEPS HOW:SEED:KILLS …

HOW is plain or captured: steps in chunks as on CUDA, graphs being plain calls, so that snapshots leave in groups.
"""

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import polars  # noqa: F401
import safetensors.torch  # noqa: F401  # imported, not used: that would start threads, and forks have only one
import torch
import zarr  # noqa: F401
from played import Played, save_always, small_chunks

import denizen as dz
from denizen import ops
from denizen.run import EventLog, Snapshots, load, resume
from denizen.zoo.sir import SIR, infections

STEPS, LONGEST = int(sys.argv[2]), 5
LOG = EventLog({"caught": infections})
save_always()  # save after every chunk, so that kills meet saves
small_chunks()


def model() -> SIR:
    ring = torch.arange(300)
    return SIR(dz.Graph.from_edges(ring, (ring + 1) % 300, 300, directed=False), infect_rate=0.2)


class Replayed(Played):
    """Chunks of steps by plain calls; what they return lies in the same memory each time."""

    def __init__(self, run: dz.run.Run) -> None:
        super().__init__(run, LONGEST)
        self._kept = {}

    def _replay(self, length, due, store):
        records, group = self._plain(length, due, store)
        kept = self._kept.setdefault((length, due), (records, group))
        if group is not None:
            kept[1].pack.buffer.copy_(group.pack.buffer)
        return records, kept[1]


def attempt(folder: Path, captured: bool) -> None:
    if (folder / "manifest.json").exists():
        load(folder)  # whatever the manifest names is there and whole
        run = resume(folder, model(), 0 if captured else None, log=LOG)
    else:
        first = 4 if captured else STEPS
        run = dz.simulate(model(), first, replicates=2, snapshots=Snapshots(2), log=LOG, compile=False, out=folder)
    if captured:
        if run.steps == 0:
            run.extend(2)
        run._compile = False
        with torch.no_grad():
            if run._run_state.bad is None:
                run.extend(1)
            run._capture = Replayed(run)
        run._times["later"], run._timed_steps = 1e-9, max(run._timed_steps, 2)
        run._snapshots.gather(LONGEST)
        left = STEPS - run.steps
        with torch.no_grad():
            run.extend(left)
        assert not left or run._snapshots.ring.entries > run._snapshots.ring.puts


def compare(folder: Path) -> None:
    whole = dz.simulate(model(), STEPS, replicates=2, snapshots=Snapshots(2), log=LOG)
    saved, resumed = load(folder), resume(folder, model(), 0, log=LOG)
    for name in whole.series_names:
        assert torch.equal(whole[name], saved[name]), name
        assert torch.equal(whole[name], resumed[name]), name
    assert torch.equal(whole.state.stage.value, resumed.state.stage.value)
    for name, kept in whole.snapshots.items():
        assert torch.equal(kept, saved.snapshots[name]), name
        assert torch.equal(kept, resumed.snapshots[name]), name
    for column, values in whole.events("caught").columns.items():
        assert (values == saved.events("caught")[column]).all(), column
        assert (values == resumed.events("caught")[column]).all(), column
    files = {path.relative_to(folder).as_posix() for path in folder.glob("[mce]*/*")}
    parts = [part.file for event in saved.manifest.events or () for part in event.parts]
    assert files == {saved.manifest.checkpoint.file, *(part.file for part in saved.manifest.metrics), *parts}
    assert saved.manifest.status == "finished"


def forked(function, *args, seconds: float | None = None) -> bool:
    """Run in a child, which is killed after so many seconds; whether it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with ops.reference_only():  # as quick for so few agents, and nothing to load
                function(*args)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert status == 0, "the child failed"
    return True


def survive(folder: Path, captured: bool, seed: int, kills: int) -> int:
    """How many kills it took to the end, or all of them; what is left is as if there had been none."""
    rng = random.Random(seed)
    survived = 0
    for _ in range(kills):
        if forked(attempt, folder, captured, seconds=rng.uniform(0.02, 0.8)):
            break
        if folder.exists() and not (folder / "manifest.json").exists():
            for path in sorted(folder.rglob("*"), reverse=True):  # died before its first save: nothing was promised
                path.rmdir() if path.is_dir() else path.unlink()
        survived += 1
    forked(attempt, folder, captured)
    forked(compare, folder)
    return survived


def main() -> None:
    for job in sys.argv[3:]:
        how, seed, kills = job.split(":")
        survived = survive(Path(sys.argv[1], job), how == "captured", int(seed), int(kills))
        print(f"{job}: {survived} kills survived")


if __name__ == "__main__":
    main()
