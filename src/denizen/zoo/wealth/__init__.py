"""Money passed on at random; see README.md."""

from denizen.zoo import ModelEntry

from .config import wealth as wealth
from .model import Purses as Purses
from .model import Wealth as Wealth

ENTRY = ModelEntry(
    about="Boltzmann's wealth: equal purses part by chance alone", model=Wealth, build=wealth, steps=1_000
)
