"""Gauss-Newton steps for simulators: slopes by differences under common random numbers, fresh worlds in each step.

The estimate solves Z' (y - m(u)) = 0: y is what was observed, m(u) the mean of what the model gives at free numbers u,
and Z `[D, P]` weighs the D observed numbers. At the true u this has mean zero for any Z of full rank that was not
chosen by the same worlds, so a Z from the iterations before costs efficiency and not truth. The best Z is W J: the
slopes of m, weighed by the inverse of the covariance of one world's observation.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from denizen._arguments import number, whole
from denizen.errors import InputError
from denizen.fit._experiment import FEW, KEEP, Experiment
from denizen.fit._method import Iteration, Solution, Tell

PROBE = 0.1  # half the width of the first differences, in free numbers: 10 % of a rate
NARROWEST, WIDEST = 0.02, 0.2  # later ones are as wide as what is not known, within these
NEAR = 3.0  # standard deviations of the estimate: a shorter step of the search's few worlds is mostly their noise
WITHIN = 4.0  # times the scatter of one world: a curve farther from the data is no place to rest
EXPLODES = 1e4  # times the largest observed number, as it is compared
FLOOR = 1e-2  # of the mean variance: the least that a number is taken to scatter


@dataclasses.dataclass(frozen=True)
class GaussNewton:
    """Fits up to some twenty numbers; the default.

    Every iteration simulates the whole stencil, 2 P + 1 sets of P numbers, in the same fresh worlds, in one launch. The
    search weighs all observed numbers alike; the last iterations weigh them by the covariance of the worlds before.

    Attributes:
        iterations: most iterations of the search, each with a quarter of `replicates` worlds, at least 4.
        polish: iterations at the end, each with all `replicates` worlds; the estimate is the mean of what they say.
        radius: longest step of a number in one iteration, in free numbers (a factor e for what has one bound).
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
        self._width = np.full(len(at), PROBE)
        self._world = worlds
        self._before: list[Stencil] = []  # what weighs the equations to come
        self._last: list[tuple[Stencil, Equation, np.ndarray]] = []
        self._trace = list(trace)
        self._converged = converged

    def approach(self, iterations: int, radius: float) -> None:
        """Steps of damped least squares, until two in a row are as short as what is not known."""
        best: tuple[float, np.ndarray] | None = None
        near = False
        for _ in range(iterations):
            stencil = self._measure(max(4, self._replicates // 4))
            if best is None:
                check_slopes(self._experiment, stencil)
            loss = stencil.loss()
            if best is not None and loss > best[0] + 3 * stencil.noise and not near:
                self._note(loss, np.nan)
                self._at, radius = best[1] + 0.25 * (self._at - best[1]), radius / 2
                continue
            if best is None or loss < best[0]:
                best = loss, self._at
            step = equation(self._experiment, stencil, stencil.slope).step(radius)
            length = float(np.abs(step.move / step.sd).max())
            self._note(loss, length)
            self._at = self._moved(step.move)
            self._width = np.clip(step.sd, NARROWEST, WIDEST)
            here = length < NEAR and stencil.away < WITHIN
            if near and here:
                self._converged = True
                return
            near = here

    def finish(self, polish: int, radius: float) -> Solution:
        """Two steps for the weights, `polish` with them, and what they say together."""
        self.settle(radius)
        for _ in range(polish):
            self.polish(radius)
        return self.solution()

    def settle(self, radius: float) -> None:
        """Two steps with all worlds, still with all numbers weighed alike: these worlds weigh the equations to come."""
        for _ in range(2):
            stencil = self._measure(self._replicates)
            step = equation(self._experiment, stencil, stencil.slope).step(radius)
            self._note(stencil.loss(), float(np.abs(step.move / step.sd).max()))
            self._at = self._moved(step.move)
            self._width = np.clip(step.sd, NARROWEST, WIDEST)
            self._before.append(stencil)

    def polish(self, radius: float) -> None:
        """What fresh worlds say about the equation that earlier ones weigh; the place is the mean of what was said."""
        stencil = self._measure(self._replicates)
        slope = np.mean([one.slope for one in self._before], axis=0)
        rest = np.concatenate([one.rest for one in self._before])
        weights = inverse_covariance(rest, self._replicates * len(self._before))
        found = equation(self._experiment, stencil, weights @ slope)
        step = found.step(radius)
        self._note(stencil.loss(), float(np.abs(step.move / step.sd).max()))
        self._last.append((stencil, found, self._moved(step.move)))
        self._at = np.mean([at for _, _, at in self._last], axis=0)
        self._before.append(stencil)

    def solution(self) -> Solution:
        """The estimate and what is known about it."""
        total = sum(stencil.worlds for stencil, _, _ in self._last)
        information = np.mean([found.information for _, found, _ in self._last], axis=0) / (1 + 1 / total)
        curve = self._experiment.parameters.prior(self._at)[1]
        return Solution(
            free=self._at,
            precision=information + curve,
            trace=tuple(self._trace),
            worlds=self._world,
            converged=self._converged,
            away=self._last[-1][0].away,
            notes=tuple(self._notes()),
            slope=np.mean([stencil.slope for stencil, _, _ in self._last], axis=0),
        )

    def _notes(self) -> Iterator[str]:
        """Of the last worlds: those that died out, and what was the same in all of them."""
        for name, (few, rows) in self._experiment.few.items():
            if few:
                yield (
                    f"{few} of the last {rows} worlds died out: their {name!r} is less than {FEW:.0%} of the median "
                    f"world's in all. The mean is over them and the others; begin with more seeds to fit an outbreak."
                )
        stencils = [stencil for stencil, _, _ in self._last]
        still = np.all([(one.rest == 0).all(0) & (one.slope == 0).all(1) for one in stencils], axis=0)
        if still.any():
            name, step = self._experiment.place(int(still.argmax()))
            yield (
                f"{still.sum()} of {len(still)} observed numbers are the same in all worlds, the first of {name!r} up "
                f"to step {step}: they say nothing."
            )

    def _measure(self, worlds: int) -> "Stencil":
        self._world += worlds
        return measure(self._experiment, self._at, self._width, range(self._world - worlds, self._world))

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
        mean: `[D]`: mean observation.
        slope: `[D, P]`.
        rest: `[sets * worlds, D]`: deviations of each world from the mean of its set.
        worlds: how many.
        observed: `[D]`.
    """

    at: np.ndarray
    mean: np.ndarray
    slope: np.ndarray
    rest: np.ndarray
    worlds: int
    observed: np.ndarray

    def loss(self) -> float:
        """Mean squared distance of the mean to what was observed."""
        return float(((self.observed - self.mean) ** 2).mean())

    @property
    def away(self) -> float:
        """Distance of the mean to what was observed, root mean square, over the scatter of one world."""
        return float(np.sqrt(self.loss() / max(float((self.rest**2).mean()), 1e-300)))

    @property
    def noise(self) -> float:
        """Scatter of the loss between sets of worlds, roughly."""
        return 2 * float(np.sqrt(self.loss() * (self.rest**2).mean() / self.worlds))


def measure(experiment: Experiment, u: np.ndarray, width: np.ndarray, worlds: range) -> Stencil:
    """Simulate a point and, for each number, one beside it on either side, all in the same worlds."""
    num = len(u)
    up, down = u + np.diag(width), u - np.diag(width)
    up = np.stack([one if experiment.fits(one) else u for one in up])
    down = np.stack([one if experiment.fits(one) else u for one in down])
    width = np.diagonal(up - down) / 2
    if (width == 0).any():
        label = experiment.parameters.labels[int((width == 0).argmax())]
        raise InputError(
            f"calibrate: the model takes {label!r} near {experiment.told(u)} neither a little larger nor smaller; "
            f"{KEEP}"
        )
    sets = np.concatenate([u[None], up, down])
    seen = experiment.observations(sets, worlds)  # [2 P + 1, R, D]
    means = seen.mean(1)
    slope = ((means[1 : num + 1] - means[num + 1 :]) / (2 * width[:, None])).T
    rest = (seen - means[:, None]).reshape(-1, seen.shape[2])
    return Stencil(u, means.mean(0), slope, rest, len(worlds), experiment.observed)


def check_slopes(experiment: Experiment, stencil: Stencil) -> None:
    """Refuse to begin where nothing depends on a parameter, or everything beyond measure.

    Raises:
        InputError: says which parameter, and where.
    """
    size = max(np.abs(experiment.observed).max(), 1.0)
    ends = np.cumsum([part.size for part in experiment.parameters.parts])
    parts = zip(experiment.parameters.parts, np.split(stencil.slope.T, ends[:-1]), strict=True)
    needed = [not (part.late and slopes.any()) for part, slopes in parts for _ in range(part.size)]
    for label, slope, wanted in zip(experiment.parameters.labels, stencil.slope.T, needed, strict=True):
        told = f"near {experiment.told(stencil.at)}"
        if wanted and not slope.any():
            raise InputError(
                f"calibrate: nothing observed depends on {label!r} {told}: the simulated numbers stay the same where "
                f"it alone changes by {PROBE} in transformed units; leave it out of priors, begin elsewhere, or add a "
                f"target that it changes"
            )
        wild = np.abs(slope) * 2 * PROBE > EXPLODES * size
        if wild.any():
            first = int(wild.argmax())
            name, step = experiment.place(first)
            raise InputError(
                f"calibrate: the slope explodes {told}: where {label!r} alone changes by {PROBE} in transformed units, "
                f"{name!r} up to step {step} moves by {abs(slope[first]) * 2 * PROBE:.3g} as it is compared, and "
                f"{size:.3g} is the largest observed; begin nearer to the truth, or with fewer steps"
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
    """What an iteration says: information `[P, P]` of the observation on the free numbers, and the slope towards it.

    Attributes:
        information: inverse covariance of the estimate, without the worlds' own noise and the prior.
        towards: `[P]`: information times the step that solves the equation.
        prior_slope: `[P]` of the log density.
        prior_curve: `[P, P]`.
    """

    information: np.ndarray
    towards: np.ndarray
    prior_slope: np.ndarray
    prior_curve: np.ndarray

    def step(self, radius: float) -> Move:
        """The step, no number of it longer than `radius`."""
        total = self.information + self.prior_curve
        push = self.towards + self.prior_slope
        scale = np.diag(np.maximum(np.diag(total), 1e-9))
        damping = 1e-6
        move = np.linalg.solve(total + damping * scale, push)
        while np.abs(move).max() > radius and damping < 1e9:
            damping *= 3
            move = np.linalg.solve(total + damping * scale, push)
        sd = np.sqrt(np.diag(np.linalg.inv(total + 1e-6 * scale)))
        return Move(move, sd)


def equation(experiment: Experiment, stencil: Stencil, z: np.ndarray) -> Equation:
    """The estimating equation at a stencil, with weights `[D, P]`."""
    z = z * experiment.weights[:, None]
    a = z.T @ stencil.slope
    gap = z.T @ (stencil.observed - stencil.mean)
    scores = stencil.rest @ z
    worlds, num = stencil.worlds, len(a)
    scatter = scores.T @ scores / len(scores) * worlds / (worlds - 1)
    # The inverse of a covariance from few worlds is too large on average (Hartlap et al. 2007).
    scatter *= (worlds - 1) / max(worlds - num - 2, 1)
    scatter = scatter + 1e-9 * np.diag(np.diag(scatter)) + 1e-300 * np.eye(len(a))
    left = np.linalg.solve(scatter, a).T  # a' scatter^-1
    return Equation(left @ a, left @ gap, *experiment.parameters.prior(stencil.at))


def inverse_covariance(rest: np.ndarray, worlds: int) -> np.ndarray:
    """Inverse of the covariance of rows, their correlations shrunk towards none as Ledoit and Wolf (2004) say.

    Args:
        rest: deviations `[rows, D]`.
        worlds: independent ones among the rows, which say how far to shrink.
    """
    variance = (rest**2).mean(0)
    sd = np.sqrt(np.maximum(variance, FLOOR * variance.mean() + 1e-12))
    rows = rest / sd
    num = len(rows)
    sample = rows.T @ rows / num
    dim = len(sd)
    mean = np.trace(sample) / dim
    distance = ((sample - mean * np.eye(dim)) ** 2).sum()
    # Sum over rows of |x x' - S|^2, by |x|^4 - 2 x'S x + |S|^2; rows of one world in several sets count once.
    norms = (rows**2).sum(1)
    scatter = ((norms**2).mean() - (sample**2).sum()) / max(worlds, 1)
    shrink = 1.0 if distance == 0 else float(np.clip(scatter / distance, 0.02, 1))
    shrunk = shrink * mean * np.eye(dim) + (1 - shrink) * sample
    return np.linalg.inv(shrunk) / np.outer(sd, sd)
