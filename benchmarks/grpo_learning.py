"""What GRPO learns on the fruit catcher and CartPole, over seeds, beside the original's objective under equal steps.

    python benchmarks/grpo_learning.py [--updates 150] [--seeds 5] [--parts grpo original cartpole] [--out DIR]

Everything runs on the CPU and is written after every training: `DIR/NAME-SEED.json`, and `DIR/curves.png` at the end.
The score is the greedy one in worlds of their own (512 lives, 100 steps), whatever the training was paid by.
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import nn

import denizen as dz
from denizen.zoo.cartpole import CartPole
from denizen.zoo.fruits import fruits, fruits_match
from denizen.zoo.fruits.model import original_reward

SIZES = {"groups": 32, "group_size": 8, "max_steps": 100}
SETTINGS = {
    **SIZES,
    "update_epochs": 3,
    "num_minibatches": 8,
    "gamma": 0.95,
    "learning_rate": dz.rl.Linear(5e-3, 1e-4),
}
LIVES = {"num_envs": 512, "max_steps": 100, "greedy": True, "seed": 1}


def made(name: str, seed: int):
    """(environment, policy, algorithm) of a training."""
    env = fruits(pays=original_reward) if name == "original, its reward" else fruits()
    policy = dz.rl.mlp(env, (128, 128), shared=True, activation=nn.ReLU, seed=seed)
    if name == "grpo":
        return env, policy, dz.GRPO(**SETTINGS)
    return env, policy, dz.GRPO.original(**SIZES, learning_rate=dz.rl.Linear(5e-3, 1e-4))


def learn(name: str, seed: int, updates: int, every: int = 10):
    """A training, and its score every so many updates."""
    env, policy, algorithm = made(name, seed)
    held = algorithm.init(env, policy, total_steps=updates * algorithm.samples, seed=seed, device="cpu")
    scores, used, began = [], 0.0, time.perf_counter()
    for update in range(updates + 1):
        if update % every == 0 or update == updates:
            scores.append((update * algorithm.samples, dz.rl.evaluate(fruits(), policy, **LIVES).mean))
        if update < updates:
            start = time.process_time()
            metrics = algorithm.update(held)
            used += time.process_time() - start
    assert all(bool(torch.isfinite(value)) for name, value in metrics.items() if value == value), metrics
    final = dz.rl.evaluate(fruits(), policy, **{**LIVES, "num_envs": 2048, "seed": 2})
    match = dz.rl.evaluate(fruits_match(), policy, **{**LIVES, "max_steps": 1500})
    return {
        "name": name,
        "seed": seed,
        "scores": scores,
        "score": final.mean,
        "interval": final.interval,
        "won": float((match.returns >= 30).float().mean()),
        "lost": float((match.returns <= -30).float().mean()),
        "cpu_seconds": used,
        "wall_seconds": time.perf_counter() - began,
        "steps": updates * algorithm.samples,
    }


def cartpole(seed: int):
    """CartPole: mean greedy return after 500,000 steps of worlds."""
    env = CartPole()
    policy = dz.rl.mlp(env, (64, 64), shared=True, seed=seed)
    algorithm = dz.GRPO(
        groups=4, group_size=8, max_steps=500, update_epochs=4, num_minibatches=4, learning_rate=dz.rl.Linear(3e-3, 0.0)
    )
    began, used = time.perf_counter(), time.process_time()
    dz.train(env, policy, algorithm, 500_000, seed=seed, device="cpu", progress=False, compile=False)
    told = dz.rl.evaluate(env, policy, num_envs=512, greedy=True, seed=2)
    return {
        "name": "cartpole",
        "seed": seed,
        "score": told.mean,
        "interval": told.interval,
        "cpu_seconds": time.process_time() - used,
        "wall_seconds": time.perf_counter() - began,
        "steps": 500_000,
    }


def draw(rows, path: Path) -> None:
    """Scores over steps: a line for each seed, the mean thicker."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    names = {"grpo": "GRPO", "original": "the original's objective", "original, its reward": "and its reward"}
    for colour, (name, label) in zip(("C0", "C1", "C2"), names.items(), strict=True):
        mine = [row["scores"] for row in rows if row["name"] == name]
        for scores in mine:
            axes.plot([s / 1e6 for s, _ in scores], [v for _, v in scores], color=colour, alpha=0.3, linewidth=0.8)
        if mine:
            mean = [sum(v for _, v in at) / len(at) for at in zip(*mine, strict=True)]
            label = f"{label} ({len(mine)} seeds)"
            axes.plot([s / 1e6 for s, _ in mine[0]], mean, color=colour, linewidth=2, label=label)
    for height, label in ((7.87, "hindsight optimum"), (5.29, "chase the lowest fruit"), (-10.41, "random")):
        axes.axhline(height, color="grey", linewidth=0.8, linestyle="dotted")
        axes.text(
            1.0,
            height,
            f"{label} ",
            va="bottom",
            ha="right",
            fontsize=8,
            color="grey",
            transform=axes.get_yaxis_transform(),
        )
    axes.set(ylim=(-12.5, 9.5), xlabel="steps of worlds, millions", ylabel="greedy score after 100 steps")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.15), frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", default=["grpo", "original", "original, its reward", "cartpole"])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/grpo"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in range(given.seeds):
        for name in given.parts:
            file = given.out / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}.json"
            if file.exists():
                continue
            row = cartpole(seed) if name == "cartpole" else learn(name, seed, given.updates)
            file.write_text(json.dumps(row))
            print({key: value for key, value in row.items() if key != "scores"}, flush=True)
    rows = [json.loads(file.read_text()) for file in sorted(given.out.glob("*.json"))]
    draw([row for row in rows if "scores" in row], given.out / "curves.png")


if __name__ == "__main__":
    main()
