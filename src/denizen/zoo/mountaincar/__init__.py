"""MountainCar; see README.md."""

from denizen.zoo import WorldEntry

from .model import Car as Car
from .model import MountainCar as MountainCar

ENTRY = WorldEntry(
    about="rock out of a valley",
    build=MountainCar,
    settings={"ppo": {"num_envs": 4, "num_steps": 128}},  # CleanRL's ppo.py, which are PPO's defaults otherwise
)
