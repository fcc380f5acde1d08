"""MountainCar; see README.md."""

from denizen.zoo.mountaincar.model import Car as Car
from denizen.zoo.mountaincar.model import MountainCar as MountainCar
