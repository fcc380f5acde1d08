"""Neural posterior estimation: a flow learns the posterior from simulated curves (Papamakarios and Murray 2016)."""

import copy
import dataclasses
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from denizen.fit._experiment import Experiment
from denizen.fit._method import Solution, Tell
from denizen.fit._prior import draws
from denizen.fit._trained import (
    LOOKED,
    Learning,
    Trained,
    alone,
    check_settings,
    flow_builder,
    learn,
    summarised,
    train,
    unchecked,
)

TAIL = 1e-4  # of the posterior's mass: so much lies where a later round does not simulate (Deistler et al. 2022)
TRIED = 1_000  # times the places of a round: draws of the priors that are looked at for them


@dataclasses.dataclass(frozen=True)
class NPE:
    """Draws from the posterior by a flow that has learned it from simulated curves, with `sbi`: ``denizen[posterior]``.

    Parameters are drawn from the priors, one world is simulated for each in one launch, and a normalizing flow is
    trained to say how likely parameters are given a curve. It costs no more for data that scatter much, and needs no
    likelihood. With `rounds` above 1, later rounds simulate draws of the priors that the flow so far holds possible
    given the data; all curves are trained on (truncated proposals: Deistler et al. 2022, arXiv 2210.04815). Every
    parameter needs a prior. `replicates` are worlds in which the result is compared with the data.

    A folder keeps the trained flow. Without one, the same seed gives the same fit on the same kind of device with the
    same number of threads. torch's global random numbers are left as they were.

    Attributes:
        simulations: worlds of all rounds together.
        rounds: as many simulations in each.
        flow: by sbi's name: ``"zuko_nsf"``, ``"zuko_maf"``, ``"mdn"``, …
        hidden: width of the flow's networks.
        transforms: of the flow, one upon the other.
        summaries: a module that makes of curves `[B, D]`, standardised, fewer numbers `[B, S]`; is trained with the
            flow, as a copy. None: the flow sees the curves as they are. Numbers that no curve changes are left out
            of D.
        epochs: most of them, in each round. Training ends before, when the density of held-out curves no longer grows.
        seconds: most seconds of training in each round; None: any. A fit that this ends differs from one machine to
            the other.
        draws: of the posterior, that are handed over.
    """

    simulations: int = 2_000
    rounds: int = 1
    flow: str = "zuko_nsf"
    hidden: int = 50
    transforms: int = 5
    summaries: nn.Module | None = None
    epochs: int = 500
    seconds: float | None = None
    draws: int = 2_000

    def __post_init__(self) -> None:
        check_settings("NPE", self, "hidden", "transforms")

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`."""
        return self.learn(experiment, tell).solution(experiment, self, replicates)

    @unchecked()
    def learn(self, experiment: Experiment, tell: Tell) -> Learning:
        """Simulate and train."""
        embedding = nn.Identity() if self.summaries is None else copy.deepcopy(self.summaries)
        settings = {"hidden_features": self.hidden, "num_transforms": self.transforms, "embedding_net": embedding}
        make = flow_builder("NPE", "posterior_nn", self.flow, **settings)

        def build(theta: Tensor, x: Tensor) -> Any:
            with summarised("NPE", self.summaries, theta, x, f"flow={self.flow!r}, "):
                return make(theta, x)

        def trained(*given: Any) -> Posterior:
            return Posterior(train(self, experiment, *given, build=build, loss=_loss))

        return learn(self, experiment, tell, trained, partial(_truncated, experiment))


def _loss(network: Any, theta: Tensor, x: Tensor) -> Tensor:
    return network.loss(theta, x)


class Posterior:
    """A flow that gives the posterior of any data; see `Learned`."""

    def __init__(self, trained: Trained) -> None:
        self._network, self._scales, self._seed = trained.network, trained.scales, trained.seed
        self.rest, self.said = trained.rest, trained.said

    @unchecked()
    def drawn(self, experiment: Experiment, observed: np.ndarray, num: int) -> tuple[np.ndarray, tuple[str, ...]]:
        """See `Learned`."""
        # By the experiment too: draws of one network for many data must not all come of the same random numbers.
        generator = np.random.default_rng([self._seed, experiment.seed])

        def draw(num: int) -> np.ndarray:
            with alone(int(generator.integers(1 << 62)), self._scales.device), torch.no_grad():
                found = self._network.sample(torch.Size((num,)), condition=self._scales.data(observed))
            return self._scales.free(found[:, 0])

        places, share = draws(experiment, num, draw, "NPE: the flow's posterior")
        if share > 0.99:
            return places, ()
        return places, (f"Of the flow's draws the model refuses {1 - share:.0%}; they were drawn again.",)

    @unchecked()
    def log_density(self, free: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Of the flow at free numbers `[num, P]` given data `[D]`, a constant left out: `[num]`."""
        with torch.no_grad():
            found = self._network.log_prob(self._scales.places(free)[:, None], condition=self._scales.data(observed))
        return found[:, 0].double().cpu().numpy()


def _truncated(experiment: Experiment, learned: Any, num: int, generator: np.random.Generator) -> np.ndarray | None:
    """Draws of the priors where the flow gives more density than to the last of its own draws; None: too few."""
    own, _ = learned.drawn(experiment, experiment.observed, LOOKED)
    least = np.quantile(learned.log_density(own, experiment.observed), TAIL)
    found, looked = np.empty((0, own.shape[1])), 0
    while len(found) < num and looked < TRIED * num:
        places = experiment.parameters.draw("NPE", 10 * num, generator)
        looked += len(places)
        places = places[learned.log_density(places, experiment.observed) > least]
        found = np.concatenate([found, places[[experiment.fits(one) for one in places]]])
    return found[:num] if len(found) >= num else None
