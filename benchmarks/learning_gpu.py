"""What PPO and GRPO learn in the worlds of the zoo, over seeds, beside what was published.

    python benchmarks/learning_gpu.py [--only cartpole breakout …] [--seeds 5] [--budget-seconds 560] [--jobs 4]
                                      [--steps-scale 0.1] [--device cpu] [--out DIR]

On the GPU in calls of ten minutes, each of which goes on where the one before stopped if it finds its files:

    python benchmarks/learning_gpu.py --together --jobs 3 --budget-seconds 520 --out $OUT/learning

Every training is that of `denizen train` with its recipe, then evaluated in worlds of its own, and written to
`DIR/WORLD-SEED.json`; trainings whose file exists are not run again, so that a second call goes on. `--together` trains
all seeds of a small world at once (`dz.rl.train_seeds`). Nothing starts that would not end within the budget, going by
the last training of that world or by a guess; the table says what was left out. `--jobs` trainings run beside each
other, each in a process of its own: their seconds then include waiting for each other. `DIR/table.json` and
`DIR/table.md` hold the table.

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
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

LIVES, FORAGERS, FORAGED = 256, 2048, 2048
MODES = ("ground_truth", "ground_truth_blinded", "proxy_mortal", "proxy", "ground_truth_handhold")


@dataclasses.dataclass(frozen=True)
class Case:
    """A world and how it is trained.

    Attributes:
        world: name of the recipe.
        judged: ``"late"``, ``"evaluated"`` or ``"energy"``.
        published: what others reached, in words.
        least: the mean over seeds that counts as learnt; None: only reported.
        most: the mean above which the world must be wrong; None: none is.
        algo: ``"ppo"`` or ``"grpo"``.
        steps: None: the recipe's.
        set: settings beside the recipe's.
        options: of the world.
        policy: options of the policy.
        greedy: evaluate the likeliest actions.
        life: steps of a life in evaluation at most; None: the world's limit.
        guess: seconds of a training on an H100.
        small: its trainings leave most of a GPU idle.
    """

    world: str
    judged: str
    published: str
    least: float | None = None
    most: float | None = None
    algo: str = "ppo"
    steps: int | None = None
    set: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    policy: Mapping[str, str] = dataclasses.field(default_factory=dict)
    greedy: bool = False
    life: int | None = None
    guess: float = 25.0
    small: bool = True


CASES = {
    "breakout": Case("breakout", "evaluated", "28, tuned, gymnax", least=28.0, guess=45),
    "spaceinvaders": Case("spaceinvaders", "evaluated", "131, tuned, gymnax", least=131.0, guess=45),
    "cartpole": Case("cartpole", "late", "490.0 ± 6.1, CleanRL and PureJaxRL's settings", least=478.0),
    "acrobot": Case("acrobot", "late", "-86.4 ± 1.3, CleanRL", least=-89.0),
    "mountaincar": Case("mountaincar", "late", "-200, CleanRL: must not be solved", least=-200.0, most=-200.0),
    "catch": Case("catch", "late", "1, optimal", least=0.95),
    "pendulum": Case("pendulum", "evaluated", "-130, tuned, gymnax", least=-250.0, greedy=True, guess=40),
    "pendulum-popart": Case(
        "pendulum", "evaluated", "-130, tuned, gymnax", least=-250.0, policy={"head": "popart"}, greedy=True, guess=40
    ),
    "fruits-grpo": Case(
        "fruits", "evaluated", "5.29 chasing the lowest, 7.87 with hindsight", least=5.29, algo="grpo", greedy=True,
        life=100,
    ),
    "control": Case("control", "evaluated", "best constant policy (1,000 people): -32.8", greedy=True, guess=60),
    "cartpole-4096": Case(
        "cartpole", "late", "500, the limit", least=475.0, steps=104_857_600, set={"num_envs": "4096"}, small=False
    ),
    "asterix": Case("asterix", "evaluated", "15, tuned, gymnax", guess=45),
    "freeway": Case("freeway", "evaluated", "58, tuned, gymnax", guess=45),
    **{
        f"foraging-{mode}": Case(
            "foraging", "energy", "+144.6 published; bar +120" if mode == "ground_truth" else "none that counts",
            least=120.0 if mode == "ground_truth" else None, options={"mode": mode}, guess=120, small=False,
        )
        for mode in MODES
    },
}  # fmt: skip


def learn(name, seeds, device, scale):
    """Trainings, at once where there are several, and what each came to."""
    import torch

    import denizen as dz

    case, began = CASES[name], time.perf_counter()
    made = {seed: make(case, seed, device, scale) for seed in seeds}
    first = made[seeds[0]]
    told = dz.rl.train_seeds(
        first.env, lambda seed: made[seed].policy, first.algorithm, first.steps, seeds=seeds, device=device,
        progress=False,
    )  # fmt: skip
    trained = time.perf_counter() - began
    rows = []
    for seed, one in zip(seeds, told, strict=True):
        began = time.perf_counter()
        row = {
            "name": name, "seed": seed, "at_once": len(seeds), "algorithm": told_of(first.algorithm),
            "steps": one.steps, "path": one.path, "ready_s": one.seconds_to_ready, "train_s": one.seconds / len(seeds),
            "late": late(one.metrics), "curve": curve(one.metrics), "torch": torch.__version__,
            "card": torch.cuda.get_device_name() if device != "cpu" else "CPU",
        }  # fmt: skip
        judge = foraged if case.judged == "energy" else lived
        row.update(judge(case, first.env, one.policy, scale))
        rows.append({**row, "seconds": trained / len(seeds) + time.perf_counter() - began})
    return rows


def make(case, seed, device, scale):
    """Environment, policy, algorithm and steps, as `denizen train` makes them."""
    from denizen.app._recipes import recipe
    from denizen.app._train import build

    precise = {"precision": "bfloat16"} if case.world == "foraging" and device != "cpu" else {}
    steps = max(1, int((case.steps or recipe(case.world).steps) * scale))
    return build({
        "world_name": case.world, "algo": case.algo, "steps": steps, "world": case.options, "policy": case.policy,
        "set": {**case.set, **precise},
    }, seed)  # fmt: skip


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
    from denizen.zoo.foraging.agents import Learnt
    from denizen.zoo.foraging.evaluate import forage

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
    began, seconds, left, failed = time.monotonic(), {}, [], []

    def take(row):
        if "error" in row:
            failed.append(row)
        else:
            seconds[row["name"]] = row["seconds"]
        print("  ".join(f"{k}={v:,.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in brief(row)), flush=True)

    def fits(name, seeds):
        usual = min(given.steps_scale, 1.0)
        pace = statistics.median([taken / CASES[done].guess for done, taken in seconds.items()] or [usual])
        expected = seconds.get(name, pace * CASES[name].guess) * len(seeds)
        return time.monotonic() - began + expected <= given.budget_seconds

    context = multiprocessing.get_context("spawn")
    waiting = list(tasks)
    with concurrent.futures.ProcessPoolExecutor(
        given.jobs, mp_context=context, max_tasks_per_child=5, initializer=end_with_parent
    ) as pool:  # a CUDA fault spoils its process, which so loses few
        running = set()
        while waiting or running:
            while waiting and len(running) < given.jobs:
                name, seeds = waiting.pop(0)
                if fits(name, seeds):
                    running.add(pool.submit(work, name, seeds, given.device, given.steps_scale, given.out))
                else:
                    left += [f"{name}-{seed}" for seed in seeds]
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                for row in future.result():
                    take(row)
            write_table(given.out, left, failed)
    return left, failed


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
        found.append({
            "world": name, "setting": mine[0]["algorithm"], "steps": mine[0]["steps"], "seeds": len(mine),
            "judged": case.judged, "mean": mean, "sd": spread, "least": min(values), "most": max(values),
            "late": statistics.fmean(later) if later else None, "published": case.published, "bar": case.least,
            "met": met, "ready_s": statistics.fmean(row["ready_s"] for row in mine),
            "train_s": statistics.fmean(row["train_s"] for row in mine),
            "seconds": statistics.fmean(row["seconds"] for row in mine),
            "path": sorted({row["path"] for row in mine}), "card": mine[0]["card"], "torch": mine[0]["torch"],
        })  # fmt: skip
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
    parser.add_argument("--together", action="store_true", help="all seeds of a world at once, by dz.rl.train_seeds")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/learning"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes to come
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")
    tasks = []
    for name in given.only:
        seeds = [seed for seed in range(given.seeds) if not file_of(given.out, name, seed).exists()]
        tasks += [(name, seeds)] if given.together and seeds and CASES[name].small else [(name, [one]) for one in seeds]
    count = sum(len(seeds) for _, seeds in tasks)
    print(f"{count} trainings to do, in {len(tasks)} parts, {given.jobs} at a time, on {given.device}", flush=True)
    print("\n".join(write_table(given.out, *run(given, tasks))))


if __name__ == "__main__":
    main()
