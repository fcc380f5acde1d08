"""What a loop waits for its loader, before and after; runs on CUDA (copies beside kernels, traced) and on the CPU.

    python benchmarks/loader_gpu.py [--device cpu] [--batches 100] [--step-ms 20] [--out FILE.json] [--trace FILE.json]

A synthetic data set whose samples are decompressed and scaled one by one, and a step that keeps the device busy for
`--step-ms`: matrix products on CUDA, a pause on the CPU. Five loops over the same batches in the same order:

    plain         the loader as it is by default: no workers, blocking copies
    workers       as many workers as `tune_workers` chooses, blocking copies
    pinned        the same with pin_memory=True and non_blocking copies on the compute stream
    prefetched    the same behind `PrefetchLoader`
    no loader     the step alone, on a batch that is there: the floor

Each is run `ROUNDS` times in turn. Reported: milliseconds a step (median, least, most), samples a second, share of
waiting (1 - floor / step), and what `PrefetchLoader.report` says. On CUDA the prefetched loop is traced besides: the
part of the copies' time during which a kernel ran. Losses of all loops are compared, bit for bit.
"""

import argparse
import itertools
import json
import statistics
import sys
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

ROUNDS = 3
BATCH = 64
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


def overlap(batches: Iterable[Any], step: Step, trace: str | None) -> dict[str, float]:
    """Milliseconds of copies in all, and of these while a kernel ran; writes the trace."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        run(itertools.islice(batches, 20), step)
    if trace:
        seen.export_chrome_trace(trace)
    spans = [e for e in seen.events() if e.device_type == DeviceType.CUDA]
    copies = [(e.time_range.start, e.time_range.end) for e in spans if "HtoD" in e.name]
    kernels = sorted((e.time_range.start, e.time_range.end) for e in spans if "Mem" not in e.name)
    both, reached = 0.0, float("-inf")
    for start, end in kernels:  # their union, piece by piece
        start = max(start, reached)
        both += sum(max(0.0, min(end, last) - max(start, first)) for first, last in copies)
        reached = max(reached, end)
    return {"copies_ms": sum(last - first for first, last in copies) / 1e3, "beside_kernels_ms": both / 1e3}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--out")
    parser.add_argument("--trace")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    device = torch.device(options.device)
    step = Step(device, options.step_ms / 1e3)
    plain = DataLoader(Scans(options.batches * BATCH), BATCH, shuffle=True)
    tuned = tools.tune_workers(plain, step_seconds=options.step_ms / 1e3)
    print(tuned)
    pinned = tools._tune.rebuilt(tuned.loader, pin_memory=device.type == "cuda")
    prefetched = tools.PrefetchLoader(tuned.loader, device)
    ready = next(moved(plain, device, False))
    loops: dict[str, Callable[[], Iterable[Any]]] = {
        "plain": lambda: moved(plain, device, False),
        "workers": lambda: moved(tuned.loader, device, False),
        "pinned": lambda: moved(pinned, device, True),
        "prefetched": lambda: prefetched,
        "no loader": lambda: itertools.repeat(ready, options.batches),
    }
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(ROUNDS):
        losses = {}
        for name, batches in loops.items():
            torch.manual_seed(number)
            taken, losses[name] = run(batches(), step)
            seconds[name].append(taken)
        expected = torch.stack(losses["plain"])
        for name in ("workers", "pinned", "prefetched"):
            assert torch.equal(torch.stack(losses[name]), expected), name
    print("losses of all loops are equal, bit for bit")
    floor = statistics.median(seconds["no loader"])
    rows = {}
    for name, values in seconds.items():
        middle = statistics.median(values)
        rows[name] = {
            "ms": middle * 1e3, "least_ms": min(values) * 1e3, "most_ms": max(values) * 1e3,
            "samples_per_second": BATCH / middle, "waiting": max(0.0, 1 - floor / middle),
        }  # fmt: skip
        print(f"{name:11} {middle * 1e3:8.2f} ms a step, waiting {rows[name]['waiting']:6.1%}")
    report = prefetched.report()
    print(report)
    result = {
        "torch": torch.__version__, "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cores": tools._tune.available_cores(), "options": vars(options), "loops": rows,
        "chosen": [tuned.chosen.num_workers, tuned.chosen.prefetch_factor],
        "report": {"share": report.share, "waited_for": report.waited_for, "copy_seconds": report.copy_seconds},
    }  # fmt: skip
    if device.type == "cuda":
        result["overlap"] = overlap(prefetched, step, options.trace)
        print(result["overlap"])
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
