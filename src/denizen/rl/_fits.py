"""Whether a policy is one for an environment, and one that can learn there."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from denizen import _spaces as trees
from denizen.errors import InputError
from denizen.model import Box, Env
from denizen.rl._distributions import Gaussian
from denizen.rl._from_gymnasium import Foreign
from denizen.rl._policy import ActorCritic, Policy
from denizen.rl._worlds import check_env, check_no_roles, named


def check_fits(policy: Policy, env: Any, what: str, *, hosted: bool = False) -> None:
    """Raise `InputError` where this is no environment, or one with other observations or actions than a policy's.

    Args:
        policy: the policy.
        env: what was given as the environment.
        what: who asks, for messages.
        hosted: it may be that of a `FromGymnasium`.
    """
    from denizen.rl._roles import Policies  # which asks here whether they fit

    check_env(env, what)
    check_no_roles(env, what)
    if isinstance(policy, Mapping | Policies):
        raise InputError(
            f"{what}: policy is {'a dict' if isinstance(policy, Mapping) else 'Policies'}, and {env._called} has "
            f"no roles; give one policy, such as dz.rl.mlp(env)"
        )
    if not isinstance(policy, Policy):
        raise InputError(f"{what}: policy is {named(policy)}, expected a dz.rl.ActorCritic, such as dz.rl.mlp(env)")
    check_float32(policy, what)
    if isinstance(env, Foreign) and not hosted:
        raise InputError(
            f"{what}: env is that of a FromGymnasium, whose worlds are on the host and are stepped by it alone; give "
            f"dz.train the FromGymnasium itself, or write a dz.Env for worlds on the device"
        )
    for name in ("observation_space", "action_space"):
        mine, its = getattr(policy.env, name), getattr(env, name)
        if trees.form(mine) != trees.form(its):
            raise InputError(
                f"{what}: policy was made for {policy.env._called} with {name} {mine}, and "
                f"{env._called} has {its}; make one for this environment, such as dz.rl.mlp(env)"
            )
    _check_bounds(policy, env, what)


def _check_bounds(policy: Policy, env: Env, what: str) -> None:
    """Raise `InputError` where a policy's actions fill other bounds than a world's, which would clip them."""
    if getattr(policy, "distribution", Gaussian) is Gaussian and not hasattr(policy, "reach"):
        return  # a Gaussian has none: it is clipped by every world
    mine, its = policy.env.action_space, env.action_space
    if mine is not its and any(
        isinstance(own, Box) and isinstance(other, Box) and (own.low, own.high) != (other.low, other.high)
        for (_, own), (_, other) in zip(trees.leaves(mine), trees.leaves(its), strict=True)
    ):
        raise InputError(
            f"{what}: the policy's actions fill {mine}, and {env._called} has {its}, which would clip them; "
            f"evaluate it in a world of the same bounds, or train another one"
        )


def check_learns(policy: Any, env: Any, what: str, *, hosted: bool = False) -> ActorCritic:
    """`check_fits`, and raise `InputError` where ratios would not begin at 1; the policy."""
    check_fits(policy, env, what, hosted=hosted)
    if not isinstance(policy, ActorCritic):
        raise InputError(f"{what}: policy is {named(policy)}, expected a dz.rl.ActorCritic, such as dz.rl.mlp(env)")
    if any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in policy.modules()):
        raise InputError(f"{what}: the policy has dropout, so its ratios would not begin at 1; set its p to 0")
    for module in policy.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise InputError(
                f"{what}: the policy has {type(module).__name__}, which gives other values in each batch, so its "
                f"ratios would not begin at 1; use torch.nn.LayerNorm"
            )
    return policy


def check_float32(policy: Policy, what: str) -> None:
    """Raise `InputError` where what a policy learns, or acts by, is no float32."""
    for name, parameter in policy.named_parameters():
        used = parameter.requires_grad or parameter is getattr(getattr(policy, "actor", None), "weight", None)
        if used and parameter.dtype != torch.float32:
            raise InputError(
                f"{what}: the policy's {name} is {parameter.dtype}, expected torch.float32, since observations are; "
                f"call policy.float(), and set the algorithm's precision for a smaller one"
            )
