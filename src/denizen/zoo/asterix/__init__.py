"""Asterix; see README.md."""

from denizen.zoo.asterix.model import Asterix as Asterix
from denizen.zoo.asterix.model import Field as Field
