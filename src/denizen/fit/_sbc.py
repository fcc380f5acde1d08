"""Simulation-based calibration: whether a method's posteriors are as wide, and where, as they say (Talts et al. 2018).

Where truths are drawn from the priors and data from the model, a truth is one more draw of its own posterior. So its
rank among the others is uniform, whatever the model.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from denizen._arguments import folder as folder_path
from denizen._arguments import number, switch, whole
from denizen._notebook import InNotebook
from denizen._printing import Table, plain
from denizen._printing import progress as progress_bar
from denizen.errors import InputError, ModelError
from denizen.fit import _plot
from denizen.fit._experiment import Experiment, Simulator
from denizen.fit._folder import SbcFolder
from denizen.fit._ledger import Ledger
from denizen.fit._method import Method
from denizen.fit._prior import draws as allowed
from denizen.fit._setup import Setup, set_up
from denizen.model import Intervention, Model
from denizen.rng import MAX_SEED
from denizen.run import choose_device

SIMULATED = 4_000  # sets of uniform ranks, which the band is taken from
TOGETHER = "together"  # the row of all parameters at once
LEVELS = (0.5, 0.8, 0.9, 0.95)
LEAST = 0.5  # of the fits have to come to an end
WORLDS = 1 << 24  # the data's worlds begin here: a function knows no seed, and a search begins at 0


@dataclasses.dataclass(frozen=True)
class Ranks(InNotebook):
    """What `sbc` found: print it.

    Attributes:
        ranks: by number that is fitted, `[num]`: how many of a posterior's draws lie below the truth, 0 to `draws`.
            ``"together"``: how many lie nearer than the truth to a draw of the priors, over all numbers at once (TARP,
            Lemos et al. 2023), which sees what single numbers do not, such as wrong correlations.
        draws: of each posterior.
        failed: fits that ended with an error, and count for nothing.
        notes: what should be known, in words.
    """

    ranks: dict[str, np.ndarray]
    draws: int
    failed: int
    notes: tuple[str, ...]

    def p(self) -> dict[str, float]:
        """How often uniform ranks leave the diagonal as far somewhere, by number; small where posteriors are wrong.

        Of the distribution of ranks the point is taken that is least likely for uniform ones, and compared with that of
        simulated uniform ranks (Säilynoja, Bürkner and Vehtari 2022).
        """
        found = {}
        for name, ranks in self.ranks.items():
            band = _band(len(ranks), self.draws)
            found[name] = float((band.simulated <= band.least(_counts(ranks, self.draws))).mean())
        return found

    def passed(self, level: float = 0.95) -> bool:
        """Whether all lie within their bands, which all uniform ranks together do in a share `level` of cases."""
        number("Ranks.passed", "level", level, above=0, high=1 - 1e-9)
        return min(self.p().values()) * len(self.ranks) > 1 - level

    def coverage(self, level: float) -> dict[str, float]:
        """Share of the truths within the central interval of a level, by number.

        Args:
            level: above 0, below 1.
        """
        number("Ranks.coverage", "level", level, above=0, high=1 - 1e-9)
        middle = {n: (r + 0.5) / (self.draws + 1) for n, r in self.ranks.items() if n != TOGETHER}
        return {name: float((np.abs(at - 0.5) <= level / 2).mean()) for name, at in middle.items()}

    def plot(self, path: Path | str | None = None) -> Any:
        """Distribution of the ranks less the uniform one, with the band of 95 %; arguments as for `Fit.plot`."""
        return _plot.ranks(self, path)

    def band(self, num: int, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Between which the distribution of `num` uniform ranks lies everywhere, in a share `level` of cases.

        Returns:
            Lower and upper ends `[draws + 1]` of the share of ranks up to 0, 1, …
        """
        return _band(num, self.draws).ends(level)

    def __str__(self) -> str:
        table = Table("number", "p", *(f"in {level:.0%}" for level in LEVELS), title="Ranks of the truth")
        covered = [self.coverage(level) for level in LEVELS]
        for name, p in self.p().items():
            shares = ["" if name == TOGETHER else f"{share[name]:.0%}" for share in covered]
            table.add_row(name, "below 0.001" if p < 1e-3 else f"{p:.3f}", *shares)
        num = len(next(iter(self.ranks.values())))
        verdict = "within the band of 95 %" if self.passed() else "OUTSIDE the band of 95 %: do not trust the intervals"
        lines = [f"{num} fits, {self.draws} draws of each: {verdict}", *self.notes]
        return plain(table, 100).rstrip() + "\n" + "\n".join(lines)


