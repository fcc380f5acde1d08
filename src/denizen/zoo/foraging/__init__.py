"""Foraging; see README.md."""

from denizen.zoo import WorldEntry
from denizen.zoo.foraging.config import for_evaluation as for_evaluation
from denizen.zoo.foraging.config import foraging as foraging
from denizen.zoo.foraging.model import Foraging as Foraging
from denizen.zoo.foraging.model import Plot as Plot
from denizen.zoo.foraging.modes import MODES as MODES
from denizen.zoo.foraging.modes import Interestingness as Interestingness
from denizen.zoo.foraging.modes import Mode as Mode
from denizen.zoo.foraging.modes import Outcome as Outcome
from denizen.zoo.foraging.modes import Pay as Pay
from denizen.zoo.foraging.modes import TrueTypes as TrueTypes

ENTRY = WorldEntry(
    about="food and poison on a torus, five ways to be paid",
    build=foraging,
    steps=50_331_648,
    policy="conv",
    policy_options={"head": "popart"},
    settings={
        "ppo": {  # FIM43-Redeye/goodharts_law at 9a3336d
            "num_envs": 192,
            "num_steps": 128,
            "num_minibatches": 1,
            "learning_rate": "3e-4:1e-4",
            "clip_coef": "0.2:0.1",
            "vf_coef": 0.5,
            "ent_coef": "0.1:0.001",
            "entropy_floor": 0.5,
            "floor_penalty": 0.05,
            "normalise_minibatches": False,
            "clip_apart": True,
        },
        "grpo": {
            "groups": 24,
            "group_size": 8,
            "max_steps": 128,
            "update_epochs": 4,
            "num_minibatches": 4,
            "learning_rate": "1e-3:1e-4",
        },
    },
    settings_on_cuda={"ppo": {"precision": "bfloat16"}},
)
