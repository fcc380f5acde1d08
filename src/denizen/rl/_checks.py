"""What is refused before anything runs: environments that break the author's rule, policies made for others."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from denizen.errors import InputError
from denizen.model import Box, Discrete, Env, FlatEnv, Space, guard
from denizen.model._spaces import check_spaces
from denizen.rng import MAX_SEED

if TYPE_CHECKING:
    from denizen.rl._policy import ActorCritic


def check_worlds(num_envs: Any, seed: Any, max_resets: Any) -> None:
    """Raise `InputError` where one of these arguments of `Worlds` is no number that it can be."""
    for name, value, low, high in (
        ("num_envs", num_envs, 1, 2**31),
        ("seed", seed, 0, MAX_SEED),
        ("max_resets", max_resets, 0, 2**31),
    ):
        if value is None and name == "max_resets":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise InputError(f"Worlds: {name}={value!r}, expected a whole number from {low} to {high}")


def check_numbers(worlds: Any, num_envs: int) -> list[int]:
    """Numbers of worlds as a list; raises `InputError` where they are none, or too few or too many."""
    if not isinstance(worlds, Iterable):
        raise InputError(f"Worlds: worlds={worlds!r}, expected a list of {num_envs} whole numbers")
    numbers = list(worlds)
    for number in numbers:
        if type(number) is not int or not 0 <= number <= MAX_SEED:
            raise InputError(f"Worlds: worlds has {number!r}, expected whole numbers from 0 to {MAX_SEED}")
    if len(numbers) != num_envs:
        raise InputError(f"Worlds: worlds has {len(numbers)} numbers, expected {num_envs}, one for each world")
    return numbers


def prove(env: Env, keys: Tensor, values: dict[str, Tensor]) -> None:
    """Begin, step and renew one world under the guard, so that what breaks the author's rule is told with its line.

    Args:
        env: the environment, on its device.
        keys: int64 `[1, 2]`: seed and number of the world.
        values: its parameters, each `[1, …]`.

    Raises:
        ModelError: draws from torch's own generator, a write in place, a value read on the host.
    """
    flat = FlatEnv(env, torch.arange(env.num_agents, device=keys.device))
    clock, space = keys.new_zeros(()), env.action_space
    shape = (1, *(() if env.num_actors is None else (env.num_actors,)), *space.shape)
    action = torch.zeros(shape, dtype=space.dtype, device=keys.device)
    if isinstance(space, Box):
        action = space.nearest(action)

    def seen(*args: Any) -> Tensor:
        return flat.look(*args).observation

    with guard(env, "init"):
        leaves = torch.vmap(flat.begin, in_dims=(0, 0, None))(keys, values, clock)
    with guard(env):
        torch.vmap(seen)(leaves, clock[None], values)
        torch.vmap(flat.act, in_dims=(0, 0, 0, 0, 0, None))(leaves, clock[None], keys, values, action, clock)
        torch.vmap(flat.restart, in_dims=(0, 0, 0, 0, None))(leaves, clock[None], keys, values, clock)


def check_fits(policy: "ActorCritic", env: Any, what: str) -> None:
    """Raise `InputError` where this is no environment, or one with other observations or actions than a policy's.

    Args:
        policy: the policy.
        env: what was given as the environment.
        what: who asks, for messages.
    """
    from denizen.rl._gymnasium import Foreign
    from denizen.rl._policy import ActorCritic

    check_env(env, what)
    if not isinstance(policy, ActorCritic):
        raise InputError(f"{what}: policy is {named(policy)}, expected a dz.rl.ActorCritic, such as dz.rl.mlp(env)")
    check_float32(policy, what)
    if isinstance(env, Foreign):
        raise InputError(
            f"{what}: env is that of a FromGymnasium, whose worlds are on the host and are stepped by it alone; write "
            f"a dz.Env for worlds on the device"
        )
    for name in ("observation_space", "action_space"):
        mine, its = getattr(policy.env, name), getattr(env, name)
        if _form(mine) != _form(its):
            raise InputError(
                f"{what}: policy was made for {type(policy.env).__name__} with {name} {mine}, and "
                f"{type(env).__name__} has {its}; make one for this environment, such as dz.rl.mlp(env)"
            )


def check_learns(policy: "ActorCritic", env: Any, what: str) -> None:
    """`check_fits`, and raise `InputError` where ratios would not begin at 1."""
    check_fits(policy, env, what)
    if any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in policy.modules()):
        raise InputError(f"{what}: the policy has dropout, so its ratios would not begin at 1; set its p to 0")
    for module in policy.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise InputError(
                f"{what}: the policy has {type(module).__name__}, which gives other values in each batch, so its "
                f"ratios would not begin at 1; use torch.nn.LayerNorm"
            )


def _form(space: Any) -> tuple[Any, ...]:
    return type(space), space.shape, space.dtype, getattr(space, "n", None)


def check_env(env: Any, what: str) -> None:
    """Raise `InputError` where this is no environment, such as a class in place of an object of it.

    Raises `ModelError` where it declares no spaces.
    """
    if not isinstance(env, Env):
        raise InputError(f"{what}: env is {named(env)}, expected a dz.Env, such as CartPole()")
    check_spaces(env)


def check_drawn(env: Env) -> None:
    """Raise `InputError` where a policy could not draw the actions of an environment."""
    space = env.action_space
    if isinstance(space, Box) and not space.dtype.is_floating_point:
        raise InputError(
            f"policy: {type(env).__name__} has action_space {space} of whole numbers, and for a Box policies draw real "
            f"ones; declare dz.rl.Discrete(n), or a float32 Box whose numbers step rounds"
        )


def check_kind(action: Tensor, space: Space) -> None:
    """Raise `InputError` where actions are floats and a space holds whole numbers: fractions would be lost."""
    real = action.is_floating_point() or action.is_complex()
    if isinstance(space, Discrete) and (real or action.dtype == torch.bool):
        raise InputError(f"action has dtype {action.dtype}, expected whole numbers from 0 to {space.n - 1}")
    if isinstance(space, Box) and real and not space.dtype.is_floating_point:
        raise InputError(f"action has dtype {action.dtype}, expected whole numbers, since {space} holds them")


def check_float32(policy: "ActorCritic", what: str) -> None:
    """Raise `InputError` where what a policy learns, or acts by, is no float32."""
    for name, parameter in policy.named_parameters():
        used = parameter.requires_grad or parameter is getattr(policy.actor, "weight", None)
        if used and parameter.dtype != torch.float32:
            raise InputError(
                f"{what}: the policy's {name} is {parameter.dtype}, expected torch.float32, since observations are; "
                f"call policy.float(), and set the algorithm's precision for a smaller one"
            )


def named(value: Any) -> str:
    """What something is that was given in place of something else, for messages."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
