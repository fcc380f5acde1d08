"""CartPole; see README.md."""

from denizen.zoo import WorldEntry

from .model import CartPole as CartPole
from .model import Pole as Pole

ENTRY = WorldEntry(
    about="balance a pole on a cart",
    build=CartPole,
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
    },
)
