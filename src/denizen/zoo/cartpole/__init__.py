"""CartPole; see README.md."""

from denizen.zoo import WorldEntry

from .model import CartPole as CartPole
from .model import Pole as Pole

ENTRY = WorldEntry(
    about="balance a pole on a cart",
    build=CartPole,
    steps_of={"dqn": 50_000},
    policy_options_of={"dqn": {"hidden": "256,256"}},
    settings={
        "ppo": {"num_envs": 4, "num_steps": 128},  # CleanRL's ppo.py, which are PPO's defaults otherwise
        "grpo": {
            "groups": 4,
            "group_size": 8,
            "max_steps": 500,
            "update_epochs": 4,
            "num_minibatches": 4,
            "learning_rate": "3e-3:0",
        },
        # Those of RL Baselines3 Zoo, with its network; smaller ones stayed below a return of 200. The rate is annealed:
        # constant, policies fall from 500 to 200 and back until the end.
        "dqn": {
            "num_steps": 32,
            "gradient_steps": 128,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_rate": "2.3e-3:0",
            "target_every": 128,
            "epsilon": "1:0.04:0:0.16",
        },
    },
)
