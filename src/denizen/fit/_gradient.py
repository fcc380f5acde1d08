"""`Gradient`: many numbers at once, along slopes of relaxed runs, to where runs of the real model agree with the data.

The search solves J' W (y - m(u)) + the prior's slope = 0. y is what was observed, m(u) the mean of hard runs, and J the
slopes of relaxed runs in other worlds. At the true u this has mean zero for every J of full rank, so slopes that are
wrong cost speed and not truth (`denizen.fit.GaussNewton` solves the same with slopes by differences).
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen._arguments import number, whole
from denizen.errors import InputError, ModelError, expect_function
from denizen.fit._adam import optimizer_of
from denizen.fit._densities import support
from denizen.fit._experiment import KEEP, Experiment
from denizen.fit._gauss_newton import GaussNewton, finish, inverse_covariance
from denizen.fit._method import Iteration, Solution, Tell
from denizen.fit._observed import Observed
from denizen.fit._parameters import Bounded, Parameters
from denizen.fit._target import Target
from denizen.model import Model
from denizen.relax import StraightThrough
from denizen.rng import Relax
from denizen.run import choose_device

LOOK = 10  # iterations between two looks of the host
REST = 0.3  # standard deviations of the estimate, between the mean places of two looks: the search has come to rest
RESTS = 2  # such looks in a row
CLIP = 3.0  # times their usual size: longer slopes are cut
MEMORY = 0.9  # of the usual size of the slopes, an iteration
SCALES = ("report", "people")  # numbers of a target that multiply its series
MOST = 20  # numbers, for an interval by differences
STRETCH = 30.0  # times the shortest axis: the longest
ROWS, AT_ONCE = 4, 16  # backward passes for the axes, times P at most, and how many in one go
MARGIN = 1e-4  # free numbers that are left to the end of a prior
BACK = 4  # times that the search may run into values that the model cannot stand


@dataclasses.dataclass(frozen=True)
class Gradient:
    """Fits many numbers; each iteration costs the same however many they are.

    An iteration runs `replicates` / 2 worlds as they are (at least 4), for what the model gives, and `replicates` / 8
    others relaxed (at least 2), for the slopes. The search moves along axes in which all directions are known alike. It
    ends when the mean place of ten iterations moves by less than 0.3 standard deviations of the estimate and no longer
    in one direction, twice in a row, and the noise of their slopes is as small; the estimate is the mean of the places
    since.

    Attributes:
        relax: how draws become differentiable, see `denizen.relax`.
        optimizer: makes an optimiser of a list of parameters and ``lr=``; steps are taken in free numbers.
        lr: length of a step of Adam, in free numbers: 0.1 changes what has one bound by 10 %.
        iterations: most of them. From the middle on steps become shorter, to nothing at the end.
        polish: iterations of `GaussNewton` at the end, which give an interval; each costs 2 P + 1 times `replicates`
            runs. 0 gives none; None takes 2 up to 20 numbers, and 0 beyond.
    """

    relax: Relax = dataclasses.field(default_factory=StraightThrough)
    _: dataclasses.KW_ONLY
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    lr: float = 0.1
    iterations: int = 200
    polish: int | None = None

    def __post_init__(self) -> None:
        if not callable(getattr(self.relax, "draw", None)) or isinstance(self.relax, type):
            raise InputError(f"Gradient: relax={self.relax!r}, expected an object such as dz.relax.StraightThrough()")
        expect_function("Gradient: optimizer", self.optimizer, "params")
        number("Gradient", "lr", self.lr, above=0)
        whole("Gradient", "iterations", self.iterations, 1)
        if self.polish is not None:
            whole("Gradient", "polish", self.polish, 0)

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`.

        Raises:
            InputError: a function stands where the model should.
            ModelError: the model gives NaN, or a slope is infinite.
        """
        if not isinstance(experiment.model, Model):
            raise InputError("Gradient: a function has no relaxed runs; use dz.fit.GaussNewton()")
        if all(part.of_target for part in experiment.parameters.parts):
            raise InputError("Gradient: priors has numbers of targets alone; use dz.fit.GaussNewton()")
        search = _Search(self, experiment, replicates, tell)
        search.run()
        return search.solution()


