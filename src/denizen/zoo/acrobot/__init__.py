"""Acrobot; see README.md."""

from denizen.zoo import WorldEntry

from .model import Acrobot as Acrobot
from .model import Links as Links

ENTRY = WorldEntry(
    about="swing two links up",
    build=Acrobot,
    settings={"ppo": {"num_envs": 4, "num_steps": 128}},  # CleanRL's ppo.py, which are PPO's defaults otherwise
)
