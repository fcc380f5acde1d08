"""Neural posterior estimation: a flow learns the posterior from simulated curves (Papamakarios and Murray 2016).

What is learned are free numbers, which have no bounds. So a flow leaves no prior's support, and drawing from it never
waits for a draw that is inside. Training is a loop of this module: that of sbi has no limit of time, prints, writes
files for TensorBoard, and takes its random numbers from torch's global generator.
"""

import contextlib
import copy
import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from denizen._arguments import number, whole
from denizen.errors import InputError, ModelError, nearest, need
from denizen.fit._experiment import Experiment
from denizen.fit._method import Iteration, Solution, Tell
from denizen.fit._prior import draws, pilot, posterior
from denizen.run import choose_device

LOOKED = 2_000  # draws of the flow that say where a round simulates
HELD, PATIENCE = 0.1, 20  # share of the curves that training does not see; epochs without a better density of these
RATE, CLIP, BATCH, SMALL = 5e-4, 5.0, 200, 20  # of Adam, as sbi has them; SMALL: of few curves
TAIL = 1e-4  # of the posterior's mass: so much lies where a later round does not simulate (Deistler et al. 2022)
TRIED = 1_000  # times the places of a round: draws of the priors that are looked at for them
TOLD = 10  # epochs between two lines of progress


