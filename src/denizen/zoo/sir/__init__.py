"""SIR; see README.md."""

from denizen.zoo import ModelEntry

from .config import sir as sir
from .events import infections as infections
from .model import SIR as SIR
from .model import People as People

ENTRY = ModelEntry(
    about="susceptible, infected, recovered", model=SIR, build=sir, steps=120, events={"caught": infections}
)
