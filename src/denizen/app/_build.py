"""What `denizen train` and a manifest mean: environment, policy and algorithm, from texts."""

import dataclasses
import inspect
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denizen.app._failures import their_code
from denizen.app._settings import as_model, option, setting_of
from denizen.app._target import Target, known
from denizen.errors import ConfigError, DenizenError, InputError, nearest
from denizen.model import Env
from denizen.zoo import WorldEntry

if TYPE_CHECKING:
    from denizen.rl import Trained

SHORT = {
    "ppo": {"batch_size": "num_envs", "max_steps": "num_steps"},
    "grpo": {"batch_size": "group_size", "max_steps": "max_steps"},
    **{name: {"batch_size": "batch_size", "max_steps": "num_steps"} for name in ("sac", "td3", "dqn")},
}  # flags that stand for settings
OF_ATTENTION = ("window", "heads")
KINDS = ("mlp", "conv")  # of networks
WIDEST = 1 << 20  # layers: what is wider is a mistake, and no memory holds it


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

    def train(self, **options: Any) -> "Trained":
        """Train, as `dz.train` does with these further arguments."""
        from denizen.rl import train

        return train(self.env, self.policy, self.algorithm, self.steps, params=self.params, **options)

    def resume(self, folder: Path, **options: Any) -> "Trained":
        """Go on in a folder, as `dz.rl.resume` does with these further arguments."""
        from denizen.rl import resume

        return resume(folder, self.env, self.policy, self.algorithm, params=self.params, **options)


def build(settings: Mapping[str, Any], seed: int, world: Target[WorldEntry] | None = None) -> Made:
    """Everything that a training needs, from what a command or a manifest says.

    Args:
        settings: `world_name`, `algo`, `steps` or `total_epochs`, and `set`, `world`, `policy` and `validation` as
            mappings of texts.
        seed: of the first weights.
        world: what the command line named; None: `world_name` is a name of the zoo.

    Raises:
        ConfigError: something does not fit.
    """
    from denizen import rl
    from denizen.app._settings import fill, whole, within

    name = settings["world_name"]
    chosen = world or Target(name, known(name, WorldEntry))
    entry = chosen.entry
    env, params = _world(chosen, settings["world"])
    given = _dividing({**entry.settings.get(settings["algo"], {}), **settings["set"]}, settings)
    algorithm = fill(getattr(rl, settings["algo"].upper()), given, "--set")
    policy = _policy(entry, env, settings["policy"], seed, settings["algo"])
    validation = _validation(chosen, settings)
    epochs = settings.get("total_epochs")
    if epochs is not None:
        within("--total-epochs", epochs, 1)
        return Made(env, policy, algorithm, epochs * algorithm.samples, params, validation)
    try:
        usual = entry.steps_of.get(settings["algo"], entry.steps)
        steps = usual if settings["steps"] is None else whole(str(settings["steps"]))
    except ValueError as error:
        raise ConfigError(
            f"--steps {settings['steps']}: expected a whole number such as 500000, 500k or 50M"
        ) from error
    if steps < 1:
        raise ConfigError(f"--steps {settings['steps']}: expected at least 1, such as 500000, 500k or 50M")
    return Made(env, policy, algorithm, steps, params, validation)


def make_world(word: str, entry: WorldEntry, options: Mapping[str, Any], flag: str = "--world") -> Any:
    """A world with options, which may be texts; `flag` is what gives them.

    Raises:
        ConfigError: it does not take one of them, or needs one that is not given.
        TheirsError: its builder raised something else.
    """
    told = f"{flag} {' '.join(f'{name}={value}' for name, value in options.items())}"
    try:
        if isinstance(entry.build, type):
            _check_options(entry.build, options)
        inspect.signature(entry.build).bind(**options)
        seen = as_model(entry)
        read = {name: setting_of(seen, name, value, f"{flag} {name}={value}") for name, value in options.items()}
        with their_code():
            env = entry.build(**read)
    except ConfigError:
        raise
    except TypeError as error:
        raise ConfigError(_unbound(word, entry, options, told, flag)) from error
    except InputError as error:
        raise ConfigError(f"{told}: {error}" if options else f"{word}: {error}") from error
    if not isinstance(env, Env):
        raise ConfigError(f"{word} returned {type(env).__name__}, expected a dz.Env")
    return env


def _unbound(word: str, entry: WorldEntry, options: Mapping[str, Any], told: str, flag: str) -> str:
    """What is wrong with options that a builder cannot be called with."""
    takes = inspect.signature(entry.build).parameters.values()
    names = [argument.name for argument in takes if argument.kind is not argument.VAR_KEYWORD]
    for name in options:
        if name not in names:
            return f"{told}: {word} has no option {name!r}; {nearest(name, names)}"
    lacking = [a.name for a in takes if a.default is a.empty and a.name in names and a.name not in options]
    return f"{word} needs {', '.join(lacking)}; give {flag} {lacking[0]}=VALUE"