def sbc(
    model: Model | Simulator,
    targets: Mapping[str, Any],
    *,
    priors: Mapping[str, Any],
    method: Method,
    num: int = 100,
    draws: int = 99,
    steps: int | None = None,
    replicates: int = 16,
    start: Any = None,
    seed: int = 0,
    interventions: Sequence[Intervention] = (),
    device: torch.device | str | None = None,
    out: Path | str | None = None,
    progress: bool = True,
) -> Ranks:
    """Fit data whose truth is known, `num` times, and see where the truth lies among the draws of its posterior.

    Args:
        model: as for `dz.calibrate`; so are the others that are not named here.
        targets: which series are observed, when and with which noise. Their values are replaced by simulated ones;
            gaps stay.
        priors: the truths are drawn from them; a distribution for each parameter.
        method: what is looked at. A network of `NPE`, `NLE`, `NRE` is trained once, for all data, if it has one round.
        num: fits. A width that is wrong by a fifth takes some 200 to see.
        draws: of each posterior, so ranks go from 0 to `draws`.
        steps: as for `dz.calibrate`.
        replicates: as for `dz.calibrate`.
        start: as for `dz.calibrate`.
        seed: of the truths; each fit has a seed of its own.
        interventions: as for `dz.calibrate`.
        device: as for `dz.calibrate`.
        out: folder that keeps every fit as it ends. The same call goes on where it was stopped, and gives the ranks at
            once where it had come to its end.
        progress: show what is going on.

    Returns:
        The ranks, their test, coverage and picture; print it.

    Raises:
        InputError: for an argument that does not fit, or where more than half of the fits fail; says the first reason.
            Or the folder holds ranks of something else; says what differs.
        StorageError: the folder could not be written, or holds something else.
    """
    switch("sbc", "progress", progress)
    whole("sbc", "num", num, 10)
    whole("sbc", "draws", draws, 9)
    whole("sbc", "seed", seed, 0, MAX_SEED - num)

    def setup(values: Mapping[str, Any], seed: int) -> Setup:
        return set_up(
            "sbc",
            model,
            values,
            priors=priors,
            method=method,
            steps=steps,
            replicates=replicates,
            holdout=0,
            start=start,
            seed=seed,
            interventions=interventions,
            device=device,
        )

    begun = setup(targets, seed)
    if out is None:
        return _ranked(begun, setup, num, draws, seed, progress, None)
    given = {name: value for name, value in begun.given.items() if name != "holdout"} | {"num": num, "draws": draws}
    kind = choose_device(device, "sbc")[0].type if isinstance(model, Model) else "cpu"
    folder = SbcFolder.enter(folder_path("sbc", "out", out), model, given, kind, None)
    with folder.working() as ledger:
        found = folder.found()
        if found is not None:
            return Ranks(**found)
        ranks = _ranked(begun, setup, num, draws, seed, progress, ledger)
        folder.keep(ranks, ledger.launches, str(ranks))
        return ranks


def _ranked(
    begun: Setup,
    setup: Callable[[Mapping[str, Any], int], Setup],
    num: int,
    draws: int,
    seed: int,
    progress: bool,
    ledger: Ledger | None,
) -> Ranks:
    """See `sbc`; a fit that the ledger has is not made again."""
    first, generator = begun.experiment, np.random.default_rng([seed, num])
    first.ledger = ledger
    parameters = first.parameters
    truths, _ = allowed(first, num, lambda wanted: parameters.draw("sbc", wanted, generator), "sbc: priors")
    references = parameters.draw("sbc", num, generator)
    width = parameters.draw("sbc", 1_000, generator).std(0)
    seen = first.windows(truths, range(WORLDS, WORLDS + num))
    search = _Search(begun.given["method"], begun.replicates, ledger)
    ranks: list[np.ndarray] = []
    reasons: list[Exception] = []
    with progress_bar() if progress else contextlib.nullcontext() as bar:
        task = None if bar is None else bar.add_task("sbc", total=num, rate="")
        for k, truth in enumerate(truths):
            values = {name: target.holding(seen[name][k]) for name, target in first.targets.items()}
            try:
                found = search.drawn(setup(values, seed + 1 + k).experiment, draws)
            except (InputError, ModelError) as error:
                reasons.append(error)
            else:
                near = [(((one - references[k]) / width) ** 2).sum(-1) for one in (found, truth)]
                ranks.append(np.append((found < truth).sum(0), (near[0] < near[1]).sum()))
            if bar is not None and task is not None:
                bar.update(task, completed=k + 1, description=f"sbc: {len(ranks)} fits, {len(reasons)} failed")
    if len(ranks) < LEAST * num:
        raise InputError(f"sbc: {len(reasons)} of {num} fits failed, the first: {reasons[0]}") from reasons[0]
    notes = () if not reasons else (f"{len(reasons)} fits failed and are left out, the first: {reasons[0]}",)
    columns = np.stack(ranks, axis=1)
    labels = parameters.labels + ([TOGETHER] if len(parameters.labels) > 1 else [])
    return Ranks(dict(zip(labels, columns, strict=False)), draws, len(reasons), notes)


