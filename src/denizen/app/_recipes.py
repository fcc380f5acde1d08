"""Worlds that can be trained by name: environment, policy, settings of each algorithm, steps.

The settings are those of published runs where there are some; each entry says whose.
"""

import dataclasses
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from denizen.errors import ConfigError, InputError, nearest

CLEANRL = {"num_envs": 4, "num_steps": 128}  # CleanRL's ppo.py, which are PPO's defaults otherwise
MINATAR = {"num_envs": 64, "num_steps": 128, "num_minibatches": 8, "learning_rate": "5e-3:0"}  # PureJaxRL's for MinAtar
FORAGING = {  # FIM43-Redeye/goodharts_law at 9a3336d, with bfloat16 off: a CPU may have none
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
}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a world is trained unless flags say otherwise.

    Attributes:
        module: within `denizen.zoo`.
        env: name of the class or function in it that makes the environment.
        policy: ``"mlp"`` or ``"conv"``.
        policy_options: for that.
        steps: of worlds.
        settings: of each algorithm, as `--set` takes them.
        about: a line for people.
    """

    module: str
    env: str
    about: str
    steps: int
    policy: str = "mlp"
    policy_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def make_env(self, options: Mapping[str, Any]) -> Any:
        """The environment with options.

        Raises:
            ConfigError: it does not take one of them.
        """
        make: Callable[..., Any] = getattr(import_module(f"denizen.zoo.{self.module}"), self.env)
        try:
            if isinstance(make, type):  # functions that make a world look at its options themselves
                _check_options(make, options)
            return make(**options)
        except (TypeError, InputError) as error:
            raise ConfigError(f"--world {' '.join(f'{n}={v}' for n, v in options.items())}: {error}") from error


def _check_options(env: Any, options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in env.field_names:
            raise InputError(f"{env.__name__}: unknown option {name!r}; {nearest(name, env.field_names)}")


RELU = {"activation": "relu"}
RECIPES: dict[str, Recipe] = {
    "cartpole": Recipe(
        "cartpole",
        "CartPole",
        "balance a pole on a cart",
        500_000,
        settings={
            "ppo": CLEANRL,
            "grpo": {
                "groups": 4,
                "group_size": 8,
                "max_steps": 500,
                "update_epochs": 4,
                "num_minibatches": 4,
                "learning_rate": "3e-3:0",
            },
        },
    ),
    "acrobot": Recipe("acrobot", "Acrobot", "swing two links up", 500_000, settings={"ppo": CLEANRL}),
    "mountaincar": Recipe("mountaincar", "MountainCar", "rock out of a valley", 500_000, settings={"ppo": CLEANRL}),
    "pendulum": Recipe(
        "pendulum",
        "Pendulum",
        "swing a pendulum up by torque",
        500_000,
        policy_options={"head": "popart"},
        # The best policy for a discount of 0.9, which others use, returns -171, for 0.98 -139, and the best of all -138
        # (dynamic programming on a grid). Costs add up to hundreds, so values are normalised and clipped apart.
        settings={
            "ppo": {
                "num_envs": 16,
                "num_steps": 128,
                "update_epochs": 10,
                "num_minibatches": 16,
                "gamma": 0.98,
                "learning_rate": "1e-3:0",
                "ent_coef": 0.0,
                "value_clip": None,
                "clip_apart": True,
            }
        },
    ),
    "catch": Recipe("catch", "Catch", "catch a falling ball", 500_000, settings={"ppo": CLEANRL}),
    "breakout": Recipe("breakout", "Breakout", "MinAtar's Breakout", 10_000_000, "mlp", RELU, {"ppo": MINATAR}),
    "spaceinvaders": Recipe(
        "spaceinvaders", "SpaceInvaders", "MinAtar's Space Invaders", 10_000_000, "mlp", RELU, {"ppo": MINATAR}
    ),
    "asterix": Recipe("asterix", "Asterix", "MinAtar's Asterix", 10_000_000, "mlp", RELU, {"ppo": MINATAR}),
    "freeway": Recipe("freeway", "Freeway", "MinAtar's Freeway", 10_000_000, "mlp", RELU, {"ppo": MINATAR}),
    "foraging": Recipe(
        "foraging",
        "foraging",
        "food and poison on a torus, five ways to be paid",
        50_331_648,
        "conv",
        {"head": "popart"},
        {
            "ppo": FORAGING,
            "grpo": {
                "groups": 24,
                "group_size": 8,
                "max_steps": 128,
                "update_epochs": 4,
                "num_minibatches": 4,
                "learning_rate": "1e-3:1e-4",
            },
        },
    ),
    "control": Recipe(
        "control",
        "control",
        "close and vaccinate in a city that runs the COVID model",
        40_960,
        policy_options={"hidden": "32,32", "head": "popart"},
        settings={
            "ppo": {
                "num_envs": 32,
                "num_steps": 16,
                "update_epochs": 8,
                "gamma": 1.0,
                "learning_rate": "3e-3:0",
                "value_clip": None,
                "ent_coef": "0.02:0",
            }
        },
    ),
    "fruits": Recipe(
        "fruits",
        "fruits",
        "catch falling fruits",
        4_000_000,
        "mlp",
        {**RELU, "hidden": "128,128", "shared": "true"},
        {
            "ppo": {
                "num_envs": 64,
                "num_steps": 100,
                "update_epochs": 4,
                "num_minibatches": 8,
                "gamma": 0.95,
                "learning_rate": "5e-3:1e-4",
            },
            "grpo": {
                "groups": 32,
                "group_size": 8,
                "update_epochs": 3,
                "num_minibatches": 8,
                "gamma": 0.95,
                "learning_rate": "5e-3:1e-4",
            },
        },
    ),
}


def recipe(name: str) -> Recipe:
    """The recipe of a world; raises `ConfigError` for an unknown one."""
    if name not in RECIPES:
        raise ConfigError(f"unknown world {name!r}; {nearest(name, RECIPES)}")
    return RECIPES[name]
