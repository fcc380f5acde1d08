"""A training whose parameter follows what it earns, in one process or in several."""

import os
import sys

import torch.distributed as dist

import denizen as dz
from denizen.zoo.fruits import fruits

several = int(os.environ.get("WORLD_SIZE", "1")) > 1
if several:
    dist.init_process_group("gloo")
try:
    env = fruits(max_steps=10)
    params = {"spawn_prob": dz.rl.Earned(0.1, 0.7, score=-100.0, stages=3, lives=8)}
    algorithm = dz.PPO(num_envs=4, num_steps=10, shuffle_groups=2)
    dz.train(
        env,
        dz.rl.mlp(env, (8,)),
        algorithm,
        320,
        device="cpu",
        params=params,
        folder=sys.argv[1],
        progress=False,
        compile=False,
    )
    if several:
        dist.barrier()  # the first process holds the store that the others still talk to
finally:
    if several:
        dist.destroy_process_group()
