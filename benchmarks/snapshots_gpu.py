"""What snapshots cost while a run goes on: the ring alone, and with a writer behind it; runs on CUDA and on the CPU.

    python benchmarks/snapshots_gpu.py [--device cpu] [--agents 8400000] [--out RESULT.json] [--folder DIR]

For several intervals between snapshots: milliseconds a step, slow-down against a run without snapshots (the median over
rounds in which both take turns), bytes a second that the snapshots demand, their share of the disk's measured rate, how
many leave the device in one copy, and how often and how long the simulation waited for a free buffer. Three writers:

    ring    buffers are handed back as soon as the copy is done: what leaving the device alone costs
    raw     buffers are written to one file as they are, and brought to the disk
    zarr    what a run folder does; where zarr is not installed it is left out, and the output says so

The disk's rate is that of writing buffers of this size to a file, with fsync, before anything else runs. Snapshots are
checked first: a run with every writer equals one that stands still for each snapshot. The smallest interval without
waits is reported as the one from which back-pressure starts.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import torch

import denizen as dz
from denizen.model import plain
from denizen.run import Run, Snapshots
from denizen.run._ring import Ring
from denizen.run._snapshots import Kept
from denizen.run._zarr import ZarrSnapshots
from denizen.space.generators import random_in_neighbours
from denizen.zoo.seir import seir

ROUNDS = 3
ROW_BYTES = 2e9  # of snapshots in a round at most: disks end


class Nothing(Kept):
    """Forgets every snapshot."""

    def write(self, place: int, arrays: list[np.ndarray]) -> None:
        """See `Sink`."""


class Raw(Kept):
    """One file, snapshot behind snapshot."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = open(folder / "raw.bin", "w+b", buffering=0)  # noqa: SIM115 - as long as the sink

    def write(self, place: int, arrays: list[np.ndarray]) -> None:
        """See `Sink`."""
        size = sum(values.nbytes for values in arrays)
        self.layout = [(values.shape, values.dtype) for values in arrays]
        self.file.seek(place * size)
        for values in arrays:
            self.file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def sync(self) -> None:
        """See `Sink`."""
        os.fsync(self.file.fileno())

    def read(self, place: int, field: int) -> np.ndarray:
        """See `Sink`."""
        sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in self.layout]
        shape, dtype = self.layout[field]
        data = os.pread(self.file.fileno(), sizes[field], place * sum(sizes) + sum(sizes[:field]))
        return np.frombuffer(data, dtype).reshape(shape).copy()


def started(model: dz.Model, device: str, every: int | None, sink: str, folder: Path, worlds: int) -> Run:
    """A run that is warm: compiled and captured on CUDA; on the CPU eager. Its snapshots go to the named sink."""
    snapshots = Snapshots(every) if every else None
    compiled = device == "cuda"
    run = dz.simulate(model, 0, seed=1, replicates=worlds, device=device, compile=compiled, snapshots=snapshots)
    if run._snapshots is not None:
        run._snapshots.flush()
        if sink == "zarr":
            target = ZarrSnapshots(folder, run._snapshots.forms, str)
        else:
            target = Raw(folder) if sink == "raw" else Nothing()
        run._snapshots.copy_to(target, 0)
        run._snapshots.keep_in(target)
    run.extend(8)  # the first step is eager, then compilation and capture
    return run.extend(64)


def check(model: dz.Model, device: str, sinks: list[str], worlds: int) -> None:
    """Snapshots taken while the run goes on equal those for which it stands still."""
    still = dz.simulate(model, 0, seed=1, replicates=worlds, device=device)
    expected = {}
    for step in range(73):
        if step:
            still.extend(1)
        if step % 3 == 0:
            expected[step] = {name: plain(getattr(still.state, name)).cpu().clone() for name in still.state.kinds}
    for sink in [sink for sink in sinks if sink != "ring"]:
        with scratch() as folder:
            view = started(model, device, 3, sink, folder, worlds).snapshots
            for step, fields in expected.items():
                for name, values in view.at(step).items():
                    assert torch.equal(values, fields[name]), (sink, step, name)
    print("snapshots taken along the run = snapshots by hand, bit for bit")


@contextlib.contextmanager
def scratch(where: Path | None = None) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(dir=where or BASE))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def seconds(run: Run, steps: int) -> float:
    """Of further steps, until the device and the writer are done with them."""
    synchronise(run)
    began = time.perf_counter()
    run.extend(steps)
    synchronise(run)
    return time.perf_counter() - began


def synchronise(run: Run) -> None:
    if run.device.type == "cuda":
        torch.cuda.synchronize()


def disk_rate(size: int) -> float:
    """Bytes a second of writing buffers of a size, each brought to the disk, for about two seconds."""
    data = np.random.default_rng(0).integers(0, 256, max(size, 1 << 20), dtype=np.uint8)
    with scratch() as folder, open(folder / "probe", "wb", buffering=0) as file:
        began, written = time.perf_counter(), 0
        while time.perf_counter() - began < 2.0 and written < 8 << 30:
            file.write(data.data)
            written += data.nbytes
            if written % (16 * data.nbytes) == 0:
                os.fsync(file.fileno())
        os.fsync(file.fileno())
        return written / (time.perf_counter() - began)


