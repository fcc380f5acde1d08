"""SIR; see README.md."""

from denizen.zoo.sir.model import SIR as SIR
