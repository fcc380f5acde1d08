"""Ants that forage; see README.md."""

from denizen.zoo import ModelEntry

from .config import ants as ants
from .model import Ants as Ants
from .model import Colony as Colony

ENTRY = ModelEntry(about="ants that find food and leave a trail of scent", model=Ants, build=ants, steps=400)
