"""Gauss-Newton steps for simulators: slopes by differences under common random numbers, fresh worlds in each step.

The estimate solves Z' (y - m(u)) = 0: y is what was observed, m(u) the mean of what the model gives at free numbers u,
and Z `[D, P]` weighs the D observed numbers. At the true u this has mean zero for any Z of full rank that was not
chosen by the same worlds, so a Z from other worlds costs efficiency and not truth. The best Z is W J: the slopes of m,
weighed by the inverse of the covariance of one world's observation.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from denizen._arguments import number, whole
from denizen.errors import InputError
from denizen.fit._experiment import FEW, KEEP, Experiment
from denizen.fit._method import Iteration, Solution, Tell

PROBE = 0.1  # width of the first differences, in free numbers: 10 % of a rate, or of what has no bounds
NARROWEST, WIDEST = 0.02, 0.2  # later ones are as wide as what is not known, within these
NEAR = 3.0  # standard deviations of the estimate: a shorter step of the search's few worlds is mostly their noise
WITHIN = 4.0  # times the scatter of one world: a curve farther from the data is no place to rest
EXACT = 1e-9  # of the mean: less is rounding
EXPLODES = 1e4  # times the largest observed number, as it is compared
FEWEST = 6  # worlds whose halves weigh one another
PARTS = 4  # of each of the last iterations, each weighed by all others: with fewer, weights would differ by their noise
SETTLE = 3  # steps before the last ones, at most, with half as many worlds; and times that the last ones are taken


@dataclasses.dataclass(frozen=True)
class GaussNewton:
    """Fits up to some twenty numbers; the default.

    Every iteration simulates P + 1 sets of P numbers in the same fresh worlds, in one launch: the place, and one beside
    it for each number, in turn on this side and on that. The search weighs all observed numbers alike; each of the last
    iterations is weighed by the covariance and the slopes of the others' worlds.

    Attributes:
        iterations: most iterations of the search, each with a quarter of `replicates` worlds, at least 4.
        polish: iterations at the end, each with all `replicates` worlds (at least 2 P + 4): they give the estimate and
            its interval. One or a few with half of them lead to it. Where the last one leads far, they are taken again,
            twice at most.
        radius: longest step of a number in one iteration, in free numbers (a factor e for what has one bound; for what
            has none as much as it is at the beginning, at least 1).
    """

    iterations: int = 20
    polish: int = 2
    radius: float = 1.0

    def __post_init__(self) -> None:
        whole("GaussNewton", "iterations", self.iterations, 1)
        whole("GaussNewton", "polish", self.polish, 1)
        number("GaussNewton", "radius", self.radius, above=0)

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`."""
        search = _Search(experiment, experiment.parameters.start, replicates, tell)
        search.approach(self.iterations, self.radius)
        return search.finish(self.polish, self.radius)


def finish(
    experiment: Experiment,
    free: np.ndarray,
    replicates: int,
    tell: Tell,
    *,
    worlds: int,
    trace: tuple[Iteration, ...],
    converged: bool,
    polish: int = 2,
) -> Solution:
    """The last iterations of `GaussNewton` from where another search ended: they give its estimate an interval.

    Args:
        experiment: what is simulated.
        free: where the search ended, `[P]`.
        replicates: worlds of an iteration.
        tell: is called after each iteration.
        worlds: numbers of worlds below this one are used up.
        trace: of the search.
        converged: whether the search came to rest.
        polish: as that of `GaussNewton`.
    """
    search = _Search(experiment, free, replicates, tell, worlds, trace, converged)
    return search.finish(polish, GaussNewton.radius)


