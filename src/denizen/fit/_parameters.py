"""What is fitted: numbers without bounds, on which a search moves, and the parameters that they stand for."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from denizen.errors import InputError, nearest
from denizen.model import Model


@dataclasses.dataclass(frozen=True)
class Bounded:
    """A parameter with its bounds: log for one bound, logit for two, as it is without.

    Attributes:
        name: of the parameter.
        low: lower bound, or None.
        high: upper bound, or None.
        shape: of the parameter; a vector is as many numbers.
        start: where the search begins, float64 of the shape.
        prior: of each of its numbers, or None: flat in the numbers that the search moves on.
    """

    name: str
    low: float | None
    high: float | None
    shape: tuple[int, ...]
    start: np.ndarray
    prior: Distribution | None

    @property
    def size(self) -> int:
        """Numbers."""
        return int(np.prod(self.shape))

    def free(self, value: np.ndarray) -> np.ndarray:
        """Numbers without bounds, of values within."""
        if self.low is not None and self.high is not None:
            share = (value - self.low) / (self.high - self.low)
            return np.log(share) - np.log1p(-share)
        if self.low is not None:
            return np.log(value - self.low)
        return -np.log(self.high - value) if self.high is not None else np.asarray(value, dtype=np.float64)

    def bound(self, free: Any, tensors: bool = False) -> Any:
        """Values within the bounds, of numbers without."""
        exp, sigmoid = (torch.exp, torch.sigmoid) if tensors else (np.exp, _sigmoid)
        if self.low is not None and self.high is not None:
            return self.low + (self.high - self.low) * sigmoid(free)
        if self.low is not None:
            return self.low + exp(free)
        return self.high - exp(-free) if self.high is not None else free


class Parameters:
    """The parameters of a fit, side by side as one vector of free numbers.

    Attributes:
        parts: the parameters.
        labels: a name for each number, such as ``"R[3]"``.
    """

    def __init__(self, parts: Iterable[Bounded]) -> None:
        self.parts = tuple(parts)
        self.labels = [
            name if not part.shape else f"{name}[{k}]"
            for part in self.parts
            for name, k in ((part.name, k) for k in range(part.size))
        ]

    @property
    def start(self) -> np.ndarray:
        """Free numbers to begin with."""
        return np.concatenate([part.free(part.start).reshape(-1) for part in self.parts])

    def values(self, free: np.ndarray) -> dict[str, np.ndarray]:
        """Parameters by name `[sets, …]`, of free numbers `[sets, P]`."""
        found, at = {}, 0
        for part in self.parts:
            numbers = part.bound(free[:, at : at + part.size])
            # What rounding to float32 takes over a bound comes back to it.
            low, high = part.low if part.low is not None else -np.inf, part.high if part.high is not None else np.inf
            found[part.name] = np.clip(numbers, low, high).reshape(len(free), *part.shape)
            at += part.size
        return found

    def log_prior(self, free: np.ndarray) -> np.ndarray:
        """Log density of the prior in free numbers, without a constant where it is flat: `[sets]` of `[sets, P]`."""
        found, at = np.zeros(len(free)), 0
        for part in self.parts:
            here = torch.tensor(free[:, at : at + part.size], dtype=torch.float64, requires_grad=True)
            at += part.size
            if part.prior is not None and part.size:
                value = part.bound(here, tensors=True)
                (jacobian,) = torch.autograd.grad(value.sum(), here)
                density = part.prior.log_prob(value.detach()) + jacobian.log()
                found += density.sum(1).numpy()
        return found

    def draw(self, caller: str, num: int, generator: np.random.Generator) -> np.ndarray:
        """Free numbers `[num, P]` drawn from the priors.

        Raises:
            InputError: a parameter is flat in the numbers that the search moves on: nothing can be drawn from that.
        """
        columns = []
        for part in self.parts:
            if part.prior is None:
                bounds = part.low is not None and part.high is not None
                example = f"Uniform({part.low:g}, {part.high:g})" if bounds else "LogNormal(mean, sd)"
                raise InputError(
                    f"{caller}: {part.name!r} has no prior, which a posterior needs; give one, such as "
                    f"priors={{{part.name!r}: torch.distributions.{example}}}"
                )
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(generator.integers(1 << 62)))
                value = part.prior.sample(torch.Size((num, part.size))).double().numpy()
            columns.append(part.free(value))
        return np.concatenate(columns, axis=1)

    def prior(self, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slope `[P]` and curvature `[P]` (downwards, at least 0) of the prior's log density in free numbers."""
        slope, curve = [], []
        at = 0
        for part in self.parts:
            here = torch.tensor(free[at : at + part.size], dtype=torch.float64, requires_grad=True)
            at += part.size
            if part.prior is None:
                slope.append(np.zeros(part.size))
                curve.append(np.zeros(part.size))
                continue
            value = part.bound(here, tensors=True)
            jacobian = torch.autograd.grad(value.sum(), here, create_graph=True)[0] if part.size else here
            density = part.prior.log_prob(value).sum() + jacobian.log().sum()
            first = torch.autograd.grad(density, here, create_graph=True)[0]
            second = torch.autograd.grad(first.sum(), here, allow_unused=True)[0]
            slope.append(first.detach().numpy())
            curve.append(np.maximum(0, -second.numpy()) if second is not None else np.zeros(part.size))
        return np.concatenate(slope), np.concatenate(curve)


