"""Boids on the CPU beside Mesa: the flocking of ABMFrameworksComparison, small and large.

    python benchmarks/install_peers.py mesa      # once
    python benchmarks/space_cpu.py [--rounds 3] [--out RESULT.json]

Times are process CPU milliseconds of a step, turn and turn about, over 100 steps; set-up and compilation are left out.
Of denizen one world at a time and a batch, by the step of a world. Mesa moves one bird after another in random order,
denizen all at once, so flocks are not the same; how far all fly one way after 100 steps is printed beside the times.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
from _worker import Worker

import denizen as dz
from denizen.zoo.boids import boids

ROOT = Path(__file__).resolve().parents[1]
CASES = {"small": {"birds": 200, "side": 100.0, "radius": 5.0}, "large": {"birds": 400, "side": 150.0, "radius": 15.0}}
WORLDS, STEPS = 64, 100


def ours(birds, side, radius, replicates):
    """CPU milliseconds of a step of a world, and the mean order parameter at the end."""
    run = dz.simulate(boids(birds, side=side, radius=radius), 5, replicates=replicates, device="cpu", compile=True)
    began = time.process_time()
    run.extend(STEPS - 5)
    return 1e3 * (time.process_time() - began) / (STEPS - 5) / replicates, float(run["order"][:, -1].mean())


def main():
    """Take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        mesa = Worker("mesa", ROOT / ".peers/mesa/bin/python", "peers/mesa_boids.py", Path(folder) / "mesa.log")
        for name, case in CASES.items():
            mesa.ask("setup", **case)
            found = {"Mesa": [], "one world": [], f"{WORLDS} worlds": []}
            order = {what: [] for what in found}
            for k in range(given.rounds):
                told = mesa.ask("run", steps=STEPS, seed=k)
                found["Mesa"].append(1e3 * told["cpu"] / STEPS)
                order["Mesa"].append(told["order"])
                for what, replicates in (("one world", 1), (f"{WORLDS} worlds", WORLDS)):
                    ms, flown = ours(**case, replicates=replicates)
                    found[what].append(ms)
                    order[what].append(flown)
            rows[name] = {what: min(times) for what, times in found.items()}
            for what, ms in rows[name].items():
                times = f"{rows[name]['Mesa'] / ms:.1f} times" if what != "Mesa" else f"Mesa {mesa.versions['mesa']}"
                print(
                    f"{name} {what:>10} {ms:9.4f} ms a step, {times}, order {sum(order[what]) / given.rounds:.2f}",
                    flush=True,
                )
        mesa.close()
    if given.out:
        given.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
