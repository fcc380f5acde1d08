"""GRPO on the fruit catcher as the original runs it: 17 groups x 32 replicas x 100 steps, one gradient step an epoch.

    python benchmarks/grpo_gpu.py [--device cpu] [--parts check epoch rollout plain] [--hidden 2048]
        [--plain-game] [--out F.json]

`check` compares captured updates with eager ones and counts host reads first. `epoch` is a whole update of the
original's network, in float32 (TF32 off and on) and bfloat16; `rollout` the game with a network of 64; `plain` the same
rollout by a transcription of the game that does what the original does, one operation at a time with host reads. An
epoch takes 1.84 TFLOP at hidden 2048. The fastest of `--rounds` counts, their spread is kept.
"""

import argparse
import gc
import json
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from _turns import turn
from torch import Tensor, nn

import denizen as dz
from denizen.ops import fuse_draws
from denizen.perf.watch import counting
from denizen.zoo.fruits import Fruits, fruits, fruits_original
from denizen.zoo.fruits.network import Body, original_policy

GROUPS, REPLICAS, STEPS = 17, 32, 100
MICRO_BATCHES = (1, 2, 4, 8)
MICRO = 4  # parts of the backward pass: activations of 54,400 x 2,048 numbers would take gigabytes
ACTIONS, INPUTS = 3, 10
PEAK = 989e12  # of an H100 in bfloat16, dense


def flops(hidden: int, epochs: int = 1) -> float:
    """Of an epoch: a forward pass in the rollout, a forward and a backward pass in each pass over it."""
    forward = 2 * (INPUTS * hidden + hidden * hidden + hidden * ACTIONS)
    return GROUPS * REPLICAS * STEPS * forward * (1 + 3 * epochs)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@turn()
def seconds(call, device: str, rounds: int) -> list[float]:
    """Of a call, one number a round, after one call that does not count."""
    call()
    found = []
    for _ in range(rounds):
        synchronize(device)
        began = time.perf_counter()
        call()
        synchronize(device)
        found.append(time.perf_counter() - began)
    return found


def training(device: str, hidden: int, original: bool = False, **changes):
    """(algorithm, training) with the original's sizes; of `original` also its reward, observation and objective."""
    env = fruits_original() if original else fruits()
    make = dz.GRPO.original if original else dz.GRPO
    sizes = {"groups": GROUPS, "group_size": REPLICAS, "max_steps": STEPS, "update_epochs": 1, "shared_stream": True}
    algorithm = make(**{**sizes, **changes})
    return algorithm, algorithm.init(env, original_policy(env, hidden), total_steps=10**9, device=device)


