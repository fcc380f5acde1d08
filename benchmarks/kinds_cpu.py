"""Wolf-sheep on the CPU beside Mesa, by the same rules: distributions first, then times.

    python benchmarks/install_peers.py mesa      # once
    python benchmarks/kinds_cpu.py [--rounds 3] [--out RESULT.json]

Check: numbers of sheep, wolves and grown cells after 10, 30, 60 and 100 steps of the small case, 40 runs of Mesa
beside 400 worlds of denizen. Their means differ by less than 4 standard errors, and no Kolmogorov-Smirnov test falls
below 0.001 over all twelve (Bonferroni).

Times are process CPU seconds, turn and turn about, of runs of 100 steps, of Mesa 20 in the wide case of nine times the
cells. Set-up and compilation are left out. Of denizen one world at a time and a batch, by the step of a world.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _worker import Worker
from scipy import stats

import denizen as dz
from denizen.zoo.wolf_sheep import wolf_sheep

ROOT = Path(__file__).resolve().parents[1]
LARGE = {"regrow_steps": 10, "sheep_birth": 0.4, "wolf_birth": 0.2}
SMALL = {"regrow_steps": 20, "sheep_birth": 0.2, "wolf_birth": 0.1}
CASES = {  # rules, worlds of a batch
    "small": ({"side": 25, "sheep": 60, "wolves": 40, **SMALL}, 256),
    "large": ({"side": 100, "sheep": 1_000, "wolves": 500, **LARGE}, 32),
    "wide": ({"side": 300, "sheep": 9_000, "wolves": 4_500, **LARGE}, 4),
}
MOMENTS, RUNS, WORLDS = (10, 30, 60, 100), 40, 400


def check(mesa: Worker) -> None:
    """End the program where the distributions of the two differ."""
    mesa.ask("setup", **CASES["small"][0])
    theirs = torch.tensor([mesa.ask("run", steps=MOMENTS[-1], seed=k)["numbers"] for k in range(RUNS)])
    run = dz.simulate(wolf_sheep(**CASES["small"][0]), MOMENTS[-1], replicates=WORLDS, device="cpu", compile=False)
    bad = []
    for k, name in enumerate(("sheep", "wolves", "grass")):
        for moment in MOMENTS:
            a, b = run[name][:, moment - 1].double(), theirs[:, moment - 1, k].double()
            error = (a.var() / len(a) + b.var() / len(b)).sqrt()
            off, alike = float((a.mean() - b.mean()) / error), float(stats.ks_2samp(a, b).pvalue)
            bad += [name] if abs(off) > 4 or alike < 0.001 / 12 else []
            means = f"{float(a.mean()):7.1f} Mesa {float(b.mean()):7.1f}"
            print(f"{name:7} after {moment:3}: {means}  {off:+.1f} s.e., KS {alike:.3f}")
    if bad:
        sys.exit(f"check failed: {bad} are distributed otherwise than Mesa's")


def ours(rules: dict[str, Any], replicates: int) -> float:
    """CPU milliseconds of a step of a world."""
    run = dz.simulate(wolf_sheep(**rules), 5, replicates=replicates, device="cpu", compile=True)
    began = time.process_time()
    run.extend(95)
    return 1e3 * (time.process_time() - began) / 95 / replicates


def main() -> None:
    """Check, then take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        mesa = Worker("mesa", ROOT / ".peers/mesa/bin/python", "peers/mesa_wolf_sheep.py", Path(folder) / "mesa.log")
        check(mesa)
        rows = {}
        for name in args.cases:
            rules, worlds = CASES[name]
            mesa.ask("setup", **rules)
            steps = 100 if name != "wide" else 20
            found: dict[str, list[float]] = {"Mesa": [], "one world": [], f"{worlds} worlds": []}
            for k in range(args.rounds):
                found["Mesa"].append(1e3 * mesa.ask("run", steps=steps, seed=k)["cpu"] / steps)
                found["one world"].append(ours(rules, 1))
                found[f"{worlds} worlds"].append(ours(rules, worlds))
            rows[name] = {what: min(times) for what, times in found.items()}
            ratios = {what: rows[name]["Mesa"] / value for what, value in rows[name].items()}
            print(
                name, "  ".join(f"{what} {rows[name][what]:.3f} ms ({ratios[what]:.1f}x)" for what in found), flush=True
            )
        print(f"Mesa {mesa.versions['mesa']}, torch {torch.__version__}")
        mesa.close()
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