def of_model(caller: str, model: Model, priors: Any) -> Parameters:
    """The parameters of a model that are fitted: those named in `priors`, or all that may be learned.

    Args:
        caller: for messages.
        model: its present values are where the search begins.
        priors: None, names, or distributions (None: flat) by name.

    Raises:
        InputError: an unknown parameter, a prior that reaches outside the bounds, a value on its bound.
    """
    known = model.params
    if priors is None:
        priors = [name for name, spec in known.items() if spec.learnable]
    if isinstance(priors, str):
        raise InputError(f"{caller}: priors={priors!r}, expected a list of names, or distributions by name")
    chosen = priors if isinstance(priors, Mapping) else dict.fromkeys(priors)
    if not chosen:
        raise InputError(
            f"{caller}: nothing to fit: {type(model).__name__} has {nearest('', known)}; name some in priors"
        )
    parts = []
    for name, prior in chosen.items():
        if name not in known:
            raise InputError(f"{caller}: priors has {name!r}; {nearest(name, known)}")
        spec, start = known[name], getattr(model, name).detach().cpu().double().numpy()
        at_bound = (spec.low is not None and (start <= spec.low).any()) or (
            spec.high is not None and (start >= spec.high).any()
        )
        if at_bound:
            raise InputError(
                f"{caller}: {name}={start.tolist()} lies on a bound ({spec.bounds()}), where the search cannot begin; "
                f"start from a model with another value"
            )
        if prior is not None:
            _check_prior(caller, name, prior, spec.low, spec.high)
        parts.append(Bounded(name, spec.low, spec.high, tuple(start.shape), start, prior))
    return Parameters(parts)


def of_priors(caller: str, priors: Any) -> Parameters:
    """The parameters of a function: a distribution for each, whose support are the bounds.

    Raises:
        InputError: no distributions, or such of vectors.
    """
    if not isinstance(priors, Mapping) or not priors:
        raise InputError(
            f"{caller}: priors={priors!r}, expected a distribution for each parameter of the function, by name"
        )
    parts = []
    for name, prior in priors.items():
        if not isinstance(prior, Distribution) or prior.batch_shape or prior.event_shape:
            raise InputError(f"{caller}: priors[{name!r}]={prior!r}, expected a torch distribution of one number")
        low, high = _support(prior)
        start = prior.icdf(torch.tensor(0.5)) if _has_icdf(prior) else prior.mean
        parts.append(Bounded(name, low, high, (), np.asarray(float(start)), prior))
    return Parameters(parts)


def _check_prior(caller: str, name: str, prior: Any, low: float | None, high: float | None) -> None:
    if not isinstance(prior, Distribution) or prior.batch_shape or prior.event_shape:
        raise InputError(f"{caller}: priors[{name!r}]={prior!r}, expected a torch distribution of one number, or None")
    least, most = _support(prior)
    inside = (low is None or (least is not None and least >= low)) and (
        high is None or (most is not None and most <= high)
    )
    if not inside:
        words = f"{'-inf' if least is None else f'{least:g}'} to {'inf' if most is None else f'{most:g}'}"
        bounds = f"{'-inf' if low is None else f'{low:g}'} to {'inf' if high is None else f'{high:g}'}"
        raise InputError(
            f"{caller}: priors[{name!r}] reaches from {words}, outside the bounds of the parameter, {bounds}; "
            f"choose a distribution within, such as LogNormal, Beta or Uniform"
        )


def _support(prior: Distribution) -> tuple[float | None, float | None]:
    support: Any = prior.support
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    return (None if low is None else float(low)), (None if high is None else float(high))


def _has_icdf(prior: Distribution) -> bool:
    try:
        prior.icdf(torch.tensor(0.5))
    except NotImplementedError:
        return False
    return True


def _sigmoid(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-value))


def as_tensor(value: np.ndarray) -> Tensor:
    """Float32, as parameters are."""
    return torch.as_tensor(value, dtype=torch.float32)
