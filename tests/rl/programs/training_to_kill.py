"""A training that saves after every update."""

import sys

import denizen as dz
from denizen.zoo.cartpole import CartPole

env = CartPole()
settings = dz.PPO(num_envs=4, num_steps=16)
policy, folder = dz.rl.mlp(env, (16,)), sys.argv[1]
dz.train(env, policy, settings, 4 * 16 * 30, device="cpu", folder=folder, save_every=0, progress=False)
