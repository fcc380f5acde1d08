"""Networks that learn from simulated curves: what `NPE`, `NLE` and `NRE` share.

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
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from denizen._arguments import number, whole
from denizen.errors import InputError, ModelError, nearest, need
from denizen.fit._adam import Adam
from denizen.fit._experiment import Experiment
from denizen.fit._method import Iteration, Solution, Tell
from denizen.fit._prior import pilot, posterior
from denizen.run import choose_device

HELD, PATIENCE = 0.1, 20  # share of the curves that training does not see; epochs without a better loss of these
RATE, CLIP, BATCH, SMALL = 5e-4, 5.0, 200, 20  # of Adam, as sbi has them; SMALL: of few curves
TOLD = 10  # epochs between two lines of progress
LOOKED = 2_000  # draws that say where the posterior is


class Neural(Protocol):
    """Settings that all of these methods have; see `NPE`."""

    @property
    def simulations(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def draws(self) -> int: ...


class Learned(Protocol):
    """What was learned: the posterior of any data.

    Attributes:
        rest: whether training ended by itself.
        said: how it ended, in words.
    """

    rest: bool
    said: str

    def drawn(self, experiment: Experiment, observed: np.ndarray, num: int) -> tuple[np.ndarray, tuple[str, ...]]:
        """Draws of the posterior of data `[D]`: `[num, P]`, and notes. Those that the model refuses are drawn again.

        Raises:
            InputError: hardly any is allowed.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Learning:
    """How it went.

    Attributes:
        learned: at the end.
        trace: of the search.
        notes: in words.
    """

    learned: Learned
    trace: tuple[Iteration, ...]
    notes: tuple[str, ...]

    def drawn(self, experiment: Experiment, num: int) -> tuple[np.ndarray, tuple[str, ...]]:
        """Draws of the posterior of the experiment's data, and notes; see `Learned`."""
        return self.learned.drawn(experiment, experiment.observed, num)

    def solution(self, experiment: Experiment, method: Neural, replicates: int) -> Solution:
        """See `Method.solve`."""
        places, more = self.drawn(experiment, method.draws)
        found = {"trace": self.trace, "notes": (*self.notes, *more)}
        return posterior(experiment, places, replicates, method.simulations, self.learned.rest, found)


def check_settings(caller: str, method: Any, *names: str) -> None:
    """Of a method: numbers of at least 1 by name, and what all have.

    Raises:
        InputError: for one that does not fit.
    """
    for name, low in (("rounds", 1), *((one, 1) for one in names), ("epochs", 1), ("draws", 100)):
        whole(caller, name, getattr(method, name), low)
    whole(caller, "simulations", method.simulations, 100 * method.rounds, hint=", 100 for each round")
    summaries = getattr(method, "summaries", None)
    if summaries is not None and not isinstance(summaries, nn.Module):
        raise InputError(f"{caller}: summaries={summaries!r}, expected a torch.nn.Module, or None")
    if method.seconds is not None:
        number(caller, "seconds", method.seconds, above=0, hint=", or None for no limit")


Train = Callable[[np.ndarray, np.ndarray, int, Callable[[str], Any]], Learned]
Proposed = Callable[[Any, int, np.random.Generator], np.ndarray | None]


def learn(method: Neural, experiment: Experiment, tell: Tell, train: Train, proposed: Proposed) -> Learning:
    """Simulate and train, in rounds.

    Args:
        method: whose settings these are.
        experiment: what is simulated.
        tell: is called on the way.
        train: of parameters `[num, P]`, their curves `[num, D]`, a seed, and what is told of it.
        proposed: places `[num, P]` that a later round simulates; None: there are too few, and the search ends.
    """
    caller, generator = type(method).__name__, experiment.generator()
    sizes = np.diff(np.linspace(0, method.simulations, method.rounds + 1).round().astype(int))
    first = pilot(caller, experiment, int(sizes[0]), generator)
    trace: list[Iteration] = []
    notes, free, seen, learned = list(first.notes), first.free, first.seen, None
    for k, num in enumerate(sizes):
        if learned is not None:
            places = proposed(learned, int(num), generator)
            if places is None:
                notes.append(f"Round {k + 1} was left out: hardly any draw of the priors is where the posterior is.")
                break
            rows = range(len(free), len(free) + int(num))
            free = np.concatenate([free, places])
            seen = np.concatenate([seen, experiment.compared(places, rows)])
        shown, middle = f"round {k + 1} of {method.rounds}, {len(free):,} curves", free.mean(0)

        def told(text: str, shown: str = shown, middle: np.ndarray = middle) -> Iteration:
            line = Iteration(len(trace), middle, np.nan, np.nan, experiment.runs, f"{shown}, {text}")
            tell(line)
            return line

        learned = train(free, seen, int(generator.integers(1 << 62)), told)
        middle = learned.drawn(experiment, experiment.observed, LOOKED)[0].mean(0)
        trace.append(dataclasses.replace(told(learned.said), free=middle))
    assert learned is not None
    if not learned.rest:
        notes.append(f"Training was ended by epochs={method.epochs} or seconds={method.seconds}; what it had is kept.")
    return Learning(learned, tuple(trace), tuple(notes))