class Free(torch.nn.Module):
    """Parameters of a model as functions of free numbers, and these of `moves` along axes from a centre."""

    def __init__(self, parameters: Parameters, targets: Mapping[str, Target], device: torch.device) -> None:
        super().__init__()
        start = torch.tensor(parameters.start, dtype=torch.float32, device=device)
        self.moves = torch.nn.Parameter(torch.zeros_like(start))
        self.register_buffer("centre", start)
        self.register_buffer("axes", torch.eye(len(start), device=device))
        self.register_buffer("back", torch.eye(len(start), device=device))
        ends = np.concatenate([_ends(part) for part in parameters.parts], axis=1)
        self.register_buffer("ends", torch.tensor(ends, dtype=torch.float32, device=device))
        self._parts = [_moved(part, device) for part in parameters.parts]
        self._starts = [torch.tensor(part.start, dtype=torch.float32, device=device) for part in self._parts]
        self._places = [torch.tensor(part.places, device=device) for part in self._parts]
        for part in self._parts:
            name, _, number = part.name.rpartition(".")
            if part.of_target and number not in SCALES:
                raise InputError(
                    f"Gradient: priors has {part.name!r}, and of a target it fits {' and '.join(SCALES)} alone; hold "
                    f"{number!r} of targets[{name!r}], or take dz.fit.GaussNewton()"
                )

    def free(self) -> Tensor:
        """Free numbers `[P]`."""
        return self.centre + self.axes @ self.moves

    def put(self, centre: np.ndarray, axes: np.ndarray) -> None:
        """Take over a centre and axes, in place."""
        for mine, given in ((self.centre, centre), (self.axes, axes), (self.back, np.linalg.inv(axes))):
            mine.copy_(torch.tensor(given))

    @torch.no_grad()
    def project(self) -> None:
        """Move back to where the priors are above 0."""
        free = self.free()
        inside = torch.minimum(torch.maximum(free, self.ends[0]), self.ends[1])
        self.moves.add_(self.back @ (inside - free))

    def forward(self) -> dict[str, Tensor]:
        """Parameters of the model by name."""
        return {part.name: value for part, value in self._values() if not part.of_target}

    def shares(self) -> dict[str, Tensor]:
        """What the targets' fitted numbers multiply series by, beside those that the targets have, by target."""
        found: dict[str, Tensor] = {}
        for (part, value), start in zip(self._values(), self._starts, strict=True):
            if part.of_target:
                name = part.name.rpartition(".")[0]
                found[name] = found.get(name, 1.0) * value / start
        return found

    def log_prior(self) -> Tensor:
        """Log density in free numbers, without a constant where it is flat: 0-d."""
        return torch.stack([part.log_density(here[None])[0] for part, here in self._split()]).sum()

    def _split(self) -> list[tuple[Bounded, Tensor]]:
        return list(zip(self._parts, self.free().split([part.size for part in self._parts]), strict=True))

    def _values(self) -> list[tuple[Bounded, Tensor]]:
        found = []
        for (part, here), start, places in zip(self._split(), self._starts, self._places, strict=True):
            value = within(part.entries(here, tensors=True), part.low, part.high).expand(len(places))
            found.append((part, start.reshape(-1).index_copy(0, places, value).reshape(part.shape)))
        return found


def within(value: Tensor, low: float | None, high: float | None) -> Tensor:
    """What rounding takes over a bound comes back to it, with its slope."""
    return value + (value.detach().clamp(low, high) - value.detach()) if (low, high) != (None, None) else value


def _ends(part: Bounded) -> np.ndarray:
    """Free numbers between which the priors are above 0: `[2, size]`, infinite where there is no end."""
    found = np.repeat([[-np.inf], [np.inf]], part.size, axis=1)
    for k, prior in enumerate(part.priors):
        for end, value in enumerate(support(prior) if prior is not None else ()):
            one = part.alone(k)
            inside = value is not None and (one.low is None or value > one.low)
            if inside and (one.high is None or value < one.high):
                found[end, k] = one.free(np.asarray(value)) + (MARGIN, -MARGIN)[end]
    return found


def _moved(part: Bounded, device: torch.device) -> Bounded:
    """With its priors on a device, alike ones alike."""
    moved = {id(prior): on_device(prior, device) for prior in part.priors if prior is not None}
    return dataclasses.replace(part, priors=tuple(None if one is None else moved[id(one)] for one in part.priors))


