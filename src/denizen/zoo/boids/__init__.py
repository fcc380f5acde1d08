"""Boids; see README.md."""

from denizen.zoo import ModelEntry

from .config import boids as boids
from .model import Birds as Birds
from .model import Boids as Boids

ENTRY = ModelEntry(about="birds that flock", model=Boids, build=boids, steps=200)
