"""What a loop waits for its loader, before and after; runs on CUDA (copies beside kernels, traced) and on the CPU.

    python benchmarks/loader_gpu.py [--device cpu] [--batches 50] [--batch 64] [--step-ms 20]
                                    [--out FILE.json] [--trace FILE.json]

A synthetic data set whose samples are decompressed and scaled one by one, and a step that keeps the device busy for
`--step-ms`: matrix products on CUDA, a pause on the CPU. Five loops over the same batches in the same order:

    plain         the loader as it is by default: no workers, blocking copies
    workers       as many workers as `tune_workers` chooses, blocking copies
    pinned        the same with pin_memory=True and non_blocking copies on the compute stream
    prefetched    the same behind `PrefetchLoader`
    no loader     the step alone, on a batch that is there: the floor

Each is run `ROUNDS` times in turn. Reported: milliseconds a step (median, least, most), samples a second, share of
waiting (1 - floor / step), and what `PrefetchLoader.report` says. Losses of all loops are compared, bit for bit.

Overlap is traced: the part of the time of decoding that lies within a step, in the plain loop and in the prefetched one
(`--trace` writes both, steps and workers below one another, for ui.perfetto.dev), and on CUDA the part of the copies'
time during which a kernel ran (`--trace` with `.copies` before its ending). About 45 s on an H100; what is measured
is printed and written to `--out` as soon as it is there, and a part that fails is a line in both.
"""

import argparse
import itertools
import json
import os
import statistics
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from denizen import tools
from denizen.perf.watch import Span, available_cores, busy, clipped, union

ROUNDS = 3
TRACED = 20  # steps
SHAPE = (256, 384)


class Scans(Dataset):
    """Compressed images, decoded when asked for."""

    def __init__(self, count: int) -> None:
        pixels = np.random.default_rng(0).integers(0, 64, SHAPE, dtype=np.uint8)
        self.count = count
        self.files = [zlib.compress(np.roll(pixels, k).tobytes(), 1) for k in range(32)]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        pixels = np.frombuffer(zlib.decompress(self.files[index % 32]), np.uint8).reshape(SHAPE)
        return {"image": torch.from_numpy(pixels.astype(np.float32) / 64 + index), "label": index}


class Watched(Dataset):
    """A data set that notes when each sample was decoded, also in processes of workers."""

    def __init__(self, samples: Dataset, folder: str) -> None:
        self.samples, self.folder = samples, folder

    def __len__(self) -> int:
        return len(self.samples)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        began = time.monotonic_ns()
        sample = self.samples[index]
        with open(os.path.join(self.folder, str(os.getpid())), "ab") as file:
            file.write(struct.pack("qq", began, time.monotonic_ns()))
        return sample

    def decoded(self) -> list[Span]:
        """What was decoded; the stream is the process."""
        return [
            Span(start, end, "decode", int(process))
            for process in os.listdir(self.folder)
            for start, end in struct.iter_unpack("qq", Path(self.folder, process).read_bytes())
        ]


