"""A fit as a tree of xarray, as ArviZ reads it."""

from typing import TYPE_CHECKING, Any

import numpy as np

from denizen._arguments import whole
from denizen.errors import need
from denizen.fit._setup import Absent

if TYPE_CHECKING:
    from denizen.fit._fit import Fit


def tree(fit: "Fit", draws: int, predictive: int, seed: int) -> Any:
    """See `Fit.to_xarray`."""
    whole("Fit.to_xarray", "draws", draws, 1)
    whole("Fit.to_xarray", "predictive", predictive, 0)
    xarray = need("xarray", "xarray", "hand a fit over to xarray and ArviZ")
    experiment, parts = fit._experiment, fit._experiment.parameters
    free = fit._solution.draws if fit._solution.draws is not None else fit._drawn(draws, seed)
    posterior = {name: _variable(name, values, ("chain", "draw")) for name, values in parts.values(free).items()}
    observed, times = {}, {}
    for name, target in experiment.targets.items():
        observed[name] = ((f"{name}_time", *_more(name, target.values.ndim - 1)), target.values)
        dates = getattr(target, "dates", None)
        ends = target.first - 1 + target.every * np.arange(1, len(target.values) + 1)
        times[f"{name}_time"] = ends if dates is None else dates[: len(target.values)].astype("datetime64[ns]")
    groups = {
        "posterior": xarray.Dataset(posterior, coords=_samples(len(free))),
        "observed_data": xarray.Dataset(observed, coords=times),
    }
    if predictive and not isinstance(fit._setup.model, Absent):
        worlds = fit._fresh(predictive)
        seen = experiment.windows(fit._drawn(predictive, seed), worlds)
        variables = {
            name: (("chain", "draw", *observed[name][0]), values[None].astype(np.float64))
            for name, values in seen.items()
        }
        groups["posterior_predictive"] = xarray.Dataset(variables, coords={**_samples(predictive), **times})
    return xarray.DataTree.from_dict(groups)


def _samples(num: int) -> dict[str, Any]:
    return {"chain": [0], "draw": np.arange(num)}


def _variable(name: str, values: np.ndarray, first: tuple[str, str]) -> tuple[Any, np.ndarray]:
    return (*first, *_more(name, values.ndim - 1)), values[None]


def _more(name: str, num: int) -> list[str]:
    return [f"{name}_dim_{k}" for k in range(num)]
