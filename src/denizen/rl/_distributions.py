"""Distributions over actions, with what learning needs of them; every method works on a batch of rows."""

import itertools
import math
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from denizen.model import Box

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


class BoxDistribution(Protocol):
    """A class of distributions over the numbers of a box, which a policy may be told to have.

    Attributes:
        each: numbers that the actor gives for each number of the box.
        draws: uniform numbers that a draw of one takes.
        learns_std: whether it takes the policy's `log_std`.
    """

    each: int
    draws: int
    learns_std: bool

    def of(self, numbers: Tensor, log_std: Tensor | None, space: Box) -> Distribution:
        """From the actor's numbers `[rows, each * numbers of the box]`."""
        ...

    def check(self, space: Box, what: str) -> None:
        """Raise `InputError` where it does not fit a box."""
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


class Categoricals(NamedTuple):
    """A choice of each of several factors, independent of one another.

    Attributes:
        log_probs: float32 `[rows, factors, choices]`, normalised; -inf where a choice is closed, or a factor has none
            of that number.
    """

    log_probs: Tensor

    @staticmethod
    def of(logits: Tensor, factors: tuple[int, ...], open_: Tensor | None = None) -> "Categoricals":
        """From logits of the choices of all factors side by side, `[rows, choices]`, and which of them are open."""
        if len(set(factors)) == 1:  # nothing to fill up
            apart = logits.unflatten(-1, (len(factors), -1))
            kept = None if open_ is None else open_.unflatten(-1, (len(factors), -1))
        else:
            apart = _side_by_side(logits.to(torch.float32), factors, -torch.inf)
            kept = None if open_ is None else _side_by_side(open_, factors, False)
        return Categoricals(Categorical.of(apart, kept).log_probs)

    def _each(self) -> Categorical:
        return Categorical(self.log_probs.flatten(0, 1))

    def _per_factor(self, numbers: Tensor) -> Tensor:
        return numbers.view(self.log_probs.shape[:2])

    def sample(self, uniform: Tensor) -> Tensor:
        """By inversion, one uniform number for each factor: int64 `[rows, factors]`."""
        return self._per_factor(self._each().sample(uniform.reshape(-1, 1)))

    def mode(self) -> Tensor:
        """The likeliest choice of each factor."""
        return self.log_probs.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Sum over the factors."""
        return self.log_probs.gather(-1, action.to(torch.int64)[..., None]).squeeze(-1).sum(-1)

    def entropy(self) -> Tensor:
        """Sum over the factors."""
        return self._per_factor(self._each().entropy()).sum(-1)

    def kl(self, other: "Categoricals") -> Tensor:
        """Sum over the factors."""
        return self._per_factor(self._each().kl(other._each())).sum(-1)


def _side_by_side(entries: Tensor, factors: tuple[int, ...], fill: float) -> Tensor:
    """`[rows, choices]` as `[rows, factors, most choices]`, filled up."""
    most = max(factors)
    parts = entries.split(factors, -1)
    return torch.stack([F.pad(part, (0, most - part.shape[-1]), value=fill) for part in parts], -2)


class Gaussian(NamedTuple):
    """Independent normal numbers; worlds get the nearest ones within the bounds of their box.

    Attributes:
        mean: float32 `[rows, numbers]`.
        log_std: float32 `[numbers]` or `[rows, numbers]`.
        shape: of one action.
    """

    mean: Tensor
    log_std: Tensor
    shape: tuple[int, ...]

    # Numbers of an actor, and uniform numbers of a draw, for each number of a box; whether `log_std` is learnt.
    each, draws, learns_std = 1, 1, True

    @staticmethod
    def of(numbers: Tensor, log_std: Tensor | None, space: Box) -> "Gaussian":
        """From the actor's numbers `[rows, numbers]`."""
        assert log_std is not None
        return Gaussian(numbers.to(torch.float32), log_std, space.shape)

    @staticmethod
    def check(space: Box, what: str) -> None:
        """Any box will do."""

    def sample(self, uniform: Tensor) -> Tensor:
        """By inversion, one uniform number for each number of the action."""
        return (self.mean + self.log_std.exp() * normal(uniform)).reshape(-1, *self.shape)

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


def normal(uniform: Tensor) -> Tensor:
    """Standard normal numbers by inversion."""
    return torch.special.ndtri(uniform.to(torch.float64)).to(torch.float32)


class Greedy(NamedTuple):
    """The choice of the highest value, for certain.

    Attributes:
        values: float32 `[rows, choices]`; -inf where a choice is closed.
    """

    values: Tensor

    @staticmethod
    def of(values: Tensor, open_: Tensor | None = None) -> "Greedy":
        """From values `[rows, choices]`, and which choices are open (bool); rows where none is count as open."""
        values = values.to(torch.float32)
        if open_ is not None:
            values = values.masked_fill(~(open_ | ~open_.any(-1, keepdim=True)), -torch.inf)
        return Greedy(values)

    def explored(self, epsilon: Tensor) -> Categorical:
        """One of the open choices with probability `epsilon` (float32 `[]`), else the best."""
        is_open = (self.values > -torch.inf).to(torch.float32)
        best = torch.zeros_like(self.values).scatter(-1, self.mode()[:, None], 1.0)
        return Categorical((epsilon * is_open / is_open.sum(-1, keepdim=True) + (1 - epsilon) * best).log())

    def sample(self, uniform: Tensor) -> Tensor:
        """The best choice, whatever was drawn."""
        return self.mode()

    def mode(self) -> Tensor:
        """The best choice; the first of equals."""
        return self.values.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """0 for the best choice, -inf for others."""
        return torch.where(action == self.mode(), 0.0, -torch.inf)

    def entropy(self) -> Tensor:
        """0."""
        return torch.zeros_like(self.values[:, 0])

    def kl(self, other: "Greedy") -> Tensor:
        """0 where both choose alike, else infinite."""
        return torch.where(self.mode() == other.mode(), 0.0, torch.inf)


class Certain(NamedTuple):
    """One action, for certain.

    Attributes:
        action: float32 `[rows, *shape]`.
    """

    action: Tensor

    def sample(self, uniform: Tensor) -> Tensor:
        """The action, whatever was drawn."""
        return self.action

    def mode(self) -> Tensor:
        """The action."""
        return self.action

    def log_prob(self, action: Tensor) -> Tensor:
        """0 for the action, -inf for others."""
        return torch.where((action == self.action).reshape(len(action), -1).all(1), 0.0, -torch.inf)

    def entropy(self) -> Tensor:
        """-inf, as of a density that is all at one place."""
        return torch.full_like(self.action.reshape(len(self.action), -1)[:, 0], -torch.inf)

    def kl(self, other: "Certain") -> Tensor:
        """0 where both are the same, else infinite."""
        return torch.where((self.action == other.action).reshape(len(self.action), -1).all(1), 0.0, torch.inf)