def epoch(device: str, hidden: int, rounds: int, compile: bool | None, *, tf32: bool = False, **changes):
    """A whole update; memory is the most that was alive at once, from before the training was made."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    algorithm, held = training(device, hidden, **changes)
    iteration = dz.rl.Updates(held, compile=compile)
    iteration.warm_up()
    found = seconds(iteration, device, rounds)
    row = {
        "part": f"epoch, hidden {hidden}, {changes.get('precision', 'float32')}{', TF32' if tf32 else ''}, "
        f"{algorithm.micro_batches} micro-batches{', the original' if changes.get('original') else ''}",
        "path": iteration.path,
        "seconds": min(found),
        "spread": max(found) / min(found),
        "epochs_per_second": 1 / min(found),
        "env_steps_per_second": algorithm.samples / min(found),
        "tflop_per_second": flops(hidden) / min(found) / 1e12,
        "share_of_peak": flops(hidden) / min(found) / PEAK,
        "ready_s": iteration.seconds_to_ready,
    }
    if device == "cuda":
        row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        row["reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
    return row


def rollout(device: str, rounds: int, hidden: int = 64, compile: bool = True):
    """The game and a small network, without learning."""
    algorithm, held = training(device, hidden)
    used = []

    def go() -> None:
        began = time.process_time()
        held.begin()
        held.rollout.collect()
        used.append(time.process_time() - began)

    if compile:
        fuse_draws()
        held.rollout.compile()
    found = seconds(go, device, rounds)
    return {
        "part": f"rollout, hidden {hidden}, {'compiled' if compile else 'eager'}",
        "seconds": min(found),
        "spread": max(found) / min(found),
        "cpu_seconds": min(used[1:]),
        "env_steps_per_second": algorithm.samples / min(found),
    }


class Plain:
    """The game as one writes it first: a tensor for each quantity, spawning in a loop over worlds that reads them."""

    def __init__(self, device: str, width: int = 20, height: int = 15, slots: int = 3, gap: int = 5) -> None:
        self.width, self.height, self.gap, worlds = width, height, gap, GROUPS * REPLICAS
        self.sprite = torch.arange(1, GROUPS + 1, device=device).repeat_interleave(REPLICAS)
        self.x, self.y = (torch.zeros(worlds, slots, dtype=torch.int64, device=device) for _ in range(2))
        self.active = torch.zeros(worlds, slots, dtype=torch.bool, device=device)
        self.x[:, 0] = torch.randint(0, width, (worlds,), device=device)
        self.active[:, 0] = True
        self.score = torch.zeros(worlds, device=device)

    def observe(self) -> Tensor:
        """`[worlds, 10]`."""
        fruit = torch.stack([self.x / (self.width - 1), self.y / (self.height - 1), self.active.float()], -1)
        return torch.cat([self.sprite[:, None] / (self.width - 1), fruit.flatten(1)], 1)

    def step(self, action: Tensor) -> None:
        """Move, fall, land, spawn."""
        self.sprite = (self.sprite + action - 1).clamp(0, self.width - 1)
        self.y = torch.where(self.active, self.y + 1, self.y)
        landed = self.active & (self.y == self.height - 1)
        caught = landed & ((self.x - self.sprite[:, None]).abs() <= 1)
        self.score += caught.sum(1) - (landed & ~caught).sum(1)
        self.active = self.active & ~landed
        count = self.active.sum(1)
        newest = torch.where(self.active, self.y, self.height).min(1).values
        open_, freed = (count == 0) | (newest >= self.gap), landed.any(1)
        chance = torch.rand(len(count), device=count.device) < 0.5
        for place in torch.nonzero(open_):
            world = place.item()
            there = count[world].item()
            if there > 0 and (freed[world].item() or there == self.x.shape[1] or not chance[world].item()):
                continue
            slot = torch.nonzero(~self.active[world])[0].item()
            self.x[world, slot] = torch.randint(0, self.width, (1,), device=count.device).item()
            self.y[world, slot], self.active[world, slot] = 0, True


def plain(device: str, rounds: int, hidden: int = 64):
    """Rollouts of `Plain`, without autograd, which the original leaves on; about 2,800 operations a step as there."""
    network = nn.Sequential(Body(INPUTS, hidden), nn.Linear(hidden, ACTIONS)).to(device)
    used = []

    def go() -> None:
        began, game = time.process_time(), Plain(device)
        with torch.no_grad():
            for _ in range(STEPS):
                game.step(torch.distributions.Categorical(logits=network(game.observe())).sample())
        used.append(time.process_time() - began)

    found = seconds(go, device, rounds)
    return {
        "part": f"plain transcription, rollout, hidden {hidden}",
        "seconds": min(found),
        "spread": max(found) / min(found),
        "cpu_seconds": min(used[1:]),
        "env_steps_per_second": GROUPS * REPLICAS * STEPS / min(found),
    }


def check(device: str):
    """Fast and plain updates agree; nothing is read on the host."""
    small = {"groups": 4, "group_size": 8, "max_steps": 20, "update_epochs": 2, "beta": 0.04, "num_minibatches": 2}
    algorithm, fast = training(device, 64, **small)
    iteration = dz.rl.Updates(fast, compile=True)
    iteration.warm_up()
    _, slow = training(device, 64, **small)
    for _ in range(3):
        iteration()
        algorithm.update(slow)
    pairs = zip(fast.policy.parameters(), slow.policy.parameters(), strict=True)
    apart = max(float((a - b).detach().abs().max()) for a, b in pairs)
    with counting(torch.device(device)) as counts:
        algorithm.update(slow)
    return {
        "part": "check",
        "path": iteration.path,
        "largest_difference": apart,
        "host_reads": sum(counts.host_reads.values()),
    }


def measured(parts: list[str], device: str, hidden: int, rounds: int, micros: list[int] | None = None):
    if "check" in parts:
        yield check(device)
    if "epoch" in parts and device == "cpu":
        yield epoch(device, hidden, rounds, True, micro_batches=MICRO)
        yield epoch(device, hidden, rounds, False, micro_batches=MICRO)
    elif "epoch" in parts:
        for micro in micros or MICRO_BATCHES:
            yield epoch(device, hidden, rounds, True, precision="bfloat16", micro_batches=micro)
        if not micros:
            yield epoch(device, hidden, rounds, True, precision="bfloat16", micro_batches=MICRO, original=True)
            yield epoch(device, hidden, rounds, True, tf32=True, micro_batches=MICRO)
    if "rollout" in parts:
        yield rollout(device, rounds)
        yield rollout(device, rounds, compile=False)
    if "plain" in parts:
        yield plain(device, rounds if device == "cpu" else 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", nargs="+", default=["check", "epoch", "rollout", "plain"])
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--micro-batches", type=int, nargs="+", help="epochs in bfloat16 with so many parts, no others")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain-game", action="store_true", help="without the operation that is a step of the game")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    cuda = given.device == "cuda"
    card = torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine()
    if given.plain_game:
        Fruits.in_place = dz.Env.in_place
    facts = {"card": card, "torch": torch.__version__, "threads": torch.get_num_threads()}
    print(facts, flush=True)
    rows = []
    hidden = given.hidden or (2048 if cuda else 512)
    for row in measured(given.parts, given.device, hidden, given.rounds, given.micro_batches):
        rows.append(row)
        told = (f"{name}={value:,.4g}" if isinstance(value, float) else f"{value}" for name, value in row.items())
        print("  ".join(told), flush=True)
        if given.out:
            given.out.write_text(json.dumps({**facts, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
