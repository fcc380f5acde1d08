"""Running statistics: inputs of a policy with mean 0 and deviation 1, and rewards in units of their returns' deviation.

Both are frozen within an update, so that what acted and what learns see the same numbers and ratios begin at 1.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from denizen import _tree
from denizen._arguments import number, whole
from denizen._processes import total
from denizen.errors import InputError
from denizen.nn import kernels
from denizen.ops import rounding
from denizen.rl._layers import side_by_side

if TYPE_CHECKING:
    from denizen.rl._policy import Policy

CLIP, LEAST = 10.0, 1e-8  # as Gymnasium and baselines have them: bound of what is normalised, added to a variance
AT_ONCE = 2**22  # numbers whose inputs are made at once: those of a whole rollout of planes take memory


class Moments(nn.Module):
    """Count, mean and variance of what has been seen, in float64; batches are merged (Chan, Golub and LeVeque, 1983).

    Attributes:
        count: float64 `[]`: rows so far.
        mean: float64, of the shape of a row; 0 before the first.
        variance: of the population, float64, of that shape; 1 before the first.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        """Args:
        shape: of a row.
        """
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(tuple(shape), dtype=torch.float64))
        self.register_buffer("variance", torch.ones(tuple(shape), dtype=torch.float64))

    @torch.no_grad()
    def take(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Take the rows of some batches, of all processes.

        Args:
            batches: (rows float32 `[rows, …]`, which count bool `[rows]`) of each; rows that do not may hold anything.
        """
        for rows, counts in batches:
            wide = counts.view(-1, *[1] * self.mean.dim())
            sums = torch.where(wide, rows, 0.0).sum(0, dtype=torch.float64)
            together = total(torch.cat([counts.sum(dtype=torch.float64)[None], sums.flatten()]))
            count, mean = together[0], (together[1:] / together[0].clamp(min=1)).view(self.mean.shape)
            # Squares of what is left after the mean, as float32 has it; what that rounds away is corrected.
            apart = torch.where(wide, rows - mean.to(rows.dtype), 0.0)
            ends = [apart.sum(0, dtype=torch.float64), apart.square().sum(0, dtype=torch.float64)]
            off, squares = total(torch.stack(ends)).unbind()
            self._merge(count, mean, (squares - off.square() / count.clamp(min=1)).clamp(min=0))

    def _merge(self, count: Tensor, mean: Tensor, squares: Tensor) -> None:
        both = (self.count + count).clamp(min=1)
        step = mean - self.mean
        squares = self.variance * self.count + squares + step.square() * (self.count * count / both)
        some = count > 0
        self.variance.copy_(torch.where(some, squares / both, self.variance))
        self.mean.add_(torch.where(some, step * (count / both), 0.0))
        self.count.add_(count)

    def deviation(self, least: float = LEAST) -> Tensor:
        """Of the shape of a row: float32, above 0: what differs by rounding alone does not vary."""
        floor = rounding(self.mean.abs(), torch.float32)
        return (self.variance + least).sqrt().maximum(floor).to(torch.float32)


class Normaliser(Moments):
    """Inputs of a network with mean 0 and deviation 1 in each entry, by the statistics of all that was acted on.

    A training takes a rollout in at the end of each update: within it statistics stand still. Steps of worlds that
    waited and of actors that were out do not count. Evaluations, `play` and policies on their own change nothing.
    """

    def __init__(self, shape: Sequence[int], *, clip: float | None = CLIP, least_variance: float = LEAST) -> None:
        """Args:
        shape: of one row of inputs, as `env.network_input` gives them; of a tree of inputs, the number of all its
            numbers, `(numbers,)`, whose statistics then stand side by side.
        clip: normalised inputs lie within -clip and clip; None: anywhere.
        least_variance: added to the variance.

        Raises:
            InputError: an argument does not fit.
        """
        if not isinstance(shape, Sequence) or isinstance(shape, str):
            raise InputError(f"Normaliser: shape={shape!r}, expected sizes, such as (4,) for four numbers a row")
        sizes = [whole("Normaliser", f"shape[{place}]", size, 1) for place, size in enumerate(shape)]
        super().__init__(sizes)
        self.clip = None if clip is None else number("Normaliser", "clip", clip, above=0, hint=", or None for none")
        self.least_variance = number("Normaliser", "least_variance", least_variance, above=0)

    def forward(self, given: Any) -> Any:
        """Normalised inputs `[rows, …]`, float32; of a tree, each of its tensors."""
        mean, deviation = self.mean.to(torch.float32), self.deviation(self.least_variance)
        if isinstance(given, Tensor):
            return self._shown(given, mean, deviation)
        leaves, structure = _tree.flatten(given)
        sizes = [leaf[0].numel() for leaf in leaves]
        parts = zip(leaves, mean.split(sizes), deviation.split(sizes), strict=True)
        shown = [self._shown(leaf, *(own.view(leaf.shape[1:]) for own in stats)) for leaf, *stats in parts]
        return _tree.unflatten(shown, structure)

    def _shown(self, given: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        shown = (given - mean) / deviation
        return shown if self.clip is None else shown.clamp(-self.clip, self.clip)

    def extra_repr(self) -> str:
        """Its settings."""
        return f"{tuple(self.mean.shape)}, clip={self.clip}, least_variance={self.least_variance}"

    def like(self, shape: Sequence[int]) -> "Normaliser":
        """One with the same settings for rows of another shape."""
        return Normaliser(shape, clip=self.clip, least_variance=self.least_variance)

    def check(self, given: Any) -> None:
        """Raise `InputError` where inputs have another shape."""
        alone = isinstance(given, Tensor)
        wanted = tuple(given.shape[1:]) if alone else (sum(leaf[0].numel() for leaf in _tree.tensors(given)),)
        if tuple(self.mean.shape) != wanted:
            told = "the shape of one row of the network's inputs" if alone else "all numbers of the tree of inputs"
            raise InputError(f"Normaliser: shape={tuple(self.mean.shape)}, expected {wanted}, {told}")


class RewardScale(Moments):
    """What rewards are divided by: the deviation of discounted returns so far.

    As Gymnasium's NormalizeReward and baselines' VecNormalize have it: the return of a step is the discounted sum of
    the rewards of its life up to it. It begins anew where a life ends, by termination or truncation.
    """

    def __init__(self, rows: int, gamma: float) -> None:
        """Args:
        rows: worlds times actors.
        gamma: discount.
        """
        super().__init__(())
        self._gamma = gamma
        self.register_buffer("going", torch.zeros(rows))

    @torch.no_grad()
    def scaled(self, reward: Tensor, ended: Tensor, valid: Tensor) -> Tensor:
        """Scaled rewards `[steps, rows]`, all by one number, after a rollout has been taken in.

        Args:
            reward: `[steps, rows]`.
            ended: bool `[steps, rows]`: a life ended with the step.
            valid: bool `[steps, rows]`: the row acted.
        """
        gained = torch.where(valid, reward, 0.0)
        begun = torch.cat([gained[:1] + self._gamma * self.going, gained[1:]])
        goes_on = torch.where(ended | ~valid, 0.0, self._gamma)
        before = torch.cat([torch.zeros_like(goes_on[:1]), goes_on[:-1]])
        returns = kernels.backward_sums(begun.flip(0), before.flip(0)).flip(0)
        self.going.copy_(torch.where(goes_on[-1] > 0, returns[-1], 0.0))
        self.take([(returns.flatten(), valid.flatten())])
        return in_units(gained, self.deviation())

    def shared_tensors(self) -> dict[str, Tensor]:
        """What all processes have alike, by name."""
        return {"rewards.count": self.count, "rewards.mean": self.mean, "rewards.variance": self.variance}


def in_units(reward: Tensor, deviation: Tensor) -> Tensor:
    """Rewards in units of a deviation of returns, clipped."""
    return (reward / deviation).clamp(-CLIP, CLIP)


def take_in(policy: "Policy", fields: Mapping[str, Any]) -> None:
    """Have a policy's normalisers take a rollout in, after an update has learnt from it.

    Args:
        policy: of the rollout; it has a normaliser.
        fields: of the rollout, each `[steps, rows, …]`.
    """
    assert policy.normaliser is not None
    env, count = policy.env, fields["valid"].numel() * policy.normaliser.mean.numel()
    seen = ((policy.inputs(part["observation"]), part["valid"]) for part in _parts(fields, count))
    policy.normaliser.take((rows if isinstance(rows, Tensor) else side_by_side(rows), valid) for rows, valid in seen)
    if policy.privileged_normaliser is not None:
        told = (
            (env.privileged_input(policy.looked(part["observation"]), part.get("privileged")), part["valid"])
            for part in _parts(fields, count)
        )
        policy.privileged_normaliser.take((extra, valid) for extra, valid in told if extra is not None)


def _parts(fields: Mapping[str, Any], count: int) -> Iterator[dict[str, Any]]:
    """Some steps of a rollout after the other, flat, so many that their inputs are few enough."""
    steps = len(fields["valid"])
    parts = min(steps, math.ceil(count / AT_ONCE))
    for part in range(parts):
        span = slice(steps * part // parts, steps * (part + 1) // parts)
        yield {
            name: _tree.map_tensors(lambda tensor, span=span: tensor[span].flatten(0, 1), fields[name])
            for name in ("observation", "privileged", "valid")
            if name in fields
        }
