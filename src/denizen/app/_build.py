"""What `denizen train` and a manifest mean: environment, policy and algorithm, from texts."""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from denizen.errors import ConfigError, DenizenError, nearest

if TYPE_CHECKING:
    from denizen.app._recipes import Recipe

SHORT = {
    "ppo": {"batch_size": "num_envs", "max_steps": "num_steps"},
    "grpo": {"batch_size": "group_size", "max_steps": "max_steps"},
}  # flags that stand for settings


@dataclasses.dataclass(frozen=True)
class Made:
    """What a command means.

    Attributes:
        env: the environment.
        policy: its policy.
        algorithm: with its settings.
        steps: of worlds.
        params: parameters of worlds that change.
        validation: how to validate.
    """

    env: Any
    policy: Any
    algorithm: Any
    steps: int
    params: dict[str, Any]
    validation: dict[str, Any]


def build(settings: Mapping[str, Any], seed: int) -> Made:
    """Everything that a training needs, from what a command or a manifest says.

    Args:
        settings: `world_name`, `algo`, `steps` or `total_epochs`, and `set`, `world`, `policy` and `validation` as
            mappings of texts.
        seed: of the first weights.

    Raises:
        ConfigError: something does not fit.
    """
    from denizen import rl
    from denizen.app._recipes import recipe
    from denizen.app._settings import fill, whole

    chosen = recipe(settings["world_name"])
    env, params = _world(chosen, settings["world"])
    algorithms = {name: getattr(rl, name.upper()) for name in ("ppo", "grpo") if hasattr(rl, name.upper())}
    known = _dividing({**chosen.settings.get(settings["algo"], {}), **settings["set"]}, settings)
    algorithm = fill(algorithms[settings["algo"]], known, "--set")
    policy, validation = _policy(chosen, env, settings["policy"], seed), _validation(chosen, settings)
    epochs = settings.get("total_epochs")
    if epochs is not None:
        if epochs < 1:
            raise ConfigError(f"--total-epochs {epochs}: expected a whole number, at least 1")
        return Made(env, policy, algorithm, epochs * algorithm.samples, params, validation)
    try:
        steps = chosen.steps if settings["steps"] is None else whole(str(settings["steps"]))
    except ValueError as error:
        raise ConfigError(
            f"--steps {settings['steps']}: expected a whole number such as 500000, 500k or 50M"
        ) from error
    if steps < 1:
        raise ConfigError(f"--steps {settings['steps']}: expected at least 1, such as 500000, 500k or 50M")
    return Made(env, policy, algorithm, steps, params, validation)


def _world(chosen: "Recipe", given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """(the world, as it is in the end; its parameters that change meanwhile, written START:END)."""
    from denizen.app._settings import guess, schedule

    changing = {name: found for name, value in given.items() if (found := schedule(value)) is not None}
    env = chosen.make_env({name: guess(value) for name, value in given.items() if name not in changing})
    for name in changing:
        if name not in env.params:
            known = nearest(name, env.params) if env.params else "this world has none"
            raise ConfigError(
                f"--world {name}={given[name]}: START:END is for parameters, which may change in a training; {known}"
            )
    return env.replace(**{name: found.end for name, found in changing.items()}), changing


def _validation(chosen: "Recipe", settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `evaluate`; what is none is an option of the world."""
    from denizen.app._settings import guess
    from denizen.rl._evaluate import OPTIONS

    known = [name for name in OPTIONS if name != "env"]  # here it follows from options of the world
    given = settings.get("validation", {})  # trainings before denizen had it have none
    read = {name: guess(value) for name, value in given.items() if name in known}
    others = {name: value for name, value in given.items() if name not in known}
    if not others:
        return read
    try:
        env, changing = _world(chosen, {**settings["world"], **others})
    except DenizenError as error:
        words = " ".join(f"{name}={value}" for name, value in others.items())
        raise ConfigError(
            f"--validation {words}: {error.__cause__ or error}; beside options of the world: "
            f"{nearest(next(iter(others)), known)}"
        ) from error
    for name in changing.keys() & others.keys():
        raise ConfigError(f"--validation {name}={others[name]}: expected one value")
    return {**read, "env": env}


def _dividing(known: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's number of minibatches, or the most of them that divide a batch which flags made smaller."""
    from denizen.app._settings import guess

    sizes = [guess(known[name]) for name in SHORT[settings["algo"]].values() if name in known]
    if settings["algo"] == "grpo":  # minibatches take an equal share of each group
        sizes = [guess(known.get("group_size", 0))]
    if (
        "num_minibatches" not in known
        or "num_minibatches" in settings["set"]
        or not all(isinstance(s, int) for s in sizes)
    ):
        return known
    return {**known, "num_minibatches": math.gcd(known["num_minibatches"], math.prod(sizes))}


def _policy(chosen: Any, env: Any, given: Mapping[str, str], seed: int) -> Any:
    from torch import nn

    from denizen import rl
    from denizen.app._settings import guess

    options = {**chosen.policy_options, **given}
    takes = {
        "mlp": ("hidden", "activation", "shared", "head", "memory_size"),
        "conv": ("channels", "hidden", "critic_hidden", "head"),
    }
    named = {"activation": {"tanh": nn.Tanh, "relu": nn.ReLU}, "head": {"popart": rl.PopArt, "plain": rl.ValueHead}}
    read: dict[str, Any] = {}
    for name, value in options.items():
        if name not in takes[chosen.policy]:
            raise ConfigError(f"--policy {name}={value}: unknown; {nearest(name, takes[chosen.policy])}")
        if name in named:
            if value not in named[name]:
                raise ConfigError(f"--policy {name}={value}: expected {' or '.join(named[name])}")
            read[name] = named[name][value]
        elif name in ("hidden", "channels", "critic_hidden") and not (name == "hidden" and chosen.policy == "conv"):
            try:
                read[name] = tuple(int(part) for part in str(value).split(","))
            except ValueError as error:
                raise ConfigError(
                    f"--policy {name}={value}: expected widths with commas between, such as 64,64"
                ) from error
        else:
            read[name] = guess(value)
    return getattr(rl, chosen.policy)(env, seed=seed, **read)