def bus_rate(device: str, size: int) -> float:
    """Bytes a second of a ring whose buffers are handed back at once: nothing else runs."""
    ring = Ring(torch.device(device), [((size,), torch.uint8)], 4)
    count = max(8, min(200, (1 << 30) // size))
    began = time.perf_counter()
    for k in range(count):
        ring.put(lambda pack: pack.buffer.zero_(), k)
        slot = ring.filled.popleft()
        ring.wait(slot)
        ring.hand_back(slot)
    return count * size / (time.perf_counter() - began)


def measure(
    model: dz.Model, device: str, sink: str, every: int, steps: int, worlds: int, bare: Run, disk: float
) -> dict[str, float]:
    """One row: rounds in which a run without and one with snapshots take turns."""
    with scratch() as folder:
        run = started(model, device, every, sink, folder, worlds)
        ring = run._snapshots.ring
        steps = max(2 * every, min(steps, every * int(ROW_BYTES / ring.size(1))))
        ratios, times = [], []
        puts, entries, waits, waited = ring.puts, ring.entries, ring.waits, ring.seconds_waited
        for _ in range(ROUNDS):
            without, along = seconds(bare, steps), seconds(run, steps)
            ratios.append(along / without)
            times.append((along, without))
        snapshots, total = ring.entries - entries, sum(along for along, _ in times)
        bytes_of_one = ring.size(1)
        free = min(without for _, without in times)  # what the simulation alone would demand
        demanded = snapshots / ROUNDS * bytes_of_one / free
        return {
            "every": every, "ms_per_step": min(along for along, _ in times) / steps * 1e3,
            "bare_ms_per_step": free / steps * 1e3, "slower_percent": (statistics.median(ratios) - 1) * 100,
            "demanded_bytes_per_second": demanded, "share_of_disk": demanded / disk if sink != "ring" else None,
            "written_bytes_per_second": snapshots * bytes_of_one / total,
            "snapshots": snapshots, "puts": ring.puts - puts, "waits": ring.waits - waits,
            "waited_share": (ring.seconds_waited - waited) / total,
        }  # fmt: skip


def main() -> None:
    """Check, time, print, save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--agents", type=int, nargs="*", default=None)
    parser.add_argument("--worlds", type=int, default=1)
    parser.add_argument("--every", type=int, nargs="*", default=[1, 2, 5, 10, 30, 100])
    parser.add_argument("--seconds", type=float, default=1.0, help="of stepping in a round")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: the present folder")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    global BASE
    BASE = arguments.folder or Path.cwd()
    sinks = ["ring", "raw", "zarr"]
    try:
        import numcodecs  # noqa: F401 - what compresses for Zarr
    except ImportError:
        print("zarr is not installed here: the ring alone and a raw writer are measured, Zarr is not")
        sinks.remove("zarr")
    device, worlds, rows = arguments.device, arguments.worlds, {}
    check(seir(dz.Graph.from_edges(random_in_neighbours(2_003, 10, seed=1))), device, sinks, worlds)
    for n in arguments.agents or ([37_518, 8_400_000] if device == "cuda" else [37_518, 300_000]):
        model = seir(dz.Graph.from_edges(random_in_neighbours(n, 10, seed=1)).to(device))
        rows |= size(model, n, device, worlds, sinks, arguments)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    card = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"{os.cpu_count()} CPU cores, load {os.getloadavg()[0]:.1f}"
    )
    if arguments.out:
        facts = {"machine": card, "torch": torch.__version__, "commit": commit.strip(), "rows": rows}
        arguments.out.write_text(json.dumps(facts, indent=1))


def size(
    model: dz.Model, n: int, device: str, worlds: int, sinks: list[str], arguments: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """All rows of a number of agents."""
    with scratch() as folder:
        bare = started(model, device, None, "", folder, worlds)
        probe = started(model, device, 10**6, "ring", folder, worlds)
    one = probe._snapshots.ring.size(1)
    disk, bus = disk_rate(one), bus_rate(device, one)
    steps = min(20_000, max(100, int(arguments.seconds / (seconds(bare, 100) / 100)) // 100 * 100))
    print(
        f"\nSEIR, {n:,} agents × {worlds}, {one / 1e6:.3g} MB a snapshot, up to {steps} steps a round, {device}; "
        f"disk {disk / 1e6:,.0f} MB/s, ring {bus / 1e6:,.0f} MB/s"
    )
    print(
        f"{'writer':8s}{'every':>6s}{'ms/step':>10s}{'bare':>10s}{'slower %':>10s}"
        f"{'MB/s':>10s}{'of disk':>9s}{'a put':>7s}{'waits':>7s}"
    )
    rows = {}
    for sink in sinks:
        calm = None
        for every in arguments.every:
            row = rows[f"{n} {sink} {every}"] = measure(model, device, sink, every, steps, worlds, bare, disk)
            share = "" if row["share_of_disk"] is None else f"{row['share_of_disk']:.2f}"
            print(
                f"{sink:8s}{every:6d}{row['ms_per_step']:10.4f}{row['bare_ms_per_step']:10.4f}{row['slower_percent']:10.1f}"
                f"{row['demanded_bytes_per_second'] / 1e6:10.1f}{share:>9s}"
                f"{row['snapshots'] / row['puts']:7.1f}{row['waits']:7.0f}",
                flush=True,
            )
            calm = every if row["waits"] == 0 and calm is None else calm if row["waits"] == 0 else None
        print(f"{sink}: no waits from every={calm} on" if calm else f"{sink}: waits at every interval")
        judged = [r for name, r in rows.items() if name.startswith(f"{n} {sink} ") and (r["share_of_disk"] or 0) < 0.5]
        if judged:
            worst = max(judged, key=lambda row: row["slower_percent"])
            where = "" if sink == "ring" else " of those that demand less than half the disk's rate"
            print(f"{sink}: at most {worst['slower_percent']:.1f} % slower{where} (every={worst['every']}); goal 5 %")
    return rows


BASE = Path.cwd()

if __name__ == "__main__":
    main()
