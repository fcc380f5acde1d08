"""An HIV-like infection over partnerships; see README.md."""

from denizen.zoo import ModelEntry

from .model import HIV as HIV
from .model import People as People

ENTRY = ModelEntry(about="HIV-like infection over steady and casual partnerships", model=HIV, build=HIV, steps=360)
