"""Predators and prey; see README.md."""

from denizen.zoo import WorldEntry

from .model import Chase as Chase
from .model import PredatorPrey as PredatorPrey

ENTRY = WorldEntry(
    about="predators chase quicker prey; each role learns its own policy",
    build=PredatorPrey,
    steps=480_000,
    settings={
        "ppo": {"num_envs": 64, "num_steps": 25, "learning_rate": "1e-3:0", "gamma": 0.95, "value_clip": "none"},
    },
)
