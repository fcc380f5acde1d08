"""What was observed, and how a simulated series is seen: windows, a reporting share, noise."""

import dataclasses
from typing import Any, Literal, Protocol

import numpy as np

from denizen._arguments import number, one_of, share, whole
from denizen.errors import InputError, need

Numbers = np.ndarray


class Noise(Protocol):
    """What lies between a simulated number and the one that is written down."""

    def draw(self, mean: Numbers, uniform: Numbers) -> Numbers:
        """Observations of the means, by inversion of uniforms of the same shape: alike uniforms, alike noise."""
        ...

    def log_prob(self, values: Numbers, mean: Numbers) -> Numbers:
        """Log density of observations given their means, elementwise."""
        ...


@dataclasses.dataclass(frozen=True)
class Poisson:
    """Counts that scatter about their mean with variance mean."""

    def draw(self, mean: Numbers, uniform: Numbers) -> Numbers:
        """See `Noise`."""
        return _statistics().poisson.ppf(uniform, mean)

    def log_prob(self, values: Numbers, mean: Numbers) -> Numbers:
        """See `Noise`."""
        return _statistics().poisson.logpmf(values, mean)


@dataclasses.dataclass(frozen=True)
class NegativeBinomial:
    """Counts with variance mean + mean² / size.

    Attributes:
        size: above 0; the larger, the nearer to Poisson. 1 / size is the overdispersion.
    """

    size: float = 10.0

    def __post_init__(self) -> None:
        number("NegativeBinomial", "size", self.size, above=0)

    def draw(self, mean: Numbers, uniform: Numbers) -> Numbers:
        """See `Noise`."""
        return _statistics().nbinom.ppf(uniform, self.size, self.size / (self.size + mean))

    def log_prob(self, values: Numbers, mean: Numbers) -> Numbers:
        """See `Noise`."""
        return _statistics().nbinom.logpmf(values, self.size, self.size / (self.size + mean))


@dataclasses.dataclass(frozen=True)
class Normal:
    """Errors of measurement.

    Attributes:
        sd: standard deviation, in the units of the series.
    """

    sd: float

    def __post_init__(self) -> None:
        number("Normal", "sd", self.sd, above=0)

    def draw(self, mean: Numbers, uniform: Numbers) -> Numbers:
        """See `Noise`."""
        return mean + self.sd * _statistics().norm.ppf(uniform)

    def log_prob(self, values: Numbers, mean: Numbers) -> Numbers:
        """See `Noise`."""
        return _statistics().norm.logpdf(values, mean, self.sd)


def _statistics() -> Any:
    return need("scipy.stats", "stats", "draw the noise of observations")


@dataclasses.dataclass(frozen=True, eq=False)
class Target:
    """An observed series.

    Attributes:
        values: numbers, one a window; NaN where nothing was observed. A second axis holds groups, as the series does.
        every: steps in a window, such as 7 for weekly values of a model that steps by the day.
        first: the step, from 1, at which the window of the first value begins.
        kind: ``"flow"`` sums a window, ``"level"`` takes its last step; None: what the series is.
        report: share of a flow or level that is observed.
        noise: between what is reported and what is written down; None: none, so that the model's own randomness is all.
        scale: ``"sqrt"`` compares sqrt(x + 3/8), which makes the scatter of counts alike at all sizes (Anscombe 1948);
            ``"identity"`` compares the numbers as they are.
        weight: of this target beside others; 1 takes all as the model's covariance has them.
    """

    values: Any
    _: dataclasses.KW_ONLY
    every: int = 1
    first: int = 1
    kind: Literal["flow", "level"] | None = None
    report: float = 1.0
    noise: Noise | None = None
    scale: Literal["sqrt", "identity"] = "sqrt"
    weight: float = 1.0

    def __post_init__(self) -> None:
        values = _numbers(self.values)
        object.__setattr__(self, "values", values)
        whole("Target", "every", self.every, 1)
        whole("Target", "first", self.first, 1)
        if self.kind is not None:
            one_of("Target", "kind", self.kind, ("flow", "level"))
        one_of("Target", "scale", self.scale, ("sqrt", "identity"))
        if share("Target", "report", self.report) == 0:
            raise InputError("Target: report=0, expected a share above 0, since nothing would be observed")
        number("Target", "weight", self.weight, above=0)
        parts = [getattr(self.noise, name, None) for name in ("draw", "log_prob")]
        if self.noise is not None and (isinstance(self.noise, type) or not all(map(callable, parts))):
            raise InputError(f"Target: noise={self.noise!r}, expected an object such as dz.fit.NegativeBinomial(10)")
        if self.scale == "sqrt" and (values < 0).any():
            lowest = np.nanmin(values)
            raise InputError(f"Target: values has {lowest:g}, expected counts of at least 0, or scale='identity'")

    @property
    def last(self) -> int:
        """The step at which the last window ends."""
        return self.first + self.every * len(self.values) - 1

    def until(self, num: int) -> "Target":
        """The first `num` values."""
        return dataclasses.replace(self, values=self.values[:num])

    def windows(self, series: Numbers, kind: str) -> Numbers:
        """What a simulated series `[rows, steps, …]` has in the windows: `[rows, values, …]`, times `report`."""
        part = series[:, self.first - 1 : self.last].astype(np.float64)
        cut = part.reshape(len(part), len(self.values), self.every, *part.shape[2:])
        return self.report * (cut.sum(2) if kind == "flow" else cut[:, :, -1])

    def scaled(self, values: Numbers) -> Numbers:
        """Numbers as they are compared."""
        return np.sqrt(np.maximum(values, 0) + 0.375) if self.scale == "sqrt" else values


def _numbers(values: Any) -> Numbers:
    try:
        numbers = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"Target: values={values!r}, expected numbers, NaN where nothing was observed") from error
    if numbers.ndim < 1 or not numbers.size:
        raise InputError(f"Target: values has shape {numbers.shape}, expected at least one number")
    if np.isinf(numbers).any():
        raise InputError(
            "Target: values has an infinite number, expected finite ones, or NaN where nothing was observed"
        )
    if np.isnan(numbers).all():
        raise InputError("Target: values has nothing but gaps (NaN), expected at least one number")
    return numbers


def as_targets(caller: str, targets: Any) -> dict[str, Target]:
    """Targets by name of the series, plain arrays taken as `Target(values)`."""
    if not hasattr(targets, "items") or not targets:
        raise InputError(
            f"{caller}: targets={targets!r}, expected observed series by name, such as {{'cases': values}}"
        )
    return {name: one if isinstance(one, Target) else Target(one) for name, one in targets.items()}