def _check_options(env: Any, options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in env.field_names:
            raise InputError(f"{env.__name__}: unknown option {name!r}; {nearest(name, env.field_names)}")


def _world(chosen: Target[WorldEntry], given: Mapping[str, Any], flag: str = "--world") -> tuple[Any, dict[str, Any]]:
    """(the world, as it is in the end; its parameters that change meanwhile, written START:END)."""
    from denizen.app._settings import schedule

    changing = {name: found for name, value in given.items() if (found := schedule(value)) is not None}
    plain = {name: value for name, value in given.items() if name not in changing}
    env = make_world(chosen.word, chosen.entry, plain, flag)
    for name in changing:
        if name not in env.params:
            known = nearest(name, env.params) if env.params else "this world has none"
            raise ConfigError(
                f"{flag} {name}={given[name]}: START:END is for parameters, which may change in a training; {known}"
            )
    return env.replace(**{name: found.end for name, found in changing.items()}), changing


def _validation(chosen: Target[WorldEntry], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `evaluate`; what is none is an option of the world."""
    from denizen.rl._evaluate import OPTIONS, evaluate

    taken = [name for name in OPTIONS if name != "env"]  # here it follows from options of the world
    given = settings.get("validation", {})  # trainings before denizen had it have none
    arguments = inspect.signature(evaluate).parameters
    read = {
        name: option(value, f"--validation {name}={value}", arguments[name])
        for name, value in given.items()
        if name in taken
    }
    others = {name: value for name, value in given.items() if name not in taken}
    if not others:
        return read
    try:
        env, changing = _world(chosen, {**settings["world"], **others}, "--validation")
    except DenizenError as error:
        words = " ".join(f"{name}={value}" for name, value in others.items())
        told = re.sub("^--validation [^:]*: ", "", str(error.__cause__ or error))
        raise ConfigError(
            f"--validation {words}: {told}; beside options of the world: {nearest(next(iter(others)), taken)}"
        ) from error
    for name in changing.keys() & others.keys():
        raise ConfigError(f"--validation {name}={others[name]}: expected one value")
    return {**read, "env": env}


def _dividing(given: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's number of minibatches, or the most of them that divide a batch which flags made smaller."""
    from denizen.app._settings import guess

    sizes = [guess(given[name]) for name in SHORT[settings["algo"]].values() if name in given]
    if settings["algo"] == "grpo":  # minibatches take an equal share of each group
        sizes = [guess(given.get("group_size", 0))]
    if (
        "num_minibatches" not in given
        or "num_minibatches" in settings["set"]
        or not all(isinstance(s, int) for s in sizes)
    ):
        return given
    return {**given, "num_minibatches": math.gcd(given["num_minibatches"], math.prod(sizes))}


def _widths(name: str, value: Any) -> tuple[int, ...]:
    try:
        widths = tuple(int(part) for part in str(value).split(","))
    except ValueError:
        widths = (WIDEST + 1,)
    if max(widths) > WIDEST:
        raise ConfigError(
            f"--policy {name}={value}: expected widths with commas between, such as 64,64, up to {WIDEST}"
        )
    return widths


def _policy(entry: WorldEntry, env: Any, given: Mapping[str, str], seed: int, algo: str) -> Any:
    from torch import nn

    from denizen import rl

    if env.roles is not None and algo != "ppo":
        raise ConfigError(f"--algo {algo}: a world with roles, here {', '.join(env.roles)}, trains with ppo alone")
    kind = given.get("kind", entry.policy)
    others = {"sac": "soft_mlp", "td3": "deterministic_mlp", "dqn": f"q_{kind}"}
    if "kind" in given and (kind not in KINDS or algo in ("sac", "td3")):
        expected = "none with sac and td3, which take linear layers" if kind in KINDS else " or ".join(KINDS)
        raise ConfigError(f"--policy kind={kind}: expected {expected}")
    made = others.get(algo, kind)
    usual = entry.policy_options if made == kind else entry.policy_options_of.get(algo, {})
    options = {**(usual if kind == entry.policy else {}), **{name: given[name] for name in given if name != "kind"}}
    common = ("head", "memory_size", "memory", *OF_ATTENTION, "normalise")
    takes = {
        "mlp": ("hidden", "activation", "shared", *common),
        "conv": ("channels", "hidden", "critic_hidden", *common),
        "soft_mlp": ("hidden", "normalise"),
        "deterministic_mlp": ("hidden", "normalise"),
        "q_mlp": ("hidden", "duelling", "normalise"),
        "q_conv": ("channels", "hidden", "duelling", "normalise"),
    }
    named: dict[str, dict[str, Any]] = {
        "activation": {"tanh": nn.Tanh, "relu": nn.ReLU},
        "head": {"popart": rl.PopArt, "plain": rl.ValueHead},
        "memory": {"gru": rl.GRU, "lstm": rl.LSTM, "attention": rl.Attention},
    }
    read: dict[str, Any] = {}
    for name, value in options.items():
        if name not in takes[made]:
            raise ConfigError(f"--policy {name}={value}: unknown; {nearest(name, ('kind', *takes[made]))}")
        if name in named:
            if value not in named[name]:
                raise ConfigError(f"--policy {name}={value}: expected {' or '.join(named[name])}")
            read[name] = named[name][value]
        elif name in ("hidden", "channels", "critic_hidden") and not (name == "hidden" and made.endswith("conv")):
            read[name] = _widths(name, value)
        else:
            owner = rl.Attention if name in OF_ATTENTION else getattr(rl, made)
            read[name] = option(value, f"--policy {name}={value}", inspect.signature(owner).parameters[name])
    taken = {name: read.pop(name) for name in OF_ATTENTION if name in read}
    if taken and read.get("memory") is not rl.Attention:
        name, value = next(iter(taken.items()))
        raise ConfigError(f"--policy {name}={value}: goes with memory=attention")
    if "memory" in read:
        size = {"size": read.pop("memory_size")} if "memory_size" in read else {}
        read["memory"] = read["memory"](**size, **taken)
    if env.roles is None:
        return getattr(rl, made)(env, seed=seed, **read)
    each = enumerate(env.roles)
    return rl.Policies({role: getattr(rl, made)(env.role(role), seed=seed + place, **read) for place, role in each})
