"""How the hidden factors of a series move: covariance functions of the lag, with parameters drawn for each factor."""

import dataclasses
import math

import torch
from torch import Tensor

_POINTS, _REACH = 160, 13.0  # of the trapezoid rule for K_nu; its error is below 1e-12 for the lags that occur
_NU = (0.5, 8.0)
# Slow, medium and fast factors: ranges of the parameters, drawn uniformly.
_LENGTHS = ((20.0, 40.0), (5.0, 15.0), (1.0, 4.0))
_DECAYS = ((0.001, 0.5), (0.5, 0.9), (1.0, 1.5))
_ALPHA = (0.75, 2.0)
_CAUCHY_SCALE = 4.0


@dataclasses.dataclass(frozen=True)
class Matern:
    """Matérn: 2^(1-nu)/Gamma(nu) z^nu K_nu(z), z = sqrt(2 nu) lag / length; nu from 0.5 to 8, lengths by speed."""

    def covariance(self, lag: Tensor, speed: Tensor, generator: torch.Generator) -> Tensor:
        """`[factors, lags]` float64 for lags `[lags]` and the speed (0 slow, 1 medium, 2 fast) of each factor."""
        nu = _between(torch.tensor([_NU], dtype=torch.float64).expand(len(speed), 2), generator)
        length = _between(torch.tensor(_LENGTHS, dtype=torch.float64)[speed.cpu()], generator)
        return matern(lag, nu[:, None], length[:, None])


@dataclasses.dataclass(frozen=True)
class Cauchy:
    """Generalised Cauchy: (1 + (lag/4)^alpha)^(-beta/alpha); alpha from 0.75 to 2, beta by speed."""

    def covariance(self, lag: Tensor, speed: Tensor, generator: torch.Generator) -> Tensor:
        """As of `Matern`."""
        alpha = _between(torch.tensor([_ALPHA], dtype=torch.float64).expand(len(speed), 2), generator)[:, None]
        beta = _between(torch.tensor(_DECAYS, dtype=torch.float64)[speed.cpu()], generator)[:, None]
        return (1 + (lag / _CAUCHY_SCALE) ** alpha) ** (-beta / alpha)


@dataclasses.dataclass(frozen=True)
class WhiteNoise:
    """No memory: 1 at lag 0, else 0."""

    def covariance(self, lag: Tensor, speed: Tensor, generator: torch.Generator) -> Tensor:
        """As of `Matern`."""
        return (lag == 0).to(torch.float64).expand(len(speed), -1)


Kernel = Matern | Cauchy | WhiteNoise


def matern(lag: Tensor, nu: Tensor, length: Tensor) -> Tensor:
    """The Matérn function in float64, 1 at lag 0; K_nu by its integral over exp(-z cosh t) cosh(nu t)."""
    z = torch.sqrt(2 * nu) * lag / length
    there = torch.where(z > 0, z, 1.0)[..., None]
    t = torch.linspace(0, _REACH, _POINTS, dtype=torch.float64, device=lag.device)
    weights = torch.full_like(t, _REACH / (_POINTS - 1))
    weights[0] /= 2
    order = nu[..., None] * t
    cosh = (order + torch.log1p(torch.exp(-2 * order)) - math.log(2)) - there * torch.cosh(t)  # logs: no overflow
    bessel = (torch.exp(cosh) * weights).sum(-1)
    value = torch.exp((1 - nu) * math.log(2) - torch.lgamma(nu) + nu * torch.log(there[..., 0])) * bessel
    return torch.where(z > 0, value, 1.0)


def _between(bounds: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform draws between `bounds` `[n, 2]`, on the generator's device."""
    low, high = bounds.to(generator.device).unbind(1)
    return low + (high - low) * torch.rand(
        len(bounds), dtype=torch.float64, generator=generator, device=generator.device
    )
