"""Losses over the answers of all agents, and measures of how well they do, kept as sums on the device."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from denizen.errors import InputError


def _check(answers: Tensor, expected: tuple[int, ...], target: Tensor) -> None:
    """Refuse what would broadcast to another number of terms."""
    if tuple(target.shape) != expected:
        raise InputError(
            f"target has shape {tuple(target.shape)}: answers of agents {tuple(answers.shape)} need {expected}"
        )


def agent_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of every agent's answer, averaged: `[…, agents, classes]` against int64 `[…]`."""
    _check(logits, tuple(logits.shape[:-2]), target)
    every = target[..., None].expand(logits.shape[:-1])
    return F.cross_entropy(logits.flatten(0, -2).float(), every.flatten())


def agent_mse(outputs: Tensor, target: Tensor) -> Tensor:
    """Squared error of every agent's answer, averaged: `[…, agents, y]` against `[…, y]`."""
    _check(outputs, (*outputs.shape[:-2], outputs.shape[-1]), target)
    return (outputs.float() - target[..., None, :]).square().mean()


def completion_loss(outputs: Tensor, target: Tensor, known: Tensor) -> Tensor:
    """Squared error on known entries only; 0 where nothing is known.

    Args:
        outputs: `[batch, agents, entries]`.
        target: `[batch, entries]`.
        known: bool `[entries]` or `[batch, entries]`.
    """
    _check(outputs, (*outputs.shape[:-2], outputs.shape[-1]), target)
    weight = known.expand_as(target)[:, None].to(torch.float32)
    error = (outputs.float() - target[:, None]).square() * weight
    return error.sum() / (weight.sum() * outputs.shape[1]).clamp(min=1)


def sinkhorn_distance(points: Tensor, others: Tensor, blur: float = 0.05, rounds: int = 50) -> Tensor:
    """Debiased entropic transport cost between equally weighted points `[batch, n, d]`: squared distance / 2.

    Args:
        points: `[batch, n, d]`.
        others: `[batch, m, d]`.
        blur: standard deviation of the entropic blur; the temperature is its square.
        rounds: of Sinkhorn's iteration, in logarithms.

    Returns:
        `[batch]`, zero for equal sets.
    """

    def cost(x: Tensor, y: Tensor) -> Tensor:
        apart = (x[:, :, None] - y[:, None]).square().sum(-1) / 2
        high = apart.detach().amax().clamp(min=blur**2)
        f, g = apart.new_zeros(apart.shape[:2]), apart.new_zeros(apart.shape[0], apart.shape[2])
        for done in range(rounds):  # cooled from the widest cost down to the blur in half of the rounds, or it stalls
            temperature = torch.clamp(high * (blur**2 / high) ** (2 * done / rounds), min=blur**2)
            f = -temperature * (torch.logsumexp((g[:, None] - apart) / temperature, 2) - math.log(apart.shape[2]))
            g = -temperature * (torch.logsumexp((f[:, :, None] - apart) / temperature, 1) - math.log(apart.shape[1]))
        return f.mean(1) + g.mean(1)

    return cost(points, others) - (cost(points, points) + cost(others, others)) / 2


def completion_loss_original(outputs: Tensor, target: Tensor, known: Tensor, rows: int) -> Tensor:
    """(squared error on known entries + transport cost between the rows of both matrices / 20) / 5.

    The transport is between the matrix of the agents' mean and the target, as sets of rows.
    """
    mean, truth = (x.float().unflatten(-1, (rows, -1)) for x in (outputs.mean(1), target))
    cost = sinkhorn_distance(mean, truth).mean()
    return (completion_loss(outputs, target, known) + cost / 20) / 5


class RunningMeans:
    """Means over a data set from sums over its batches, right for ragged batches; on the device until they are read."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    @torch.no_grad()
    def add(self, **values: Tensor) -> None:
        """Values of single terms, in any shape."""
        for name, value in values.items():
            total = value.double().sum()
            self._sums[name] = self._sums[name] + total if name in self._sums else total
            self._counts[name] = self._counts.get(name, 0) + value.numel()

    def result(self) -> dict[str, float]:
        """Sum / number of terms of each, NaN of none; reads the device once for each name."""
        counts = self._counts
        return {name: float(total) / counts[name] if counts[name] else math.nan for name, total in self._sums.items()}


def classification_metrics(logits: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Terms of accuracy by majority vote (ties: the lower class), of each agent, and agreement with the majority."""
    _check(logits, tuple(logits.shape[:-2]), target)
    votes = logits.argmax(-1)  # […, agents]
    majority = F.one_hot(votes, logits.shape[-1]).sum(-2).argmax(-1)
    return {
        "accuracy": majority == target,
        "agent_accuracy": votes == target[..., None],
        "agreement": votes == majority[..., None],
    }


def regression_metrics(outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Terms of the squared error of the agents' mean, of each agent's, and of the variance between agents."""
    _check(outputs, (*outputs.shape[:-2], outputs.shape[-1]), target)
    outputs = outputs.float()
    return {
        "mse": (outputs.mean(-2) - target).square(),
        "agent_mse": (outputs - target[..., None, :]).square(),
        "agent_variance": outputs.var(-2, correction=0),
    }


def completion_metrics(outputs: Tensor, target: Tensor, known: Tensor, rows: int) -> dict[str, Tensor]:
    """Terms of squared errors of the agents' mean on known and unknown entries, spectral gap and nuclear norm.

    Args:
        outputs: `[batch, agents, entries]`.
        target: `[batch, entries]`.
        known: bool `[entries]`.
        rows: of the matrix.
    """
    _check(outputs, (*outputs.shape[:-2], outputs.shape[-1]), target)
    mean = outputs.float().mean(-2)
    error = (mean - target).square()
    there = mean.isfinite().all(-1)  # of a model that diverged nothing is, which svdvals does not take
    singular = torch.linalg.svdvals(torch.where(there[:, None], mean, 0.0).unflatten(-1, (rows, -1)))
    singular = torch.where(there[:, None], singular, math.nan)
    gap = singular[:, 0] - singular[:, 1] if singular.shape[1] > 1 else singular[:, 0]
    return {
        "known_mse": error[:, known],
        "unknown_mse": error[:, ~known],
        "agent_variance": outputs.float().var(-2, correction=0),
        "spectral_gap": gap,
        "nuclear_norm": singular.sum(-1),
    }
