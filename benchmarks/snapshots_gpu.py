"""What snapshots cost while a run goes on: the ring alone, and with a writer behind it; runs on CUDA and on the CPU.

    python benchmarks/snapshots_gpu.py [--device cpu] [--agents 8400000] [--out RESULT.json] [--folder DIR]

Three writers:

    ring    buffers are handed back as soon as the copy is done: what leaving the device alone costs
    raw     buffers are written to one file as they are, every 16 MiB brought to the disk
    zarr    what a run folder does; where zarr is not installed it is left out, and the output says so

A round is some steps until the device is done with them and everything that was taken has been handed to the writer's
file. Runs without snapshots and with each writer take turns; `slower %` is the median over rounds, each compared with
the runs without snapshots before and behind it. Making it safe, `sync`, is timed apart: a run folder asks for it every
two seconds at most, so two seconds' share of it is added (with --seconds 2 a round is what lies between two saves).
`MB/s` is what snapshots would demand of a simulation that they do not slow down, `of disk` its share of the disk's
rate, measured just before by writing to a file with fsync. The goal holds for the ring, and for the others where that
share is below one half: these rows say "goal".

Where the time went: `waited`, ms for which the simulation waited for buffers; `drain`, ms for which the writer still
worked when the device was done; `busy`, the share of the time before in which it wrote; `longest`, ms of a write.

All runs of one size share compiled code and graphs. Snapshots are checked first: with each writer they equal those of
an eager run that stands still for them.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import _cuda
import numpy as np
import torch
from _turns import turn

import denizen as dz
from denizen.model import plain
from denizen.run import Run, Snapshots
from denizen.run._ring import Ring
from denizen.run._snapshots import Kept
from denizen.run._writer import Sink
from denizen.run._zarr import ZarrSnapshots
from denizen.space.generators import random_in_neighbours
from denizen.zoo.seir import seir

ROUNDS = 3
SAVES = 2.0  # seconds between the saves of a run folder, at least
GOAL = 5.0
BASE = Path.cwd()


class Watched:
    """A sink with a watch.

    Attributes:
        sink: where snapshots go.
        busy: seconds of writing.
        longest: seconds of the longest write.
        synced: seconds of syncing.
        stepped: when the device was last done with all steps.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink, self.busy, self.longest, self.synced, self.stepped = sink, 0.0, 0.0, 0.0, 0.0
        self.trim, self.read = sink.trim, sink.read

    def write(self, place: int, arrays: list[np.ndarray]) -> None:
        """See `Sink`."""
        began = time.perf_counter()
        self.sink.write(place, arrays)
        took = time.perf_counter() - began
        self.busy, self.longest = self.busy + took, max(self.longest, took)

    def sync(self) -> None:
        """See `Sink`."""
        began = time.perf_counter()
        self.sink.sync()
        self.synced += time.perf_counter() - began

    @property
    def nbytes(self) -> int:
        """See `Sink`."""
        return self.sink.nbytes


class Nothing(Kept):
    """Forgets every snapshot."""

    def write(self, place: int, arrays: list[np.ndarray]) -> None:
        """See `Sink`."""


