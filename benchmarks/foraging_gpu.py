"""Steps a second of the foraging world alone and of its evaluation; runs on CUDA (captured) and on the CPU.

    python benchmarks/foraging_gpu.py [--device cpu] [--worlds 192 8192] [--out F.json]

The original (goodharts_law at 9a3336d) on one H100: 0.11 / 2.6 / 3.2 M steps/s at 192 / 8,192 / 65,536 worlds; the
prototype of the specification (one Triton kernel a step, bf16 view): 58.6 / 421 / 505 M. World-only figures never stand
alone: `train_gpu.py --parts foraging` times the training. Random actions, drawn ahead; both grid lifetimes.
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from train_gpu import synchronize, world_alone

from denizen.zoo.foraging import foraging
from denizen.zoo.foraging.agents import OmniscientSeeker
from denizen.zoo.foraging.evaluate import forage

WORLDS = {"cuda": (192, 8192, 65_536), "cpu": (192, 8192)}


def evaluation(count, device, steps):
    """The evaluation of a written agent, whole, with what it takes to compile."""
    env = foraging()
    began = time.perf_counter()
    found = forage(env, OmniscientSeeker(env), num_envs=count, steps=steps, device=device, compile=device == "cuda")
    synchronize(device)
    seconds = time.perf_counter() - began
    return {
        "part": f"evaluation {count:,} x {steps:,}", "steps_per_second": count * steps / seconds, "seconds": seconds,
        "energy_per_1k": found.per_thousand("energy").value, "efficiency": found.efficiency.value,
    }  # fmt: skip


def measured(device, counts, rounds):
    for count in counts:
        for lifetime in ("persist", "life"):
            yield {"grid_lifetime": lifetime} | world_alone(foraging(grid_lifetime=lifetime), count, device, rounds)
    yield evaluation(counts[0], device, 16_384 if device == "cuda" else 512)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--worlds", nargs="+", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    machine = torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or platform.machine()
    facts = {"machine": machine, "torch": torch.__version__, "threads": torch.get_num_threads()}
    if hasattr(os, "getloadavg"):
        facts["load"] = os.getloadavg()[0]
    print(facts, flush=True)
    rows = []
    for row in measured(args.device, args.worlds or WORLDS[args.device], args.rounds):
        rows.append(row)
        print(json.dumps(row), flush=True)
    if args.out:
        args.out.write_text(json.dumps({"facts": facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
