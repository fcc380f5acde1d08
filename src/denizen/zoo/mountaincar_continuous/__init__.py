"""MountainCarContinuous; see README.md."""

from denizen.zoo import WorldEntry

from .model import MountainCarContinuous as MountainCarContinuous

ENTRY = WorldEntry(
    about="rock out of a valley by a throttle",
    build=MountainCarContinuous,
    steps_of={"sac": 30_000},
    policy_options_of={"sac": {"hidden": "64,64"}},
    # Nothing pays before the hill, which pushes that change at every step do not reach; held ones rock the car up.
    settings={
        "sac": {
            "gradient_steps": 16,
            "gamma": 0.9999,
            "tau": 0.01,
            "learning_starts": 8_000,
            "noise_steps": 16,
        },
    },
)
