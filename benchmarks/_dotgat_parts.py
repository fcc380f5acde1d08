"""What the agent attention benchmark's parts compute: claims, floors, what is alive at a peak, a case in a process."""

import collections
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from denizen.nn import DotGATConfig

# What the documentation of the published "optimised" network claimed, unmeasured: times faster, and share of memory.
CLAIMS = {"forward": (1.5, 2.5), "backward": (1.3, 2.0), "total": (1.4, 2.2), "peak": (0.80, 0.90)}
PEAK_TFLOPS, BANDWIDTH = 989.0, 3.35e12  # an H100 SXM: 16 bits, dense; bytes a second
READS_FORWARD, READS_BACKWARD = 20, 47  # tensors `[agents, rows, hidden]` that the kernels move in a message step


def claimed(plain: dict[str, Any], fast: dict[str, Any]) -> dict[str, Any]:
    """Times faster by phase and the share of the peak, each beside the range once claimed."""
    found: dict[str, Any] = {}
    for name in ("forward", "backward", "total"):
        found[name] = {"times": round(plain[f"{name}_ms"] / fast[f"{name}_ms"], 2), "claimed": CLAIMS[name]}
    found["peak"] = {"share": round(fast["peak_mib"] / plain["peak_mib"], 2), "claimed": CLAIMS["peak"]}
    return found


def floors(config: DotGATConfig, times: int, batch: int, found: dict[str, Any]) -> dict[str, Any]:
    """Least milliseconds by arithmetic and by memory; of the memory's, how many times over was measured.

    Arithmetic: B T A (2 M H + S (16 H^2 + 2 T H + 4 A H) + 2 H y), the backward twice that. Memory: what the kernels of
    the message steps read and write (`_dotgat_kernels`), each tensor once for each kernel.
    """
    agents, hidden, steps = config.num_agents, config.hidden, config.message_steps
    step = 16 * hidden**2 + 2 * times * hidden + 4 * agents * hidden
    each = 2 * config.num_features * hidden + steps * step + 2 * hidden * config.num_outputs
    flop = batch * times * agents * each
    tensor = 2 * batch * times * agents * hidden
    row: dict[str, Any] = {"batch": batch, "forward_gflop": round(flop / 1e9, 1)}
    for name, flops, reads in (("forward", flop, READS_FORWARD), ("backward", 2 * flop, READS_BACKWARD)):
        row[f"{name}_arithmetic_ms"] = round(flops / PEAK_TFLOPS / 1e9, 3)
        row[f"{name}_gb"] = round(reads * steps * tensor / 1e9, 3)
        row[f"{name}_memory_ms"] = round(reads * steps * tensor / BANDWIDTH * 1e3, 3)
        if f"{name}_ms" in found:
            row[f"{name}_times_over"] = round(found[f"{name}_ms"] / row[f"{name}_memory_ms"], 2)
    if "total_ms" in found:
        row["share_of_peak_arithmetic"] = round(3 * flop / found["total_ms"] / 1e9 / PEAK_TFLOPS, 4)
    return row


def live_at_peak(work: Callable[[], Any]) -> Iterator[dict[str, Any]]:
    """Sizes of what `work` allocates and holds when it holds most: MiB, how many of them."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated() / 2**20
    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
    work()
    torch.cuda.synchronize()
    events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(enabled=None)
    held: dict[int, int] = {}
    total = most = 0
    kept: list[int] = []
    for event in events:
        if event["action"] == "alloc":
            held[event["addr"]] = event["size"]
            total += event["size"]
        elif event["action"] == "free_completed":
            total -= held.pop(event["addr"], 0)
        if total > most:
            most, kept = total, list(held.values())
    yield {"held before": round(before, 1), "more at the peak": round(most / 2**20, 1)}
    sizes = collections.Counter(round(size / 2**20, 1) for size in kept)
    for size, number in sorted(sizes.items(), key=lambda pair: -pair[0] * pair[1])[:16]:
        yield {"mib": size, "tensors": number}


def within(words: list[str], name: str, limit: int) -> dict[str, Any]:
    """The row of a case that another process of this benchmark measures, if it is done in `limit` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        try:
            done = subprocess.run(
                [sys.executable, *words, "--out", str(out)], capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return {"case": name, "failed": f"not ready in {limit} s"}
        rows = json.loads(out.read_text()).get("step", []) if out.exists() else []
        return rows[0] if rows else {"case": name, "failed": done.stderr[-300:]}
