"""Bounded confidence after Deffuant; see README.md."""

from denizen.zoo import ModelEntry

from .config import main_clusters as main_clusters
from .config import opinions as opinions
from .model import UNIT as UNIT
from .model import Minds as Minds
from .model import Opinions as Opinions

ENTRY = ModelEntry(about="minds that meet and come closer, or not", model=Opinions, build=opinions, steps=60)
