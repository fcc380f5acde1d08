"""A training whose parameter follows what it earns, in one process or in several."""

import sys

from rich.console import Console

import denizen as dz
from denizen.app._together import together
from denizen.zoo.fruits import fruits

with together("cpu", Console()):
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
