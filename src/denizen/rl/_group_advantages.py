"""Advantages relative to a group: what a replica gained beside the replicas that began like it.

Every tensor is `[steps, groups, replicas]`. A set of values whose largest and smallest differ by no more than the
rounding of rewards gives exactly 0 (`ops.rounding`). The test is on sums in float64, whose own rounding is far below: a
rounded standard deviation is a little above 0, and sums in float32 differ where the same rewards came in another order.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from denizen import _processes as processes
from denizen.nn import kernels
from denizen.ops import rounding

ADVANTAGES = ("reward_to_go", "outcome", "process", "original")
SCALES = ("none", "group", "batch", "group_time")

_TIME, _GROUP, _REPLICA = 0, 1, 2
_OPERATIONS = 4  # that lead to a reward
_ROUGH = 0.01  # of the spread
_CENTRE_AXES = {"outcome": (_REPLICA,), "process": (_TIME, _REPLICA), "reward_to_go": (_REPLICA,)}
_SCALE_AXES = {
    "group": (_TIME, _REPLICA),
    "batch": (_TIME, _GROUP, _REPLICA),
    "group_time": (_REPLICA,),
}


class GroupAdvantages(NamedTuple):
    """What `group_advantages` gives.

    Attributes:
        advantage: float `[steps, groups, replicas]`; 0 at masked steps.
        flat: bool `[groups]`: nothing in the group differed by more than rounding, so that its advantages are all
            exactly 0.
    """

    advantage: Tensor
    flat: Tensor


def group_advantages(
    reward: Tensor,
    valid: Tensor,
    *,
    advantage: str,
    scale: str,
    gamma: float,
    std_eps: float = 1e-6,
    sample_std: bool = False,
) -> GroupAdvantages:
    """Centre within groups, then divide by a standard deviation.

    - ``"reward_to_go"``: G_t = sum over t' >= t of gamma^(t' - t) r_t', less the mean over the valid replicas of the
      same group at the same step.
    - ``"outcome"``: R = sum of r_t, less the group's mean, for every step (DeepSeekMath, outcome supervision).
    - ``"process"``: r_t less the mean over all valid steps of the group, divided, then summed over t' >= t
      (DeepSeekMath, process supervision).
    - ``"original"``: what the program fruit catchers come from did, as a baseline: (G - half the mean over everything)
      / max(std over everything, 0.5), cut to [-2, 2]. Takes no scale.

    Args:
        reward: float; may hold anything at masked steps.
        valid: bool: the replica acted.
        advantage: one of `ADVANTAGES`.
        scale: one of `SCALES`: divide by nothing, or by the standard deviation of the centred values of the group
            (over all valid steps; with ``"outcome"`` each replica counts once), of the batch, or of the group at one
            step.
        gamma: discount of ``"reward_to_go"`` and ``"original"``.
        std_eps: added to the standard deviation.
        sample_std: divide the sum of squares by n - 1 in place of n.
    """
    reward = torch.where(valid, reward, 0.0)
    if advantage == "original":
        return _original(reward, valid, gamma, std_eps)
    mask, axes = (valid.any(_TIME, keepdim=True) if advantage == "outcome" else valid), _CENTRE_AXES[advantage]

    def values_of(rewards: Tensor) -> Tensor:
        if advantage == "outcome":
            return rewards.sum(_TIME, keepdim=True)
        return rewards if advantage == "process" else _to_go(rewards, gamma)

    exact, size = values_of(torch.stack([reward, reward.abs()], dim=-1).to(torch.float64)).unbind(-1)
    limit = rounding(size, reward.dtype, _OPERATIONS) + rounding(size, exact.dtype, 2 * len(reward))
    rough = _ROUGH / len(reward) if advantage == "process" else _ROUGH  # a mean's error adds up over the steps
    centred, differs = _centred(values_of(reward), exact, limit, mask, axes, rough)
    if scale != "none":
        centred = centred / (_std(centred, mask, _SCALE_AXES[scale], sample_std) + std_eps)
    if advantage == "process":
        centred = _to_go(centred, 1.0)
    flat = ~differs.any(_REPLICA).any(_TIME)
    return GroupAdvantages(torch.where(valid, centred, 0.0), flat)


def _original(reward: Tensor, valid: Tensor, gamma: float, std_eps: float) -> GroupAdvantages:
    values, everything = _to_go(reward, gamma), (_TIME, _GROUP, _REPLICA)
    mean = _mean(values, valid, everything)
    std = _std(torch.where(valid, values - mean, 0.0), valid, everything, sample=True)
    advantage = ((values - 0.5 * mean) / (std.clamp(min=0.5) + std_eps)).clamp(-2.0, 2.0)
    flat = torch.zeros(values.shape[_GROUP], dtype=torch.bool, device=values.device)
    return GroupAdvantages(torch.where(valid, advantage, 0.0), flat)


def _centred(
    values: Tensor, exact: Tensor, limit: Tensor, mask: Tensor, axes: tuple[int, ...], rough: float
) -> tuple[Tensor, Tensor]:
    """(values less their mean, 0 where they differ by rounding alone; where they differ by more).

    Args:
        values: as summed up in their own precision.
        exact: the same in float64.
        limit: how far rounding alone may move each.
        mask: bool: the value counts.
        axes: over which to centre.
        rough: share of the spread: where values are off by more, the exact ones stand in.
    """
    spread = _spread(exact, mask, axes)
    beyond = spread - torch.where(mask, limit, 0.0).amax(axes, keepdim=True)
    differs = mask & (spread > 0) & ~(beyond <= 0)  # what is infinite differs
    centred, better = values - _mean(values, mask, axes), exact - _mean(exact, mask, axes)
    off = torch.where(mask, (centred - better).abs(), 0.0).amax(axes, keepdim=True)
    return torch.where(differs, torch.where(off > rough * spread, better.to(values.dtype), centred), 0.0), differs


def _to_go(values: Tensor, gamma: float) -> Tensor:
    """Discounted sums over this step and all later ones."""
    return kernels.backward_sums(values, torch.full_like(values, gamma))


def _sum(values: Tensor, axes: tuple[int, ...]) -> Tensor:
    """A sum over groups is one over all processes, since groups are shared out among them."""
    here = values.sum(axes, keepdim=True)
    return processes.total(here) if _GROUP in axes else here


def _mean(values: Tensor, mask: Tensor, axes: tuple[int, ...]) -> Tensor:
    return _sum(torch.where(mask, values, 0.0), axes) / _sum(mask, axes).clamp(min=1)


def _spread(values: Tensor, mask: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Largest less smallest; -inf where nothing is valid."""
    most = torch.where(mask, values, -torch.inf).amax(axes, keepdim=True)
    return most - torch.where(mask, values, torch.inf).amin(axes, keepdim=True)


def _std(centred: Tensor, mask: Tensor, axes: tuple[int, ...], sample: bool) -> Tensor:
    """Standard deviation of values that are 0 where the mask is."""
    mean = _mean(centred, mask, axes)
    squares, count = _sum(torch.where(mask, centred - mean, 0.0).square(), axes), _sum(mask, axes)
    return (squares / (count - 1 if sample else count).clamp(min=1)).sqrt()
