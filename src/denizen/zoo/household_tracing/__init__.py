"""Households, tests, contact tracing and isolation; see README.md."""

from denizen.zoo import ModelEntry

from .config import household_tracing as household_tracing
from .model import HouseholdTracing as HouseholdTracing
from .model import People as People

ENTRY = ModelEntry(
    about="infection at home and outside with tests, contact tracing and isolation",
    model=HouseholdTracing,
    build=household_tracing,
    steps=120,
)
