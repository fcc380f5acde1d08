"""Wolf-sheep, Boids and Schelling on the CPU beside Mesa, by the same rules: what comes out first, then times.

    python benchmarks/install_peers.py mesa      # once
    python benchmarks/kinds_cpu.py [--models wolf_sheep boids schelling] [--sizes small large wide] [--rounds 3]

Checked before anything is told:

- wolf-sheep: numbers of sheep, wolves and grown cells after 10, 30, 60 and 100 steps of the small case, 40 runs of Mesa
  beside 400 worlds of denizen. Their means differ by less than 4 standard errors, and no Kolmogorov-Smirnov test falls
  below 0.001 over all twelve (Bonferroni);
- Schelling: as much of the neighbourhoods is of one's own group, within 0.06: where all move at once towns part a bit
  more than where one agent moves after another.

Boids of Mesa fly one after another and here all at once, so flocks are not the same; how far all fly one way in the end
is told beside the times.

Times are process CPU milliseconds of a step, turn and turn about, the least of the rounds. Set-up and compilation are
left out. Of denizen one world at a time and a batch, by the step of a world.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _report as report
import torch
from _worker import Worker
from scipy import stats

import denizen as dz
from denizen.zoo.boids import boids
from denizen.zoo.schelling import schelling
from denizen.zoo.wolf_sheep import wolf_sheep

ROOT = Path(__file__).resolve().parents[1]
MESA = ROOT / ".peers" / "mesa" / "bin" / "python"
MOMENTS, RUNS, WORLDS = (10, 30, 60, 100), 40, 400
TOLERANCE = 0.06  # of segregation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A model of one size.

    Attributes:
        build: denizen's model out of the rules.
        rules: what Mesa's model takes.
        worlds: of a batch.
        steps: whose time is taken.
        first: steps before them, in which denizen compiles; Mesa takes them where it has to come as far (`both`).
        both: whether what is compared depends on how far a run has come.
        told: series whose last value is told beside the times, of Mesa the answer of that name.
    """

    build: Callable[..., dz.Model]
    rules: dict[str, Any]
    worlds: int
    steps: int
    first: int = 5
    both: bool = False
    told: str | None = None


def flock(birds: int, side: float, radius: float) -> dz.Model:
    """Boids by the names of Mesa's rules."""
    return boids(birds, side=side, radius=radius)