@dataclasses.dataclass(frozen=True)
class Trained:
    """A network, trained.

    Attributes:
        network: its best weights.
        scales: of what it sees.
        seed: of draws from it.
        rest: whether training ended by itself.
        said: how it ended, in words.
    """

    network: Any
    scales: "Scales"
    seed: int
    rest: bool
    said: str


def train(
    method: Neural,
    experiment: Experiment,
    free: np.ndarray,
    seen: np.ndarray,
    seed: int,
    told: Callable[[str], Any],
    *,
    build: Callable[[Tensor, Tensor], Any],
    loss: Callable[[Any, Tensor, Tensor], Tensor],
    measure: str = "log-density",
) -> Trained:
    """Train a network, or take its weights from a folder in which that was done.

    Args:
        method: whose settings these are.
        experiment: keeps the weights.
        free: parameters `[num, P]`.
        seen: curves `[num, D]`.
        seed: of weights, order, and later of draws.
        told: is called with what goes on, in words.
        build: the network, of both as it sees them.
        loss: `[B]` of the network for parameters `[B, P]` and curves `[B, D]`.
        measure: word for minus the loss.

    Raises:
        ModelError: no epoch had a finite loss.
    """
    device = choose_device(experiment.device, type(method).__name__)[0]
    scales = Scales(free, seen, device)
    theta, x = scales.places(free), scales.data(seen)
    with alone(seed, device):
        network = build(theta, x).to(device)
        result = experiment.recorded(
            "train",
            [free, seen, method],
            lambda: _weights(_descend(method, network, loss, theta, x, told, measure), network),
        )
    epochs, rest, best = result["epochs"].item(), bool(result["rest"]), result["best"].item()
    network.load_state_dict({name: torch.as_tensor(result[name]) for name in network.state_dict()})
    network.eval()
    return Trained(network, scales, seed, rest, f"{epochs} epochs, {measure} {best:.2f}")


def _weights(ended: tuple[int, bool, float], network: Any) -> dict[str, np.ndarray]:
    state = {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}
    epochs, rest, best = ended
    return {**state, "epochs": np.asarray(epochs), "rest": np.asarray(rest), "best": np.asarray(best)}


