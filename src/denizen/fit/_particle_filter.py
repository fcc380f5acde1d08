"""Particle marginal Metropolis-Hastings: a posterior by the filter's likelihood, which is exact for any particles.

The likelihood that a filter gives is without bias, so a chain that accepts and rejects by it draws from the posterior
itself and not from an approximation (Andrieu, Doucet and Holenstein 2010). Few particles make chains stick, many cost
worlds; a variance of the log-likelihood of 1 to 3 at the estimate wastes least (Doucet et al. 2015).
"""

import dataclasses
from functools import partial

import numpy as np

from denizen._arguments import whole
from denizen.errors import InputError, ModelError
from denizen.fit._budget import Budget, check_budget
from denizen.fit._chains import Steps, gain, told
from denizen.fit._experiment import Experiment
from denizen.fit._method import Iteration, Solution, Tell
from denizen.fit._particles import Filters, drawn
from denizen.rng import MAX_SEED

STICKY = 3.0  # variance of the log-likelihood above which chains stick


@dataclasses.dataclass(frozen=True)
class ParticleFilter:
    """The posterior of the parameters, the model's own randomness included, by a particle filter.

    Several chains walk side by side: each iteration is one launch of chains × particles worlds. They begin at draws of
    the priors that the data favour. During the burn-in the walk learns its width and its directions, then these stay.
    Every parameter needs a prior, and every target a noise. Forecasts of the fit begin from filtered states.

    Attributes:
        particles: of each chain. Where chains stick the report says how many to take.
        chains: walks side by side.
        burn_in: iterations that are thrown away.
        iterations: those after, kept as draws of the posterior, `chains` each.
        tried: draws of the priors that are looked at for each chain's beginning.
        runs: most worlds of the search; the looks at its end come on top.
        seconds: most seconds, looked at before each launch; None: any. A fit that this ends differs from one machine to
            the other.
    """

    particles: int = 256
    chains: int = 4
    burn_in: int = 100
    iterations: int = 200
    tried: int = 16
    runs: int = 10_000_000
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, low in (("particles", 2), ("chains", 2), ("burn_in", 10), ("iterations", 10), ("tried", 1)):
            whole("ParticleFilter", name, getattr(self, name), low)
        check_budget("ParticleFilter", self.runs, self.seconds)
        least = self.chains * (self.tried + 1) * self.particles
        if self.runs < least:
            raise InputError(
                f"ParticleFilter: runs={self.runs:,}, expected at least {least:,}, with which chains begin"
            )

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`; `replicates` plays no part."""
        budget = Budget(experiment, self.runs, self.seconds)
        likelihood = Likelihood(experiment, self.particles, self.chains, self.burn_in + self.iterations)
        walk = _Walk(experiment, likelihood, self, tell)
        walk.begin()
        kept: list[np.ndarray] = []
        for number in range(self.burn_in + self.iterations):
            if not budget.room(self.chains * self.particles):
                break
            if number == self.burn_in:
                walk.refresh()  # a likelihood that was high by chance while the walk was learning holds nobody back
            walk.move(learning=number < self.burn_in)
            if number >= self.burn_in:
                kept.append(walk.at.copy())
        late = walk.steps.seen[len(walk.steps.seen) // 2 :]
        return walk.solution(np.stack(kept or late or [walk.at], axis=1), budget)


class Likelihood:
    """Log-likelihoods of sets of free numbers, each in fresh worlds."""

    def __init__(self, experiment: Experiment, particles: int, sets: int, passes: int) -> None:
        """Args:
        experiment: of the fit.
        particles: of each set.
        sets: most that run at once; a launch that holds too many agents is cut.
        passes: launches to come, roughly.

        Raises:
            InputError: a function stands where a model should, or a target has no likelihood.
        """
        self._filters = Filters("calibrate", experiment, particles, sets, passes)
        self._experiment, self._particles = experiment, particles
        self.worlds = 0

    def __call__(self, free: np.ndarray) -> np.ndarray:
        """`[sets]` of `[sets, P]`; minus infinity where the model refuses the numbers, or nothing fits."""
        found = np.full(len(free), -np.inf)
        taken = np.array([self._experiment.fits(one) for one in free])
        where = np.flatnonzero(taken)
        for first in range(0, len(where), self._filters.sets):
            places = where[first : first + self._filters.sets]
            found[places] = self._launch(free[places])
        return found

    def _launch(self, free: np.ndarray) -> np.ndarray:
        worlds, num = self.worlds % (MAX_SEED - self._filters.sets * self._particles), len(free)
        self.worlds += self._filters.sets * self._particles
        self._experiment.runs += num * self._particles
        compute = partial(self._compute, free, worlds)
        return self._experiment.recorded("filter", [free, worlds, self._particles], compute)["log_likelihood"]

    def _compute(self, free: np.ndarray, worlds: int) -> dict[str, np.ndarray]:
        weigher = self._filters.go(free, worlds)
        found = weigher.log_likelihood.cpu().numpy()[: len(free)]
        return {"log_likelihood": np.where(weigher.invalid.cpu().numpy()[: len(free)], -np.inf, found)}


class _Walk:
    """Chains: where they are, and what they have learned."""

    def __init__(self, experiment: Experiment, likelihood: Likelihood, method: ParticleFilter, tell: Tell) -> None:
        self._experiment, self._likelihood, self._method, self._tell = experiment, likelihood, method, tell
        self._generator = experiment.generator()
        num = len(experiment.parameters.labels)
        self.at = np.zeros((method.chains, num))
        self._log_likelihood = self._log_prior = np.zeros(method.chains)
        self._accepted: list[float] = []
        self._trace: list[Iteration] = []

    def begin(self) -> None:
        """At draws of the priors, those more often that the data favour.

        Raises:
            InputError: a parameter without a prior.
            ModelError: no draw gives the data.
        """
        parameters, method = self._experiment.parameters, self._method
        tried = parameters.draw("ParticleFilter", method.chains * method.tried, self._generator)
        found = self._likelihood(tried)
        if not np.isfinite(found).any():
            raise ModelError(
                f"calibrate: at none of {len(tried)} draws of the priors can {self._method.particles:,} particles give "
                f"what was observed; narrow the priors, widen the noise, or take more particles"
            )
        weights = tempered(found, min(method.chains, np.isfinite(found).sum()))
        self.at = tried[drawn(weights, method.chains, self._generator)]
        middle = weights @ tried
        prior = np.cov(tried.T).reshape(len(middle), -1)
        near = (weights * (tried - middle).T) @ (tried - middle) + 1e-3 * np.diag(np.diag(prior))
        self.steps = Steps(near, self._generator)
        self._log_prior = parameters.log_prior(self.at)
        self.refresh()

    def refresh(self) -> None:
        """Likelihoods anew where the chains are."""
        self._log_likelihood = self._likelihood(self.at)

    def move(self, learning: bool) -> None:
        """One proposal for each chain."""
        proposed = self.steps.proposed(self.at)
        log_prior = self._experiment.parameters.log_prior(proposed)
        log_likelihood = self._likelihood(proposed)
        gains = gain(log_likelihood + log_prior, self._log_likelihood + self._log_prior)
        taken = np.log(self._generator.random(len(gains))) < gains
        self.at = np.where(taken[:, None], proposed, self.at)
        self._log_likelihood = np.where(taken, log_likelihood, self._log_likelihood)
        self._log_prior = np.where(taken, log_prior, self._log_prior)
        if learning:
            self.steps.learn(self.at, float(np.exp(np.minimum(gains, 0)).mean()))
        else:
            self._accepted.append(float(taken.mean()))
        self._note("burn-in" if learning else "draws", taken)

    def _note(self, phase: str, taken: np.ndarray) -> None:
        shown = f"{phase}, accepted {taken.sum()} of {len(taken)}, log-likelihood {np.median(self._log_likelihood):.1f}"
        number, runs = len(self._trace), self._experiment.runs
        self._trace.append(Iteration(number, self.at.mean(0), np.nan, np.nan, runs, shown))
        self._tell(self._trace[-1])

    def solution(self, chains: np.ndarray, budget: Budget) -> Solution:
        """What the kept draws `[chains, draws, P]` say."""
        method, labels = self._method, self._experiment.parameters.labels
        draws = chains.reshape(-1, chains.shape[2])
        middle = draws.mean(0)
        more = f"Allow more iterations and burn-in than {method.iterations} and {method.burn_in}."
        notes, mixed = told(chains, labels, more)
        if self._accepted:
            notes.append(f"{np.mean(self._accepted):.0%} of the proposals were accepted.")
        again = self._likelihood(np.repeat(middle[None], len(chains), axis=0))
        scatter = float(np.var(again, ddof=1)) if np.isfinite(again).all() else np.inf
        if scatter > STICKY:
            enough = f", to about {int(np.ceil(scatter / 1.5)) * method.particles:,}" if np.isfinite(scatter) else ""
            notes.append(
                f"At the estimate the log-likelihood scatters with variance {scatter:.1f} from worlds alone, so chains "
                f"stick; raise particles{enough}."
            )
        return Solution(
            free=middle,
            precision=np.linalg.pinv(np.cov(draws.T).reshape(len(middle), -1)),
            trace=tuple(self._trace),
            worlds=self._likelihood.worlds,
            converged=mixed and not budget.over,
            away=np.nan,
            draws=draws,
            notes=(*budget.notes(), *notes),
            particles=method.particles,
        )


def tempered(log_likelihood: np.ndarray, least: float) -> np.ndarray:
    """Weights `[N]` by a power of the likelihood, the highest up to 1 that leaves `least` of them effective."""

    def weights(power: float) -> np.ndarray:
        finite = np.isfinite(log_likelihood)
        found = np.exp(power * (np.where(finite, log_likelihood, 0) - log_likelihood[finite].max())) * finite
        return found / found.sum()

    def effective(power: float) -> float:
        return 1 / float((weights(power) ** 2).sum())

    low, high = 0.0, 1.0
    if effective(high) >= least:
        return weights(high)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) >= least else (low, middle)
    return weights(low)