class Raw(Kept):
    """One file, snapshot behind snapshot."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.unsafe = 0
        self.file = open(folder / "raw.bin", "w+b", buffering=0)  # noqa: SIM115 - as long as the sink

    def write(self, place: int, arrays: list[np.ndarray]) -> None:
        """See `Sink`; fields behind one another, each of all snapshots that came together."""
        self.layout = [(values.shape[1:], values.dtype) for values in arrays]
        self.file.seek(place * sum(values[0].nbytes for values in arrays))
        parts = arrays if len(arrays) == 1 else [values[k] for k in range(len(arrays[0])) for values in arrays]
        for values in parts:
            self.unsafe += self.file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        if self.unsafe > 16 << 20:  # meanwhile, so that a sync at the end has little left to do
            os.fsync(self.file.fileno())
            self.unsafe = 0

    def sync(self) -> None:
        """See `Sink`."""
        os.fsync(self.file.fileno())

    def read(self, place: int, field: int) -> np.ndarray:
        """See `Sink`."""
        sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in self.layout]
        shape, dtype = self.layout[field]
        data = os.pread(self.file.fileno(), sizes[field], place * sum(sizes) + sum(sizes[:field]))
        return np.frombuffer(data, dtype).reshape(shape).copy()


def started(base: Run, every: int | None, sink: str = "", folder: Path | None = None) -> Run:
    """A run after one step, with the graphs of `base`. Its snapshots go to the named sink."""
    snapshots = Snapshots(every) if every else None
    run = dz.simulate(base.model, 0, seed=1, replicates=len(base.worlds), device=base.device, snapshots=snapshots)
    if run._snapshots is not None:
        run._snapshots.flush()
        assert folder is not None
        store, sinks = run._snapshots, {"ring": Nothing, "raw": lambda: Raw(folder)}
        target = Watched(sinks[sink]() if sink in sinks else ZarrSnapshots(folder, store.forms, str))
        store.copy_to(target, 0)
        store.keep_in(target)
        real = store._writer.flush

        def flush() -> None:
            """Note when the device is done with the steps."""
            store.ring.send()
            synchronise(run)
            target.stepped = time.perf_counter()
            real()

        store._writer.flush = flush
    run.extend(1)
    run._capture, run._path, run._compile = base._capture, base._path, False
    if run._capture is not None:
        run._times["later"], run._timed_steps = 1e-6, base._timed_steps  # chunks are as long as they may be
    if run._snapshots is not None and run._capture is not None:
        run._snapshots.gather(run._capture.longest)
    return run


def check(base: Run, sinks: list[str], steps: int = 73) -> None:
    """Snapshots taken while the run goes on equal those for which it stands still."""
    worlds, device = len(base.worlds), base.device
    still = dz.simulate(base.model, 0, seed=1, replicates=worlds, device=device, compile=False)
    expected = {}
    for step in range(steps):
        if step:
            still.extend(1)
        if step % 3 == 0:
            expected[step] = {name: plain(getattr(still.state, name)).cpu().clone() for name in still.state.kinds}
    for sink in [sink for sink in sinks if sink != "ring"]:
        with scratch() as folder:
            view = started(base, 3, sink, folder).extend(steps - 1).snapshots
            for step, fields in expected.items():
                for name, values in view.at(step).items():
                    assert torch.equal(values, fields[name]), (sink, step, name)
    print("snapshots taken along the run = snapshots by hand, bit for bit", flush=True)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(dir=BASE))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@dataclasses.dataclass
class Took:
    """Seconds of further steps.

    Attributes:
        whole: until the device and the writer are done with them.
        drain: of these the writer's alone, at the end.
        synced: until that is safe on the disk.
        waited: of the simulation, for free buffers.
        busy: of the writer, without the end.
        longest: of a write.
    """

    whole: float
    drain: float = 0.0
    synced: float = 0.0
    waited: float = 0.0
    busy: float = 0.0
    longest: float = 0.0


def seconds(run: Run, steps: int) -> Took:
    """Time further steps."""
    synchronise(run)
    if run._snapshots is None:
        began = time.perf_counter()
        run.extend(steps)
        synchronise(run)
        return Took(time.perf_counter() - began)
    sink, ring = run._snapshots.sink, run._snapshots.ring
    sink.busy = sink.longest = sink.synced = 0.0
    waited, began = ring.seconds_waited, time.perf_counter()
    run.extend(steps)
    whole = time.perf_counter() - began - sink.synced
    drain = whole - (sink.stepped - began)
    return Took(whole, drain, sink.synced, ring.seconds_waited - waited, max(0.0, sink.busy - drain), sink.longest)


def synchronise(run: Run) -> None:
    if run.device.type == "cuda":
        torch.cuda.synchronize()


def disk_rate() -> float:
    """Bytes a second of writing MiB after MiB, every 16 brought to the disk, for about a second."""
    data = np.random.default_rng(0).integers(0, 256, 1 << 20, dtype=np.uint8)
    with scratch() as folder, open(folder / "probe", "wb", buffering=0) as file:
        began, written = time.perf_counter(), 0
        while time.perf_counter() - began < 1.0 and written < 4 << 30:
            file.write(data.data)
            written += data.nbytes
            if written % (16 * data.nbytes) == 0:
                os.fsync(file.fileno())
        os.fsync(file.fileno())
        return written / (time.perf_counter() - began)


def parts(size: int) -> str:
    """What the work on a snapshot's bytes takes a thread that does nothing else."""
    from denizen._atomic import digest, write_atomic
    from denizen.run._blocks import _codec

    data = np.random.default_rng(0).choice(np.arange(4, dtype=np.int8), size, p=[0.4, 0.1, 0.1, 0.4])
    encoded, took = _codec().encode(data), {}
    with scratch() as folder, ThreadPoolExecutor(1) as thread:
        work = {
            "digest": lambda: digest(data.data),
            "compress": lambda: _codec().encode(data),
            "write": lambda: (folder / "part").write_bytes(encoded),
            "write and sync": lambda: write_atomic(folder / "part", encoded, named=False),
        }
        for name, call in work.items():
            for _ in range(7):
                began = time.perf_counter()
                thread.submit(call).result()
                took.setdefault(name, []).append(time.perf_counter() - began)
    told = ", ".join(f"{name} {statistics.median(each) * 1e3:.2f}" for name, each in took.items())
    return f"one thread, ms a snapshot: {told}; {len(encoded) / size:.2f} of the bytes are left"


