"""Parameters of a calibration from what users give: the model, its bounds, priors by name, numbers of targets."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.distributions import Dirichlet, Distribution

from denizen.errors import InputError, nearest
from denizen.fit._densities import beyond, median, support
from denizen.fit._parameters import Apart, Bounded, Ends, Parameters, Simplex
from denizen.fit._priors import PerGroup, Prior, Shared, Shares, Steps, Walk, check_distribution, check_prior
from denizen.fit._target import Target
from denizen.model import Model

NEGLIGIBLE = 1e-3  # of a prior: so much may lie beyond the bounds, where it counts for nothing


def of_model(
    caller: str, model: Model, priors: Any, targets: Mapping[str, Target] | None = None, steps: int | None = None
) -> Parameters:
    """The parameters of a model that are fitted: those named in `priors`, or all that may be learned.

    Args:
        caller: for messages.
        model: its present values are where the search begins.
        priors: None, names, or by name distributions (None: flat) or what `denizen.fit._priors` has.
        targets: whose numbers may be named, too, as ``"cases.report"``.
        steps: of a run, for parameters that change in time.

    Raises:
        InputError: an unknown parameter, a prior that reaches outside the bounds, a value on its bound.
    """
    known, numbers = model.params, _numbers(targets or {})
    if priors is None:
        priors = [name for name, spec in known.items() if spec.learnable]
    if isinstance(priors, str):
        raise InputError(f"{caller}: priors={priors!r}, expected a list of names, or distributions by name")
    chosen = priors if isinstance(priors, Mapping) else dict.fromkeys(priors)
    if not chosen:
        raise InputError(f"{caller}: nothing to fit; name parameters in priors, {nearest('', known)}")
    parts: list[Bounded] = []
    for name, prior in chosen.items():
        if name in known:
            spec = known[name]
            start = getattr(model, name).detach().cpu().double().numpy()
            if isinstance(prior, Shares | Dirichlet):
                parts.append(_shares(caller, name, start, spec.low, spec.high, prior))
            else:
                parts.append(_part(caller, name, start, spec.low, spec.high, prior, steps))
        elif name in numbers:
            parts.append(_of_target(caller, name, numbers[name], prior))
        else:
            raise InputError(f"{caller}: priors has {name!r}; {_unknown(name, model, known, numbers)}")
    _one_scale(caller, parts)
    return Parameters(parts)


def of_priors(caller: str, priors: Any, targets: Mapping[str, Target] | None = None) -> Parameters:
    """The parameters of a function: a distribution for each, whose support are the bounds.

    Raises:
        InputError: no distributions, or such of vectors.
    """
    if not isinstance(priors, Mapping) or not priors:
        raise InputError(
            f"{caller}: priors={priors!r}, expected a distribution for each parameter of the function, by name"
        )
    parts: list[Bounded] = []
    numbers = _numbers(targets or {})
    for name, prior in priors.items():
        if name in numbers:
            parts.append(_of_target(caller, name, numbers[name], prior))
            continue
        if isinstance(prior, Shares) and prior.prior is None:
            raise InputError(
                f"{caller}: priors[{name!r}]={prior!r}, expected dz.fit.Shares(Dirichlet(…)) of a function"
            )
        if isinstance(prior, Shares | Dirichlet):
            given = prior if isinstance(prior, Shares) else Shares(prior)
            parts.append(_shares(caller, name, given.prior.mean.double().numpy(), 0.0, 1.0, given))  # type: ignore[union-attr]  # pyrefly: ignore
            continue
        check_distribution(caller, f"priors[{name!r}]", prior)
        low, high = support(prior)
        parts.append(Bounded(name, low, high, (), np.asarray(median(prior)), (prior,), (0,)))
    if all(part.of_target for part in parts):
        raise InputError(f"{caller}: priors has numbers of targets alone, expected a parameter of the function as well")
    _one_scale(caller, parts)
    return Parameters(parts)


def _numbers(targets: Mapping[str, Target]) -> dict[str, tuple[np.ndarray, float, float | None]]:
    return {f"{name}.{number}": found for name, one in targets.items() for number, found in one.numbers.items()}


def _of_target(caller: str, name: str, found: tuple[np.ndarray, float, float | None], prior: Any) -> Bounded:
    start, low, high = found
    if isinstance(prior, Steps):
        raise InputError(f"{caller}: priors[{name!r}]={prior!r}, expected a distribution: it does not change in time")
    return dataclasses.replace(_part(caller, name, start.astype(np.float64), low, high, prior, None), of_target=True)


def _part(
    caller: str, name: str, start: np.ndarray, low: float | None, high: float | None, prior: Any, steps: int | None
) -> Bounded:
    """A parameter, and what `prior` makes of it."""
    every, shared, walk = None, False, None
    if isinstance(prior, Steps):
        if steps is None:
            raise InputError(f"{caller}: priors[{name!r}]={prior!r}, which needs a model that takes steps")
        every, prior = prior.every, prior.prior
        start = np.broadcast_to(start, (-(-steps // every), *start.shape))
    if not start.ndim and isinstance(prior, Shared | PerGroup | Walk):
        kind = type(prior).__name__
        fix = "dz.fit.Steps(prior=Walk(…))" if kind == "Walk" else "a distribution"
        raise InputError(f"{caller}: priors[{name!r}] is a {kind}, and {name} is one number; give {fix}")
    places, start = tuple(range(start.size)), start.copy()
    priors: tuple[Any, ...] = (prior,) * start.size
    if isinstance(prior, Shared):
        shared, priors = True, (prior.prior,)
        start[...] = start.mean()
    elif isinstance(prior, Walk):
        walk, inner = prior.sd, start[0].size
        priors = (prior.first,) * inner + (None,) * (start.size - inner)
    elif isinstance(prior, PerGroup):
        if len(prior.priors) != start.size:
            raise InputError(
                f"{caller}: priors[{name!r}] has {len(prior.priors)} entries, expected {start.size}, as {name} has"
            )
        held = [k for k, one in enumerate(prior.priors) if isinstance(one, int | float)]
        for k in held:
            start.reshape(-1)[k] = prior.priors[k]
        if (low is not None and (start < low).any()) or (high is not None and (start > high).any()):
            raise InputError(f"{caller}: priors[{name!r}] holds {start.tolist()}, out of bounds {_words(low, high)}")
        places = tuple(k for k in places if k not in held)
        priors = tuple(prior.priors[k] for k in places)
    for one in priors:
        check_prior(caller, f"priors[{name!r}]", one)
        if one is not None:
            _check_support(caller, name, one, low, high)
    alike = isinstance(prior, Walk)  # a step from one entry to the next is in the same units
    ends = tuple(_reach(priors if alike else (one,), low, high) for one in priors)
    _begin_within(caller, name, start, places, (prior.first,) * len(places) if alike else priors, ends)
    return _of(Bounded(name, *_hull(ends), tuple(start.shape), start, priors, places, shared, walk, every), ends)


def _of(found: Bounded, ends: tuple[Ends, ...]) -> Bounded:
    return found if len(set(ends)) == 1 else Apart(**vars(found), ends=ends)


def _shares(
    caller: str, name: str, start: np.ndarray, low: float | None, high: float | None, prior: Shares | Dirichlet
) -> Simplex:
    """A vector of shares."""
    given = prior if isinstance(prior, Shares) else Shares(prior)
    if start.ndim != 1 or start.size < 2:
        raise InputError(
            f"{caller}: priors[{name!r}] is of shares, and {name} has shape {start.shape}, expected a vector of two or "
            f"more; give a distribution of one number"
        )
    if (low is not None and low > 0) or (high is not None and high < 1):
        raise InputError(
            f"{caller}: priors[{name!r}] is of shares, which go from 0 to 1, outside the bounds of the parameter, "
            f"{_words(low, high)}; give Shared, PerGroup or a distribution"
        )
    if given.prior is not None and given.prior.event_shape != start.shape:
        raise InputError(
            f"{caller}: priors[{name!r}] is a Dirichlet of {given.prior.event_shape[0]} shares, expected {start.size}, "
            f"as {name} has"
        )
    if abs(start.sum() - 1) > NEGLIGIBLE or (start < 0).any():
        raise InputError(
            f"{caller}: {name}={start.tolist()}, expected shares that add up to 1, where the search begins"
        )
    if (start == 0).any():
        if given.prior is None:
            raise InputError(
                f"{caller}: {name}={start.tolist()} has a share of 0, where the search cannot begin; start from "
                f"another value, or give a prior"
            )
        start = given.prior.mean.double().numpy()
    places = tuple(range(start.size))
    return Simplex(name, 0.0, 1.0, start.shape, start / start.sum(), (given.prior,), places)


def _reach(priors: tuple[Any, ...], low: float | None, high: float | None) -> Ends:
    """The bounds, or the ends of the priors: beyond them a density has no slope that leads a search back."""
    return (low, high) if None in priors else _hull(tuple(map(support, priors)))


def _hull(ends: tuple[Ends, ...]) -> Ends:
    lows, highs = zip(*ends, strict=True)
    return (None if None in lows else min(lows)), (None if None in highs else max(highs))


def _begin_within(
    caller: str,
    name: str,
    start: np.ndarray,
    places: tuple[int, ...],
    priors: tuple[Prior, ...],
    ends: tuple[Ends, ...],
) -> None:
    """Where the search would begin on a bound, begin at the prior's median; raise `InputError` without one."""
    flat = start.reshape(-1)
    for k, place in enumerate(places):
        prior, (low, high) = priors[k % len(priors)], ends[k % len(ends)]
        if (low is None or flat[place] > low) and (high is None or flat[place] < high):
            continue
        if prior is None:
            raise InputError(
                f"{caller}: {name}={start.tolist()} lies on a bound ({_words(low, high)}), where the search cannot "
                f"begin; start from another value, or give a prior"
            )
        flat[place] = median(prior)


