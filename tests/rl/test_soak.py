"""Long runs keep nothing: memory stays where it was after 100,000 steps.

In a process of its own: what other tests have left in the heap moves its size about by more than is allowed here.
"""

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen.zoo.cartpole import CartPole

STATM = Path("/proc/self/statm")


def held():
    """(tensors alive, MiB that the process has)."""
    gc.collect()
    pages = int(STATM.read_text().split()[1]) if STATM.exists() else 0
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects()), pages * 4096 / 2**20


def stepped():
    worlds = dz.rl.Worlds(CartPole(), 100, device="cpu")
    worlds.reset()
    return lambda: worlds.step(torch.ones(100, dtype=torch.int64)), 100


def learnt():
    algorithm, env = dz.PPO(num_envs=125, num_steps=20, update_epochs=1, num_minibatches=2), CartPole()
    training = algorithm.init(env, dz.rl.mlp(env, (8,)), total_steps=200_000, device="cpu")
    return lambda: algorithm.update(training), algorithm.samples


MAKERS = {"stepped": stepped, "learnt": learnt}


@pytest.mark.parametrize(
    ("name", "steps"),
    [("learnt", 40_000), *(pytest.param(name, 100_000, marks=pytest.mark.slow) for name in MAKERS)],
)
def test_memory_is_flat_over_many_steps(name, steps):
    done = subprocess.run([sys.executable, __file__, name, str(steps)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    before, after = json.loads(done.stdout)
    assert after[0] <= before[0]
    assert after[1] < before[1] + 8


def main(name, steps):
    """Print what is held before and after."""
    go, samples = MAKERS[name]()
    for _ in range(20):
        go()
    before = held()
    for _ in range(steps // samples):
        go()
    print(json.dumps([before, held()]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
