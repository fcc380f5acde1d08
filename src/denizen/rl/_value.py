"""Value heads: how values are learnt. A trainer knows only the methods of `ValueHead`."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from denizen._processes import total
from denizen.errors import InputError
from denizen.ops import rounding
from denizen.rl._gae import flat

Moments = Callable[[Tensor], tuple[Tensor, Tensor]]


def _fuses(features: Tensor) -> bool:
    """Whether a sum of products is compiled with what comes before and after; a matrix product is a launch."""
    return features.is_cuda


class ValueHead(nn.Module):
    """A linear value; base of other heads."""

    def __init__(self, features: int) -> None:
        """Args:
        features: width of what comes in.
        """
        super().__init__()
        self.linear = nn.Linear(features, 1)
        nn.init.orthogonal_(self.linear.weight, 1.0)
        nn.init.zeros_(self.linear.bias)

    def training_value(self, features: Tensor) -> Tensor:
        """Values in the units in which they are learnt: float32 `[rows]`, from `[rows, features]`."""
        if not _fuses(features):
            return self.linear(features).squeeze(-1).to(torch.float32)
        weight = self.linear.weight[0].to(features.dtype).to(torch.float32)
        return (features.to(torch.float32) * weight).sum(-1) + self.linear.bias.to(torch.float32)

    def value(self, features: Tensor) -> Tensor:
        """Values in the units of the reward: float32 `[rows]`."""
        return self.in_rewards(self.training_value(features))

    def in_rewards(self, values: Tensor) -> Tensor:
        """Learnt values in the units of the reward."""
        return values

    def prepare_targets(self, returns: Tensor, old_values: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """(targets, old values) in the units in which values are learnt; called once an update, before the epochs.

        Args:
            returns: float32, any shape.
            old_values: of the same shape, as the rollout had them.
            weight: of the same shape, 1 where an entry counts.
        """
        return returns, old_values

    def bind(self, moments: Moments) -> None:
        """Told once where the optimizer keeps the moments of a parameter, for heads that rescale themselves."""


def check_head(head: object, features: int) -> None:
    """Raise `InputError` where a value head is not one."""
    if not isinstance(head, ValueHead):
        raise InputError(
            f"head gave {type(head).__name__}, expected a dz.rl.ValueHead: subclass it, and write over training_value, "
            f"in_rewards and prepare_targets what differs"
        )
    with torch.no_grad():
        found = head.training_value(torch.zeros(2, features))
    if not isinstance(found, Tensor) or found.shape != (2,):
        shown = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InputError(f"{type(head).__name__}.training_value gives {shown} for 2 rows, expected (2,): squeeze(-1)")


class PopArt(ValueHead):
    """A value learnt in units that follow the returns, its outputs preserved (van Hasselt et al., 2016; POP and ART).

    Once an update the running mean and standard deviation of the returns move by max(1 / count, `least_rate`), and the
    last layer with its Adam moments is rescaled so that values stay as they were. Returns that differ by rounding alone
    count as equal, and the deviation stays above the rounding of the mean.
    """

    def __init__(self, features: int, *, least_rate: float = 1e-3, rescale_weights: bool = True) -> None:
        """Args:
        features: width of what comes in.
        least_rate: by which statistics move, at least.
        rescale_weights: keep the outputs as they were.
        """
        super().__init__(features)
        self.least_rate, self.rescale_weights = least_rate, rescale_weights
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))
        self.register_buffer("count", torch.zeros(()))
        self._moments: Moments | None = None

    def extra_repr(self) -> str:
        """Its settings."""
        return f"least_rate={self.least_rate}, rescale_weights={self.rescale_weights}"

    def bind(self, moments: Moments) -> None:
        """See `ValueHead.bind`."""
        self._moments = moments

    def in_rewards(self, values: Tensor) -> Tensor:
        """Learnt values in the units of the reward."""
        return self.mean + self.std * values

    @torch.no_grad()
    def prepare_targets(self, returns: Tensor, old_values: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Move the statistics, rescale the last layer, and normalise."""
        count, whole = total(torch.stack([weight.sum(), (returns * weight).sum()])).unbind()
        mean = whole / count.clamp(min=1)
        returns = torch.where(flat(returns, weight), mean, returns)
        spread = total(((returns - mean).square() * weight).sum())
        std = (spread / count.clamp(min=1)).sqrt().clamp(min=1e-4)
        self.count.add_(1)
        rate = (1 / self.count).clamp(min=self.least_rate)
        old_mean, old_std = self.mean.clone(), self.std.clone()
        self.mean.lerp_(mean, rate)
        variance = torch.lerp(old_std.square(), std.square(), rate)
        self.std.copy_(variance.sqrt().clamp(min=1e-4).maximum(rounding(self.mean.abs(), self.mean.dtype)))
        if self.rescale_weights:
            self._rescale(old_std / self.std, (old_mean - self.mean) / self.std)
        return (returns - self.mean) / self.std, (old_values - self.mean) / self.std

    def _rescale(self, factor: Tensor, shift: Tensor) -> None:
        self.linear.weight.mul_(factor)
        self.linear.bias.mul_(factor).add_(shift)
        if self._moments is not None:
            for parameter in (self.linear.weight, self.linear.bias):
                first, second = self._moments(parameter)
                first.mul_(factor)
                second.mul_(factor.square())