def bus_rate(device: torch.device, size: int = 16 << 20) -> float:
    """Bytes a second of a ring whose buffers are handed back at once: nothing else runs."""
    ring = Ring(device, [((size,), torch.uint8)], 4)
    source = torch.zeros(size, dtype=torch.uint8, device=device)

    def put(k: int) -> None:
        ring.put(lambda pack: pack.buffer.copy_(source), k)

    put(0)
    began = time.perf_counter()
    for k in range(1, 33):
        put(k)
        slot = ring.filled.popleft()
        ring.wait(slot)
        ring.hand_back(slot)
    return 32 * size / (time.perf_counter() - began)


@turn()
def interval(
    base: Run, every: int, sinks: list[str], bare_step: float, arguments: argparse.Namespace, rates: dict[str, float]
) -> dict[str, dict[str, Any]]:
    """The rows of one interval between snapshots: runs without and with each writer take turns."""
    with contextlib.ExitStack() as stack:
        bare = started(base, None)
        runs = {sink: started(base, every, sink, stack.enter_context(scratch())) for sink in sinks}
        ring = runs[sinks[0]]._snapshots.ring
        unit, one = ring.most * every, ring.size(1)
        wanted = max(arguments.seconds / bare_step, 1.0)
        # Writers that cannot follow are given as much as the disk can take in that time.
        counts = {
            sink: wanted if sink == "ring" else min(wanted, arguments.seconds * rates["disk"] / one * every)
            for sink in sinks
        }
        steps = {sink: max(1, round(count / unit)) * unit for sink, count in counts.items()}
        bare_steps = max(1, round(wanted / 512)) * 512 if base._capture is not None else steps["ring"]
        bare.extend(511)
        for sink, run in runs.items():
            run.extend(unit - 1)  # from here on pieces have whole units
            run.extend(min(2 * unit, steps[sink]))
            seconds(run, unit)
        seconds(bare, bare_steps)
        before = {sink: _counts(run) for sink, run in runs.items()}
        alone, along = (
            [seconds(bare, bare_steps).whole / bare_steps],
            {sink: list[Took]() for sink in sinks},
        )
        for _ in range(ROUNDS):
            for sink, run in runs.items():
                along[sink].append(seconds(run, steps[sink]))
            alone.append(seconds(bare, bare_steps).whole / bare_steps)
        rows = {}
        for sink, run in runs.items():
            took = [one.whole / steps[sink] for one in along[sink]]
            ratios = [now * 2 / (a + b) for now, a, b in zip(took, alone, alone[1:], strict=False)]
            middle = Took(
                *(statistics.median(column) for column in zip(*map(dataclasses.astuple, along[sink]), strict=True))
            )
            sync = middle.synced
            slower = (statistics.median(ratios) - 1) * 100
            puts, entries, waits = (b - a for a, b in zip(before[sink], _counts(run), strict=True))
            demanded = one / every / min(alone)
            share = demanded / rates["disk" if sink != "ring" else "bus"]
            saves = 0.0 if sink == "ring" else 100 * sync / SAVES
            rows[sink] = {
                "every": every,
                "steps": steps[sink],
                "ms_per_step": min(took) * 1e3,
                "bare_ms_per_step": min(alone) * 1e3,
                "slower_percent": slower,
                "ratios": ratios,
                "sync_s": sync,
                "slower_with_saves_percent": slower + saves,
                "demanded_bytes_per_second": demanded,
                "share": share,
                "goal_holds": sink == "ring" or share < 0.5,
                "snapshots": entries,
                "puts": puts,
                "waits": waits,
                "waited_s": middle.waited,
                "drain_s": middle.drain,
                "writer_busy": middle.busy / (middle.whole - middle.drain),
                "longest_write_s": middle.longest,
            }
        return rows


def _counts(run: Run) -> tuple[int, int, int]:
    ring = run._snapshots.ring
    return ring.puts, ring.entries, ring.waits