class _Search:
    """The state of a search: where it is, what was simulated, which worlds are used up."""

    def __init__(
        self,
        experiment: Experiment,
        at: np.ndarray,
        replicates: int,
        tell: Tell,
        worlds: int = 0,
        trace: tuple[Iteration, ...] = (),
        converged: bool = False,
    ) -> None:
        self._experiment, self._tell, self._at = experiment, tell, at
        self._replicates = max(replicates, 2 * len(at) + 4)  # a covariance of P scores needs more worlds than P
        self._units = experiment.parameters.units
        self._width = PROBE * self._units
        self._world = worlds
        self._parts: list[Stencil] = []  # near the end, each of worlds of its own
        self._side = -1
        self._trace = list(trace)
        self._converged = converged

    def approach(self, iterations: int, radius: float) -> None:
        """Steps of damped least squares, until one is as short as what is not known."""
        best: tuple[float, np.ndarray] | None = None
        for _ in range(iterations):
            stencil = self._measure(max(4, self._replicates // 4))
            if best is None:
                check_dependence(self._experiment, stencil)
            loss = stencil.loss()
            if best is not None and loss > best[0] + 3 * stencil.noise:
                self._note(loss, np.nan)
                self._at, radius = best[1] + 0.25 * (self._at - best[1]), radius / 2
                continue
            if best is None or loss < best[0]:
                best = loss, self._at
            if self._step(stencil, radius) < NEAR and stencil.away < WITHIN:
                self._converged = True
                return

    def finish(self, polish: int, radius: float) -> Solution:
        """Steps that weigh all numbers alike, and `polish` with all worlds, whose equations the other worlds weigh."""
        self.settle(radius)
        first, length = 0, np.inf
        last: list[Stencil] = []
        for _ in range(SETTLE):  # again where what weighs otherwise leads far
            if length < NEAR:
                break
            first, last = len(self._parts), []
            for _ in range(polish):
                last.append(self._measure(self._replicates))
                self._parts += last[-1].parts(PARTS)
                length = self._move(last[-1], self._together(first).step(radius * self._units))
        found = self._together(first)
        return Solution(
            free=self._at,
            precision=found.information / (1 + 1 / found.worlds) + found.prior_curve,
            trace=tuple(self._trace),
            worlds=self._world,
            converged=self._converged and length < NEAR,
            away=last[-1].away,
            notes=tuple(self._notes(last)),
            slope=np.mean([stencil.slope for stencil in last], axis=0),
        )

    def settle(self, radius: float) -> None:
        """Steps that weigh all numbers alike, until one is short.

        Its worlds weigh the equations to come, and halves of them one another's for a last step.
        """
        for steps in range(1, SETTLE + 1):
            stencil = self._measure(max(FEWEST, self._replicates // 2))
            short = self._step(stencil, radius) < NEAR
            if short or steps == SETTLE:
                self._converged &= short
                self._parts = stencil.parts(2)
                self._at = self._moved(self._together(0).step(radius * self._units).move)
                return

    def _together(self, first: int) -> "Equation":
        """What the parts from `first` on say of the present place, each weighed by all others."""
        found = []
        for k, part in enumerate(self._parts[first:], first):
            others = self._parts[:k] + self._parts[k + 1 :]
            worlds = [one.worlds for one in others]
            slope = np.average([one.slope for one in others], axis=0, weights=worlds)
            rest = np.concatenate([one.rest for one in others])
            weights = inverse_covariance(rest, sum(worlds), self._experiment.sizes)
            root = np.sqrt(self._experiment.weights)[:, None]
            found.append(equation(self._experiment, part, root * (weights @ (root * slope))))
        return together(self._experiment, found, self._at)

    def _notes(self, stencils: "list[Stencil]") -> Iterator[str]:
        """Of the last worlds: those that died out, and what was the same in all of them."""
        for name, (few, rows) in self._experiment.few.items():
            if few:
                yield (
                    f"{few} of the last {rows} worlds died out: their {name!r} is less than {FEW:.0%} of the median "
                    f"world's in all. The mean is over them and the others; begin with more seeds to fit an outbreak."
                )
        still = np.all([(one.rest == 0).all(0) & (one.slope == 0).all(1) for one in stencils], axis=0)
        if still.any():
            name, step = self._experiment.place(int(still.argmax()))
            yield (
                f"{still.sum()} of {len(still)} observed numbers are the same in all worlds, the first of {name!r} up "
                f"to step {step}: they say nothing."
            )

    def _measure(self, worlds: int) -> "Stencil":
        """The place and one beside it for each number, in turn on this side and on that, so that bends cancel."""
        self._world, self._side = self._world + worlds, -self._side
        used = range(self._world - worlds, self._world)
        found = measure(self._experiment, self._at, self._width * self._side, used, both=False)
        check_scatter(self._experiment, found)
        return found

    def _step(self, stencil: "Stencil", radius: float) -> float:
        """Move as the stencil says with all numbers weighed alike; how far, in standard deviations of the estimate."""
        z = stencil.weights[:, None] * stencil.slope
        return self._move(stencil, equation(self._experiment, stencil, z).step(radius * self._units))

    def _move(self, stencil: "Stencil", step: "Move") -> float:
        check_slopes(self._experiment, stencil)
        length = float(np.abs(step.move / step.sd).max())
        self._note(stencil.loss(), length)
        self._at = self._moved(step.move)
        self._width = np.clip(step.sd, NARROWEST * self._units, WIDEST * self._units)
        return length

    def _moved(self, move: np.ndarray) -> np.ndarray:
        """Where a move leads; a number whose move alone leads where the model refuses moves less, or not at all."""
        allowed = np.zeros_like(move)
        for k in range(len(move)):
            alone = np.zeros_like(move)
            for part in (1.0, 0.5, 0.25, 0.1):
                alone[k] = part * move[k]
                if self._experiment.fits(self._at + alone):
                    allowed[k] = alone[k]
                    break
        return self._at + allowed if self._experiment.fits(self._at + allowed) else self._at

    def _note(self, loss: float, length: float) -> None:
        runs, shown = self._experiment.runs, f"loss {loss:.3g}"
        self._trace.append(Iteration(len(self._trace), self._at, loss, length, runs, shown))
        self._tell(self._trace[-1])


@dataclasses.dataclass(frozen=True)
class Stencil:
    """Observations at a point and beside it.

    Attributes:
        at: free numbers `[P]`.
        width: of the differences `[P]`, below 0 where they are of one side.
        both: whether differences are of both sides.
        seen: `[sets, worlds, D]`: the place itself, then those beside it.
        observed: `[D]`.
        weights: `[D]`, of its target beside others.
    """

    at: np.ndarray
    width: np.ndarray
    both: bool
    seen: np.ndarray
    observed: np.ndarray
    weights: np.ndarray

    @property
    def worlds(self) -> int:
        """How many."""
        return self.seen.shape[1]

    @cached_property
    def mean(self) -> np.ndarray:
        """`[D]`: mean observation at the point; those beside it would add what the curve bends."""
        return self.seen[0].mean(0)

    @cached_property
    def slope(self) -> np.ndarray:
        """`[D, P]`."""
        means, num = self.seen[1:].mean(1), len(self.at)
        apart = (means[:num] - means[num:]) / 2 if self.both else means - self.mean
        return (apart / self.width[:, None]).T

    @cached_property
    def rest(self) -> np.ndarray:
        """`[sets * worlds, D]`: deviations of each world from the mean of its set."""
        return (self.seen - self.seen.mean(1, keepdims=True)).reshape(-1, self.seen.shape[2])

    def parts(self, num: int) -> "list[Stencil]":
        """The same in every `num`-th world, `num` times; fewer where parts of two worlds would be as many."""
        num = min(num, self.worlds // 2)
        return [dataclasses.replace(self, seen=self.seen[:, k::num]) for k in range(num)]

    def loss(self) -> float:
        """Mean squared distance of the mean to what was observed."""
        return self._mean_of((self.observed - self.mean) ** 2)

    @property
    def away(self) -> float:
        """Distance of the mean to what was observed, root mean square, over the scatter of one world."""
        return float(np.sqrt(self.loss() / max(self._mean_of(self.rest**2), 1e-300)))

    @property
    def noise(self) -> float:
        """Scatter of the loss between sets of worlds, roughly."""
        return 2 * float(np.sqrt(self.loss() * self._mean_of(self.rest**2) / self.worlds))

    def _mean_of(self, squares: np.ndarray) -> float:
        return float((self.weights * squares).mean() / self.weights.mean())


def measure(experiment: Experiment, u: np.ndarray, width: np.ndarray, worlds: range, *, both: bool = True) -> Stencil:
    """Simulate a point and, for each number, one beside it, or one on either side, all in the same worlds.

    Args:
        experiment: what is simulated.
        u: the point `[P]`.
        width: how far beside it `[P]`; of one side below 0 for the smaller side.
        worlds: their numbers.
        both: whether on both sides.
    """
    beside = u + np.diag(width), u - np.diag(width)
    up, down = (np.stack([one if experiment.fits(one) else u for one in side]) for side in beside)
    if both:
        sets, width = np.concatenate([u[None], up, down]), np.diagonal(up - down) / 2
    else:  # on the other side where the model takes this one not
        up = np.where((up == u).all(1)[:, None], down, up)
        sets, width = np.concatenate([u[None], up]), np.diagonal(up - u)
    if (width == 0).any():
        label = experiment.parameters.labels[int((width == 0).argmax())]
        raise InputError(
            f"calibrate: the model takes {label!r} near {experiment.told(u)} neither a little larger nor smaller; "
            f"{KEEP}"
        )
    return Stencil(u, width, both, experiment.observations(sets, worlds), experiment.observed, experiment.weights)


def check_dependence(experiment: Experiment, stencil: Stencil) -> None:
    """Refuse to begin where nothing depends on a parameter.

    Raises:
        InputError: says which parameter, and where.
    """
    ends = np.cumsum([part.size for part in experiment.parameters.parts])
    parts = zip(experiment.parameters.parts, np.split(stencil.slope.T, ends[:-1]), strict=True)
    needed = [not (part.late and slopes.any()) for part, slopes in parts for _ in range(part.size)]
    widths = np.abs(stencil.width)
    for label, slope, wanted, width in zip(experiment.parameters.labels, stencil.slope.T, needed, widths, strict=True):
        if wanted and not slope.any():
            raise InputError(
                f"calibrate: nothing observed depends on {label!r} near {experiment.told(stencil.at)}: the simulated "
                f"numbers stay the same where it alone changes by {width:.2g} in transformed units; leave it out of "
                f"priors, begin elsewhere, or add a target that it changes"
            )


def check_slopes(experiment: Experiment, stencil: Stencil) -> None:
    """Refuse to go on where everything depends on a parameter beyond measure.

    Raises:
        InputError: says which parameter, and where.
    """
    size = max(np.abs(experiment.observed).max(), 1.0)
    for label, slope, width in zip(experiment.parameters.labels, stencil.slope.T, stencil.width, strict=True):
        moved = np.abs(slope * width)
        if (moved > EXPLODES * size).any():
            name, step = experiment.place(int((moved > EXPLODES * size).argmax()))
            raise InputError(
                f"calibrate: the slope explodes near {experiment.told(stencil.at)}: where {label!r} alone changes by "
                f"{abs(width):.2g} in transformed units, {name!r} up to step {step} moves by "
                f"{moved[moved > EXPLODES * size][0]:.3g} as it is compared, and {size:.3g} is the largest observed; "
                f"begin nearer to the truth, or with fewer steps"
            )


def check_scatter(experiment: Experiment, stencil: Stencil) -> None:
    """Refuse a series without randomness: nothing says how near to it the data have to come.

    Raises:
        InputError: says which target.
    """
    ends = np.cumsum(experiment.sizes)[:-1]
    parts = (np.split(part, ends) for part in (stencil.mean, stencil.slope, stencil.rest.T))
    for name, mean, slope, rest in zip(experiment.targets, *parts, strict=True):
        if slope.any() and (np.abs(rest).max(1) <= EXACT * np.abs(mean)).all():
            raise InputError(
                f"calibrate: {name!r} is the same in all worlds near {experiment.told(stencil.at)}, so that nothing "
                f"says how far from it the data may lie; give its Target a noise, such as dz.fit.Normal(sd)"
            )


@dataclasses.dataclass(frozen=True)
class Move:
    """A step.

    Attributes:
        move: `[P]`.
        sd: standard deviation of the estimate, `[P]`.
    """

    move: np.ndarray
    sd: np.ndarray


@dataclasses.dataclass(frozen=True)
class Equation:
    """What worlds say: weighed distances to the data, how they change with the free numbers, and how they scatter.

    Attributes:
        at: free numbers `[P]`.
        gap: weighed distances of the mean to the data there, `[P]`.
        change: of what is weighed with the free numbers, `[P, P]`.
        scatter: covariance of the weighed distances, for data of one world, `[P, P]`.
        worlds: how many say it.
        prior_slope: `[P]` of the log density.
        prior_curve: `[P, P]`.
    """

    at: np.ndarray
    gap: np.ndarray
    change: np.ndarray
    scatter: np.ndarray
    worlds: int
    prior_slope: np.ndarray
    prior_curve: np.ndarray

    @property
    def information(self) -> np.ndarray:
        """Inverse covariance of the estimate `[P, P]`, without the worlds' own noise and the prior."""
        return self._left @ self.change

    @property
    def _left(self) -> np.ndarray:
        # The inverse of a covariance from few worlds is too large on average (Hartlap et al. 2007).
        scatter = self.scatter * (self.worlds - 1) / max(self.worlds - len(self.at) - 2, 1)
        scatter = scatter + 1e-9 * np.diag(np.diag(scatter)) + 1e-300 * np.eye(len(self.at))
        return np.linalg.solve(scatter, self.change).T  # change' scatter^-1

    def step(self, radius: np.ndarray) -> Move:
        """The step, no number of it longer than `radius` `[P]`."""
        total = self.information + self.prior_curve
        push = self._left @ self.gap + self.prior_slope
        scale = np.diag(np.maximum(np.diag(total), 1e-9))
        damping = 1e-6
        move = np.linalg.solve(total + damping * scale, push)
        while (np.abs(move) > radius).any() and damping < 1e9:
            damping *= 3
            move = np.linalg.solve(total + damping * scale, push)
        sd = np.sqrt(np.diag(np.linalg.inv(total + 1e-6 * scale)))
        return Move(move, sd)


def equation(experiment: Experiment, stencil: Stencil, z: np.ndarray) -> Equation:
    """The estimating equation at a stencil, with weights `[D, P]`."""
    scores, worlds = stencil.rest @ z, stencil.worlds
    return Equation(
        at=stencil.at,
        gap=z.T @ (stencil.observed - stencil.mean),
        change=z.T @ stencil.slope,
        scatter=scores.T @ scores / len(scores) * worlds / (worlds - 1),
        worlds=worlds,
        **_prior(experiment, stencil.at),
    )


def together(experiment: Experiment, found: Sequence[Equation], at: np.ndarray) -> Equation:
    """Their mean, at a place near to all of theirs; each world counts alike."""
    worlds = [one.worlds for one in found]
    gap, change, scatter = (
        np.average([getattr(one, name) for one in found], axis=0, weights=worlds)
        for name in ("gap", "change", "scatter")
    )
    gap = gap - change @ (at - np.average([one.at for one in found], axis=0, weights=worlds))
    return Equation(at, gap, change, scatter, sum(worlds), **_prior(experiment, at))


def _prior(experiment: Experiment, at: np.ndarray) -> dict[str, np.ndarray]:
    slope, curve = experiment.parameters.prior(at)
    return {"prior_slope": slope, "prior_curve": curve}


def inverse_covariance(rest: np.ndarray, worlds: int, sizes: Sequence[int]) -> np.ndarray:
    """Inverse of the covariance of rows, shrunk as Ledoit and Wolf (2004) say towards independent scatter.

    Args:
        rest: deviations `[rows, D]`.
        worlds: independent ones among the rows, which say how far to shrink.
        sizes: how many numbers in a row have one unit and are taken to scatter alike, as those of a target.
    """
    parts = np.split((rest**2).mean(0), np.cumsum(sizes)[:-1])
    sd = np.repeat([np.sqrt(part.mean() + 1e-12) for part in parts], sizes)
    rows = rest / sd
    num = len(rows)
    sample = rows.T @ rows / num
    dim = len(sd)
    mean = np.trace(sample) / dim or 1.0  # where nothing scatters
    distance = ((sample - mean * np.eye(dim)) ** 2).sum()
    # Sum over rows of |x x' - S|^2, by |x|^4 - 2 x'S x + |S|^2; rows of one world in several sets count once.
    norms = (rows**2).sum(1)
    scatter = ((norms**2).mean() - (sample**2).sum()) / max(worlds, 1)
    shrink = 1.0 if distance == 0 else float(np.clip(scatter / distance, 0.02, 1))
    shrunk = shrink * mean * np.eye(dim) + (1 - shrink) * sample
    return np.linalg.inv(shrunk) / np.outer(sd, sd)
