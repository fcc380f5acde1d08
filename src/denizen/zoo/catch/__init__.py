"""Catch; see README.md."""

from denizen.zoo.catch.model import Ball as Ball
from denizen.zoo.catch.model import Catch as Catch
