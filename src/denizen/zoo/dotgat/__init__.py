"""Agents that each see a part of a series, talk, and predict: data, training, pictures."""

from denizen.zoo.dotgat.config import Settings as Settings
from denizen.zoo.dotgat.data import Data as Data
from denizen.zoo.dotgat.data import baselines as baselines
from denizen.zoo.dotgat.data import draw as draw
from denizen.zoo.dotgat.model import Answers as Answers
from denizen.zoo.dotgat.model import Judge as Judge
from denizen.zoo.dotgat.train import Trained as Trained
from denizen.zoo.dotgat.train import load as load
from denizen.zoo.dotgat.train import resume as resume
from denizen.zoo.dotgat.train import train as train
