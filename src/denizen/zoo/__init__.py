"""Ready models and worlds; each is a folder to copy, whose `ENTRY` says what the command line offers of it."""

from denizen.zoo._entry import ModelEntry as ModelEntry
from denizen.zoo._entry import WorldEntry as WorldEntry
from denizen.zoo._entry import entries as entries
from denizen.zoo._entry import entry as entry
from denizen.zoo._register import register_gymnasium as register_gymnasium
