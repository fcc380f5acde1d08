"""Particle marginal Metropolis-Hastings: a posterior by the filter's likelihood, which is exact for any particles.

The likelihood that a filter gives is without bias, so a chain that accepts and rejects by it draws from the posterior
itself and not from an approximation (Andrieu, Doucet and Holenstein 2010). Few particles make chains stick, many cost
worlds; a variance of the log-likelihood of 1 to 3 at the estimate wastes least (Doucet et al. 2015).
"""

import dataclasses
from functools import partial

import numpy as np

from denizen._arguments import whole
from denizen.errors import ModelError
from denizen.fit._chains import effective_draws, scale_reduction
from denizen.fit._experiment import Experiment
from denizen.fit._method import Iteration, Solution, Tell
from denizen.fit._particles import Filters, drawn

ACCEPTED = 0.25  # share of proposals that the width of the proposals is adapted to
MIXED = 1.1  # scale reduction up to which chains have mixed
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
    """

    particles: int = 256
    chains: int = 4
    burn_in: int = 100
    iterations: int = 200
    tried: int = 16

    def __post_init__(self) -> None:
        for name, low in (("particles", 2), ("chains", 2), ("burn_in", 10), ("iterations", 10), ("tried", 1)):
            whole("ParticleFilter", name, getattr(self, name), low)

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`; `replicates` plays no part."""
        likelihood = Likelihood(experiment, self.particles, self.chains, self.burn_in + self.iterations)
        walk = _Walk(experiment, likelihood, self, tell)
        walk.begin()
        for _ in range(self.burn_in):
            walk.move(learning=True)
        walk.refresh()  # a likelihood that happened to be high while the walk was learning holds nobody back
        kept = []
        for _ in range(self.iterations):
            walk.move(learning=False)
            kept.append(walk.at.copy())
        return walk.solution(np.stack(kept, axis=1))


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
        worlds, num = self.worlds, len(free)
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
        self._covariance, self._scale = np.eye(num), 2.38 / np.sqrt(num)
        self._seen: list[np.ndarray] = []
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
        self._covariance = (weights * (tried - middle).T) @ (tried - middle) + 1e-3 * np.diag(np.diag(prior))
        self._log_prior = parameters.log_prior(self.at)
        self.refresh()

    def refresh(self) -> None:
        """Likelihoods anew where the chains are."""
        self._log_likelihood = self._likelihood(self.at)

    def move(self, learning: bool) -> None:
        """One proposal for each chain."""
        parameters, generator = self._experiment.parameters, self._generator
        steps = generator.normal(size=self.at.shape) @ np.linalg.cholesky(self._covariance).T
        proposed = self.at + self._scale * steps
        log_prior = parameters.log_prior(proposed)
        log_likelihood = self._likelihood(proposed)
        with np.errstate(invalid="ignore"):  # both may be minus infinity
            gain = log_likelihood + log_prior - self._log_likelihood - self._log_prior
        gain = np.where(np.isfinite(log_likelihood + log_prior), np.nan_to_num(gain, nan=np.inf), -np.inf)
        taken = np.log(generator.random(len(gain))) < gain
        self.at = np.where(taken[:, None], proposed, self.at)
        self._log_likelihood = np.where(taken, log_likelihood, self._log_likelihood)
        self._log_prior = np.where(taken, log_prior, self._log_prior)
        if learning:
            self._learn(float(np.exp(np.minimum(gain, 0)).mean()))
        else:
            self._accepted.append(float(taken.mean()))
        self._note("burn-in" if learning else "draws", taken)

    def _learn(self, accepted: float) -> None:
        """Width by what was accepted (Robbins and Monro), directions by where the last half of the walk was."""
        self._seen.append(self.at)
        self._scale *= np.exp((accepted - ACCEPTED) * len(self._seen) ** -0.5)
        late = np.concatenate(self._seen[len(self._seen) // 2 :])
        num = late.shape[1]
        if len(late) > 20 * num:
            self._covariance = np.cov(late.T).reshape(num, num) + 1e-6 * np.diag(np.diag(self._covariance))

    def _note(self, phase: str, taken: np.ndarray) -> None:
        shown = f"{phase}, accepted {taken.sum()} of {len(taken)}, log-likelihood {np.median(self._log_likelihood):.1f}"
        number, runs = len(self._trace), self._experiment.runs
        self._trace.append(Iteration(number, self.at.mean(0), np.nan, np.nan, runs, shown))
        self._tell(self._trace[-1])

    def solution(self, chains: np.ndarray) -> Solution:
        """What the kept draws `[chains, draws, P]` say."""
        draws = chains.reshape(-1, chains.shape[2])
        middle = draws.mean(0)
        scatter = float(np.var(self._likelihood(np.repeat(middle[None], len(chains), axis=0)), ddof=1))
        covariance = np.cov(draws.T).reshape(len(middle), -1)
        reduction = scale_reduction(chains)
        return Solution(
            free=middle,
            precision=np.linalg.pinv(covariance),
            trace=tuple(self._trace),
            worlds=self._likelihood.worlds,
            converged=bool((reduction <= MIXED).all()),
            away=np.nan,
            draws=draws,
            notes=self._notes(reduction, effective_draws(chains), scatter),
            particles=self._method.particles,
        )

    def _notes(self, reduction: np.ndarray, effective: np.ndarray, scatter: float) -> tuple[str, ...]:
        labels, method = self._experiment.parameters.labels, self._method
        fewest = int(np.argmin(effective))
        notes = [
            f"{method.chains} chains of {method.iterations} draws, worth {effective[fewest]:,.0f} independent ones for "
            f"{labels[fewest]}; {np.mean(self._accepted):.0%} of the proposals were accepted."
        ]
        if (reduction > MIXED).any():
            worst = int(np.argmax(reduction))
            notes.append(
                f"The chains have not mixed: together they lie {reduction[worst]:.2f} times as wide as each alone for "
                f"{labels[worst]}. Allow more iterations and burn-in."
            )
        if not scatter <= STICKY:
            enough = f", to about {int(np.ceil(scatter / 1.5)) * method.particles:,}" if np.isfinite(scatter) else ""
            notes.append(
                f"At the estimate the log-likelihood scatters with variance {scatter:.1f} from worlds alone, so chains "
                f"stick; raise particles{enough}."
            )
        return tuple(notes)


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
