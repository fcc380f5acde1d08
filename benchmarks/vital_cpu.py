"""SIR in a population that renews itself, on a CPU: denizen beside Starsim, in turns.

    python benchmarks/install_peers.py starsim      # once
    python benchmarks/vital_cpu.py [--agents N] [--rounds N] [--out F.json]

Everybody meets ten others a day at random: in denizen by the share of the infected, in Starsim along edges that are
drawn anew each day. A thousandth is born and dies a day. Both rows tell the size of the population and the share of the
susceptible after 100 days: Starsim's epidemic leaves a few more, since its rates and durations are rounded to steps in
another way; within 0.1 the work is alike. Process CPU milliseconds a step, one thread, and wall milliseconds, of
native steps on two threads too; native steps are compiled before, as is what Starsim compiles in its first run.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from _report import commit, machine, now
from _worker import Worker

ROOT = Path(__file__).resolve().parents[1]
STEPS, RATE, DAYS, TURNOVER = 100, 0.02, 10.0, 0.001


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    logs, one, two = ROOT / ".peers", {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}
    peer = logs / "starsim" / "bin" / "python"
    if not peer.is_file():
        sys.exit("Starsim is not installed: python benchmarks/install_peers.py starsim")
    workers = {
        "eager": Worker("eager", sys.executable, "peers/denizen_vital.py", logs / "denizen_vital.log", one),
        "native": Worker("native", sys.executable, "peers/denizen_vital.py", logs / "denizen_vital.log", one),
        "two threads": Worker("two threads", sys.executable, "peers/denizen_vital.py", logs / "denizen_vital.log", two),
        "Starsim": Worker("Starsim", peer, "peers/starsim_vital.py", logs / "starsim_vital.log", one),
    }
    rows = {}
    for agents in given.agents:
        settings = {"agents": agents, "rate": RATE, "days": DAYS, "turnover": TURNOVER}
        for name, worker in workers.items():
            worker.ask("setup", **settings, **({} if name == "Starsim" else {"compile": name != "eager"}))
        times, wall, seen = ({name: [] for name in workers} for _ in range(3))
        for seed in range(given.rounds):
            for name, worker in workers.items():
                answer = worker.ask("run", steps=STEPS, seed=seed)
                steps = STEPS if name == "Starsim" else STEPS - 2
                times[name].append(1e3 * answer["cpu"] / steps)
                wall[name].append(1e3 * answer["wall"] / steps)
                seen[name].append((answer["people"] / agents, answer["susceptible"]))
        rows[agents] = row = {f"{name} ms": min(each) for name, each in times.items()}
        for name in ("eager", "native"):
            row[f"{name}, times"] = row["Starsim ms"] / row[f"{name} ms"]
        row |= {f"{name} wall ms": min(each) for name, each in wall.items()}
        row["two threads, times of wall"] = row["Starsim wall ms"] / row["two threads wall ms"]
        for name, each in seen.items():
            row[f"{name} people, susceptible"] = [statistics.mean(column) for column in zip(*each, strict=True)]
        print(agents, row, flush=True)
        eager, native, two_threads, its = (row[f"{name} people, susceptible"] for name in workers)
        assert eager == native == two_threads, row
        assert all(abs(one - other) < most for one, other, most in zip(native, its, (0.05, 0.1), strict=True)), row
    facts = {"date": now(), "commit": commit(), "machine": machine()}
    if given.out:
        versions = {name: worker.versions for name, worker in workers.items()}
        given.out.write_text(json.dumps({**facts, "versions": versions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
