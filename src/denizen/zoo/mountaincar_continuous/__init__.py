"""MountainCarContinuous; see README.md."""

from denizen.zoo import WorldEntry

from .model import MountainCarContinuous as MountainCarContinuous

ENTRY = WorldEntry(
    about="rock out of a valley by a throttle",
    build=MountainCarContinuous,
)
