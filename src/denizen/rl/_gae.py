"""Generalised advantage estimation (Schulman et al., 2016) with truncation bootstrapped from the final observation."""

from typing import NamedTuple

import torch
from torch import Tensor

from denizen import ops
from denizen.rl._processes import total

SUMS = 1024  # of parts, at most: what one program adds up in one go


class Advantages(NamedTuple):
    """Advantages and returns, both float32 `[steps, rows]`; 0 where a row did not act."""

    advantage: Tensor
    returns: Tensor


def advantages(
    reward: Tensor, value: Tensor, bootstrap: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor,
    gamma: float, gae_lambda: float,
) -> Advantages:  # fmt: skip
    """Advantages A_t = delta_t + gamma lambda (1 - [T_t or U_t]) A_{t+1} and returns A_t + V_t.

    With delta_t = r_t + gamma (1 - T_t) B_t - V_t, where B_t is the value of the state before any reset: a truncated
    life is continued by its value, a terminated one is worth nothing further, and no advantage crosses either.

    Args:
        reward: `[steps, rows]`.
        value: `[steps, rows]`, of the observation acted on.
        bootstrap: `[steps, rows]`, of the state that the step led to, before a reset.
        terminated: bool `[steps, rows]`.
        truncated: bool `[steps, rows]`.
        valid: bool `[steps, rows]`: the row acted.
        gamma: discount.
        gae_lambda: 0 for one-step differences, 1 for whole returns.
    """
    delta = torch.where(valid, reward + gamma * torch.where(terminated, 0.0, bootstrap) - value, 0.0)
    onwards = torch.where(terminated | truncated | ~valid, 0.0, gamma * gae_lambda)
    advantage = ops.backward_sums(delta, onwards)
    return Advantages(advantage, torch.where(valid, advantage + value, 0.0))


def normalised(advantage: Tensor, weight: Tensor) -> Tensor:
    """Advantages with mean 0 and standard deviation 1 over the entries of weight 1; unchanged where fewer than two are.

    Of several processes, over the entries of all.

    Args:
        advantage: float32, any shape.
        weight: float32 of the same shape, 1 where the entry counts.
    """
    count, whole = total(torch.stack([summed(weight), summed(advantage * weight)])).unbind()
    mean = whole / count.clamp(min=1)
    variance = total(summed((advantage - mean).square() * weight)) / (count - 1).clamp(min=1)
    return torch.where(count > 1, (advantage - mean) / (variance.sqrt() + 1e-8), advantage) * weight


def summed(entries: Tensor) -> Tensor:
    """Sum of all entries: `[]`.

    On CUDA first of parts. Compiled, a sum of 2,048 with what leads to them is otherwise one program, which took 92 us,
    and one of 131,072 is 16 programs for 132 multiprocessors.
    """
    count = entries.numel()
    part = max(32, 1 << (count // SUMS).bit_length())
    if entries.is_cuda and count > part and count % part == 0:
        return entries.reshape(-1, part).sum(1).sum()
    return entries.sum()
