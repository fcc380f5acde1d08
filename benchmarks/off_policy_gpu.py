"""SAC, TD3 and DQN: checks, steps a second, and what they learn; on CUDA captured whole, on a CPU smaller.

    python benchmarks/off_policy_gpu.py [--device cpu] [--parts check sac td3 dqn pendulum_sac …] [--out F.json]

Each part takes about a minute on the GPU. `check` comes first: a captured update gives what an eager one gives, no
value is read on the host, a training that is set back gives the same bits again, minibatches differ from update to
update, and the replay on the device draws what it draws on the CPU. `sac`, `td3` (Pendulum) and `dqn` (CartPole) time
updates of 64, 4,096, 1 and 1,024 worlds; the row says how many gradient steps go with a step of the worlds.
`pendulum_sac` and `pendulum_td3` train 5 seeds each, at once, for 20,000 steps of worlds, and tell the mean return of
256 greedy lives; the best policy returns -138 there (`pendulum_best.py`). `breakout` trains DQN in MinAtar's Breakout
for half a minute.
"""

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from _cuda import facts
from _turns import turn

import denizen as dz
from denizen._results import student
from denizen.perf.watch import counting
from denizen.rl._replay import Replay
from denizen.zoo.breakout import Breakout
from denizen.zoo.cartpole import CartPole
from denizen.zoo.pendulum import Pendulum

PARTS = ("check", "sac", "td3", "dqn", "pendulum_sac", "pendulum_td3", "breakout")
KINDS = {
    "sac": (Pendulum, dz.rl.soft_mlp, dz.rl.SAC),
    "td3": (Pendulum, dz.rl.deterministic_mlp, dz.rl.TD3),
    "dqn": (CartPole, dz.rl.q_mlp, dz.rl.DQN),
}
# Worlds: (steps of all worlds, gradient steps, batch). One world learns as its peers do: one gradient step a step.
SIZES = {64: (1, 8, 256), 4096: (1, 8, 4096), 1: (8, 8, 256), 1024: (1, 8, 1024)}


def begun(kind, device, total=10**9, **settings):
    """A training before its first update."""
    world, policy, algorithm = KINDS[kind]
    env = world()
    return algorithm(**settings).init(env, policy(env), total_steps=total, device=device)


def bits(training):
    """Everything that a training depends on, copied."""
    return {name: tensor.clone() for name, tensor in training.tensors().items()}


def check(device):
    """A row for each algorithm; raises where a check fails."""
    small = {"num_envs": 64, "num_steps": 2, "gradient_steps": 4, "learning_starts": 256, "buffer_size": 4096}
    for kind in KINDS:
        fast, plain = begun(kind, device, **small), begun(kind, device, **small)
        update = dz.rl.Updates(fast, compile=device == "cuda")
        update.warm_up()
        for _ in range(6):
            update()
            plain.algorithm.update(plain)
        both = zip(fast.policy.parameters(), plain.policy.parameters(), strict=True)
        gap = max(float((a - b).abs().max().detach()) for a, b in both)
        with counting(torch.device(device)) as counts:
            plain.algorithm.update(plain)
        reads = sum(counts.host_reads.values())
        before = bits(fast)
        for _ in range(4):
            update()
        once = bits(fast)
        with torch.no_grad():
            for name, tensor in fast.tensors().items():
                tensor.copy_(before[name])
        for _ in range(4):
            update()
        differing = [name for name, tensor in bits(fast).items() if not torch.equal(tensor, once[name])]
        one = fast.draws.words("replay", fast.updates, 1)
        other = fast.draws.words("replay", fast.updates + 1, 1)
        row = {"part": f"check {kind}", "path": update.path, "gap": gap, "host_reads": reads, "unlike": differing}
        assert gap < 1e-2, row
        assert reads == 0, row
        assert not differing, row
        assert not torch.equal(one, other), row
        yield row
    for gaps in (False, True):
        yield replayed(device, gaps)


def replayed(device, gaps):
    """The replay on the device gives what it gives on the CPU, where rows wait as well."""
    draw = torch.Generator().manual_seed(0)
    rows, steps, told = 64, 40, []
    for where in ("cpu", device):
        draw.manual_seed(0)
        looks, action = torch.zeros(rows, 3, device=where), torch.zeros(rows, device=where)
        replay = Replay(16, looks, action, gamma=0.9, n_steps=3, most_cuts=16, gaps=gaps)
        over = torch.zeros(1, rows, dtype=torch.bool)
        for _ in range(steps):
            seen, last, now = torch.randn(3, rows, 3, generator=draw)
            flags = torch.rand(3, 1, rows, generator=draw) < 0.2
            valid = ~(over & flags[2]) if gaps else torch.ones(1, rows, dtype=torch.bool)
            over = flags[0] | flags[1] | ~valid
            happened = {
                "observation": seen[None],
                "action": torch.randn(1, rows, generator=draw),
                "reward": torch.randn(1, rows, generator=draw),
                "terminated": flags[0] & valid,
                "truncated": flags[1] & valid,
                "valid": valid,
            }
            finals = {"rows": torch.arange(rows)[None], "observation": last[None]}
            there = [{name: part.to(where) for name, part in fields.items()} for fields in (happened, finals)]
            replay.add(there[0], now.to(where), None, there[1])
        words = torch.randint(0, 2**32, (4096,), generator=draw).to(where)
        told.append([part.cpu() for part in replay.batch(*replay.draw(words)) if part is not None])
    gap = max(float((a.double() - b.double()).abs().max()) for a, b in zip(*told, strict=True))
    assert gap < 1e-6, gap
    return {"part": "check replay", "waiting": gaps, "gap": gap}