@contextlib.contextmanager
def _unchecked() -> Iterator[None]:
    """Flows want torch's distributions without checks, which zuko's import turns off for good; here for a while."""
    kept = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(kept)


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
        for name, low in (("rounds", 1), ("hidden", 1), ("transforms", 1), ("epochs", 1), ("draws", 100)):
            whole("NPE", name, getattr(self, name), low)
        whole("NPE", "simulations", self.simulations, 100 * self.rounds, hint=", 100 for each round")
        if self.summaries is not None and not isinstance(self.summaries, nn.Module):
            raise InputError(f"NPE: summaries={self.summaries!r}, expected a torch.nn.Module, or None")
        if self.seconds is not None:
            number("NPE", "seconds", self.seconds, above=0, hint=", or None for no limit")

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`."""
        learned = self.learn(experiment, tell)
        places, leaked = learned.drawn(experiment, experiment.observed, self.draws)
        notes = (*learned.notes, *leaked)
        found = {"trace": learned.trace, "notes": notes}
        return posterior(experiment, places, replicates, self.simulations, learned.rest, found)

    @_unchecked()
    def learn(self, experiment: Experiment, tell: Tell) -> "Learned":
        """Simulate and train."""
        build = _builder(self)
        generator = experiment.generator()
        sizes = np.diff(np.linspace(0, self.simulations, self.rounds + 1).round().astype(int))
        first = pilot("NPE", experiment, int(sizes[0]), generator)
        device, trace, notes = choose_device(experiment.device, "NPE")[0], [], list(first.notes)
        free, seen, learned = first.free, first.seen, None
        for k, num in enumerate(sizes):
            if learned is not None:
                places = self._truncated(experiment, learned, int(num), generator)
                if places is None:
                    notes.append(
                        f"Round {k + 1} was left out: hardly any draw of the priors is where the posterior is."
                    )
                    break
                rows = range(len(free), len(free) + int(num))
                free = np.concatenate([free, places])
                seen = np.concatenate([seen, experiment.compared(places, rows)])
            shown = f"round {k + 1} of {self.rounds}, {len(free):,} curves"

            def told(text: str, shown: str = shown) -> Iteration:
                middle = free.mean(0)  # noqa: B023
                line = Iteration(len(trace), middle, np.nan, np.nan, experiment.runs, f"{shown}, {text}")
                tell(line)
                return line

            seed = int(generator.integers(1 << 62))
            learned = _train(self, build, experiment, free, seen, device, seed, told)
            trace.append(dataclasses.replace(told(learned.said), free=learned.middle(experiment)))
        assert learned is not None
        if not learned.rest:
            notes.append(f"Training was ended by epochs={self.epochs} or seconds={self.seconds}; what it had is kept.")
        learned.trace, learned.notes = tuple(trace), tuple(notes)
        return learned

    def _truncated(
        self, experiment: Experiment, learned: "Learned", num: int, generator: np.random.Generator
    ) -> np.ndarray | None:
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


class Learned:
    """A trained flow: the posterior of any data.

    Attributes:
        rest: whether training ended by itself.
        said: how it ended, in words.
        trace: of the search.
        notes: in words.
    """

    trace: tuple[Iteration, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(self, network: Any, scales: "_Scales", seed: int, rest: bool, said: str) -> None:
        self._network, self._scales, self._seed, self.rest, self.said = network, scales, seed, rest, said

    @_unchecked()
    def drawn(self, experiment: Experiment, observed: np.ndarray, num: int) -> tuple[np.ndarray, tuple[str, ...]]:
        """Draws of the posterior of data `[D]`: `[num, P]`, and notes. Those that the model refuses are drawn again.

        Raises:
            InputError: hardly any is allowed.
        """
        seeds = iter(range(self._seed, self._seed + 1_000))

        def draw(num: int) -> np.ndarray:
            with _alone(next(seeds), self._scales.device), torch.no_grad():
                found = self._network.sample(torch.Size((num,)), condition=self._scales.data(observed))
            return self._scales.free(found[:, 0])

        places, share = draws(experiment, num, draw, "NPE: the flow's posterior")
        if share > 0.99:
            return places, ()
        return places, (f"Of the flow's draws the model refuses {1 - share:.0%}; they were drawn again.",)

    @_unchecked()
    def log_density(self, free: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Of the flow at free numbers `[num, P]` given data `[D]`, a constant left out: `[num]`."""
        with torch.no_grad():
            found = self._network.log_prob(self._scales.places(free)[:, None], condition=self._scales.data(observed))
        return found[:, 0].double().cpu().numpy()

    @_unchecked()
    def middle(self, experiment: Experiment) -> np.ndarray:
        """Mean of the posterior, free numbers `[P]`."""
        return self.drawn(experiment, experiment.observed, LOOKED)[0].mean(0)


class _Scales:
    """Between numbers as they are and as a network sees them: mean 0, deviation 1, constant columns left out."""

    def __init__(self, free: np.ndarray, seen: np.ndarray, device: torch.device) -> None:
        self.device = device
        self._kept = seen.std(0) > 0
        self._free = free.mean(0), np.maximum(free.std(0), 1e-12)
        kept = seen[:, self._kept]
        self._seen = kept.mean(0), kept.std(0)

    def places(self, free: np.ndarray) -> Tensor:
        return self._tensor((free - self._free[0]) / self._free[1])

    def data(self, seen: np.ndarray) -> Tensor:
        return self._tensor((np.atleast_2d(seen)[:, self._kept] - self._seen[0]) / self._seen[1])

    def free(self, places: Tensor) -> np.ndarray:
        return places.double().cpu().numpy() * self._free[1] + self._free[0]

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=self.device)


def _builder(method: NPE) -> Callable[[Tensor, Tensor], Any]:
    """What makes a flow for parameters `[B, P]` and curves `[B, D]`, by sbi."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        need("sbi", "posterior", "learn posteriors with dz.fit.NPE")
        from sbi.neural_nets import factory
    known = [name for name in factory.model_builders if name not in ("mnle", "mnpe", "tabpfn")]
    if method.flow not in known:
        raise InputError(f"NPE: flow={method.flow!r}; {nearest(method.flow, known)}")
    embedding = nn.Identity() if method.summaries is None else copy.deepcopy(method.summaries)
    make = factory.posterior_nn(
        method.flow,
        z_score_theta="none",
        z_score_x="none",
        hidden_features=method.hidden,
        num_transforms=method.transforms,
        embedding_net=embedding,
    )

    def build(theta: Tensor, x: Tensor) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return make(theta.cpu(), x.cpu())
            except (RuntimeError, ValueError, AssertionError) as error:
                raise InputError(
                    f"NPE: no network for {theta.shape[1]} parameters and {x.shape[1]} observed numbers comes of "
                    f"flow={method.flow!r}, summaries={type(embedding).__name__}: {str(error)[:200]}; summaries take "
                    f"[B, {x.shape[1]}] and give [B, S]"
                ) from error

    return build


def _train(
    method: NPE,
    build: Callable[[Tensor, Tensor], Any],
    experiment: Experiment,
    free: np.ndarray,
    seen: np.ndarray,
    device: torch.device,
    seed: int,
    told: Callable[[str], Any],
) -> Learned:
    """Train, or take the weights from a folder in which that was done."""
    scales = _Scales(free, seen, device)
    theta, x = scales.places(free), scales.data(seen)
    with _alone(seed, device):
        network = build(theta, x).to(device)
        result = experiment.recorded(
            "train", [free, seen, method], lambda: _weights(_descend(method, network, theta, x, told), network)
        )
    epochs, rest, best = result["epochs"].item(), bool(result["rest"]), result["best"].item()
    state = {name: torch.as_tensor(result[name]) for name in network.state_dict()}
    network.load_state_dict(state)
    network.eval()
    return Learned(network, scales, seed, rest, f"{epochs} epochs, log-density {best:.2f}")


def _weights(ended: tuple[int, bool, float], network: Any) -> dict[str, np.ndarray]:
    state = {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}
    epochs, rest, best = ended
    return {**state, "epochs": np.asarray(epochs), "rest": np.asarray(rest), "best": np.asarray(best)}


def _descend(
    method: NPE, network: Any, theta: Tensor, x: Tensor, told: Callable[[str], Any]
) -> tuple[int, bool, float]:
    """Epochs, whether training came to rest, and the best mean log-density of held-out curves, whose weights stay."""
    order = torch.randperm(len(theta)).to(theta.device)
    held, rows = order[: (aside := max(10, int(HELD * len(theta))))], order[aside:]
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    # Of few curves smaller batches, for some ten steps an epoch.
    batch, began = min(BATCH, max(SMALL, len(rows) // 10)), time.monotonic()
    best, kept, since, epoch = -np.inf, copy.deepcopy(network.state_dict()), 0, 0
    late = False
    while epoch < method.epochs and since < PATIENCE and not late:
        network.train()
        shuffled = rows[torch.randperm(len(rows)).to(rows.device)]
        for part in shuffled.split(batch)[: len(rows) // batch]:
            optimizer.zero_grad()
            network.loss(theta[part], x[part]).mean().backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            optimizer.step()
        network.eval()
        with torch.no_grad():
            density = float(-torch.cat([network.loss(theta[part], x[part]) for part in held.split(10 * BATCH)]).mean())
        epoch, since = epoch + 1, since + 1
        if density > best:
            best, kept, since = density, copy.deepcopy(network.state_dict()), 0
        if epoch % TOLD == 0:
            told(f"epoch {epoch}, log-density {best:.2f}")
        late = method.seconds is not None and time.monotonic() - began >= method.seconds
    network.load_state_dict(kept)
    if not np.isfinite(best):
        raise ModelError(
            f"NPE: the loss of flow={method.flow!r} was NaN or infinite in all {epoch} epochs; take another flow, such "
            f"as 'zuko_maf', or summaries that stay finite"
        )
    return epoch, since >= PATIENCE, best


@contextlib.contextmanager
def _alone(seed: int, device: torch.device) -> Iterator[None]:
    """Around what draws from torch's global generators: they begin from a seed and are then as they were."""
    devices = (
        [device.index if device.index is not None else torch.cuda.current_device()] if device.type == "cuda" else []
    )
    with torch.random.fork_rng(devices=devices):
        torch.random.default_generator.manual_seed(seed)
        for index in devices:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield
