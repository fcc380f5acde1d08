"""SEIR; see README.md."""

from denizen.zoo.seir.config import seir as seir
from denizen.zoo.seir.model import SEIR as SEIR
from denizen.zoo.seir.model import People as People