def _descend(
    method: Neural,
    network: Any,
    loss: Callable[[Any, Tensor, Tensor], Tensor],
    theta: Tensor,
    x: Tensor,
    told: Callable[[str], Any],
    measure: str,
) -> tuple[int, bool, float]:
    """Epochs, whether training came to rest, and minus the least loss of held-out curves, whose weights stay."""
    order = torch.randperm(len(theta)).to(theta.device)
    held, rows = order[: (aside := max(10, int(HELD * len(theta))))], order[aside:]
    optimizer = Adam(network.parameters(), lr=RATE)
    # Of few curves smaller batches, for some ten steps an epoch.
    batch, began = min(BATCH, max(SMALL, len(rows) // 10)), time.monotonic()
    best, kept, since, epoch = -np.inf, copy.deepcopy(network.state_dict()), 0, 0
    late = False
    while epoch < method.epochs and since < PATIENCE and not late:
        network.train()
        shuffled = rows[torch.randperm(len(rows)).to(rows.device)]
        for part in shuffled.split(batch)[: len(rows) // batch]:
            optimizer.zero_grad()
            loss(network, theta[part], x[part]).mean().backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            optimizer.step()
        network.eval()
        with torch.no_grad():
            parts = [loss(network, theta[part], x[part]) for part in held.split(10 * BATCH)]
            reached = float(-torch.cat(parts).mean())
        epoch, since = epoch + 1, since + 1
        if reached > best:
            best, kept, since = reached, copy.deepcopy(network.state_dict()), 0
        if epoch % TOLD == 0:
            told(f"epoch {epoch}, {measure} {best:.2f}")
        late = method.seconds is not None and time.monotonic() - began >= method.seconds
    network.load_state_dict(kept)
    if not np.isfinite(best):
        caller, flow = type(method).__name__, getattr(method, "flow", None)
        what, fix = (
            ("of its network", "") if flow is None else (f"of flow={flow!r}", "another flow, such as 'mdn', or ")
        )
        raise ModelError(
            f"{caller}: the loss {what} was NaN or infinite in all {epoch} epochs; take {fix}summaries that stay finite"
        )
    return epoch, since >= PATIENCE, best


class Scales:
    """Between numbers as they are and as a network sees them: mean 0, deviation 1, constant columns left out.

    Attributes:
        device: where tensors are.
    """

    def __init__(self, free: np.ndarray, seen: np.ndarray, device: torch.device) -> None:
        """Args: free: parameters `[num, P]`; seen: curves `[num, D]`; device: where tensors are."""
        self.device = device
        self._kept = seen.std(0) > 0
        self._free = free.mean(0), np.maximum(free.std(0), 1e-12)
        kept = seen[:, self._kept]
        self._seen = kept.mean(0), kept.std(0)

    def places(self, free: np.ndarray) -> Tensor:
        """Of free numbers `[num, P]`."""
        return self._tensor((free - self._free[0]) / self._free[1])

    def data(self, seen: np.ndarray) -> Tensor:
        """Of curves `[num, D]`, or one `[D]`."""
        return self._tensor((np.atleast_2d(seen)[:, self._kept] - self._seen[0]) / self._seen[1])

    def free(self, places: Tensor) -> np.ndarray:
        """Free numbers `[num, P]`."""
        return places.double().cpu().numpy() * self._free[1] + self._free[0]

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=self.device)


def flow_builder(caller: str, make: str, flow: str, **settings: Any) -> Callable[[Tensor, Tensor], Any]:
    """What makes a flow for parameters `[B, P]` and curves `[B, D]`, by sbi.

    Args:
        caller: for messages.
        make: sbi's function: ``"posterior_nn"``, ``"likelihood_nn"``.
        flow: sbi's name of one.
        settings: of that function.

    Raises:
        InputError: no such flow.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        need("sbi", "posterior", f"learn with dz.fit.{caller}")
        from sbi.neural_nets import factory
    known = [name for name in factory.model_builders if name not in ("mnle", "mnpe", "tabpfn")]
    if flow not in known:
        raise InputError(f"{caller}: flow={flow!r}; {nearest(flow, known)}")
    made = getattr(factory, make)(flow, z_score_theta="none", z_score_x="none", **settings)
    return lambda theta, x: made(theta.cpu(), x.cpu())


@contextlib.contextmanager
def summarised(caller: str, summaries: nn.Module | None, theta: Tensor, x: Tensor, more: str = "") -> Iterator[None]:
    """Around what builds a network for parameters `[B, P]` and curves `[B, D]`: its errors are told in our words.

    Args:
        caller: for the message.
        summaries: of curves, as they were given.
        theta: of which the network is made.
        x: the same.
        more: other settings that matter, for the message.

    Raises:
        InputError: the network cannot be built.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (RuntimeError, ValueError, AssertionError, IndexError) as error:
            kind, fix = "None", ""
            if summaries is not None:
                kind, fix = type(summaries).__name__, f"; summaries take [B, {x.shape[1]}] and give [B, S]"
            raise InputError(
                f"{caller}: no network for {theta.shape[1]} parameters and {x.shape[1]} observed numbers comes of "
                f"{more}summaries={kind}: {str(error)[:200]}{fix}"
            ) from error


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Flows want torch's distributions without checks, which zuko's import turns off for good; here for a while."""
    kept = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(kept)


@contextlib.contextmanager
def alone(seed: int, device: torch.device) -> Iterator[None]:
    """Around what draws from torch's global generators: they begin from a seed and are then as they were."""
    devices = (
        [device.index if device.index is not None else torch.cuda.current_device()] if device.type == "cuda" else []
    )
    with torch.random.fork_rng(devices=devices):
        torch.random.default_generator.manual_seed(seed)
        for index in devices:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield
