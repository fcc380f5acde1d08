"""Asterix; see README.md."""

from denizen.zoo import WorldEntry

from .model import Asterix as Asterix
from .model import Field as Field

ENTRY = WorldEntry(
    about="MinAtar's Asterix",
    build=Asterix,
    steps=10_000_000,
    policy_options={"activation": "relu"},
    # PureJaxRL's for MinAtar
    settings={"ppo": {"num_envs": 64, "num_steps": 128, "num_minibatches": 8, "learning_rate": "5e-3:0"}},
)
