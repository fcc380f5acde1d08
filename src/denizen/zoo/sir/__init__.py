"""SIR; see README.md."""

from denizen.zoo.sir.config import sir as sir
from denizen.zoo.sir.model import SIR as SIR
from denizen.zoo.sir.model import People as People
