"""Neural likelihood and ratio estimation: a network learns how likely curves are; draws then cost no simulation."""

import copy
import dataclasses
import itertools
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from denizen._arguments import whole
from denizen.fit._experiment import Experiment
from denizen.fit._method import Solution, Tell
from denizen.fit._prior import draws
from denizen.fit._tempered import APART, PARTICLES, tempered
from denizen.fit._trained import (
    Learning,
    Trained,
    check_settings,
    flow_builder,
    learn,
    summarised,
    train,
    unchecked,
)

AT_ONCE = 10_000  # places that a network sees together


@dataclasses.dataclass(frozen=True)
class NLE:
    """Draws from the posterior by a flow that has learned the likelihood, with `sbi`: ``denizen[posterior]``.

    As `NPE`, but the flow says how likely a curve is given parameters (Papamakarios, Sterratt and Murray 2019), so it
    has as many dimensions as numbers are observed: for some twenty of them at most, or fewer where they hang together
    closely. Draws then go from the priors to the posterior by degrees, in the flow and without simulations. Later
    `rounds` simulate draws of the posterior so far. Counts are spread evenly over the gap to their neighbours, since a
    density has no limit on numbers that come again. Every parameter needs a prior.

    Attributes:
        simulations: worlds of all rounds together.
        rounds: as many simulations in each.
        flow: by sbi's name: ``"zuko_maf"``, ``"zuko_nsf"``, ``"mdn"``, …
        hidden: width of the flow's networks.
        transforms: of the flow, one upon the other.
        epochs: as for `NPE`.
        seconds: as for `NPE`.
        draws: of the posterior, that are handed over.
    """

    simulations: int = 2_000
    rounds: int = 1
    flow: str = "zuko_maf"
    hidden: int = 50
    transforms: int = 5
    epochs: int = 500
    seconds: float | None = None
    draws: int = 2_000

    def __post_init__(self) -> None:
        check_settings("NLE", self, "hidden", "transforms")

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`."""
        return self.learn(experiment, tell).solution(experiment, self, replicates)

    @unchecked()
    def learn(self, experiment: Experiment, tell: Tell) -> Learning:
        """Simulate and train."""
        make = flow_builder(
            "NLE", "likelihood_nn", self.flow, hidden_features=self.hidden, num_transforms=self.transforms
        )

        def build(theta: Tensor, x: Tensor) -> Any:
            with summarised("NLE", None, theta, x, f"flow={self.flow!r}, "):
                return make(theta, x)

        def trained(free: np.ndarray, seen: np.ndarray, seed: int, told: Any) -> Likelihood:
            spread = _spread(seen, np.random.default_rng(seed))
            return Likelihood(
                "NLE",
                train(self, experiment, free, spread, seed, told, build=build, loss=_density_loss),
                lambda network, theta, x: network.log_prob(x[None], condition=theta)[0],
            )

        return learn(self, experiment, tell, trained, partial(_posterior, experiment))


def _density_loss(network: Any, theta: Tensor, x: Tensor) -> Tensor:
    return network.loss(x, theta)


def _spread(seen: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Curves `[num, D]`; values that come again in a column are drawn evenly over the gaps to their neighbours."""
    found = seen.copy()
    for k, column in enumerate(seen.T):
        values, which, times = np.unique(column, return_inverse=True, return_counts=True)
        if 1 < len(values) < len(column):
            gaps = np.diff(values)
            below, above = np.append(gaps[0], gaps)[which], np.append(gaps, gaps[-1])[which]
            found[:, k] += np.where(times[which] > 1, generator.uniform(-below / 2, above / 2), 0)
    return found


@dataclasses.dataclass(frozen=True)
class NRE:
    """Draws from the posterior by a network that has learned likelihood ratios: which parameters a curve is of.

    As `NPE`, but a classifier learns to choose the parameters that a curve was simulated with among those of others
    (Durkan, Murray and Papamakarios 2020). Its score is the likelihood, up to a number for each curve. It is plain
    torch, needs no `sbi`, and takes curves of any length and kind. Draws then go from the priors to the posterior by
    degrees, in the network and without simulations. Later `rounds` simulate draws of the posterior so far. Every
    parameter needs a prior.

    Attributes:
        simulations: worlds of all rounds together.
        rounds: as many simulations in each.
        hidden: width of the network.
        layers: of the network.
        choices: parameters that are told apart at once, the right ones among them.
        summaries: as for `NPE`.
        epochs: as for `NPE`.
        seconds: as for `NPE`.
        draws: of the posterior, that are handed over.
    """

    simulations: int = 2_000
    rounds: int = 1
    hidden: int = 64
    layers: int = 3
    choices: int = 10
    summaries: nn.Module | None = None
    epochs: int = 500
    seconds: float | None = None
    draws: int = 2_000

    def __post_init__(self) -> None:
        check_settings("NRE", self, "hidden", "layers")
        whole("NRE", "choices", self.choices, 2)

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`."""
        return self.learn(experiment, tell).solution(experiment, self, replicates)

    def learn(self, experiment: Experiment, tell: Tell) -> Learning:
        """Simulate and train."""

        def build(theta: Tensor, x: Tensor) -> Any:
            with summarised("NRE", self.summaries, theta, x):
                return _Classifier(self, theta.cpu(), x.cpu())

        def trained(*given: Any) -> Likelihood:
            ended = train(self, experiment, *given, build=build, loss=self._loss, measure="log-share chosen rightly")
            return Likelihood("NRE", ended, lambda network, theta, x: network(theta, x))

        return learn(self, experiment, tell, trained, partial(_posterior, experiment))

    def _loss(self, network: Any, theta: Tensor, x: Tensor) -> Tensor:
        """Of each curve, which of several parameters are its own: those of the next curves of the batch beside."""
        num = len(theta)
        turns = torch.arange(num, device=theta.device)[:, None] + torch.arange(min(self.choices, num)).to(theta.device)
        scores = network(theta[turns % num], x[:, None].expand(-1, turns.shape[1], -1))
        return functional.cross_entropy(scores, torch.zeros(num, dtype=torch.long, device=x.device), reduction="none")


class _Classifier(nn.Module):
    """Score `[…]` of parameters `[…, P]` and curves `[…, D]`."""

    def __init__(self, method: NRE, theta: Tensor, x: Tensor) -> None:
        super().__init__()
        self.summaries = nn.Identity() if method.summaries is None else copy.deepcopy(method.summaries)
        with torch.no_grad():
            told = self.summaries(x[:2]).shape[1]
        widths = [theta.shape[1] + told, *[method.hidden] * method.layers]
        parts = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), nn.SiLU())]
        self.body = nn.Sequential(*parts, nn.Linear(method.hidden, 1))

    def forward(self, theta: Tensor, x: Tensor) -> Tensor:
        told = self.summaries(x.reshape(-1, x.shape[-1]))
        return self.body(torch.cat([theta, told.reshape(*x.shape[:-1], -1)], -1)).squeeze(-1)


class Likelihood:
    """A network that gives the likelihood of any data; see `Learned`."""

    def __init__(self, caller: str, trained: Trained, log_likelihood: Any) -> None:
        self._caller, self._scales, self._seed = caller, trained.scales, trained.seed
        self._network, self._log_likelihood = trained.network, log_likelihood
        self.rest, self.said = trained.rest, trained.said

    @unchecked()
    def drawn(self, experiment: Experiment, observed: np.ndarray, num: int) -> tuple[np.ndarray, tuple[str, ...]]:
        """See `Learned`."""
        generator, tied = np.random.default_rng([self._seed, experiment.seed]), []
        parameters = experiment.parameters

        def draw(num: int) -> np.ndarray:
            begin = parameters.draw(self._caller, max(num, PARTICLES), generator)
            found, one = tempered(begin, parameters.log_prior, partial(self.log_likelihood, observed), generator)
            tied.append(one)
            return found[generator.permutation(len(found))[:num]]

        places, share = draws(experiment, num, draw, f"{self._caller}: the network's posterior")
        notes = []
        if share <= 0.99:
            notes.append(f"Of the network's draws the model refuses {1 - share:.0%}; they were drawn again.")
        if max(tied) > APART:
            notes.append(
                f"The walk to the posterior has not mixed: draws hang together with where its last part began "
                f"(correlation {max(tied):.2f})."
            )
        return places, tuple(notes)

    def log_likelihood(self, observed: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Of free numbers `[num, P]` given data `[D]`, a constant left out: `[num]`."""
        theta, x = self._scales.places(free), self._scales.data(observed)
        with torch.no_grad():
            parts = [
                self._log_likelihood(self._network, part, x.expand(len(part), -1)) for part in theta.split(AT_ONCE)
            ]
        return torch.cat(parts).double().cpu().numpy()


def _posterior(experiment: Experiment, learned: Any, num: int, generator: np.random.Generator) -> np.ndarray:
    """Places for a next round: draws of the posterior so far."""
    return learned.drawn(experiment, experiment.observed, num)[0]
