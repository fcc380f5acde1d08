"""Acrobot; see README.md."""

from denizen.zoo.acrobot.model import Acrobot as Acrobot
from denizen.zoo.acrobot.model import Links as Links