@turn()
def seconds(call, device, least=1.0):
    """Seconds of a call, the best of three stretches."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    call()
    wait()
    began = time.perf_counter()
    call()
    wait()
    times = max(1, int(least / 3 / max(time.perf_counter() - began, 1e-6)))
    best = math.inf
    for _ in range(3):
        wait()
        began = time.perf_counter()
        for _ in range(times):
            call()
        wait()
        best = min(best, (time.perf_counter() - began) / times)
    return best


def speed(kind, device):
    """A row for each number of worlds."""
    for worlds, (steps, gradients, batch) in SIZES.items():
        if device == "cpu" and worlds > 64:
            continue
        training = begun(
            kind,
            device,
            num_envs=worlds,
            num_steps=steps,
            gradient_steps=gradients,
            batch_size=batch,
            learning_starts=batch,
            buffer_size=1_000_000,
        )
        update = dz.rl.Updates(training, compile=device == "cuda")
        update.warm_up()
        for _ in range(-(-batch // (worlds * steps)) + 2):  # until it learns
            update()
        took = seconds(update, device)
        training.check()
        yield {
            "part": f"{kind} {worlds:,} worlds",
            "path": update.path,
            "steps_per_second": worlds * steps / took,
            "gradient_steps_per_second": gradients / took,
            "gradient_steps_per_step": gradients / (worlds * steps),
            "batch": batch,
            "ms_per_update": took * 1e3,
            "ready_s": update.seconds_to_ready,
        }


def interval(values):
    """(mean, half the width of its 95 % interval)."""
    mean = statistics.mean(values)
    return mean, student(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def pendulum(kind, device, seeds, steps):
    """Returns over seeds after so many steps of worlds."""
    world, policy, algorithm = KINDS[kind]
    env, began = world(), time.perf_counter()
    settings = algorithm(num_envs=8, num_steps=4, gradient_steps=32, learning_rate=1e-3, gamma=0.98)
    results = dz.rl.train_seeds(
        env, lambda seed: policy(env, seed=seed), settings, steps, seeds=range(seeds), device=device, progress=False
    )
    took = time.perf_counter() - began
    lives = [dz.rl.evaluate(env, one.policy, num_envs=256, greedy=True, device=device).mean for one in results]
    mean, half = interval(lives)
    return {
        "part": f"pendulum {kind}",
        "steps": steps,
        "returns": [round(one, 1) for one in lives],
        "mean": mean,
        "half": half,
        "seconds": took,
        "training_s": results[0].seconds,
        "path": results[0].path,
    }


def breakout(device, budget):
    """What DQN returns in Breakout after some seconds of training."""
    env = Breakout()
    algorithm = dz.rl.DQN(
        num_envs=256,
        num_steps=2,
        gradient_steps=8,
        batch_size=512,
        learning_starts=20_000,
        n_steps=3,
        learning_rate=3e-4,
        target_every=1000,
        epsilon=dz.rl.Linear(1.0, 0.02, 0.0, 0.2),
    )
    steps = 4_000_000 if device == "cuda" else 40_000
    training = algorithm.init(env, dz.rl.q_conv(env, (16, 32)), total_steps=steps, device=device)
    update = dz.rl.Updates(training, compile=device == "cuda")
    update.warm_up()
    began, returns, done = time.perf_counter(), [], 0
    while done < training.num_updates and time.perf_counter() - began < budget:
        for _ in range(100):
            metrics = update()
        done += 100
        returns.append((done * algorithm.samples, float(metrics["return_mean"])))
    took = time.perf_counter() - began
    training.check()
    greedy = dz.rl.evaluate(env, training.policy, num_envs=256, max_steps=1000, greedy=True, device=device)
    return {
        "part": "breakout dqn",
        "path": update.path,
        "steps": done * algorithm.samples,
        "steps_per_second": done * algorithm.samples / took,
        "greedy": greedy.mean,
        "ready_s": update.seconds_to_ready,
        "curve": returns[:: max(1, len(returns) // 20)],
    }


def measured(given):
    device = given.device
    if "check" in given.parts:
        yield from check(device)
    for kind in KINDS:
        if kind in given.parts:
            yield from speed(kind, device)
    for kind in ("sac", "td3"):
        if f"pendulum_{kind}" in given.parts:
            yield pendulum(kind, device, given.seeds, given.steps)
    if "breakout" in given.parts:
        yield breakout(device, given.budget)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of training in Breakout")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    told = facts(given.device)
    print(told, flush=True)
    rows = []
    for row in measured(given):
        rows.append(row)
        words = {name: f"{value:,.4g}" if isinstance(value, float) else value for name, value in row.items()}
        print("  ".join(f"{name}={value}" for name, value in words.items()), flush=True)
        if given.out:
            given.out.write_text(json.dumps({**told, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
