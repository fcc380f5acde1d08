"""Fruit catcher; see README.md."""

from denizen.zoo import WorldEntry
from denizen.zoo.fruits.config import fruits as fruits
from denizen.zoo.fruits.config import fruits_match as fruits_match
from denizen.zoo.fruits.config import fruits_original as fruits_original
from denizen.zoo.fruits.model import Field as Field
from denizen.zoo.fruits.model import Fruits as Fruits
from denizen.zoo.fruits.model import original_reward as original_reward
from denizen.zoo.fruits.model import score_change as score_change

ENTRY = WorldEntry(
    about="catch falling fruits",
    build=fruits,
    steps=4_000_000,
    policy_options={"activation": "relu", "hidden": "128,128", "shared": "true"},
    settings={
        "ppo": {
            "num_envs": 64,
            "num_steps": 100,
            "update_epochs": 4,
            "num_minibatches": 8,
            "gamma": 0.95,
            "learning_rate": "5e-3:1e-4",
        },
        "grpo": {
            "groups": 32,
            "group_size": 8,
            "update_epochs": 3,
            "num_minibatches": 8,
            "gamma": 0.95,
            "learning_rate": "5e-3:1e-4",
        },
    },
)
