"""CartPole on a CPU: from the command to a mean return of 475, beside programs that do the same.

    python benchmarks/install_peers.py jax sb3
    python benchmarks/cartpole_cpu.py [--seeds 3] [--only denizen CleanRL …] [--peers .peers] [--out F.json]

Each contestant is a process, one at a time, in turn over seeds; it ends as soon as the mean return of its last 100
lives is at least 475, or when its steps are over. Counted is everything from the command on: imports, compilation,
worlds, learning. CPU seconds are those of all threads; wall seconds grow where others use the machine, so the load is
told beside them. torch runs on one thread, JAX on as many as it takes.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _report import ROOT, commit, load_average, now, save, table

OURS, HERE = sys.executable, Path(__file__).resolve().parent
FAST = ("learning_rate=5e-3:0", "num_envs=128", "num_steps=32", "update_epochs=4", "num_minibatches=4")
ZOO = ("learning_rate=1e-3:0", "num_envs=8", "num_steps=32", "update_epochs=20", "num_minibatches=1")
REST = ("clip_coef=0.2:0", "gae_lambda=0.8", "gamma=0.98", "ent_coef=0", "value_clip=none")
SETTINGS = {
    "CleanRL's": "4 x 128, 4 epochs of 4 minibatches, 2.5e-4 annealed over 500k steps",
    "rl-zoo's": "8 x 32, 20 epochs of one minibatch, 1e-3 annealed over 100k steps",
    "own": "128 x 32, 4 epochs of 4 minibatches, 5e-3 annealed over 400k steps",
}


def contestants(peers):
    """Name and settings: the command for a seed."""

    def ours(seed, *words):
        return [OURS, str(HERE / "peers/denizen_cartpole.py"), str(seed), *words]

    def sb3(name, seed, *words):
        return [str(peers / "sb3/bin/python"), str(HERE / f"peers/{name}_cartpole.py"), str(seed), *words]

    return {
        ("denizen", "own"): lambda seed: ours(seed, "400000", *FAST, *REST),
        ("denizen", "rl-zoo's"): lambda seed: ours(seed, "100000", *ZOO, *REST),
        ("denizen", "CleanRL's"): lambda seed: ours(seed, "500000"),
        ("JAX as PureJaxRL", "CleanRL's"): lambda seed: [
            str(peers / "jax/bin/python"),
            str(HERE / "jax_ppo.py"),
            "--learn",
            str(seed),
        ],
        ("Stable-Baselines3", "rl-zoo's"): lambda seed: sb3("sb3", seed, "100000", "zoo"),
        ("torch as CleanRL", "CleanRL's"): lambda seed: sb3("cleanrl", seed, "500000"),
    }


def measure(command):
    """Wall and CPU seconds of a process, and what it printed last: the steps it took, or "never"."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": time.perf_counter() - began, "cpu": cpu, "steps": done.stdout.split()[-1], "load": load_average()}


def rows_of(found):
    """Lines of a table."""
    for (name, settings), runs in found.items():
        done = [run for run in runs if run["steps"] != "never"]
        if done:
            cpu, wall = (statistics.median(run[kind] for run in done) for kind in ("cpu", "wall"))
            steps = statistics.median(int(run["steps"]) for run in done)
            spread = f"{min(run['cpu'] for run in done):.1f} to {max(run['cpu'] for run in done):.1f}"
            yield (
                name,
                settings,
                f"{len(done)} of {len(runs)}",
                f"{steps / 1e3:.0f}k",
                f"{cpu:.1f}",
                spread,
                f"{wall:.1f}",
            )
        else:
            yield name, settings, f"0 of {len(runs)}", "-", "-", "-", "-"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--peers", type=Path, default=ROOT / ".peers")
    parser.add_argument("--out", type=Path, default=HERE / "results/cartpole_cpu.json")
    given = parser.parse_args()
    every = {key: go for key, go in contestants(given.peers).items() if not given.only or key[0] in given.only}
    found = {key: [] for key in every}
    for seed in range(given.seeds):
        for key, go in every.items():
            found[key].append(measure(go(seed)))
            print(*key, seed, found[key][-1], flush=True)
    rows = [{"name": name, "settings": settings, "runs": runs} for (name, settings), runs in found.items()]
    save(given.out, "cartpole", {"date": now(), "commit": commit(), "settings": SETTINGS, "rows": rows})
    head = ("contestant", "settings", "reached", "steps", "CPU s", "range", "wall s")
    print(table("CartPole to 475", head, list(rows_of(found))))


if __name__ == "__main__":
    main()