def size(base: Run, n: int, sinks: list[str], arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """All rows of a number of agents."""
    probe, bare = started(base, 10**6, "ring", BASE), started(base, None)
    bare.extend(511)
    steps = 1024 if base._capture is not None else 20
    one = probe._snapshots.ring.size(1)
    with turn():
        bare_step = min(seconds(bare, steps).whole for _ in range(2)) / steps
        rates = {"disk": disk_rate(), "bus": bus_rate(base.device)}
    work = parts(one) + "\n" if "zarr" in sinks else ""
    print(
        f"\nSEIR, {n:,} agents × {len(base.worlds)}, {one / 1e6:.3g} MB a snapshot, {base.device}; disk "
        f"{rates['disk'] / 1e6:,.0f} MB/s, to {'pinned ' if base.device.type == 'cuda' else ''}buffers "
        f"{rates['bus'] / 1e6:,.0f} MB/s\n"
        f"{work}{'writer':7s}{'every':>6s}{'ms/step':>10s}{'bare':>10s}{'slower %':>10s}{'sync ms':>9s}{'with it':>9s}"
        f"{'MB/s':>9s}{'of disk':>9s}{'a put':>7s}{'waits':>7s}{'waited':>8s}{'drain':>8s}{'busy':>6s}{'longest':>9s}"
    )
    rows = {}
    for every in arguments.every:
        for sink, row in interval(base, every, sinks, bare_step, arguments, rates).items():
            rows[f"{n} {sink} {every}"] = row
            share = f"{row['share']:.2f}" if sink != "ring" else f"({row['share']:.2f})"
            beyond = " (more than the bus carries)" if sink == "ring" and row["share"] > 1 else ""
            met = f"goal {GOAL:.0f} %: {'met' if row['slower_with_saves_percent'] <= GOAL else 'MISSED'}{beyond}"
            print(
                f"{sink:7s}{every:6d}{row['ms_per_step']:10.4f}{row['bare_ms_per_step']:10.4f}"
                f"{row['slower_percent']:10.1f}{row['sync_s'] * 1e3:9.1f}{row['slower_with_saves_percent']:9.1f}"
                f"{row['demanded_bytes_per_second'] / 1e6:9.1f}{share:>9s}"
                f"{row['snapshots'] / max(row['puts'], 1):7.1f}{row['waits']:7d}{row['waited_s'] * 1e3:8.1f}"
                f"{row['drain_s'] * 1e3:8.1f}{row['writer_busy']:6.2f}{row['longest_write_s'] * 1e3:9.1f}"
                f"  {met if row['goal_holds'] else ''}",
                flush=True,
            )
    for sink in sinks:
        calm = [
            e for e in arguments.every if all(not rows[f"{n} {sink} {f}"]["waits"] for f in arguments.every if f >= e)
        ]
        print(f"{sink}: no waits from every={min(calm)} on" if calm else f"{sink}: waits at every interval")
    print("of disk: in parentheses the share of the rate to pinned buffers", flush=True)
    return rows


def main() -> None:
    """Check, time, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--agents", type=int, nargs="*", default=None)
    parser.add_argument("--worlds", type=int, default=1)
    parser.add_argument("--every", type=int, nargs="*", default=[1, 10, 30, 100])
    parser.add_argument("--seconds", type=float, default=0.25, help="of stepping in a round")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: the present folder")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    global BASE
    BASE = arguments.folder or Path.cwd()
    sinks, device, rows, began = ["ring", "raw", "zarr"], arguments.device, {}, time.perf_counter()
    try:
        import numcodecs  # noqa: F401 - what compresses for Zarr
    except ImportError:
        print("zarr is not installed here: the ring alone and a raw writer are measured, Zarr is not")
        sinks.remove("zarr")
    for n in arguments.agents or ([37_518, 8_400_000] if device == "cuda" else [37_518]):
        cuda = device == "cuda"
        graph = _cuda.random_graph(n, 10) if cuda else dz.Graph.from_edges(random_in_neighbours(n, 10, seed=1))
        base = dz.simulate(seir(graph), 8, seed=1, replicates=arguments.worlds, device=device, compile=cuda)
        base.extend(64 if cuda else 1)
        print(f"{n:,} agents ready after {time.perf_counter() - began:.1f} s", flush=True)
        check(base, sinks)
        rows |= size(base, n, sinks, arguments)
        print(f"{time.perf_counter() - began:.1f} s so far", flush=True)
        del base, graph
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    card = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"{os.cpu_count()} CPU cores, load {os.getloadavg()[0]:.1f}"
    )
    if arguments.out:
        facts = {"machine": card, "torch": torch.__version__, "commit": commit.strip(), "rows": rows}
        arguments.out.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
