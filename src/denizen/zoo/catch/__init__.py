"""Catch; see README.md."""

from denizen.zoo import WorldEntry

from .model import Ball as Ball
from .model import Catch as Catch

ENTRY = WorldEntry(
    about="catch a falling ball",
    build=Catch,
    settings={"ppo": {"num_envs": 4, "num_steps": 128}},  # CleanRL's ppo.py, which are PPO's defaults otherwise
)
