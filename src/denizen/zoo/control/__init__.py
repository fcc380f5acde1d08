"""Epidemic control; see README.md."""

from denizen.zoo.control.config import control as control
from denizen.zoo.control.model import City as City
from denizen.zoo.control.model import EpidemicControl as EpidemicControl
