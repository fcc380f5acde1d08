"""Steps a second of worlds and of PPO, end to end; runs on CUDA (captured) and on the CPU.

    python benchmarks/train_gpu.py [--device cpu] [--parts check worlds cartpole few breakout foraging] [--out F.json]

`check` compares captured updates with eager ones and counts host reads first; a part whose check fails is not timed.
PPO uses PureJaxRL's settings (4 epochs, 4 minibatches, 64-64 tanh, learning rate annealed), foraging those of the
original (192 x 128, 4 epochs, one minibatch, its network, PopArt, bf16 on CUDA). Steps are agent steps; warm-up and
capture are told apart (`ready`). The fastest of `--rounds` stretches counts, their spread is kept.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from _turns import turn
from torch.profiler import ProfilerActivity, profile

import denizen as dz
from denizen.app._build import build
from denizen.ops import fuse_draws
from denizen.perf.watch import counting
from denizen.zoo.cartpole import CartPole
from denizen.zoo.foraging import Foraging, foraging

WORLDS = {"cuda": (4096, 65_536, 1_048_576), "cpu": (64, 4096, 65_536)}
FORAGERS = {"cuda": (192, 8192, 65_536), "cpu": (192, 2048)}


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


@turn()
def stretches(call, device, rounds, least=0.5):
    """Seconds of a call, one number a round; each round takes at least `least` seconds."""
    call()
    synchronize(device)
    began = time.perf_counter()
    call()
    synchronize(device)
    times = max(1, int(least / max(time.perf_counter() - began, 1e-6)))
    found = []
    for _ in range(rounds):
        synchronize(device)
        began = time.perf_counter()
        for _ in range(times):
            call()
        synchronize(device)
        found.append((time.perf_counter() - began) / times)
    return found


def training(name, device, **settings):
    """(algorithm, training, iteration) of a world by name, warmed up."""
    policy = {} if name == "foraging" else {"hidden": "64,64", "activation": "tanh"}
    made = build({"world_name": name, "algo": "ppo", "steps": None, "set": settings, "world": {}, "policy": policy}, 0)
    held = made.algorithm.init(made.env, made.policy, total_steps=10**9, device=device)
    iteration = dz.rl.Updates(held, compile=True)
    iteration.warm_up()
    return made.algorithm, held, iteration


def ppo(name, device, rounds, **settings):
    algorithm, _, iteration = training(name, device, **settings)
    found = stretches(iteration, device, rounds)
    told = {}
    if device == "cuda":
        told["kernels"], told["longest"] = kernels(iteration, 1)
    return {
        "part": f"PPO {name} {algorithm.num_envs} x {algorithm.num_steps}",
        "path": iteration.path,
        "steps_per_second": algorithm.samples / min(found),
        "spread": max(found) / min(found),
        "ready_s": iteration.seconds_to_ready,
        "ms_per_update": min(found) * 1e3,
        **told,
    }


def kernels(call, steps):
    """Launches a step and the longest kernels of a call on CUDA."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    events = sorted((e for e in seen.key_averages() if e.device_time_total), key=lambda e: -e.device_time_total)
    top = [f"{e.key[:40]} {e.count / steps:.2f} x {e.device_time_total / e.count:.2f} us" for e in events[:12]]
    return sum(e.count for e in events) / steps, top


def world_alone(env, count, device, rounds, steps=32, max_resets=None):
    """Random actions, drawn ahead; captured on CUDA, in place where the world offers it, else compiled."""
    worlds = dz.rl.Worlds(env, count, device=device, max_resets=max_resets)
    worlds.reset()
    space = env.action_space
    actions = torch.randint(0, space.n, (steps, count), device=device)
    buffers = worlds.run_state.clone().tensors()
    if device == "cuda":
        fuse_draws()
    worlds._advance.compile("inductor")

    def plain(tensors, action):
        run_state, step = worlds.advance(worlds.run_state_of(tensors), action)
        return run_state.tensors(), step

    advance = plain if worlds._fast is None else worlds.next_in_place

    def go():
        tensors = buffers
        for action in actions:  # what a step returns is what the next one takes
            tensors, _ = advance(tensors, action)
        pairs = [pair for pair in zip(buffers, tensors, strict=True) if pair[0] is not pair[1]]
        torch._foreach_copy_(*[list(side) for side in zip(*pairs, strict=True)])

    with torch.no_grad():
        go()
        call = go
        if device == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                go()
            call = graph.replay
        found = stretches(call, device, rounds)
    told = {}
    if device == "cuda":
        told["kernels"], told["longest"] = kernels(call, steps)
    return {
        "part": f"{type(env).__name__} alone, {count:,}",
        "steps_per_second": count * steps / min(found),
        "spread": max(found) / min(found),
        "us_per_step": min(found) / steps * 1e6,
        "in_place": advance is not plain,
        "max_resets": worlds.max_resets,
        **told,
    }


def check(device):
    """Fast and plain updates agree; nothing is read on the host."""
    algorithm, held, iteration = training("cartpole", device, num_envs=64, num_steps=16)
    _, plain, _ = training("cartpole", device, num_envs=64, num_steps=16)
    plain.compile(None)
    for _ in range(3):
        iteration()
        algorithm.update(plain)
    gap = max(
        (a - b).abs().max().item() for a, b in zip(held.policy.parameters(), plain.policy.parameters(), strict=True)
    )
    with counting(torch.device(device)) as counts:
        algorithm.update(plain)
    reads = sum(counts.host_reads.values())
    return {"part": "check", "path": iteration.path, "largest_difference": gap, "host_reads": reads}


def measured(parts, device, rounds):
    large = 4096 if device == "cuda" else 256
    if "check" in parts:
        yield check(device)
    if "worlds" in parts:
        for count in WORLDS[device]:
            yield world_alone(CartPole(), count, device, rounds)
        for count in FORAGERS[device]:
            yield world_alone(foraging(), count, device, rounds)
    if "cartpole" in parts:
        yield ppo("cartpole", device, rounds, num_envs=large, num_steps=128)
    if "few" in parts:
        yield ppo("cartpole", device, rounds, num_envs=64, num_steps=128)
    if "breakout" in parts:
        yield ppo("breakout", device, rounds, num_envs=large, num_steps=128, num_minibatches=4)
    if "foraging" in parts:
        few = {} if device == "cuda" else {"num_envs": 32, "num_steps": 16}  # as the original was measured on a CPU
        yield ppo("foraging", device, rounds, precision="bfloat16" if device == "cuda" else "float32", **few)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", nargs="+", default=["check", "worlds", "cartpole", "few", "breakout", "foraging"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tf32", action="store_true", help="matrix products in TF32, as JAX has them by default")
    parser.add_argument("--plain", action="store_true", help="foraging worlds without their form in place")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.plain:
        Foraging.in_place = dz.Env.in_place
    card = torch.cuda.get_device_name() if given.device == "cuda" else platform.processor() or platform.machine()
    torch.backends.cuda.matmul.allow_tf32 = given.tf32
    facts = {"card": card, "torch": torch.__version__, "threads": torch.get_num_threads(), "tf32": given.tf32}
    print(facts, flush=True)
    rows = []
    for row in measured(given.parts, given.device, given.rounds):
        rows.append(row)
        print(
            "  ".join(
                f"{name}={value:,.4g}" if isinstance(value, float) else f"{value}" for name, value in row.items()
            ),
            flush=True,
        )
        if given.out:
            given.out.write_text(json.dumps({**facts, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
