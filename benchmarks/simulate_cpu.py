"""Speed of denizen on the CPU beside its peers, as ratios measured in one run.

    python benchmarks/install_peers.py                        # once
    python benchmarks/simulate_cpu.py                         # everything, about 15 minutes on two quiet cores
    python benchmarks/simulate_cpu.py seir --sizes 37518      # one part again; other parts of the result file stay

Parts: check (attack rates against theory; always first), seir, covid, replicates, load, active, startup. README.md
beside this file says what each measures and how to read it. Contestants take turns, each in its own process and
environment; times are process CPU time and wall time inside the contestant, without set-up and compilation.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import _report as report
from _goals import write_markdown
from _graphs import random_graph
from _sections import active, covid, load, replicates, startup
from _tables import show_check, show_seir
from _worker import Worker

ROOT = Path(__file__).resolve().parent.parent
DISEASE = {"b": 0.03, "latent": 5, "infectious": 7, "seeds": 0.01}
ATTACK = 0.777560  # 1 - 0.99 exp(-T c z), T = 1 - 0.97^7, c = 10
ATTACK_SD = 0.0032  # of one run at 50,000 agents, graph and seeds drawn anew; falls with the root of the size
STEPS = 100

JAX = {"steps": STEPS, "bits": "threefry2x32", "threads": 1}
# name: (environment, script, arguments of set-up, largest size, runs of the check)
CONTESTANTS = {
    "denizen": (None, "denizen_worker.py", {"case": "seir"}, 10**9, 6),
    "denizen native": (None, "denizen_worker.py", {"case": "seir", "compile": True}, 10**9, 3),
    "denizen zoo.seir": (None, "denizen_worker.py", {"case": "seir_zoo"}, 10**9, 3),
    "JAX segment_sum": ("jax", "peers/jax_seir.py", {**JAX, "sums": "segment"}, 10**9, 6),
    "JAX prefix sums": ("jax", "peers/jax_seir.py", {**JAX, "sums": "prefix"}, 200_000, 3),
    "torch index_add": (None, "peers/torch_seir.py", {}, 10**9, 3),
    "numpy bincount": (None, "peers/numpy_seir.py", {}, 10**9, 3),
    "Starsim": ("starsim", "peers/starsim_seir.py", {}, 10**9, 6),
    "Starsim 3.3": ("starsim-3.3", "peers/starsim_seir.py", {}, 200_000, 3),
    "Mesa": ("mesa", "peers/mesa_seir.py", {}, 40_000, 1),
}


class Field:
    """The contestants that are installed, started where first needed."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.workers = {}
        self.missing = {}

    def start(self, name):
        """A contestant's worker, or None where it cannot run; says so once."""
        environment, script, *_ = CONTESTANTS[name]
        if name in self.workers or name in self.missing:
            return self.workers.get(name)
        python = sys.executable if environment is None else ROOT / ".peers" / environment / "bin" / "python"
        threads = {"OMP_NUM_THREADS": str(self.args.threads)}
        try:
            if not Path(python).is_file():
                raise RuntimeError("not installed; see install_peers.py")
            self.workers[name] = Worker(name, python, script, self.folder / f"{environment or 'venv'}.log", threads)
        except RuntimeError as error:
            self.missing[name] = str(error)
            print(f"{name}: {error}", flush=True)
        return self.workers.get(name)

    def setup(self, name, path, agents):
        """The worker of a contestant with the graph of `path` at hand, or None where it cannot run."""
        worker = self.start(name)
        if worker is None:
            return None
        extra = CONTESTANTS[name][2]
        threads = {"threads": self.args.threads} if name.startswith(("denizen", "torch")) else {}
        worker.ask("setup", path=str(path), agents=agents, **DISEASE, **{**extra, **threads})
        return worker

    def close(self):
        """End all workers."""
        for worker in self.workers.values():
            worker.close()

    def fresh(self, env=None):
        """A denizen process of its own."""
        threads = {"OMP_NUM_THREADS": str(self.args.threads), **(env or {})}
        return Worker("denizen", sys.executable, "denizen_worker.py", self.folder / "venv.log", threads)

    def versions(self):
        """What each contestant says about its versions."""
        return {name: worker.versions for name, worker in self.workers.items()}


