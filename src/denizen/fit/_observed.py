"""What is observed of series, on the device and with slopes: the same as `Experiment.observations`, on average.

What targets do to a series before noise is linear: sums over windows, a reporting share. So a matrix does it, which the
target itself gives, asked for series that are 1 in one step. Noise is not drawn: its mean and variance, as numbers are
compared, are functions of the number that it is added to, interpolated in a table that the noise itself gives.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from denizen.fit._experiment import Experiment, kind_of
from denizen.fit._target import Target

POINTS = 512  # of a table, evenly in the root of the number
DRAWS = 128  # of the noise at each
REACH = 4.0  # times the root of the largest number observed; beyond, tables go on as straight lines


class Observed:
    """Series in, what is compared out.

    Attributes:
        values: what was observed, float32 `[D]` on the device.
    """

    def __init__(self, experiment: Experiment, device: torch.device) -> None:
        """Args:
        experiment: has the targets.
        device: where series are.
        """
        self.values = torch.tensor(experiment.observed, dtype=torch.float32, device=device)
        self._parts = [
            _Part(name, target, kind_of("calibrate", experiment.model, name, target), experiment.steps, device)
            for name, target in experiment.targets.items()
        ]

    def __call__(self, series: Mapping[str, Tensor], shares: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(mean, variance) of what is compared over the noise, `[worlds, D]` each.

        Args:
            series: `[worlds, steps, …]` by name.
            shares: factors of the series, by name; one number, or one for each group.
        """
        found = [part(series[part.name], shares.get(part.name)) for part in self._parts]
        return torch.cat([mean for mean, _ in found], dim=1), torch.cat([variance for _, variance in found], dim=1)


class _Part:
    """Of one target."""

    def __init__(self, name: str, target: Target, kind: str, steps: int, device: torch.device) -> None:
        self.name, self._root = name, target.scale == "sqrt"
        groups = target.values.shape[1:]
        ones = np.eye(steps).reshape(steps, steps, *[1] * len(groups)) * np.ones(groups)
        self._map = _tensor(target.windows(ones, kind), device)
        self._kept = torch.tensor(np.flatnonzero(~np.isnan(target.values)), device=device)
        self._table: tuple[Tensor, Tensor] | None = None
        if target.noise is not None:
            mean, variance = _table(target)
            self._table = _tensor(mean, device), _tensor(variance, device)
            self._spacing = _reach(target) / (POINTS - 1)

    def __call__(self, series: Tensor, share: Tensor | None) -> tuple[Tensor, Tensor]:
        windows = torch.einsum("rt...,tv...->rv...", series.to(torch.float32), self._map)
        seen = (windows if share is None else windows * share).flatten(1)[:, self._kept]
        plain = (seen.clamp(min=0) + 0.375).sqrt() if self._root else seen
        if self._table is None:
            return plain, torch.zeros_like(plain)
        at = (seen.clamp(min=0) + 1e-6).sqrt() / self._spacing
        mean, variance = (_interpolated(table, at) for table in self._table)
        return (mean if self._root else plain), variance


def _reach(target: Target) -> float:
    return REACH * float(np.sqrt(max(1.0, np.nanmax(target.values))))


def _table(target: Target) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) of what is compared, by the root of the number without noise."""
    assert target.noise is not None
    means = np.linspace(0, _reach(target), POINTS) ** 2
    uniform = np.broadcast_to((np.arange(DRAWS) + 0.5) / DRAWS, (POINTS, DRAWS))
    drawn = target.scaled(target.noise.draw(np.broadcast_to(means[:, None], uniform.shape), uniform))
    return drawn.mean(1), drawn.var(1)


def _interpolated(table: Tensor, at: Tensor) -> Tensor:
    left = at.detach().floor().clamp(max=POINTS - 2).long()
    low, high = table[left], table[left + 1]
    return low + (high - low) * (at - left)


def _tensor(values: np.ndarray, device: torch.device) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float32, device=device)
