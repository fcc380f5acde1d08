"""Epidemic control; see README.md."""

from denizen.zoo import WorldEntry

from .config import control as control
from .model import City as City
from .model import EpidemicControl as EpidemicControl

ENTRY = WorldEntry(
    about="close and vaccinate in a city that runs the COVID model",
    build=control,
    steps=40_960,
    policy_options={"hidden": "32,32", "head": "popart"},
    settings={
        "ppo": {
            "num_envs": 32,
            "num_steps": 16,
            "update_epochs": 8,
            "gamma": 1.0,
            "learning_rate": "3e-3:0",
            "value_clip": None,
            "ent_coef": "0.02:0",
        }
    },
)