def on_device(prior: Any, device: torch.device) -> Any:
    """A distribution with its tensors on a device, which reads nothing on the host to check what it is asked."""
    copied = copy.copy(prior)
    for name, value in prior.__dict__.items():
        if isinstance(value, torch.distributions.Distribution):
            value = on_device(value, device)
        copied.__dict__[name] = value.to(device) if isinstance(value, Tensor) else value
    copied._validate_args = False
    return copied


class Steady:
    """Hooks around the steps of an optimiser: slopes cut to what is usual, and steps made shorter; all on the device.

    Attributes:
        share: 0-d: the part of a step that is taken.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, params: list[Tensor], project: Callable[[], None] | None = None
    ) -> None:
        """Args: project: puts parameters back after a step, on the device."""
        self._project = project
        self._params, self._optimizer = params, optimizer
        self.share = torch.ones((), device=params[0].device)
        self._usual = [torch.zeros_like(param) for param in params]  # mean squares
        self._before = [param.detach().clone() for param in params]
        optimizer.register_step_pre_hook(lambda *_: self._cut())
        optimizer.register_step_post_hook(lambda *_: self._shorten())

    @torch.no_grad()
    def _cut(self) -> None:
        for param, usual, before in zip(self._params, self._usual, self._before, strict=True):
            slope = param.grad
            assert slope is not None
            most = torch.where(usual > 0, CLIP * usual.sqrt(), torch.inf)
            slope.copy_(slope.clamp(-most, most))
            usual.copy_(torch.where(usual > 0, MEMORY * usual + (1 - MEMORY) * slope**2, slope**2))
            before.copy_(param)

    @torch.no_grad()
    def _shorten(self) -> None:
        for param, before in zip(self._params, self._before, strict=True):
            param.copy_(before + self.share * (param - before))
        if self._project is not None:
            self._project()

    def state(self) -> dict[str, np.ndarray]:
        """Parameters and all that steps depend on, as arrays by name."""
        found = {f"param.{k}": param for k, param in enumerate(self._params)}
        found |= {f"usual.{k}": usual for k, usual in enumerate(self._usual)}
        found |= {f"state.{k}.{key}": value for k, key, value in self._held()}
        return {name: value.detach().cpu().numpy().copy() for name, value in found.items()}

    @torch.no_grad()
    def put(self, state: Mapping[str, np.ndarray]) -> None:
        """Take a state over, in place where there is one."""
        for k, (param, usual) in enumerate(zip(self._params, self._usual, strict=True)):
            param.copy_(torch.tensor(state[f"param.{k}"]))
            usual.copy_(torch.tensor(state[f"usual.{k}"]))
        kept = {name: torch.tensor(value) for name, value in state.items() if name.startswith("state.")}
        held = {f"state.{k}.{key}": value for k, key, value in self._held()}
        if not kept and self.share.is_cuda:  # a CUDA graph knows these tensors and no others
            kept = {name: torch.zeros_like(value) for name, value in held.items()}
        if kept.keys() == held.keys():
            for name, value in kept.items():
                held[name].copy_(value)
            return
        made: dict[int, dict[str, Tensor]] = {}
        for name, value in kept.items():
            _, k, key = name.split(".", 2)
            made.setdefault(int(k), {})[key] = value
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": made})

    def _held(self) -> list[tuple[int, str, Tensor]]:
        state = self._optimizer.state_dict()["state"]
        return [(k, key, value) for k, of in state.items() for key, value in of.items() if isinstance(value, Tensor)]


def begun(params: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The state of `Steady` before the first step."""
    found = {f"param.{k}": param.astype(np.float32) for k, param in enumerate(params)}
    return found | {f"usual.{k}": np.zeros_like(param, dtype=np.float32) for k, param in enumerate(params)}


Base = tuple[np.ndarray, np.ndarray, np.ndarray]  # centre `[P]`, axes `[P, P]`, weights of residuals `[D, D]`