class _Search:
    """Draws of the posterior of any data; a network is trained once."""

    def __init__(self, method: Method, replicates: int, ledger: Ledger | None) -> None:
        from denizen.fit._neural import NPE
        from denizen.fit._neural_likelihood import NLE, NRE

        self._method, self._replicates, self._ledger = method, replicates, ledger
        self._amortised = isinstance(method, NPE | NLE | NRE) and method.rounds == 1
        self._learned: Any = None

    def drawn(self, experiment: Experiment, num: int) -> np.ndarray:
        """`[num, P]`.

        Raises:
            InputError: the fit failed.
        """
        if self._amortised and self._learned is None:
            experiment.ledger = self._ledger
            self._learned = self._method.learn(experiment, lambda line: None)  # type: ignore[attr-defined]
            experiment.ledger = None
        if self._ledger is None:
            return self._found(experiment, num)
        kept = self._ledger.recorded(
            "fit", [experiment.observed, experiment.seed, num], lambda: self._kept(experiment, num)
        )
        if "failed" in kept:
            raise InputError(kept["failed"].tobytes().decode())
        return kept["draws"]

    def _kept(self, experiment: Experiment, num: int) -> dict[str, np.ndarray]:
        try:
            return {"draws": self._found(experiment, num)}
        except (InputError, ModelError) as error:
            return {"failed": np.array(bytearray(str(error).encode()), dtype=np.uint8)}

    def _found(self, experiment: Experiment, num: int) -> np.ndarray:
        if self._amortised:
            return self._learned.drawn(experiment, num)[0]
        solution = self._method.solve(experiment, self._replicates, lambda line: None)
        if solution.draws is None:
            solution.covariance()  # says what is missing
        return solution.drawn(num, np.random.default_rng([experiment.seed, num]))


def _counts(ranks: np.ndarray, draws: int) -> np.ndarray:
    """How many ranks are at most 0, 1, … draws - 1; all are at most draws."""
    return np.bincount(ranks, minlength=draws + 1).cumsum()[:-1]


class _Band:
    """Of the distribution of `num` uniform ranks 0 … draws.

    Attributes:
        simulated: by set of uniform ranks, the smallest of their points' probabilities.
    """

    def __init__(self, num: int, draws: int) -> None:
        self._num, at = num, np.arange(1, draws + 1) / (draws + 1)
        k = np.arange(num + 1)
        binomial = np.array([math.lgamma(num + 1) - math.lgamma(j + 1) - math.lgamma(num - j + 1) for j in k])
        mass = np.exp(binomial[:, None] + k[:, None] * np.log(at) + (num - k)[:, None] * np.log1p(-at))
        below = mass.cumsum(0)
        self._two_sided = 2 * np.minimum(below, below[::-1, ::-1])  # P(X >= k) at p is P(X <= num - k) at 1 - p
        uniform = np.full(draws + 1, 1 / (draws + 1))
        sets = np.random.default_rng(0).multinomial(num, uniform, SIMULATED).cumsum(1)[:, :-1]
        self.simulated = self._two_sided[sets, np.arange(draws)].min(1)

    def least(self, counts: np.ndarray) -> float:
        """Probability of the least likely point of a distribution, two-sided."""
        return float(self._two_sided[counts, np.arange(len(counts))].min())

    def ends(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        inside = self._two_sided >= np.quantile(self.simulated, 1 - level)
        low, high = inside.argmax(0), self._num - inside[::-1].argmax(0)
        return np.append(low, self._num) / self._num, np.append(high, self._num) / self._num


@functools.lru_cache(maxsize=8)
def _band(num: int, draws: int) -> _Band:
    return _Band(num, draws)
