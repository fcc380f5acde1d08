"""`measure`: how far relaxations are off for one model and horizon, against central differences."""

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import number, whole
from denizen._printing import Table, plain
from denizen.errors import InputError, nearest
from denizen.model import Intervention, Model
from denizen.relax._relax import Logistic, MeanField, StraightThrough
from denizen.relax._weigh import OneFlip, ScoreFunction
from denizen.rng import Relax
from denizen.run import simulate

ALL: tuple[Relax, ...] = (StraightThrough(), Logistic(), MeanField(), ScoreFunction(), OneFlip())
BLOCK = 16  # worlds at a time of a relaxed run, which keeps every step
CLEAR = 3.0  # standard errors from 0 that a slope takes to be compared with
USABLE = 0.5  # error, as a share of the slope, up to which a relaxation is recommended


@dataclasses.dataclass(frozen=True)
class Slope:
    """One way to a slope, for one parameter.

    Attributes:
        param: name of the parameter.
        by: ``"differences"``, or what the relaxation prints as.
        slope: mean over worlds of the change of the total by the relative change of the parameter: times its value.
        error: standard error of that mean.
        noise: standard deviation of one world's estimate.
        ratio: slope over that of differences; NaN where that is not clearly different from 0.
        ratio_error: standard error of the ratio.
        seconds: of one world: of two runs for differences, of a run and its backward pass otherwise.
    """

    param: str
    by: str
    slope: float
    error: float
    noise: float
    ratio: float
    ratio_error: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Measured:
    """What `measure` found; print it.

    Attributes:
        model: name of the model's class.
        steps: length of the runs.
        series: whose total over all steps is meant.
        worlds: of each estimate.
        replicates: worlds of a gradient, for which `best` is chosen.
        slopes: of each parameter, by differences first and then by each relaxation.
    """

    model: str
    steps: int
    series: str
    worlds: int
    replicates: int
    slopes: tuple[Slope, ...]

    def errors(self) -> dict[str, float]:
        """For each relaxation its error in a gradient of `replicates` worlds, as a share of the slope.

        Bias and noise together, √((ratio - 1)² + noise² / replicates), of the parameter for which it is worst;
        parameters without a clear slope do not count.
        """
        truth = {row.param: row.slope for row in self.slopes if row.by == DIFFERENCES}
        found: dict[str, float] = {}
        for row in self.slopes:
            if row.by != DIFFERENCES and math.isfinite(row.ratio):
                noise = row.noise / truth[row.param] / math.sqrt(self.replicates)
                found[row.by] = max(found.get(row.by, 0.0), math.hypot(row.ratio - 1, noise))
        return found

    @property
    def best(self) -> str | None:
        """The relaxation with the smallest error; None where none is within half of the slope."""
        errors = self.errors()
        best = min(errors, key=lambda name: errors[name], default=None)
        return best if best is not None and errors[best] <= USABLE else None

    def __str__(self) -> str:
        title = f"{self.model}: slopes of all {self.series} of {self.steps} steps, {self.worlds} worlds"
        table = Table("parameter", "by", "slope × value", "ratio", "noise / slope", "ms a world", title=title)
        truth = {row.param: row.slope for row in self.slopes if row.by == DIFFERENCES}
        for row in self.slopes:
            clear = math.isfinite(row.ratio)
            table.add_row(
                row.param,
                row.by,
                f"{row.slope:.4g} ± {row.error:.2g}",
                f"{row.ratio:.2f} ± {row.ratio_error:.2f}" if clear else "-",
                f"{abs(row.noise / truth[row.param]):.2f}" if clear else "-",
                f"{1e3 * row.seconds:.3g}",
            )
        return plain(table, 140).rstrip() + "\n" + self._advice()

    __repr__ = __str__

    def _advice(self) -> str:
        errors = self.errors()
        if not errors:
            return "no slope could be told from 0: take more worlds, another series or more steps"
        told = ", ".join(f"{name} {error:.2f}" for name, error in sorted(errors.items(), key=lambda pair: pair[1]))
        told = f"error of a gradient of {self.replicates} worlds, as a share of the slope, worst parameter: {told}"
        few = "for few parameters differences cost two runs each and have no bias to speak of"
        if self.best is None:
            return f"{told}\ntake none of them here: differences under common random numbers; {few}"
        return f"{told}\ntake {self.best}; {few}"


