"""Seaquest; see README.md."""

from denizen.zoo import WorldEntry

from .model import Sea as Sea
from .model import Seaquest as Seaquest

ENTRY = WorldEntry(
    about="MinAtar's Seaquest",
    build=Seaquest,
    steps=10_000_000,
    policy_options={"activation": "relu"},
    # PureJaxRL's for MinAtar
    settings={"ppo": {"num_envs": 64, "num_steps": 128, "num_minibatches": 8, "learning_rate": "5e-3:0"}},
)
