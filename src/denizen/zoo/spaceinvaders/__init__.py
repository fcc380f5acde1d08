"""SpaceInvaders; see README.md."""

from denizen.zoo.spaceinvaders.model import Sky as Sky
from denizen.zoo.spaceinvaders.model import SpaceInvaders as SpaceInvaders
