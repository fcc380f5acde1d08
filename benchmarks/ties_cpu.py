"""SIR over partnerships, one at a time, on a CPU: denizen beside Starsim, checked against theory, then timed in turns.

    python benchmarks/install_peers.py starsim      # once
    python benchmarks/ties_cpu.py [--agents N] [--rounds N] [--out F.json]

A tenth of those without a partner seek one in each step and ties last 10 steps on average, so 10 / (10 + 1 / 0.1 - 1)
of all are paired, give or take ties shorter than a step. Process CPU milliseconds a step over 100 steps, one thread;
beside them wall milliseconds, of native steps on two threads too.
"""

import argparse
import json
import sys
from pathlib import Path

from _report import commit, machine, now
from _worker import Worker

ROOT = Path(__file__).resolve().parents[1]

STEPS, SEEK, MEAN, RATE, DAYS = 100, 0.1, 10.0, 0.1, 20.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    logs, one, two = ROOT / ".peers", {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}
    peer = logs / "starsim" / "bin" / "python"
    if not peer.is_file():
        sys.exit("Starsim is not installed: python benchmarks/install_peers.py starsim")
    workers = {
        "eager": Worker("eager", sys.executable, "peers/denizen_ties.py", logs / "denizen_ties.log", one),
        "native": Worker("native", sys.executable, "peers/denizen_ties.py", logs / "denizen_ties.log", one),
        "two threads": Worker("two threads", sys.executable, "peers/denizen_ties.py", logs / "denizen_ties.log", two),
        "Starsim": Worker("Starsim", peer, "peers/starsim_ties.py", logs / "starsim_ties.log", one),
    }
    settings = {"agents": given.agents, "seek": SEEK, "mean": MEAN, "rate": RATE, "days": DAYS}
    times, wall = ({name: [] for name in workers} for _ in range(2))
    for name, worker in workers.items():
        worker.ask("setup", **settings, **({} if name == "Starsim" else {"compile": name != "eager"}))
    for seed in range(given.rounds):
        for name, worker in workers.items():
            answer = worker.ask("run", steps=STEPS, seed=seed)
            assert abs(answer["paired"] - MEAN / (MEAN + 1 / SEEK - 1)) < 0.03, (name, answer)
            steps = STEPS if name == "Starsim" else STEPS - 2
            times[name].append(1e3 * answer["cpu"] / steps)
            wall[name].append(1e3 * answer["wall"] / steps)
            print(
                f"{name:12s} {times[name][-1]:8.2f} ms/step, wall {wall[name][-1]:8.2f}, attack {answer['attack']:.4f}",
                flush=True,
            )
    versions = {name: worker.versions for name, worker in workers.items()}
    row = {f"{name} ms": min(each) for name, each in times.items()}
    row |= {f"{name} wall ms": min(each) for name, each in wall.items()}
    row |= {f"{name}, times": row["Starsim ms"] / row[f"{name} ms"] for name in ("eager", "native")}
    row["two threads, times of wall"] = row["Starsim wall ms"] / row["two threads wall ms"]
    print(versions, row)
    if given.out:
        facts = {"date": now(), "commit": commit(), "machine": machine(), "versions": versions}
        given.out.write_text(json.dumps({**facts, "rows": {given.agents: row}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
