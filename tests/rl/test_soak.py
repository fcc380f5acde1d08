"""Long runs keep nothing: memory stays where it was after 100,000 steps."""

import gc
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
    algorithm, env = dz.PPO(num_envs=125, num_steps=20, epochs=1, minibatches=2), CartPole()
    training = algorithm.init(env, dz.rl.mlp(env, (8,)), total_steps=200_000, device="cpu")
    return lambda: algorithm.update(training), algorithm.samples


@pytest.mark.parametrize("make", [stepped, learnt])
def test_memory_is_flat_over_100_000_steps(make):
    go, samples = make()
    for _ in range(20):
        go()
    tensors, size = held()
    for _ in range(100_000 // samples):
        go()
    after = held()
    assert after[0] <= tensors
    assert after[1] < size + 8
