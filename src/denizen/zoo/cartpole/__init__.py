"""CartPole; see README.md."""

from denizen.zoo.cartpole.model import CartPole as CartPole
from denizen.zoo.cartpole.model import Pole as Pole
