"""SIR with a vaccination campaign; see README.md."""

from denizen.zoo import ModelEntry

from .config import sir_vaccination as sir_vaccination
from .model import People as People
from .model import SIRVaccination as SIRVaccination

ENTRY = ModelEntry(
    about="SIR with a campaign of a leaky or all-or-nothing vaccine",
    model=SIRVaccination,
    build=sir_vaccination,
    steps=120,
)