def meadow(side: int, sheep: int, worlds: int, steps: int, **rules: Any) -> Case:
    """Wolf-sheep of a size; half as many wolves as sheep where nothing is said."""
    given = {"side": side, "sheep": sheep, "wolves": sheep // 2, "regrow_steps": 10}
    given |= {"sheep_birth": 0.4, "wolf_birth": 0.2, **rules}
    return Case(build=wolf_sheep, rules=given, worlds=worlds, steps=steps)


def birds(birds: int, side: float, radius: float, worlds: int, steps: int) -> Case:
    """Boids of a size."""
    return Case(
        build=flock,
        rules={"birds": birds, "side": side, "radius": radius},
        worlds=worlds,
        steps=steps,
        told="order",
    )


def town(side: int, agents: int, radius: int, need: int, worlds: int) -> Case:
    """Schelling of a size."""
    rules = {"rows": side, "columns": side, "num_agents": agents, "radius": radius, "need": need}
    return Case(build=schelling, rules=rules, worlds=worlds, steps=20, first=20, both=True, told="segregation")


CASES = {
    "wolf_sheep": {
        "small": meadow(25, 60, 256, 95, wolves=40, regrow_steps=20, sheep_birth=0.2, wolf_birth=0.1),
        "large": meadow(100, 1_000, 32, 95),
        "wide": meadow(300, 9_000, 4, 20),
    },
    "boids": {
        "small": birds(200, 100.0, 5.0, 64, 95),
        "large": birds(400, 150.0, 15.0, 64, 95),
        "wide": birds(4_000, 474.0, 15.0, 8, 10),
    },
    "schelling": {
        "small": town(40, 1_000, 1, 3, 64),
        "large": town(100, 8_000, 2, 8, 16),
        "wide": town(300, 72_000, 2, 8, 4),
    },
}


def check(mesa: Worker) -> None:
    """End the program where sheep, wolves and grass of the two are distributed otherwise."""
    case = CASES["wolf_sheep"]["small"]
    mesa.ask("setup", **case.rules)
    theirs = torch.tensor([mesa.ask("run", steps=MOMENTS[-1], seed=k)["numbers"] for k in range(RUNS)])
    run = dz.simulate(case.build(**case.rules), MOMENTS[-1], replicates=WORLDS, device="cpu", compile=False)
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


def ours(case: Case, replicates: int) -> tuple[float, float | None]:
    """CPU milliseconds of a step of a world, and what is told of the end."""
    run = dz.simulate(case.build(**case.rules), case.first, replicates=replicates, device="cpu", compile=True)
    began = time.process_time()
    run.extend(case.steps)
    took = time.process_time() - began
    told = None if case.told is None else float(run[case.told][:, -1].double().mean())
    return 1e3 * took / case.steps / replicates, told


def theirs(case: Case, mesa: Worker, seed: int) -> tuple[float, float | None]:
    """The same of Mesa."""
    first = {"first": case.first} if case.both else {}
    answer = mesa.ask("run", steps=case.steps, seed=seed, **first)
    return 1e3 * answer["cpu"] / case.steps, answer.get(case.told or "")


def measured(model: str, size: str, mesa: Worker, rounds: int) -> list[dict[str, Any]]:
    """Rows of a model of one size: Mesa, one world, a batch.

    Raises:
        SystemExit: what comes out is not alike; nothing is told then.
    """
    case = CASES[model][size]
    mesa.ask("setup", **case.rules)
    batch = f"{case.worlds} worlds"
    found: dict[str, list[tuple[float, float | None]]] = {"Mesa": [], "one world": [], batch: []}
    for seed in range(rounds):
        found["Mesa"].append(theirs(case, mesa, seed))
        found["one world"].append(ours(case, 1))
        found[batch].append(ours(case, case.worlds))
    rows: list[dict[str, Any]] = []
    for name, pairs in found.items():
        ms = min(one for one, _ in pairs)
        rows.append({"name": name, "cpu_ms": ms, "times_faster": rows[0]["cpu_ms"] / ms if rows else 1.0})
        if case.told is not None:
            rows[-1][case.told] = sum(float(value) for _, value in pairs if value is not None) / rounds
    for row in rows if case.told == "segregation" else ():
        if abs(row["segregation"] - rows[0]["segregation"]) > TOLERANCE:
            sys.exit(f"check failed: {model} {size}: {row['segregation']:.3f}, Mesa {rows[0]['segregation']:.3f}")
    return rows


def main() -> None:
    """Check, then take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--sizes", nargs="+", default=["small", "large", "wide"], choices=["small", "large", "wide"])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "kinds_cpu.json")
    args = parser.parse_args()
    if not MESA.is_file():
        parser.error("Mesa is not installed; run: python benchmarks/install_peers.py mesa")
    torch.set_num_threads(1)
    result: dict[str, Any] = {"date": report.now(), "commit": report.commit(), "machine": report.machine()}
    before = report.load_average()
    result["versions"] = {"denizen": dz.__version__, "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models:
            mesa = Worker("mesa", MESA, f"peers/mesa_{model}.py", Path(folder) / "log.txt", {"OMP_NUM_THREADS": "1"})
            result["versions"] |= mesa.versions
            if model == "wolf_sheep":
                check(mesa)
            for size in args.sizes:
                rows = measured(model, size, mesa, args.rounds)
                result.setdefault(model, {})[size] = {"rules": CASES[model][size].rules, "rows": rows}
                shown = [
                    [str(value) if key == "name" else f"{value:.4g}" for key, value in row.items()] for row in rows
                ]
                print(report.table(f"{model}, {size}", list(rows[0]), shown), flush=True)
            mesa.close()
    result["load"] = [before, report.load_average()]
    args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