def _unknown(name: Any, model: Model, known: Mapping[str, Any], numbers: Mapping[str, Any]) -> str:
    if name in model.field_names:
        return f"it is fixed, a field that is no dz.param; {nearest('', known)}"
    target, _, number = str(name).rpartition(".")
    if number == "delay" and f"{target}.report" in numbers:
        return "its target has no delay that is a distribution, whose mean could be fitted"
    return nearest(name, [*known, *numbers])


def _one_scale(caller: str, parts: list[Bounded]) -> None:
    names = {part.name for part in parts}
    for name in names:
        target, _, number = name.rpartition(".")
        if number == "report" and f"{target}.people" in names:
            raise InputError(
                f"{caller}: priors has {name!r} and '{target}.people', expected one of them: both multiply the series, "
                f"so data cannot tell them apart"
            )


def _check_support(caller: str, name: str, prior: Distribution, low: float | None, high: float | None) -> None:
    least, most = support(prior)
    inside = (low is None or (least is not None and least >= low)) and (
        high is None or (most is not None and most <= high)
    )
    if not inside and beyond(prior, low, high) > NEGLIGIBLE:
        raise InputError(
            f"{caller}: priors[{name!r}] reaches from {_words(least, most)}, outside the bounds of the parameter, "
            f"{_words(low, high)}; choose a distribution within, such as LogNormal, Beta or Uniform"
        )


def _words(low: float | None, high: float | None) -> str:
    return f"{'-inf' if low is None else f'{low:g}'} to {'inf' if high is None else f'{high:g}'}"
