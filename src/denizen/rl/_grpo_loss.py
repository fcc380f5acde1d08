"""The loss of GRPO: clipped ratios, a KL to a reference policy, entropy, and the denominators of the literature."""

from typing import NamedTuple

import torch
from torch import Tensor

from denizen.rl import _processes as processes

LOSSES = ("grpo", "dapo", "bnpo", "dr_grpo")
ESTIMATORS = ("k3_iw", "k3", "exact")
SUMS = (
    "policy_loss",
    "entropy",
    "kl_old",
    "clip_low",
    "clip_high",
    "kl_reference",
    "kl_k1",
    "kl_k2",
)


def weights(valid: Tensor, *, loss: str, num_steps: int) -> Tensor:
    """What each step counts in a loss that is a sum over the whole batch of an optimiser step, in all processes.

    - ``"grpo"``: 1 / (N n_i): the mean over sequences of each one's mean (DeepSeekMath).
    - ``"dapo"``: 1 / sum of n_i: the mean over steps (DAPO). ``"bnpo"``: the same within each micro-batch, whose means
      are averaged, so that it depends on their number (TRL); only to compare.
    - ``"dr_grpo"``: 1 / (N T), T constant: no bias by length (Dr. GRPO).

    N counts sequences with a valid step, n_i the valid steps of one.

    Args:
        valid: bool `[steps, sequences]`.
        loss: one of `LOSSES`.
        num_steps: T.

    Returns:
        float32 `[steps, sequences]`, 0 at masked steps.
    """
    mask = valid.to(torch.float32)
    lengths = mask.sum(0)
    sequences = processes.total((lengths > 0).sum()).clamp(min=1)
    if loss == "grpo":
        return mask / (sequences * lengths.clamp(min=1))
    if loss == "dr_grpo":
        return mask / (sequences * num_steps)
    return mask / processes.total(lengths.sum()).clamp(min=1)


class Terms(NamedTuple):
    """Of a part of the batch, each float32 `[]`: `total` is what to differentiate; the rest are metrics.

    Attributes:
        total: weighted sum; the parts of a batch add up to its loss.
        sums: float32 `[len(SUMS)]`, parts of which add up as well.
        ratio_low: smallest ratio.
        ratio_high: largest ratio.
    """

    total: Tensor
    sums: Tensor
    ratio_low: Tensor
    ratio_high: Tensor


class Settings(NamedTuple):
    """Of the loss.

    Attributes:
        clip_low: ratios below 1 - clip_low are clipped.
        clip_high: those above 1 + clip_high.
        beta: weight of the KL to the reference.
        estimator: one of `ESTIMATORS`.
        entropy: float32 `[]`: weight of the entropy.
        sequence_ratio: one ratio for a sequence, exp(mean over its steps of log rho) (GSPO).
    """

    clip_low: float
    clip_high: float
    beta: float
    estimator: str
    entropy: Tensor
    sequence_ratio: bool


def grpo_loss(
    log_prob: Tensor,
    entropy: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    policy_weight: Tensor,
    weight: Tensor,
    settings: Settings,
    reference_log_prob: Tensor | None = None,
    exact_kl: Tensor | None = None,
) -> Terms:
    """Sum of w_p (-min(rho A, clip(rho) A)) + w (beta kl - c_H entropy); every tensor is `[steps, sequences]`.

    With u = pi_ref / pi, k3 = u - log u - 1 is an unbiased value of KL(pi, pi_ref), but its gradient is that of
    KL(pi_ref, pi). ``"k3_iw"`` is rho k3 with the gradient through rho as well, whose expected gradient is right.

    Args:
        log_prob: of the stored actions under the present policy.
        entropy: of the present policy.
        old_log_prob: under the policy that acted.
        advantage: of the stored actions.
        policy_weight: what a step counts in the policy's term.
        weight: what it counts in the other terms; 0 masks it.
        settings: of the loss.
        reference_log_prob: of the stored actions under the reference; None: no KL.
        exact_kl: KL(pi, pi_ref) in the visited states, for ``"exact"``.
    """
    used = weight > 0  # what is masked may hold anything, also what overflows
    change = torch.where(used, log_prob - old_log_prob, 0.0)
    step_ratio = change.exp()
    if settings.sequence_ratio:
        change = (change.sum(0) / used.sum(0).clamp(min=1)).expand_as(change)
    ratio = change.exp()
    gain = torch.where(used, advantage, 0.0)
    bounded = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    with torch.no_grad():
        old = (ratio - 1 - change) * weight
        low = ((ratio < 1 - settings.clip_low) & (gain < 0)) * weight
        high = ((ratio > 1 + settings.clip_high) & (gain > 0)) * weight
        least, most = torch.where(used, ratio, torch.inf).min(), torch.where(used, ratio, -torch.inf).max()
    policy = -torch.minimum(ratio * gain, bounded * gain) * policy_weight
    terms = [policy, torch.where(used, entropy, 0.0) * weight, old, low, high]  # in the order of SUMS
    if reference_log_prob is not None:
        log_u = torch.where(used, reference_log_prob - log_prob, 0.0)
        k3 = log_u.expm1() - log_u
        kl = step_ratio * k3 if settings.estimator == "k3_iw" else k3
        if settings.estimator == "exact":
            assert exact_kl is not None
            kl = torch.where(used, exact_kl, 0.0)
        terms += [kl * weight, -log_u.detach() * weight, 0.5 * log_u.detach().square() * weight]
    sums = torch.stack(terms).flatten(1).sum(1)  # one sum of all, which compiled is one reduction
    total = sums[0] - settings.entropy * sums[1]
    if reference_log_prob is not None:
        total = total + settings.beta * sums[5]
    return Terms(total, torch.nn.functional.pad(sums.detach(), (0, len(SUMS) - len(terms))), least, most)
