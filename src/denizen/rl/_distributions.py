"""Distributions over actions, with what learning needs of them; every method works on a batch of rows."""

import itertools
import math
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

FEW = 8  # choices
_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Distribution(Protocol):
    """What a policy says about its next action, for each row."""

    def sample(self, uniform: Tensor) -> Tensor:
        """Actions from uniform numbers `[rows, draws]`."""
        ...

    def mode(self) -> Tensor:
        """The likeliest actions."""
        ...

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability or log-density of actions: `[rows]`."""
        ...

    def entropy(self) -> Tensor:
        """In nats: `[rows]`."""
        ...

    def kl(self, other: Any) -> Tensor:
        """KL(self, other) to another distribution of this kind, in nats: `[rows]`."""
        ...


class Categorical(NamedTuple):
    """One of several choices.

    Attributes:
        log_probs: float32 `[rows, choices]`, normalised; -inf where a choice is closed.
    """

    log_probs: Tensor

    @staticmethod
    def of(logits: Tensor, open_: Tensor | None = None) -> "Categorical":
        """From logits `[rows, choices]`, and which choices are open (bool), where some are not.

        Rows where none is, as of agents that are out, count as open: their numbers stay finite.
        """
        logits = logits.to(torch.float32)
        if open_ is not None:
            open_ = open_ | ~open_.any(-1, keepdim=True)
            logits = logits.masked_fill(~open_, -torch.inf)
        return Categorical(torch.log_softmax(logits, dim=-1))

    def sample(self, uniform: Tensor) -> Tensor:
        """By inversion of one uniform number a row; a closed choice has no width and is never drawn."""
        # Few choices are added up one by one: compiled, that is part of one pass over the rows; a scan is a kernel.
        # The last open choice ends at the total, whatever rounding made of it.
        probs = self.log_probs.exp()
        if probs.shape[-1] <= FEW:
            edges = list(itertools.accumulate(probs.unbind(-1)))
            drawn = sum((edge <= uniform[:, 0] * edges[-1]).to(torch.int64) for edge in edges)
            assert isinstance(drawn, Tensor)
        else:
            sums = probs.cumsum(-1)
            drawn = (sums <= uniform[:, :1] * sums[:, -1:]).sum(-1)
        return drawn.clamp(max=probs.shape[-1] - 1)

    def mode(self) -> Tensor:
        """The likeliest choice; the first of equals."""
        return self.log_probs.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Of the choice made."""
        return self.log_probs.gather(-1, action[:, None]).squeeze(-1)

    def entropy(self) -> Tensor:
        """Closed choices add nothing, and their gradient is finite: 0."""
        finite = self.log_probs.masked_fill(self.log_probs == -torch.inf, 0.0)
        return -(finite.exp() * finite * (self.log_probs != -torch.inf)).sum(-1)

    def kl(self, other: "Categorical") -> Tensor:
        """Choices closed here add nothing, whatever the other says of them."""
        closed = self.log_probs == -torch.inf
        mine, its = self.log_probs.masked_fill(closed, 0.0), other.log_probs.masked_fill(closed, 0.0)
        return torch.where(closed, 0.0, mine.exp() * (mine - its)).sum(-1)


class Gaussian(NamedTuple):
    """Independent normal numbers.

    Attributes:
        mean: float32 `[rows, numbers]`.
        log_std: float32 `[numbers]` or `[rows, numbers]`.
        shape: of one action.
    """

    mean: Tensor
    log_std: Tensor
    shape: tuple[int, ...]

    def sample(self, uniform: Tensor) -> Tensor:
        """By inversion, one uniform number for each number of the action."""
        noise = torch.special.ndtri(uniform.to(torch.float64)).to(torch.float32)
        return (self.mean + self.log_std.exp() * noise).reshape(-1, *self.shape)

    def mode(self) -> Tensor:
        """The mean."""
        return self.mean.reshape(-1, *self.shape)

    def log_prob(self, action: Tensor) -> Tensor:
        """Sum over the numbers of the action."""
        far = (action.reshape(self.mean.shape) - self.mean) / self.log_std.exp()
        return -(0.5 * far.square() + self.log_std + _HALF_LOG_TAU).sum(-1)

    def entropy(self) -> Tensor:
        """Sum over the numbers of the action; may be negative."""
        return (self.log_std + _HALF_LOG_TAU + 0.5).sum(-1).expand(self.mean.shape[0])

    def kl(self, other: "Gaussian") -> Tensor:
        """Sum over the numbers of the action."""
        wider = other.log_std - self.log_std
        far = (self.mean - other.mean) / other.log_std.exp()
        return (wider + 0.5 * ((-2 * wider).exp() + far.square() - 1)).sum(-1)
