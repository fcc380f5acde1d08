"""The voter model; see README.md."""

from denizen.zoo import ModelEntry

from .config import discord_on_square as discord_on_square
from .config import steps_to_consensus as steps_to_consensus
from .config import voter as voter
from .model import Voter as Voter
from .model import Voters as Voters

ENTRY = ModelEntry(about="voters who take over a neighbour's opinion", model=Voter, build=voter, steps=200)
