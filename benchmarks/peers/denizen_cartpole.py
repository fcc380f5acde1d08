"""CartPole with denizen until the last 100 lives have a mean return of 475; see `cartpole_cpu.py`.

denizen_cartpole.py SEED STEPS [NAME=VALUE …]     # settings of PPO; CleanRL's without any
"""

import collections
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import denizen as dz
from denizen.app._build import build


def main():
    seed, steps = int(sys.argv[1]), int(sys.argv[2])
    settings = dict(word.split("=") for word in sys.argv[3:])
    made = build(
        {"world_name": "cartpole", "algo": "ppo", "steps": steps, "world": {}, "policy": {}, "set": settings}, seed
    )
    held = made.algorithm.init(made.env, made.policy, total_steps=steps, seed=seed, device="cpu")
    iteration = dz.rl.Updates(held)
    iteration.warm_up()
    last = collections.deque()  # (lives, sum of their returns) of updates
    for number in range(held.num_updates):
        told = iteration()
        lives, mean = float(told["episodes"]), float(told["return_mean"])
        if lives:
            last.append((lives, lives * mean))
        while last and sum(n for n, _ in last) - last[0][0] >= 100:
            last.popleft()
        count = sum(n for n, _ in last)
        if count >= 100 and sum(total for _, total in last) / count >= 475:
            print((number + 1) * made.algorithm.samples)
            return
    print("never")


main()
