"""What PPO and GRPO learn in the worlds of the zoo, over seeds, beside what was published.

    python benchmarks/learning_gpu.py [--only cartpole breakout …] [--seeds 5] [--budget-seconds 560] [--jobs 4]
                                      [--steps-scale 0.1] [--device cpu] [--out DIR] [--plan]

On the GPU in calls of ten minutes, each of which goes on where the one before stopped if it finds its files:

    python benchmarks/learning_gpu.py --plan --jobs 4 --only breakout spaceinvaders asterix freeway
    python benchmarks/learning_gpu.py --jobs 4 --budget-seconds 480 --only … --out $OUT/learning

Every training is that of `denizen train` with its recipe, then evaluated in worlds of its own, and written to
`DIR/WORLD-SEED.json`; trainings whose file exists are not run again, so that a second call goes on. All seeds of a
world are trained at once (`dz.rl.train_seeds`), unless `--apart`; `--jobs` worlds beside each other, each in a process
of its own, the longest first: their seconds then include waiting for each other.

A plan comes first: when each world would begin and end if the card were shared fairly, from times of an update that
were measured on an H100 or, where marked with ~, derived from the number of kernels; `--plan` stops there and needs no
card. A world begins if alone it would end within the budget, else with as many seeds as would. When the budget is over,
what still runs is ended and named in the table: `DIR/table.json` and `DIR/table.md`, written anew after each world.

Two figures are told: `late`, the mean return of the lives that ended in the last tenth of the training, which is how
CleanRL and PureJaxRL report, and `evaluated`, the mean over first lives in 256 worlds. Foraging is told by energy per
1,000 steps in worlds without a time limit.
"""

import argparse
import concurrent.futures
import ctypes
import dataclasses
import json
import math
import multiprocessing
import os
import signal
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from _learning import CASES, alone, steps_of, told_plan

LIVES, FORAGERS, FORAGED = 256, 2048, 2048


def learn(name, seeds, device, scale):
    """Trainings, at once where there are several, and what each came to."""
    import torch

    import denizen as dz

    case, began = CASES[name], time.perf_counter()
    made = {seed: make(case, seed, device, scale) for seed in seeds}
    first = made[seeds[0]]
    told = dz.rl.train_seeds(
        first.env,
        lambda seed: made[seed].policy,
        first.algorithm,
        first.steps,
        seeds=seeds,
        device=device,
        progress=False,
    )
    trained = time.perf_counter() - began
    rows = []
    for seed, one in zip(seeds, told, strict=True):
        began = time.perf_counter()
        row = {
            "name": name,
            "seed": seed,
            "at_once": len(seeds),
            "algorithm": told_of(first.algorithm),
            "steps": one.steps,
            "path": one.path,
            "ready_s": one.seconds_to_ready,
            "train_s": one.seconds / len(seeds),
            "late": late(one.metrics),
            "curve": curve(one.metrics),
            "torch": torch.__version__,
            "card": torch.cuda.get_device_name() if device != "cpu" else "CPU",
        }
        judge = foraged if case.judged == "energy" else lived
        row.update(judge(case, first.env, one.policy, scale))
        rows.append({**row, "seconds": trained / len(seeds) + time.perf_counter() - began})
    return rows


def make(case, seed, device, scale):
    """Environment, policy, algorithm and steps, as `denizen train` makes them."""
    from denizen.app._build import build

    precise = {"precision": "bfloat16"} if case.world == "foraging" and device != "cpu" else {}
    return build(
        {
            "world_name": case.world,
            "algo": case.algo,
            "steps": steps_of(case, scale),
            "world": case.options,
            "policy": case.policy,
            "set": {**case.set, **precise},
        },
        seed,
    )


def told_of(algorithm):
    """The settings that are not the algorithm's defaults, in words."""
    plain = {field.name: field.default for field in dataclasses.fields(algorithm)}
    kept = {name: getattr(algorithm, name) for name in plain if getattr(algorithm, name) != plain[name]}
    words = [
        f"{name}={value.start:g}:{value.end:g}" if dataclasses.is_dataclass(value) else f"{name}={value}"
        for name, value in kept.items()
    ]
    return f"{type(algorithm).__name__}({', '.join(words)})"


