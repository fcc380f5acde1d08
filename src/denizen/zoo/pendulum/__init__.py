"""Pendulum; see README.md."""

from denizen.zoo.pendulum.model import Pendulum as Pendulum
from denizen.zoo.pendulum.model import Swing as Swing
