"""The loss of PPO (Schulman et al., 2017), with entropy floor, value clipping and masks."""

from typing import NamedTuple

import torch
from torch import Tensor

from denizen.rl._gae import summed
from denizen.rl._processes import size, total


class Coefficients(NamedTuple):
    """Settings of the loss at one moment, each float32 `[]`."""

    clip: Tensor
    entropy: Tensor
    entropy_floor: Tensor
    value: Tensor
    value_clip: Tensor | None
    floor_penalty: Tensor


class Loss(NamedTuple):
    """The loss and its parts, each float32 `[]`."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor
    clipped: Tensor


def ppo_loss(
    log_prob: Tensor,
    entropy: Tensor,
    value: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    target: Tensor,
    old_value: Tensor,
    weight: Tensor,
    coefficients: Coefficients,
) -> Loss:
    """L = -mean min(rho A, clip(rho) A) + c_v L_v - c_e H + c_f max(0, floor - H), means over rows of weight 1.

    Of several processes each gives its share, which add up to the loss of all. L_v is the mean squared error; clipped,
    for each element the larger of the two squared errors.

    Args:
        log_prob: of the stored actions under the present policy; every argument but the last is `[rows]`.
        entropy: of the present policy.
        value: in the units of `target`.
        old_log_prob: under the policy that acted.
        advantage: normalised or not.
        target: what values are to become.
        old_value: of the policy that acted, in the units of `target`.
        weight: 1 where the row counts.
        coefficients: settings.
    """
    count = total(summed(weight)).clamp(min=1)

    def mean(rows: Tensor) -> Tensor:
        return summed(rows * weight) / count

    # Rows that do not count may hold anything, also what overflows.
    change = torch.where(weight > 0, log_prob - old_log_prob, 0.0)
    ratio = change.exp()
    bounded = torch.clamp(ratio, 1 - coefficients.clip, 1 + coefficients.clip)
    policy = -mean(torch.minimum(ratio * advantage, bounded * advantage))
    error = torch.where(weight > 0, value - target, 0.0).square()
    if coefficients.value_clip is not None:
        near = old_value + torch.clamp(value - old_value, -coefficients.value_clip, coefficients.value_clip)
        error = torch.maximum(error, torch.where(weight > 0, near - target, 0.0).square())
    value_loss = mean(error)
    spread = mean(torch.where(weight > 0, entropy, 0.0))
    below = coefficients.entropy_floor > total(spread)
    lacking = torch.where(below, coefficients.entropy_floor / size() - spread, 0.0)
    whole = policy + coefficients.value * value_loss - coefficients.entropy * spread
    whole = whole + coefficients.floor_penalty * lacking
    with torch.no_grad():
        kl = mean(ratio - 1 - change)
        clipped = mean(((ratio - 1).abs() > coefficients.clip).to(torch.float32))
    return Loss(whole, policy, value_loss, spread, kl, clipped)
