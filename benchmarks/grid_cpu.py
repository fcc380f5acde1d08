"""Schelling on the CPU beside Mesa, as ratios of CPU time measured in one run.

    python benchmarks/install_peers.py mesa      # once
    python benchmarks/grid_cpu.py [--rounds 3] [--out RESULT.json]

The two sizes of JuliaDynamics' ABMFrameworksComparison, 20 steps after the first 20. Checked before it is told: after
them as much of the neighbourhoods is of one's own group as with Mesa, within 0.06: where all move at once towns part a
bit more than where one agent moves after another. Contestants take turns, each in a process and environment of its own;
times are CPU time of the process, for one world, without set-up and compilation. `16 worlds` is what one of 16
replicates costs that run at once.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import _report as report
from _worker import Worker

ROOT = Path(__file__).resolve().parent.parent
FIRST, STEPS, TOLERANCE = 20, 20, 0.06
SIZES = {
    "small": {"rows": 40, "columns": 40, "num_agents": 1_000, "radius": 1, "need": 3},
    "large": {"rows": 100, "columns": 100, "num_agents": 8_000, "radius": 2, "need": 8},
}
MESA = ROOT / ".peers" / "mesa" / "bin" / "python"
OURS, THEIRS = "peers/denizen_schelling.py", "peers/mesa_schelling.py"
# name: (interpreter, script, arguments of set-up, worlds)
CONTESTANTS = {
    "Mesa": (MESA, THEIRS, {}, 1),
    "denizen": (sys.executable, OURS, {"worlds": 1, "compiled": True}, 1),
    "denizen, eager": (sys.executable, OURS, {"worlds": 1, "compiled": False}, 1),
    "denizen, 16 worlds": (sys.executable, OURS, {"worlds": 16, "compiled": True}, 16),
}


def measured(size, rounds, folder):
    """Rows of one size: CPU milliseconds a step and world, the ratio to Mesa, and segregation in the end."""
    workers = {}
    try:
        for name, (python, script, extra, _) in CONTESTANTS.items():
            paths = f"{ROOT / 'benchmarks'}:{ROOT / 'src'}"
            env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths if script == OURS else str(ROOT / "benchmarks")}
            workers[name] = Worker(name, python, script, folder / "log.txt", env)
            workers[name].ask("setup", **SIZES[size], **extra)
        answers = {name: [] for name in workers}
        for seed in range(rounds):
            for name, worker in workers.items():
                answers[name].append(worker.ask("run", first=FIRST, steps=STEPS, seed=seed))
        rows = []
        for name, found in answers.items():
            per = [1e3 * one["cpu"] / STEPS / CONTESTANTS[name][3] for one in found]
            alike = statistics.fmean(one["segregation"] for one in found)
            rows.append({"name": name, "cpu_ms": min(per), "median_ms": statistics.median(per), "segregation": alike})
        versions = {name: worker.versions for name, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.close()
    for row in rows:
        row["times_faster"] = rows[0]["cpu_ms"] / row["cpu_ms"]
    return rows, versions


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "grid_cpu.json")
    args = parser.parse_args()
    if not MESA.is_file():
        parser.error("Mesa is not installed; run: python benchmarks/install_peers.py mesa")
    result = {"date": report.now(), "commit": report.commit(), "machine": report.machine(), "steps": STEPS}
    before = report.load_average()
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            rows, result["versions"] = measured(size, args.rounds, Path(folder))
            wrong = [r for r in rows if abs(r["segregation"] - rows[0]["segregation"]) > TOLERANCE]
            if wrong:
                sys.exit(
                    f"{size}: segregation of {wrong[0]['name']} is {wrong[0]['segregation']:.3f}, Mesa's is "
                    f"{rows[0]['segregation']:.3f}; nothing is reported"
                )
            result[size] = rows
            head = ["", "CPU ms a step", "times faster", "segregation"]
            shown = [
                [r["name"], f"{r['cpu_ms']:.3f}", f"{r['times_faster']:.1f}", f"{r['segregation']:.3f}"] for r in rows
            ]
            print(report.table(f"Schelling, {size}", head, shown), flush=True)
    result["load"] = [before, report.load_average()]
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