def check(field, args):
    """Attack rates of all contestants against theory, each run on a graph of its own, until nobody is ill."""
    rows = []
    for name in args.contestants:
        runs = CONTESTANTS[name][4]
        agents = 10_000 if name == "Mesa" else 20_000
        attacks = []
        for k in range(runs):
            path = random_graph(field.folder / f"{agents}-{k + 100}.npz", agents, 10, seed=k + 100)
            worker = field.setup(name, path, agents)
            if worker is None:
                break
            attacks.append(worker.ask("run", steps=250, seed=k)["attack"])
        if attacks:
            mean = sum(attacks) / len(attacks)
            tolerance = 4 * ATTACK_SD * (50_000 / agents / len(attacks)) ** 0.5
            row = {"name": name, "agents": agents, "attacks": attacks, "mean": mean, "expected": ATTACK}
            rows.append({**row, "tolerance": tolerance, "pass": abs(mean - ATTACK) <= tolerance})
    return {"rows": rows, "versions": field.versions()}


def seir(field, args):
    """One epidemic of 100 steps, contestants in turn, until the rounds or a contestant's seconds are used up."""
    sizes = []
    for agents in args.sizes:
        path = random_graph(field.folder / f"{agents}-0.npz", agents, 10, seed=0)
        names = [n for n in args.contestants if agents <= CONTESTANTS[n][3] and field.setup(n, path, agents)]
        answers = {name: [] for name in names}
        for k in range(args.rounds):
            for name in names:
                if sum(a["wall"] for a in answers[name]) < args.seconds:
                    answers[name].append(field.workers[name].ask("run", steps=STEPS, seed=k))
        rows = []
        for name in names:
            row = {"name": name, **report.timing(answers[name], STEPS), "peak_mib": answers[name][-1]["peak_mib"]}
            row["attack"] = [a["attack"] for a in answers[name]]
            for ours in ("denizen", "denizen native", "denizen zoo.seir"):
                if ours in answers:
                    row[f"cpu_ratio_to {ours}"] = report.ratio(answers[ours], answers[name])
                    row[f"wall_ratio_to {ours}"] = report.ratio(answers[ours], answers[name], "wall")
            rows.append(row)
        sizes.append({"agents": agents, "steps": STEPS, "rows": rows, "not_run": dict(field.missing)})
        print(show_seir(sizes[-1]), flush=True)
    return {"sizes": sizes, "versions": field.versions()}


SECTIONS = {
    "check": check,
    "seir": seir,
    "covid": covid,
    "replicates": replicates,
    "load": load,
    "active": active,
    "startup": startup,
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "sections", nargs="*", default=list(SECTIONS), help=f"parts to run; default all: {' '.join(SECTIONS)}"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[37_518, 100_000, 1_000_000], help="agents, for seir")
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS), choices=list(CONTESTANTS))
    parser.add_argument("--rounds", type=int, default=7, help="repeats, contestants taking turns (default 7)")
    parser.add_argument("--seconds", type=float, default=40, help="time for each contestant and size (default 40)")
    parser.add_argument("--threads", type=int, default=1, help="threads of denizen and torch (default 1)")
    parser.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "data" / "astoria", help="Astoria's folder"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "simulate_cpu.json")
    parser.add_argument(
        "--no-check", action="store_true", help="skip the check of attack rates (it then is not reported)"
    )
    args = parser.parse_args()
    unknown = [s for s in args.sections if s not in SECTIONS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; expected {', '.join(SECTIONS)}")
    if not args.no_check and "check" not in args.sections and "seir" in args.sections:
        args.sections = ["check", *args.sections]  # measurements count before they time
    return args


def main():
    args = arguments()
    folder = Path(os.environ.get("DENIZEN_BENCH_TMP", Path(tempfile.gettempdir()) / "denizen-benchmark"))
    folder.mkdir(parents=True, exist_ok=True)
    field = Field(args, folder)
    failed = False
    try:
        for name in args.sections:
            stamp = {"date": report.now(), "commit": report.commit(), "threads": args.threads}
            before = report.load_average()
            result = SECTIONS[name](field, args)
            everything = report.save(args.out, name, {**stamp, "load": [before, report.load_average()], **result})
            goals = write_markdown(args.out, everything)  # after each part: what is measured stays if a later one fails
            if name == "check":
                print(show_check(result), flush=True)
                failed = not all(row["pass"] for row in result["rows"])
                if failed:
                    print("an attack rate is off: nothing is timed", flush=True)
                    break
    finally:
        field.close()
    print(goals)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