DIFFERENCES = "differences"


def measure(
    model: Model,
    steps: int,
    *,
    series: str | None = None,
    wrt: Sequence[str] | None = None,
    relaxations: Sequence[Relax] = ALL,
    worlds: int = 64,
    replicates: int = 16,
    change: float = 0.05,
    seed: int = 0,
    dt: float = 1.0,
    device: torch.device | str | None = None,
    interventions: Sequence[Intervention] = (),
) -> Measured:
    """Measure bias and noise of relaxations for a model, its parameters and a horizon; printed, it says which to take.

    The truth is a central difference of hard runs under common random numbers, both sides in one launch. What is
    differentiated is the total of a series over all steps; a parameter with several entries is changed by a common
    factor. Relaxed runs take other worlds than the differences.

    Args:
        model: at the parameters where slopes are wanted.
        steps: length of the runs.
        series: name of a series, whose sum over steps is differentiated; default: the model's first flow, else its
            first series.
        wrt: names of parameters; default: all learnable ones that are not 0.
        relaxations: objects of `denizen.relax`, or others with their methods; default: all of them.
        worlds: of the differences, and of each relaxation, at least 8.
        replicates: worlds of a gradient in the fit that is planned, for which noise is weighed against bias.
        change: relative change to either side for differences; their own bias grows with its square.
        seed: of the random numbers.
        dt: length of a step.
        device: where to run, as for `simulate`.
        interventions: as for `simulate`.

    Raises:
        InputError: for an argument that does not fit.
        ModelError: where the model cannot run relaxed.

    Examples:
        >>> from denizen.space import Graph, generators
        >>> from denizen.zoo.sir import SIR
        >>> graph = Graph.from_edges(generators.erdos_renyi(200, 8.0, seed=1))
        >>> found = measure(SIR(graph, seed_share=0.1), 10, worlds=32, device="cpu")
        >>> found.steps, found.series
        (10, 'cases')
    """
    if isinstance(model, type) or not isinstance(model, Model):
        raise InputError(f"measure: model={model!r}, expected an instance of a dz.Model")
    steps, worlds = whole("measure", "steps", steps, 1), whole("measure", "worlds", worlds, 8)
    replicates = whole("measure", "replicates", replicates, 1)
    change = number("measure", "change", change, above=0)
    if change >= 1:
        raise InputError(f"measure: change={change!r}, expected a share of the parameter below 1, such as 0.05")
    name, names = _series(model, series), _names(model, wrt)
    if not relaxations:
        raise InputError("measure: relaxations is empty, expected objects such as dz.relax.StraightThrough()")
    options = {"seed": seed, "dt": dt, "device": device, "interventions": interventions}
    simulate(model, 1, replicates=2, **options)  # what is set up once is no run's time
    truth = {param: _differences(model, param, name, steps, worlds, change, options) for param in names}
    relaxed = [(relax, *_relaxed(model, names, name, steps, worlds, relax, options)) for relax in relaxations]
    rows = []
    for place, param in enumerate(names):
        exact, seconds = truth[param]
        rows.append(_row(param, DIFFERENCES, exact, exact, seconds))
        rows += [_row(param, repr(relax), slopes[place], exact, cost) for relax, slopes, cost in relaxed]
    return Measured(type(model).__name__, steps, name, worlds, replicates, tuple(rows))


def _row(param: str, by: str, slopes: Tensor, exact: Tensor, seconds: float) -> Slope:
    (mean, error), (true, true_error) = _mean(slopes), _mean(exact)
    ratio = ratio_error = math.nan
    if abs(true) > CLEAR * true_error:
        ratio = mean / true
        ratio_error = 0.0 if slopes is exact else math.hypot(error, ratio * true_error) / abs(true)
    return Slope(param, by, mean, error, float(slopes.std()), ratio, ratio_error, seconds)


