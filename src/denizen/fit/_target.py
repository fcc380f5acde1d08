"""What was observed, and how a simulated series is seen: delay, windows, a reporting share, noise."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np

from denizen._arguments import number, one_of, whole
from denizen._dates import day
from denizen._units import in_days
from denizen.errors import InputError, need
from denizen.fit._dates import filled, placed
from denizen.fit._delay import Delay, as_delay
from denizen.model import Clock, Intervention

Numbers = np.ndarray


class Noise(Protocol):
    """What lies between a simulated number and the one that is written down.

    A dataclass whose fields are numbers: they may be fitted, and then come as arrays, one number for each row.
    """

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

    size: Any = 10.0

    def __post_init__(self) -> None:
        _positive("NegativeBinomial", "size", self.size)

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

    sd: Any

    def __post_init__(self) -> None:
        _positive("Normal", "sd", self.sd)

    def draw(self, mean: Numbers, uniform: Numbers) -> Numbers:
        """See `Noise`."""
        return mean + self.sd * _statistics().norm.ppf(uniform)

    def log_prob(self, values: Numbers, mean: Numbers) -> Numbers:
        """See `Noise`."""
        return _statistics().norm.logpdf(values, mean, self.sd)


def _positive(caller: str, name: str, value: Any) -> None:
    if not isinstance(value, np.ndarray):
        number(caller, name, value, above=0)
    elif not (np.isfinite(value) & (value > 0)).all():
        raise InputError(f"{caller}: {name}={value!r}, expected numbers above 0")


def _statistics() -> Any:
    return need("scipy.stats", "stats", "draw the noise of observations")


@dataclasses.dataclass(frozen=True, eq=False)
class Target:
    """An observed series.

    A simulated series is delayed, cut into windows, multiplied by the share that is reported, and noise is drawn. The
    numbers `report`, `people`, the mean of `delay` and those of `noise` may be fitted: name them in `priors` of
    `denizen.calibrate` as ``"cases.report"``, ``"cases.people"``, ``"cases.delay"``, ``"cases.size"``; what stands here
    is where the search begins.

    Attributes:
        values: numbers, one a window; NaN where nothing was observed. A second axis holds groups, as the series does.
        every: steps in a window, such as 7 for weekly values of a model that steps by the day.
        first: the step, from 1, at which the window of the first value begins; not with `dates`. Where other targets
            have dates, these say which day step 1 is.
        dates: of each value: ISO texts, `datetime.date`, NumPy, pandas or polars dates. Kept as ``datetime64[D]`` of
            every window, those included that `missing` filled in.
        dated: whether a date is the ``"start"``, the first day of its window, or the ``"end"``, the last.
        missing: what a date that is left out means: ``"gap"``, nothing was observed, or ``"zero"``; None refuses it.
        kind: ``"flow"`` sums a window, ``"level"`` takes its last step; None: what the series is.
        report: share of a flow or level that is observed; a number, or one for each group.
        people: how many people an agent stands for.
        delay: between what happens and its being written down: probabilities of 0, 1, 2, … steps, or a distribution of
            torch or scipy in steps, made discrete for what happens evenly within a step. What does not fit into them
            counts as never written down; the fit says how much.
        truncation: shares of the last values that are reported so far, oldest first, such as ``[0.9, 0.5]``.
        noise: between what is reported and what is written down; None: none, so that the model's own randomness is all.
        scale: ``"sqrt"`` compares sqrt(x + 3/8), which makes the scatter of counts alike at all sizes (Anscombe 1948);
            ``"identity"`` compares the numbers as they are.
        weight: of this target beside others; 1 takes all as the model's covariance has them.
        kernel: of the delay, or None.
    """

    kernel: ClassVar[Delay | None]
    _reported: ClassVar[Numbers | None]

    values: Any
    _: dataclasses.KW_ONLY
    every: int = 1
    first: int = 1
    dates: Any = None
    dated: Literal["start", "end"] = "start"
    missing: Literal["gap", "zero"] | None = None
    kind: Literal["flow", "level"] | None = None
    report: Any = 1.0
    people: float = 1.0
    delay: Any = None
    truncation: Any = None
    noise: Noise | None = None
    scale: Literal["sqrt", "identity"] = "sqrt"
    weight: float = 1.0

    def __post_init__(self) -> None:
        values = _numbers(self.values)
        whole("Target", "every", self.every, 1)
        whole("Target", "first", self.first, 1)
        one_of("Target", "dated", self.dated, ("start", "end"))
        if self.missing is not None:
            one_of("Target", "missing", self.missing, ("gap", "zero"))
        if self.kind is not None:
            one_of("Target", "kind", self.kind, ("flow", "level"))
        one_of("Target", "scale", self.scale, ("sqrt", "identity"))
        if self.dates is not None:
            if self.first != 1:
                raise InputError(f"Target: first={self.first} and dates, expected one of them, which say the same")
            values, dates = filled(values, self.dates, self.every, self.missing)
            object.__setattr__(self, "dates", dates)
        elif self.missing is not None:
            raise InputError(f"Target: missing={self.missing!r} without dates; give dates, or NaN and 0 in values")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "report", _shares("report", self.report, values.shape[1:]))
        number("Target", "people", self.people, above=0)
        object.__setattr__(self, "kernel", as_delay(self.delay))
        object.__setattr__(self, "_reported", _reported(self.truncation, len(values)))
        number("Target", "weight", self.weight, above=0)
        parts = [getattr(self.noise, name, None) for name in ("draw", "log_prob")]
        if self.noise is not None and (isinstance(self.noise, type) or not all(map(callable, parts))):
            raise InputError(f"Target: noise={self.noise!r}, expected an object such as dz.fit.NegativeBinomial(10)")
        counts = isinstance(self.noise, Poisson | NegativeBinomial)
        if (self.scale == "sqrt" or counts) and (values < 0).any():
            instead = "" if counts else ", or scale='identity'"
            raise InputError(f"Target: {_first(values, values < 0)}, expected counts of at least 0{instead}")
        broken = ~np.isnan(values) & (values != np.round(values))
        if counts and broken.any():
            raise InputError(
                f"Target: {_first(values, broken)}, and noise={type(self.noise).__name__} is of whole counts; give the "
                f"counts as they were written down, or noise=dz.fit.Normal(sd)"
            )

    @property
    def last(self) -> int:
        """The step at which the last window ends."""
        return self.first + self.every * len(self.values) - 1

    @property
    def numbers(self) -> dict[str, tuple[Numbers, float, float | None]]:
        """What may be fitted, by name: its value here, and its bounds."""
        found: dict[str, tuple[Numbers, float, float | None]] = {
            "report": (np.asarray(self.report), 0.0, 1.0),
            "people": (np.asarray(self.people), 0.0, None),
        }
        if self.kernel is not None and self.kernel.mean is not None:
            found["delay"] = (np.asarray(self.kernel.mean), 0.0, None)
        for field in dataclasses.fields(self.noise) if dataclasses.is_dataclass(self.noise) else ():
            value = np.asarray(getattr(self.noise, field.name))
            if value.dtype.kind in "if":
                found[field.name] = (value, 0.0, None)
        return found

    def known(self, values: Mapping[str, Numbers]) -> Self:
        """With these for the numbers of the same name: `[rows, …]`, one for each row that `windows` will see."""
        if not values:
            return self
        dims = self.values.ndim
        wide = {
            name: value.reshape(len(value), *[1] * (dims - value.ndim + 1), *value.shape[1:])
            for name, value in values.items()
        }
        changes: dict[str, Any] = {name: wide.pop(name) for name in ("report", "people") if name in wide}
        wide.pop("delay", None)
        if "delay" in values and self.kernel is not None:
            changes["kernel"] = self.kernel.stretched(values["delay"])
        if wide:
            changes["noise"] = dataclasses.replace(self.noise, **wide)  # type: ignore[type-var]  # as `numbers` has it
        return self._with(**changes)

    def until(self, num: int) -> Self:
        """The first `num` values."""
        if self.truncation is not None and num < len(self.values):
            raise InputError(
                f"Target: truncation is of the last values, which are kept back here; give the {num} first values as a "
                f"target of their own, or truncation=None"
            )
        return self._with(values=self.values[:num], dates=None if self.dates is None else self.dates[:num])

    def holding(self, values: Numbers) -> Self:
        """With other values in the same places; gaps stay."""
        return self._with(values=np.where(np.isnan(self.values), np.nan, values))

    def ahead(self, num: int) -> Self:
        """With `num` values more, which were not observed."""
        gaps = np.full((num, *self.values.shape[1:]), np.nan)
        dates, shares = self.dates, self._reported
        if dates is not None:
            dates = np.concatenate([dates, dates[-1] + self.every * np.arange(1, num + 1)])
        if shares is not None:
            shares = np.concatenate([shares, np.ones(num)])
        return self._with(values=np.concatenate([self.values, gaps]), dates=dates, _reported=shares)

    def begins(self) -> np.datetime64 | None:
        """The first day of the first window, or None where no dates are given."""
        if self.dates is None:
            return None
        return self.dates[0] - (self.every - 1 if self.dated == "end" else 0)

    def placed(self, caller: str, name: str, start: np.datetime64) -> Self:
        """With `first` as its dates say where step 1 is the day `start`."""
        begins = self.begins()
        return self if begins is None else self._with(first=placed(caller, name, begins, start))

    def windows(self, series: Numbers, kind: str) -> Numbers:
        """What a simulated series `[rows, steps, …]`, from step 1 on, has in the windows: means `[rows, values, …]`."""
        series = series.astype(np.float64)
        if self.kernel is not None:
            series = self.kernel.apply(series)
        part = series[:, self.first - 1 : self.last]
        cut = part.reshape(len(part), len(self.values), self.every, *part.shape[2:])
        seen = self.report * self.people * (cut.sum(2) if kind == "flow" else cut[:, :, -1])
        if self._reported is not None:
            seen = seen * self._reported.reshape(-1, *[1] * (self.values.ndim - 1))
        return seen

    def scaled(self, values: Numbers) -> Numbers:
        """Numbers as they are compared."""
        return np.sqrt(np.maximum(values, 0) + 0.375) if self.scale == "sqrt" else values

    def _with(self, **changes: Any) -> Self:
        found = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(found, name, value)
        return found


def _first(values: Numbers, wrong: np.ndarray) -> str:
    """The first wrong number and its place: ``values[3] is -4``."""
    place = np.argwhere(wrong)[0]
    return f"values[{', '.join(map(str, place))}] is {values[tuple(place)]:g}"


def _numbers(values: Any) -> Numbers:
    try:
        numbers = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"Target: values={values!r}, expected numbers, NaN where nothing was observed") from error
    if numbers.ndim < 1 or not numbers.size:
        raise InputError(f"Target: values has shape {numbers.shape}, expected at least one number")
    if np.isinf(numbers).any():
        raise InputError(
            f"Target: {_first(numbers, np.isinf(numbers))}, expected finite numbers, or NaN where nothing was observed"
        )
    if np.isnan(numbers).all():
        raise InputError("Target: values has nothing but gaps (NaN), expected at least one number")
    return numbers


def _shares(name: str, given: Any, shape: tuple[int, ...]) -> Any:
    """A share above 0, or one for each group."""
    try:
        shares = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"Target: {name}={given!r}, expected a share from 0 to 1") from error
    if shares.ndim and shares.shape != shape:
        raise InputError(
            f"Target: {name} has shape {shares.shape}, expected one number, or one for each group: {shape}"
        )
    if not ((shares >= 0) & (shares <= 1)).all():
        raise InputError(f"Target: {name}={given!r}, expected a share from 0 to 1")
    if (shares == 0).any():
        raise InputError(f"Target: {name}={given!r}, expected a share above 0, since nothing would be observed")
    return shares if shares.ndim else float(shares)


def _reported(given: Any, num: int) -> Numbers | None:
    """Shares of all values, of those of the last ones."""
    if given is None:
        return None
    last = np.asarray(given, dtype=np.float64) if isinstance(given, list | tuple | np.ndarray) else None
    if last is None or last.ndim != 1 or not 0 < len(last) <= num or not ((last > 0) & (last <= 1)).all():
        raise InputError(
            f"Target: truncation={given!r}, expected shares above 0, at most 1, of at most {num} last values"
        )
    return np.concatenate([np.ones(num - len(last)), last])


def as_targets(caller: str, targets: Any) -> dict[str, Target]:
    """Targets by name of the series, plain arrays taken as `Target(values)`."""
    if not hasattr(targets, "items") or not targets:
        raise InputError(
            f"{caller}: targets={targets!r}, expected observed series by name, such as {{'cases': values}}"
        )
    return {name: one if isinstance(one, Target) else Target(one) for name, one in targets.items()}


def dated(caller: str, targets: Mapping[str, Target], start: Any, unit: str) -> dict[str, Target]:
    """Targets with those that have dates put in their place.

    Args:
        caller: for messages.
        targets: by name.
        start: date of the first step; None: the first day of the earliest window.
        unit: of the model's time.
    """
    begins = [begin for begin in (one.begins() for one in targets.values()) if begin is not None]
    if not begins:
        if start is not None and in_days(unit) is None:
            raise InputError(
                f"{caller}: start={start!r}, and no target has dates, nor is the model's time_unit, {unit!r}, one of "
                f"the calendar; give dates=, or leave start out"
            )
        return dict(targets)
    if unit not in ("day", "step"):
        raise InputError(
            f"{caller}: targets have dates, and the model's time_unit is {unit!r}, expected 'day'; give first= and "
            f"every= in its steps"
        )
    begin = min(begins) if start is None else day(caller, "start", start)
    return {name: one.placed(caller, name, begin) for name, one in targets.items()}


@dataclasses.dataclass(frozen=True)
class Calendar:
    """Days of the steps of a calibration.

    Attributes:
        first: the day of the first step, an ISO date; None where none is known.
        start: the same, where `simulate` takes it: the model's unit of time is one of the calendar.
        unit: of a step.
    """

    first: str | None
    start: str | None
    unit: str

    @classmethod
    def of(cls, caller: str, targets: Mapping[str, Target], start: Any, model: Any) -> "Calendar":
        """That which `dated` takes: a model whose unit is the step has a day for it, where targets have dates."""
        unit = getattr(model, "time_unit", "step")
        begins = [begin for begin in (one.begins() for one in targets.values()) if begin is not None]
        if start is None and not begins:
            return cls(None, None, unit)
        first = str(min(begins) if start is None else day(caller, "start", start))
        known = in_days(unit) is not None
        return cls(first, first if known else None, unit if known else "day")

    def placed(self, interventions: Any) -> Any:
        """Interventions in steps, where days are known; others, and what is none, as they are."""
        if self.first is None or not isinstance(interventions, list | tuple):
            return interventions
        clock = Clock(unit=self.unit, start=self.first)
        return tuple(one.timed(clock) if isinstance(one, Intervention) else one for one in interventions)


NO_DAYS = Calendar(None, None, "step")