class _Search:
    """The state of a search."""

    def __init__(self, method: Gradient, experiment: Experiment, replicates: int, tell: Tell) -> None:
        self._method, self._experiment, self._tell = method, experiment, tell
        self._replicates, self._worlds = replicates, 0
        self._hard, self._soft = max(4, replicates // 2), max(2, replicates // 8)
        self._runs: _Runs | None = None
        self._trace: list[Iteration] = []
        self._places: list[np.ndarray] = []  # of the looks at which nothing but noise was left
        self._looks, self._rests, self._backs, self._converged = 0, 0, 0, False
        start = experiment.parameters.start
        first = experiment.observations(start[None], self._fresh(self._hard))
        alike = np.eye(first.shape[2]) / max(float(first[0].var(0, ddof=1).mean()), 1e-6)
        self._begin(start, alike)

    def _fresh(self, worlds: int) -> range:
        self._worlds += worlds
        return range(self._worlds - worlds, self._worlds)

    def _begin(self, free: np.ndarray, weights: np.ndarray) -> None:
        """Begin anew from a place, with other weights and the axes that belong to them."""
        worlds = self._fresh(self._soft)
        inputs = [free, weights, worlds.start, worlds.stop]
        found = self._experiment.recorded("slopes", inputs, lambda: self._made().slopes(free, weights, worlds))
        self._experiment.runs += self._soft
        slopes = found["slopes"].astype(np.float64)
        labels = self._experiment.parameters.labels
        broken = [labels[k] for k in np.flatnonzero(~np.isfinite(slopes).all(axis=0))]
        if broken:
            raise ModelError(
                f"Gradient: the slope of {', '.join(broken)} is infinite or NaN near {self._experiment.told(free)}; "
                f"choose another relaxation, or dz.fit.GaussNewton()"
            )
        # Values in time that are seen by no value yet go where their prior says.
        late = np.concatenate([np.full(part.size, part.late) for part in self._experiment.parameters.parts])
        self._flat = ~slopes.any(0) & ~late
        self._information = slopes.T @ slopes + self._experiment.parameters.prior(free)[1]
        self._base = free, axes_of(self._information), weights
        self._before: tuple[np.ndarray, np.ndarray] | None = None  # mean place and slope of the look before
        self._state = begun([np.zeros_like(free)])

    def run(self) -> None:
        """Iterations, with a look of the host at every tenth."""
        most, done, share = self._method.iterations, 0, 1.0
        while done < most and not self._converged:
            shares = [share * min(1.0, 2 * (1 - k / most)) for k in range(done, min(done + LOOK, most))]
            done += len(shares)
            share *= self._look(self._iterations(shares))

    def _iterations(self, shares: list[float]) -> dict[str, np.ndarray]:
        """What some iterations gave, one for each share of a step."""
        each = self._hard + self._soft
        worlds = self._fresh(each * len(shares)).start

        def compute() -> dict[str, np.ndarray]:
            return self._made().iterations(self._state, self._base, worlds, shares)

        inputs = [*self._base, *self._state.values(), worlds, self._hard, self._soft, shares]
        found = dict(self._experiment.recorded("gradient", inputs, compute))
        self._state = {name: value for name, value in found.items() if "." in name}
        for free, loss in zip(found["free"], found["loss"], strict=True):
            self._experiment.runs += each
            if np.isfinite(loss):
                self._note(free, float(loss))
        return found

    def _made(self) -> "_Runs":
        if self._runs is None:
            self._runs = _Runs(self._method, self._experiment, self._hard, self._soft)
        return self._runs

    def _look(self, found: Mapping[str, np.ndarray]) -> float:
        """What iterations say; the share of a step that further ones take."""
        free, slope, end = found["free"], found["slope"].astype(np.float64), found["end"].astype(np.float64)
        good = np.isfinite(found["loss"]) & np.isfinite(slope).all(1)
        self._looks += 1
        if not good.all() or not self._experiment.fits(end):
            self._step_back(free[good])
            return 0.5
        noise = self._noise(slope)
        mean, slope = free.astype(np.float64).mean(0), slope.mean(0)
        goes_on = self._before is not None and float(slope @ self._before[1]) > 0
        moved = np.inf if self._before is None else self._distance(mean - self._before[0])
        rests = max(moved, noise) < REST and not goes_on and len(free) == LOOK
        self._rests = self._rests + 1 if rests else 0
        self._places = [*(self._places if self._rests > 1 else []), *free]
        self._converged = self._rests == RESTS
        self._before = mean, slope
        if self._looks == 1:
            self._begin(end, self._new_weights(found["seen"], found["noise"]))
            return 1.0
        return 1.0 if goes_on else 0.5

    def _noise(self, slope: np.ndarray) -> float:
        """How far the mean of slopes `[iterations, P]` may lead astray, in standard deviations of the estimate.

        Half the mean square of differences of neighbours is the variance of one (von Neumann 1941).
        """
        variance = (np.diff(slope, axis=0) ** 2).mean() / 2 if len(slope) > 1 else np.inf
        axes = self._base[1]
        known = np.trace(axes.T @ self._information @ axes) / len(axes)
        return float(np.sqrt(variance / len(slope) / known)) if known > 0 else np.inf

    def _distance(self, move: np.ndarray) -> float:
        """Root mean square of a move `[P]` in standard deviations of the estimate, as relaxed slopes have them."""
        return float(np.sqrt(move @ self._information @ move / len(move)))

    def _new_weights(self, seen: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Inverse covariance of one world's observation, of what worlds gave `[iterations, worlds, D]`.

        Args:
            seen: without the noise of observation.
            noise: its variance `[iterations, D]`.
        """
        rest = (seen - seen.mean(1, keepdims=True)) * np.sqrt(seen.shape[1] / (seen.shape[1] - 1))
        drawn = self._experiment.generator().normal(size=rest.shape) * np.sqrt(noise)[:, None]
        rows = (rest + drawn).reshape(-1, rest.shape[2])
        return inverse_covariance(rows, len(rows), self._experiment.sizes)

    def _step_back(self, good: np.ndarray) -> None:
        """To the last place that the model can stand.

        Raises:
            ModelError: there is none, or this was tried often enough.
        """
        self._backs += 1
        allowed = [free for free in good.astype(np.float64) if self._experiment.fits(free)]
        near = self._experiment.told(allowed[-1] if allowed else self._experiment.parameters.start)
        if self._backs > BACK or not allowed:
            self._made().explain(self._state, self._base, f"calibrate: near {near}: ")
            raise ModelError(f"calibrate: the search leaves what the model can stand near {near}; {KEEP}")
        self._begin(allowed[-1], self._base[2])
        self._rests, self._places = 0, allowed[-1:]

    def _note(self, free: np.ndarray, loss: float) -> None:
        here = len(self._trace), free.astype(np.float64), loss, np.nan, self._experiment.runs, f"loss {loss:.3g}"
        self._trace.append(Iteration(*here))
        self._tell(self._trace[-1])

    def solution(self) -> Solution:
        """The estimate, with an interval where it is wanted."""
        experiment, trace = self._experiment, tuple(self._trace)
        labels = np.array(experiment.parameters.labels)
        free = np.stack(self._places).astype(np.float64).mean(0)
        notes = []
        if self._flat.any():
            notes.append(
                f"No slope: {', '.join(labels[self._flat])}. The search left them where they began: nothing that was "
                f"observed depends on them, or the relaxation does not say so."
            )
        polish = self._method.polish
        if polish is None:
            polish = GaussNewton.polish if len(labels) <= MOST else 0
        if polish:
            found = finish(
                experiment,
                free,
                self._replicates,
                self._tell,
                worlds=self._worlds,
                trace=trace,
                converged=self._converged,
                polish=polish,
            )
            return dataclasses.replace(found, notes=(*found.notes, *notes))
        notes.append(
            f"No interval was computed for the {len(labels)} numbers, and forecasts take the estimate for certain; "
            f"polish=2 computes it by differences."
        )
        worlds = range(self._worlds, self._worlds + self._replicates)
        seen = experiment.observations(free[None], worlds)[0]
        gap, scatter = experiment.observed - seen.mean(0), seen.var(0, ddof=1)
        away = float(np.sqrt((gap**2).mean() / max(scatter.mean(), 1e-300)))
        return Solution(free, None, trace, worlds.stop, self._converged, away, notes=tuple(notes))


class _Runs:
    """Runs and steps on the device."""

    def __init__(self, method: Gradient, experiment: Experiment, hard: int, soft: int) -> None:
        device = choose_device(experiment.device, "Gradient")[0]
        self._source = Free(experiment.parameters, experiment.targets, device)
        self._observed = Observed(experiment, device)
        self._experiment, self._relax = experiment, method.relax
        self._weights = torch.zeros(2 * [len(experiment.observed)], device=device)
        self._importance = torch.tensor(experiment.weights, dtype=torch.float32, device=device)

        def optimizer(params: list[Tensor]) -> torch.optim.Optimizer:
            made = optimizer_of(method.optimizer, params, method.lr)
            if isinstance(made, torch.optim.Optimizer):
                self._steady = Steady(made, params, self._source.project)
            return made

        self._gradient = experiment.gradient(
            self._loss, wrt=self._source, relax=method.relax, replicates=soft, hard=hard, optimizer=optimizer
        )

    def _loss(self, series: Mapping[str, Tensor], hard: Mapping[str, Tensor]) -> Tensor:
        """The squared distance, with the slope of the estimating equation."""
        seen, noise = self._observed(hard, self._source.shares())
        seen, noise = seen.detach(), noise.detach()
        self._seen = seen, noise.mean(0)
        gap = self._observed.values - seen.mean(0)
        push = self._importance * (self._weights @ gap)
        equation = push @ self._observed(series, self._source.shares())[0].mean(0) + self._source.log_prior()
        return (gap**2).mean() - (equation - equation.detach())

    def slopes(self, free: np.ndarray, weights: np.ndarray, worlds: range) -> dict[str, np.ndarray]:
        """``slopes``, `[rows, P]`, whose square is the information J' W J as relaxed runs have it.

        Args:
            free: where, `[P]`.
            weights: W `[D, D]`.
            worlds: to run relaxed.
        """
        self._put((free, np.eye(len(free)), weights))
        kept = self._source.moves  # belongs to the stream that iterations were captured on
        self._source.moves = moves = torch.nn.Parameter(kept.detach().clone())
        try:
            series = self._experiment.relaxed(self._source(), worlds, self._relax)
            seen = self._observed(series, self._source.shares())[0].mean(0)
        finally:
            self._source.moves = kept
        importance = np.sqrt(self._experiment.weights)
        values, vectors = np.linalg.eigh(importance[:, None] * weights * importance)
        rows = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
        most = ROWS * len(free)
        if len(rows) > most:  # random mixtures of them have the same square on average
            rows = self._experiment.generator().normal(size=(most, len(rows))) @ rows / np.sqrt(most)
        wanted = torch.tensor(rows, dtype=torch.float32, device=seen.device)
        found = [
            torch.autograd.grad(seen, moves, part, is_grads_batched=True, retain_graph=True)[0]
            for part in wanted.split(AT_ONCE)
        ]
        return {"slopes": torch.cat(found).cpu().numpy()}

    def iterations(
        self, state: Mapping[str, np.ndarray], base: "Base", worlds: int, shares: list[float]
    ) -> dict[str, np.ndarray]:
        """What each gave, and what the last left; the host reads at the end.

        Args:
            state: to begin from.
            base: centre, axes and weights.
            worlds: number of the first world.
            shares: of a step, one for each iteration.
        """
        self._put(base)
        self._steady.put(state)
        numbers = self._gradient.worlds
        numbers.copy_(worlds + torch.arange(len(numbers)))
        told: dict[str, list[Tensor]] = {name: [] for name in ("free", "loss", "slope", "seen", "noise")}
        for share in shares:
            told["free"].append(self._source.free().detach())
            self._steady.share.fill_(share)
            told["loss"].append(self._gradient())
            told["slope"].append(self._gradient.gradients["moves"].clone())
            told["seen"].append(self._seen[0].clone())
            told["noise"].append(self._seen[1].clone())
            numbers.add_(len(numbers))
        found = {name: torch.stack(values).cpu().numpy() for name, values in told.items()}
        return {**found, "end": self._source.free().detach().cpu().numpy(), **self._steady.state()}

    def _put(self, base: "Base") -> None:
        self._source.put(*base[:2])
        self._weights.copy_(torch.tensor(base[2]))

    def explain(self, state: Mapping[str, np.ndarray], base: "Base", before: str) -> None:
        """Raise what the checks of a run at this place say, if they fail."""
        self._put(base)
        self._steady.put(state)
        try:
            self._gradient()
            self._gradient.check()
        except (ModelError, InputError) as error:
            raise ModelError(f"{before}{error}; {KEEP}") from error


def axes_of(information: np.ndarray) -> np.ndarray:
    """Axes `[P, P]` along which all moves are known alike, of lengths that are 1 on average.

    Directions of which nearly nothing is known are as long as those that are known `STRETCH` times better than they
    are; a search along these would otherwise run away.
    """
    values, vectors = np.linalg.eigh(information)
    if values[-1] <= 0:
        return np.eye(len(values))
    axes = vectors / np.sqrt(np.maximum(values, values[-1] / STRETCH**2)) @ vectors.T
    return axes / np.sqrt((axes**2).sum() / len(axes))
