"""Breakout; see README.md."""

from denizen.zoo.breakout.model import Board as Board
from denizen.zoo.breakout.model import Breakout as Breakout
