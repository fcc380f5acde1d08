"""Fruit catcher; see README.md."""

from denizen.zoo.fruits.config import fruits as fruits
from denizen.zoo.fruits.config import fruits_match as fruits_match
from denizen.zoo.fruits.config import fruits_original as fruits_original
from denizen.zoo.fruits.model import Field as Field
from denizen.zoo.fruits.model import Fruits as Fruits
from denizen.zoo.fruits.model import original_reward as original_reward
from denizen.zoo.fruits.model import score_change as score_change
