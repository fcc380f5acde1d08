"""Freeway; see README.md."""

from denizen.zoo.freeway.model import Freeway as Freeway
from denizen.zoo.freeway.model import Road as Road