def late(rows):
    """Mean return of the lives that ended in the last tenth of the updates; None where none did."""
    last = [row for row in rows[-max(1, len(rows) // 10) :] if row.get("episodes", 0) > 0]
    lives = sum(row["episodes"] for row in last)
    return sum(row["return_mean"] * row["episodes"] for row in last) / lives if lives else None


def curve(rows, points=100):
    """(steps, mean return) at so many places of the training."""
    found = [(row["steps"], row["return_mean"]) for row in rows if math.isfinite(row.get("return_mean", math.nan))]
    return found[:: max(1, len(found) // points)]


def lived(case, env, policy, scale):
    """Returns of first lives."""
    import denizen as dz

    told = dz.rl.evaluate(env, policy, num_envs=LIVES, max_steps=case.life, greedy=case.greedy, seed=1)
    return {
        "evaluated": told.mean,
        "evaluated_interval": told.interval,
        "finished": float(told.finished.float().mean()),
    }


def foraged(case, env, policy, scale):
    """Rates of foragers that can die, in worlds without a limit."""
    from denizen.studies.foraging.evaluate import forage
    from denizen.zoo.foraging.agents import Learnt

    worlds, steps = (FORAGERS, FORAGED) if scale >= 0.01 else (64, 64)
    told = forage(env, Learnt(policy), num_envs=worlds, steps=steps)
    rates = {name: told.per_thousand(name).value for name in ("energy", "food", "poison", "deaths")}
    return {**rates, "efficiency": told.efficiency.value}


def work(name, seeds, device, scale, out):
    """`learn` and keep it; the error where there was one."""
    try:
        rows = learn(name, seeds, device, scale)
    except Exception as error:  # one world that fails must not cost the others
        return [{"name": name, "seed": seed, "error": f"{type(error).__name__}: {error}"} for seed in seeds]
    for row in rows:
        place = file_of(out, name, row["seed"])
        partial = place.with_suffix(".part")
        partial.write_text(json.dumps(row))
        partial.replace(place)
    return rows


def end_with_parent():
    """Have Linux end this process when the one that started it is killed, so that none outlives a time limit."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def file_of(out, name, seed):
    return out / f"{name}-{seed}.json"


def run(given, tasks):
    """Every task that the budget allows; what was left out, and what failed."""
    began, left, failed = time.monotonic(), [], []

    def remaining():
        return given.budget_seconds - (time.monotonic() - began)

    def take(row):
        if "error" in row:
            failed.append(row)
        print("  ".join(f"{k}={v:,.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in brief(row)), flush=True)

    context = multiprocessing.get_context("spawn")
    waiting = list(tasks)
    pool = concurrent.futures.ProcessPoolExecutor(
        given.jobs, mp_context=context, max_tasks_per_child=5, initializer=end_with_parent
    )  # a CUDA fault spoils its process, which so loses few
    running = {}
    while waiting or running:
        while waiting and len(running) < given.jobs:
            name, seeds = waiting.pop(0)
            few = fitting(name, seeds, remaining(), given)
            left += [f"{name}-{seed}" for seed in seeds[few:]]
            if few:
                future = pool.submit(work, name, seeds[:few], given.device, given.steps_scale, given.out)
                running[future] = [f"{name}-{seed}" for seed in seeds[:few]]
        limit = max(remaining(), 0) if math.isfinite(given.budget_seconds) else None
        done, _ = concurrent.futures.wait(running, limit, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in done:
            del running[future]
            for row in future.result():
                take(row)
        if running and remaining() <= 0:
            left += [f"{each} (ended when the budget was over)" for names in running.values() for each in names]
            left += [f"{name}-{seed}" for name, seeds in waiting for seed in seeds]
            waiting, running = [], {}
            for child in multiprocessing.active_children():
                child.kill()
        write_table(given.out, left, failed)
    pool.shutdown(cancel_futures=True)
    return left, failed


def fitting(name, seeds, seconds, given):
    """How many of the seeds would end in so many seconds, alone on the card; all of them on a CPU."""
    if given.device == "cpu":
        return len(seeds)
    return max((k for k in range(1, len(seeds) + 1) if sum(alone(name, k, given.steps_scale)) <= seconds), default=0)


def brief(row):
    return [(key, value) for key, value in row.items() if key not in ("curve", "algorithm", "card", "torch")]


def table(rows):
    """(a dictionary for each world, lines of Markdown)."""
    found = []
    for name, case in CASES.items():
        mine = [row for row in rows if row["name"] == name and row.get(case.judged) is not None]
        if not mine:
            continue
        values = [row[case.judged] for row in mine]
        mean, spread = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan
        met = None
        if case.least is not None:
            met = mean >= case.least and (case.most is None or mean <= case.most)
        later = [row["late"] for row in mine if row["late"] is not None]
        found.append(
            {
                "world": name,
                "setting": mine[0]["algorithm"],
                "steps": mine[0]["steps"],
                "seeds": len(mine),
                "judged": case.judged,
                "mean": mean,
                "sd": spread,
                "least": min(values),
                "most": max(values),
                "late": statistics.fmean(later) if later else None,
                "published": case.published,
                "bar": case.least,
                "met": met,
                "ready_s": statistics.fmean(row["ready_s"] for row in mine),
                "train_s": statistics.fmean(row["train_s"] for row in mine),
                "seconds": statistics.fmean(row["seconds"] for row in mine),
                "path": sorted({row["path"] for row in mine}),
                "card": mine[0]["card"],
                "torch": mine[0]["torch"],
            }
        )
    lines = [
        "| world | steps | seeds | judged by | mean ± sd | range | late | published | met | ready + train s | path |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        met = {None: "-", True: "yes", False: "NO"}[row["met"]]
        late = "-" if row["late"] is None else f"{row['late']:.2f}"
        lines.append(
            f"| {row['world']} | {row['steps'] / 1e6:g} M | {row['seeds']} | {row['judged']} | {row['mean']:.2f} ± "
            f"{row['sd']:.2f} | {row['least']:.2f} to {row['most']:.2f} | {late} | {row['published']} | {met} | "
            f"{row['ready_s']:.1f} + {row['train_s']:.1f} | {', '.join(row['path'])} |"
        )
    settings = [f"- {row['world']}: {row['setting']}" for row in found]
    return found, [*lines, "", *settings]


def write_table(out, left, failed):
    """The table of everything that is in the folder; returns its lines."""
    rows = [json.loads(file.read_text()) for file in sorted(out.glob("*-[0-9]*.json"))]
    found, lines = table(rows)
    lines += ["", f"left out for time: {', '.join(left) or 'nothing'}"]
    lines += [f"failed: {row['name']}-{row['seed']}: {row['error'][:300]}" for row in failed]
    (out / "table.json").write_text(json.dumps({"rows": found, "left": left, "failed": failed}, indent=1))
    (out / "table.md").write_text("\n".join(lines) + "\n")
    return lines


def main():
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), metavar="WORLD")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps-scale", type=float, default=1.0, help="of every training's steps")
    parser.add_argument("--budget-seconds", type=float, default=math.inf)
    parser.add_argument("--jobs", type=int, default=1, help="trainings beside each other")
    parser.add_argument("--apart", action="store_true", help="seeds of a world one by one, not by dz.rl.train_seeds")
    parser.add_argument("--plan", action="store_true", help="say when what would begin and end, and stop")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/learning"))
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes to come
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")
    tasks = []
    for name in given.only:
        seeds = [seed for seed in range(given.seeds) if not file_of(given.out, name, seed).exists()]
        tasks += [(name, [one]) for one in seeds] if given.apart else [(name, seeds)] if seeds else []
    tasks.sort(key=lambda task: -sum(alone(task[0], len(task[1]), given.steps_scale)))
    count = sum(len(seeds) for _, seeds in tasks)
    print(f"{count} trainings to do, in {len(tasks)} parts, {given.jobs} at a time, on {given.device}")
    print("\n".join(told_plan(tasks, given)), flush=True)
    if given.plan:
        return
    given.out.mkdir(parents=True, exist_ok=True)
    print("\n".join(write_table(given.out, *run(given, tasks))), flush=True)


if __name__ == "__main__":
    main()
