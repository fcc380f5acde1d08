"""Training of the foraging world on a CPU: steps a second, and what matrix products allow.

    python benchmarks/foraging_cpu.py [--threads 2] [--rounds 5] [--out benchmarks/results/foraging_cpu.json]

The original's network and settings with 32 worlds x 16 steps, as the original was measured on two cores (247 steps a
second, eager, float32). In turn, round by round: an update; the network's work of an update in plain torch and nothing
else (16 forward passes of 32 worlds, 4 epochs of forward and backward of 512 samples); and matrix products as large as
the network's largest layers, and a square one. The ceiling is the best rate over 288.9 MFLOP, which a step of training
takes.

Steps per CPU second count all threads, so they hold on a machine that others use; times the number of threads they are
what a quiet machine would show at most. Wall time is told beside them.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from _report import commit, load_average, now, save, spread
from torch import nn

import denizen as dz
from denizen.app._build import build

WORLDS, STEPS, EPOCHS, FLOP, ORIGINAL = 32, 16, 4, 288.9e6, 247.0
SAMPLES = WORLDS * STEPS
SHAPES = {  # rows, inputs, outputs
    "conv3": (SAMPLES * 121, 576, 64),
    "linear": (SAMPLES, 7744, 512),
    "square": (1536, 1536, 1536),
}


def ours():
    """An update of ours."""
    made = build(
        {
            "world_name": "foraging",
            "algo": "ppo",
            "steps": None,
            "world": {},
            "policy": {},
            "set": {"num_envs": WORLDS, "num_steps": STEPS},
        },
        0,
    )
    held = made.algorithm.init(made.env, made.policy, total_steps=10**9, device="cpu")
    iteration = dz.rl.Updates(held, compile=True)
    iteration.warm_up()
    return iteration


def network():
    """Its work in plain torch."""
    body = nn.Sequential(
        *(nn.Conv2d(2, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(7744, 512), nn.ReLU()),
    )
    actor, critic = nn.Linear(512, 8), nn.Sequential(nn.Linear(756, 512), nn.ReLU(), nn.Linear(512, 1))
    seen, beside = torch.rand(SAMPLES, 2, 11, 11), torch.rand(SAMPLES, 244)

    def forward(rows):
        features = body(seen[:rows])
        return actor(features).sum() + critic(torch.cat([features, beside[:rows]], 1)).sum()

    def update():
        with torch.no_grad():
            for _ in range(STEPS):
                forward(WORLDS)
        for _ in range(EPOCHS):
            forward(SAMPLES).backward()

    return update


def product(name):
    """A matrix product of the shape of a layer."""
    rows, inputs, outputs = SHAPES[name]
    a, b, out = torch.rand(rows, inputs), torch.rand(inputs, outputs), torch.empty(rows, outputs)
    return lambda: torch.mm(a, b, out=out)


def seconds(call, least=1.0):
    """(CPU, wall) seconds of a call, over at least so many CPU seconds."""
    cpu, wall, count = time.process_time(), time.perf_counter(), 0
    while time.process_time() - cpu < least:
        call()
        count += 1
    return (time.process_time() - cpu) / count, (time.perf_counter() - wall) / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "results/foraging_cpu.json")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    calls = {"denizen": ours(), "network alone": network(), **{name: product(name) for name in SHAPES}}
    found = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(given.rounds):
        for name, call in calls.items():
            found[name].append(seconds(call))
    best = {name: min(cpu for cpu, _ in times) for name, times in found.items()}
    rate = {name: 2 * rows * inputs * outputs / best[name] for name, (rows, inputs, outputs) in SHAPES.items()}
    ceiling = max(rate.values()) / FLOP * given.threads
    told = {
        "steps_per_second": SAMPLES / best["denizen"] * given.threads,
        "network_alone": SAMPLES / best["network alone"] * given.threads,
        "ceiling": ceiling,
        "share": SAMPLES / best["denizen"] * given.threads / ceiling,
        "original": ORIGINAL,
        "wall_steps_per_second": SAMPLES / min(wall for _, wall in found["denizen"]),
        "gflops_of_a_core": {name: value / 1e9 for name, value in rate.items()},
        "path": calls["denizen"].path,
        "cpu_seconds": {name: spread([cpu for cpu, _ in times]) for name, times in found.items()},
    }
    for name, value in told.items():
        print(f"{name:24s} {value:,.3g}" if isinstance(value, float) else f"{name:24s} {value}")
    save(
        given.out,
        "foraging",
        {
            "date": now(),
            "commit": commit(),
            "load": load_average(),
            "torch": torch.__version__,
            **told,
            "threads": given.threads,
        },
    )


if __name__ == "__main__":
    main()