def _mean(values: Tensor) -> tuple[float, float]:
    return float(values.mean()), float(values.std()) / math.sqrt(values.numel())


def _differences(
    model: Model, param: str, series: str, steps: int, worlds: int, change: float, options: dict[str, Any]
) -> tuple[Tensor, float]:
    """Slopes float64 `[worlds]` by the logarithm of a parameter, and seconds of a world."""
    value, spec = getattr(model, param).detach().cpu(), model.params[param]
    low, high = (value * (1 + sign * change) for sign in (-1, 1))
    if not (bool(spec.inside(low)) and bool(spec.inside(high))):
        raise InputError(
            f"measure: {param} ± {change:.0%} leaves its bounds ({spec.bounds()}); lower change, or give the model a "
            f"{param} further inside"
        )
    sides = torch.cat([side.expand(worlds, *value.shape) for side in (low, high)])
    began = time.perf_counter()
    run = simulate(model, steps, worlds=[*range(worlds)] * 2, params={param: sides}, **options)
    below, above = _total(run[series]).double().cpu().reshape(2, worlds)
    return (above - below) / (2 * change), (time.perf_counter() - began) / worlds


def _relaxed(
    model: Model, names: Sequence[str], series: str, steps: int, worlds: int, relax: Relax, options: dict[str, Any]
) -> tuple[Tensor, float]:
    """Slopes float64 `[parameters, worlds]` by the logarithm of each parameter, and seconds of a world."""
    began, parts = time.perf_counter(), []
    for numbers in _blocks(worlds):
        values = {name: getattr(model, name).detach() for name in names}
        live = {n: v.expand(len(numbers), *v.shape).clone().requires_grad_() for n, v in values.items()}
        run = simulate(model, steps, worlds=numbers, params=live, relax=relax, **options)
        total = _total(run[series]).sum()
        grads = torch.autograd.grad(total, list(live.values()), allow_unused=True)
        rows = [
            torch.zeros(len(numbers)) if grad is None else (grad * value).reshape(len(numbers), -1).sum(dim=1)
            for grad, value in zip(grads, live.values(), strict=True)
        ]
        parts.append(torch.stack([row.detach().double().cpu() for row in rows]))
    return torch.cat(parts, dim=1), (time.perf_counter() - began) / worlds


def _blocks(worlds: int) -> Iterator[range]:
    """World numbers that differences do not use; no block has a single world."""
    sizes = [BLOCK] * (worlds // BLOCK)
    rest = worlds % BLOCK
    if rest == 1:
        sizes, rest = sizes[1:], BLOCK + 1
    start = worlds
    for size in [*sizes, *([rest] if rest else [])]:
        yield range(start, start + size)
        start += size


def _total(values: Tensor) -> Tensor:
    """`[worlds]`: the sum over steps, and over entries where a series has several."""
    return values.flatten(1).sum(dim=1)


def _series(model: Model, name: str | None) -> str:
    known = model.all_series
    if name is None:
        if not known:
            raise InputError(f"measure: {type(model).__name__} records no series, whose slope could be measured")
        return next((series for series, kind in known.items() if kind == "flow"), next(iter(known)))
    if name not in known:
        raise InputError(f"measure: series={name!r}; {nearest(name, known)}")
    return name


def _names(model: Model, wrt: Sequence[str] | None) -> list[str]:
    params = model.params
    if wrt is None:
        names = [n for n, spec in params.items() if spec.learnable and bool((getattr(model, n) != 0).any())]
        if not names:
            raise InputError(f"measure: {type(model).__name__} has no learnable parameter that is not 0")
        return names
    if isinstance(wrt, str) or not wrt:
        raise InputError(f"measure: wrt={wrt!r}, expected names of parameters, such as {[*params][:1]!r}")
    for name in wrt:
        if name not in params:
            raise InputError(f"measure: wrt has {name!r}; {nearest(name, params)}")
        if not bool((getattr(model, name) != 0).any()):
            raise InputError(f"measure: {name} is 0, and a relative change leaves it there; give it another value")
    return list(wrt)
