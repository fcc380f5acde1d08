"""SpaceInvaders; see README.md."""

from denizen.zoo import WorldEntry

from .model import Sky as Sky
from .model import SpaceInvaders as SpaceInvaders

ENTRY = WorldEntry(
    about="MinAtar's Space Invaders",
    build=SpaceInvaders,
    steps=10_000_000,
    policy_options={"activation": "relu"},
    # PureJaxRL's for MinAtar
    settings={"ppo": {"num_envs": 64, "num_steps": 128, "num_minibatches": 8, "learning_rate": "5e-3:0"}},
)
