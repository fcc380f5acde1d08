"""Generalised advantage estimation (Schulman et al., 2016) with truncation bootstrapped from the final observation."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from denizen._processes import most, total
from denizen.nn import kernels
from denizen.ops import rounding

SUMS = 1024  # of parts, at most: what one program adds up in one go


class Advantages(NamedTuple):
    """Advantages and returns, both float32 `[steps, rows]`; 0 where a row did not act."""

    advantage: Tensor
    returns: Tensor


def advantages(
    reward: Tensor,
    value: Tensor,
    bootstrap: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Advantages:
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
    advantage = kernels.backward_sums(delta, onwards)
    return Advantages(advantage, torch.where(valid, advantage + value, 0.0))


def normalised(advantage: Tensor, weight: Tensor) -> Tensor:
    """Advantages with mean 0 and standard deviation 1 over the entries of weight 1; unchanged where fewer than two are.

    Where they differ by rounding alone there is nothing to learn from, and all are exactly 0.

    Of several processes, over the entries of all.

    Args:
        advantage: float32, any shape.
        weight: float32 of the same shape, 1 where the entry counts.
    """
    count, whole = total(torch.stack([summed(weight), summed(advantage * weight)])).unbind()
    mean = whole / count.clamp(min=1)
    variance = total(summed((advantage - mean).square() * weight)) / (count - 1).clamp(min=1)
    scaled = torch.where(flat(advantage, weight), 0.0, (advantage - mean) / (variance.sqrt() + 1e-8))
    return torch.where(count > 1, scaled, advantage) * weight


def flat(entries: Tensor, weight: Tensor) -> Tensor:
    """Whether the entries of weight 1, of all processes, differ by rounding alone: bool `[]`.

    What is not finite is not flat. By the largest and the smallest: compiled, a mean of many equal numbers is off by
    hundreds of roundings.
    """
    ends = most(
        torch.stack([_folded(torch.where(weight > 0, side, -torch.inf), torch.amax) for side in (entries, -entries)])
    )
    return ends.sum() - rounding(ends.abs().amax(), entries.dtype) <= 0


def summed(entries: Tensor) -> Tensor:
    """Sum of all entries: `[]`.

    On CUDA first of parts. Compiled, a sum of some thousand with what leads to them is otherwise one program, and one
    of some hundred thousand is fewer programs than there are multiprocessors.
    """
    return _folded(entries, torch.sum)


def _folded(entries: Tensor, fold: Callable[..., Tensor]) -> Tensor:
    count = entries.numel()
    part = max(32, 1 << (count // SUMS).bit_length())
    if entries.is_cuda and count > part and count % part == 0:
        return fold(fold(entries.reshape(-1, part), 1))
    return fold(entries)