class Step:
    """Work of a fixed length on the device, and a loss that depends on the batch."""

    def __init__(self, device: torch.device, seconds: float) -> None:
        self.device, self.seconds, self.products = device, seconds, 1
        self.factor = torch.eye(4096, device=device) if device.type == "cuda" else None
        if self.factor is not None:
            self.work(3)
            self.synchronize()
            began = time.perf_counter()
            self.work(20)
            self.synchronize()
            self.products = max(1, round(seconds / ((time.perf_counter() - began) / 20)))

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def work(self, products: int) -> None:
        """Launch some matrix products."""
        for _ in range(products):
            self.factor = self.factor @ self.factor

    def __call__(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The loss of a batch, 0-d."""
        loss = batch["image"].mean() + batch["label"].sum()
        if self.factor is None:
            time.sleep(self.seconds)
        else:
            self.work(self.products)
        return loss


def moved(loader: Iterable[Any], device: torch.device, non_blocking: bool) -> Iterator[Any]:
    """Batches on the device, as most loops move them."""
    for batch in loader:
        yield {name: values.to(device, non_blocking=non_blocking) for name, values in batch.items()}


def run(batches: Iterable[Any], step: Step) -> tuple[float, list[torch.Tensor]]:
    """Seconds a step, after the first one, and all losses."""
    losses, count, began = [], 0, 0.0
    for batch in batches:
        losses.append(step(batch))
        if not began:
            step.synchronize()
            began = time.perf_counter()
        else:
            count += 1
    step.synchronize()
    return (time.perf_counter() - began) / count, losses


def decoding_beside_steps(batches: Iterable[Any], watched: Watched, step: Step) -> tuple[float, list[Span]]:
    """The part of the time of decoding that lies within steps, and all spans."""
    steps = []
    for batch in itertools.islice(batches, TRACED):
        began = time.monotonic_ns()
        step(batch)
        step.synchronize()
        steps.append(Span(began, time.monotonic_ns(), "step", 0))
    # What was decoded for the first step has none to lie beside.
    decoded = [span for span in watched.decoded() if steps[0].start <= span.start and span.end <= steps[-1].end]
    both = sum(end - start for first, last in union(steps) for start, end in clipped(union(decoded), first, last))
    return both / max(1, busy(decoded)), [*steps, *decoded]


def write_trace(path: str, loops: dict[str, list[Span]]) -> None:
    """Steps and decoding of each loop, for a viewer of Chrome's traces."""
    events = []
    for place, (loop, spans) in enumerate(loops.items()):
        zero = min(span.start for span in spans)
        events.append({"ph": "M", "name": "process_name", "pid": place, "args": {"name": loop}})
        for span in spans:
            length = (span.end - span.start) / 1e3
            events.append(
                {
                    "ph": "X",
                    "cat": "user_annotation",
                    "name": span.name,
                    "pid": place,
                    "tid": span.stream,
                    "ts": (span.start - zero) / 1e3,
                    "dur": length,
                }
            )
    Path(path).write_text(json.dumps({"traceEvents": events}), encoding="utf-8")


def overlap(batches: Iterable[Any], step: Step, trace: str | None) -> dict[str, float]:
    """Milliseconds of copies in all, and of these while a kernel ran; writes the trace."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        run(itertools.islice(batches, TRACED), step)
    if trace:
        seen.export_chrome_trace(trace)
    spans = [e for e in seen.events() if e.device_type == DeviceType.CUDA and not e.is_user_annotation]
    copies = [(e.time_range.start, e.time_range.end) for e in spans if "HtoD" in e.name]
    kernels = sorted((e.time_range.start, e.time_range.end) for e in spans if "Mem" not in e.name)
    both, reached = 0.0, float("-inf")
    for start, end in kernels:  # their union, piece by piece
        start = max(start, reached)
        both += sum(max(0.0, min(end, last) - max(start, first)) for first, last in copies)
        reached = max(reached, end)
    return {"copies_ms": sum(last - first for first, last in copies) / 1e3, "beside_kernels_ms": both / 1e3}


def traced(
    plain: DataLoader, tuned: DataLoader, device: torch.device, step: Step, path: str | None
) -> dict[str, float]:
    """Overlap of decoding and steps, by loop."""
    shares, spans = {}, {}
    for name, loader in {"plain": plain, "prefetched": tuned}.items():
        with tempfile.TemporaryDirectory() as folder:
            watched = Watched(loader.dataset, folder)
            loader = DataLoader(
                watched,
                batch_sampler=loader.batch_sampler,
                num_workers=loader.num_workers,
                prefetch_factor=loader.prefetch_factor if loader.num_workers else None,
            )
            batches = moved(loader, device, False) if name == "plain" else tools.PrefetchLoader(loader, device)
            shares[name], spans[name] = decoding_beside_steps(batches, watched, step)
    if path:
        write_trace(path, spans)
    return shares


def timed(
    plain: DataLoader, tuned: DataLoader, prefetched: tools.PrefetchLoader, step: Step, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """All loops in turn."""
    device = step.device
    pinned = tools._tune.rebuilt(tuned, pin_memory=device.type == "cuda")
    ready = next(moved(plain, device, False))
    loops: dict[str, Callable[[], Iterable[Any]]] = {
        "plain": lambda: moved(plain, device, False),
        "workers": lambda: moved(tuned, device, False),
        "pinned": lambda: moved(pinned, device, True),
        "prefetched": lambda: prefetched,
        "no loader": lambda: itertools.repeat(ready, options.batches),
    }
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    equal = True
    for number in range(ROUNDS):
        losses = {}
        for name, batches in loops.items():
            torch.manual_seed(number)
            taken, losses[name] = run(batches(), step)
            seconds[name].append(taken)
        expected = torch.stack(losses["plain"])
        equal &= all(torch.equal(torch.stack(losses[name]), expected) for name in ("workers", "pinned", "prefetched"))
    floor = statistics.median(seconds["no loader"])
    rows = {}
    for name, values in seconds.items():
        middle = statistics.median(values)
        rows[name] = {
            "ms": middle * 1e3,
            "least_ms": min(values) * 1e3,
            "most_ms": max(values) * 1e3,
            "samples_per_second": options.batch / middle,
            "waiting": max(0.0, 1 - floor / middle),
        }
        print(f"{name:11} {middle * 1e3:8.2f} ms a step, waiting {rows[name]['waiting']:6.1%}", flush=True)
    print(f"losses of all loops are {'equal, bit for bit' if equal else 'DIFFERENT'}", flush=True)
    return {**rows, "losses": {"equal": float(equal)}}


def told(prefetched: tools.PrefetchLoader) -> dict[str, Any]:
    """What the loader says of itself."""
    report = prefetched.report()
    print(report, flush=True)
    return {"share": report.share, "waited_for": report.waited_for, "copy_seconds": report.copy_seconds}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--out")
    parser.add_argument("--trace")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    device = torch.device(options.device)
    step = Step(device, options.step_ms / 1e3)
    plain = DataLoader(Scans(options.batches * options.batch), options.batch, shuffle=True)
    tuned = tools.tune_workers(plain, step_seconds=options.step_ms / 1e3, seconds=5)
    print(tuned, flush=True)
    result: dict[str, Any] = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cores": available_cores(),
        "options": vars(options),
        "chosen": [tuned.chosen.num_workers, tuned.chosen.prefetch_factor],
    }
    prefetched = tools.PrefetchLoader(tuned.loader, device)
    copies = str(Path(options.trace).with_suffix(".copies.json")) if options.trace else None
    parts: dict[str, Callable[[], Any]] = {
        "loops": lambda: timed(plain, tuned.loader, prefetched, step, options),
        "report": lambda: told(prefetched),
        "decoding_beside_steps": lambda: traced(plain, tuned.loader, device, step, options.trace),
    }
    if device.type == "cuda":
        parts["overlap"] = lambda: overlap(prefetched, step, copies)
    for name, part in parts.items():
        try:
            result[name] = part()
        except Exception as error:  # the other parts stand
            result[name] = f"{type(error).__name__}: {error}"
        if name not in ("loops", "report") or isinstance(result[name], str):
            print(f"{name}: {result[name]}", flush=True)
        if options.out:
            Path(options.out).write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
