"""A policy's own kernels, compiled before they are first launched."""

import torch
from torch import nn

from denizen.nn import kernels
from denizen.rl._planes import Planes
from denizen.rl._policy import ActorCritic


def ahead(policy: ActorCritic, heads: list[nn.Linear], acting: int, learning: int, dtype: torch.dtype) -> None:
    """Have kernels compiled, in threads within `kernels.precompiling`.

    Args:
        policy: on CUDA.
        heads: of actor and critic that are learnt.
        acting: rows that act at once.
        learning: rows of a minibatch.
        dtype: in which the policy runs.
    """
    if isinstance(policy.body, Planes):
        policy.body.ahead(acting, learning, dtype, policy.actor)
        return
    found = policy.towers(heads) if dtype == torch.float32 else None
    if found is None:
        return
    weights, activation = found
    space = policy.env.observation_space
    look = torch.zeros(1, *space.shape, dtype=space.dtype, device=policy.actor.weight.device)
    seen = policy._seen(look).flatten(1).to("meta")
    if seen.dtype in kernels.MLP_INPUTS:
        few, many = (seen.new_empty(rows, seen.shape[1]) for rows in (acting, learning))
        shaped = [torch.empty(weight.shape, device="meta") for weight in weights]
        kernels.precompile_mlp(few, many, shaped, activation)
