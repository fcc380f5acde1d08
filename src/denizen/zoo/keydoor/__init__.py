"""Keys, doors and boxes; see README.md."""

from denizen.zoo import WorldEntry

from .levels import Levels as Levels
from .levels import made as made
from .levels import shortest as shortest
from .model import House as House
from .model import KeyDoor as KeyDoor
from .model import keydoor as keydoor

ENTRY = WorldEntry(
    about="rooms behind locked doors, keys in boxes, in levels by number",
    build=keydoor,
    steps=5_000_000,
    policy_options={"activation": "relu"},
    settings={"ppo": {"num_envs": 256, "num_steps": 64, "num_minibatches": 8, "learning_rate": "1e-3:0"}},
)
