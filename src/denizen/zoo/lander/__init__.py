"""A lander on two engines; see README.md."""

from denizen.zoo import WorldEntry

from .model import Flight as Flight
from .model import Lander as Lander

ENTRY = WorldEntry(
    about="land a craft on its pad by two engines",
    build=Lander,
    steps=5_000_000,
    settings={"ppo": {"num_envs": 64, "num_steps": 256, "gamma": 0.999, "gae_lambda": 0.98, "learning_rate": "1e-3:0"}},
)
