"""Sets of parameters × particles of a model that run through a filter, and forecasts from where they end."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen.errors import CapacityError, InputError
from denizen.fit._target import Noise, Target
from denizen.fit._weigher import Observation, Weigher
from denizen.model import Intervention, Model
from denizen.rng import MAX_SEED
from denizen.run import simulate
from denizen.run._sieve import again, branch, sift


def check_targets(caller: str, targets: Mapping[str, Target]) -> None:
    """Refuse targets that have no likelihood.

    Raises:
        InputError: no noise, or a weight.
    """
    for name, target in targets.items():
        if target.noise is None:
            raise InputError(
                f"{caller}: targets[{name!r}] has no noise: a world would either give exactly what was observed or "
                f"have no weight, and the filter degenerates; say how it was observed, for example "
                f"dz.fit.Target(values, noise=dz.fit.NegativeBinomial(10))"
            )
        if target.weight != 1:
            raise InputError(
                f"{caller}: targets[{name!r}] has weight={target.weight:g}, and a likelihood weighs by the noise "
                f"alone; leave weight out, or widen the noise"
            )


class Particles:
    """Sets × particles of a model that run through a filter, as often as wanted.

    Attributes:
        model: what runs.
        targets: what was observed.
        kinds: ``"flow"`` or ``"level"`` for each target.
        sets: S.
        particles: R.
        steps: T.
        seed: of worlds and resampling.
        run: of all rows, as the last pass left it.
    """

    def __init__(
        self,
        caller: str,
        model: Model,
        targets: Mapping[str, Target],
        kinds: Mapping[str, str],
        *,
        sets: int = 1,
        particles: int,
        steps: int,
        threshold: float = 0.5,
        seed: int,
        device: torch.device | str | None,
        interventions: Sequence[Intervention] = (),
        params: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Args: see the attributes, `Weigher` and `simulate`.

        Raises:
            InputError: an argument does not fit, or memory is short.
        """
        self.model, self.targets, self.kinds = model, dict(targets), dict(kinds)
        self.sets, self.particles, self.steps, self.seed = sets, particles, steps, seed
        self._caller, self._threshold = caller, threshold
        self.run = self._roomy(
            lambda: simulate(
                model,
                0,
                worlds=range(sets * particles),
                seed=seed,
                device=device,
                interventions=interventions,
                params=dict(params or {}),
            )
        )
        self._fresh = True
        self._observations = self._due()

    def go(
        self, worlds: int = 0, params: Mapping[str, Tensor] | None = None, *, keep: bool = False, later: int = 0
    ) -> Weigher:
        """One pass over all observations.

        Args:
            worlds: number of the first row's world; the others follow.
            params: values `[S * R, …]` of the parameters that were given at first; None: as they are.
            keep: whether curves are kept.
            later: passes that will follow.
        """
        if not self._fresh or worlds or params:
            again(self.run, range(worlds, worlds + self.sets * self.particles), params or {})
        self._fresh = False
        weigher = Weigher(
            self._caller,
            self._observations,
            {name: self._noise(target) for name, target in self.targets.items()},
            {name: target.values.shape[1:] for name, target in self.targets.items()},
            sets=self.sets,
            particles=self.particles,
            steps=self.steps,
            threshold=self._threshold,
            seed=self.seed,
            worlds=worlds,
            device=self.run.device,
            keep=keep,
        )
        self._roomy(lambda: sift(self.run, self.steps, weigher, later * self.steps))
        return weigher

    @property
    def observed_steps(self) -> list[int]:
        """Numbers of steps after which something was observed, in order."""
        return [step for step in sorted(self._observations) if self.observed(step)]

    def observed(self, step: int) -> list[Observation]:
        """What was observed after so many steps."""
        return [one for one in self._observations[step] if len(one.seen)]

    def _noise(self, target: Target) -> Noise:
        assert target.noise is not None, "check_targets has looked"
        return target.noise

    def _due(self) -> dict[int, list[Observation]]:
        """Every value of every target, gaps too, by the step at which its window ends."""
        found: dict[int, list[Observation]] = {}
        for name, target in self.targets.items():
            entries = target.values.shape[1:]
            # A mean is linear in the series: what each step adds to it is what the target makes of one event in it.
            pulses = np.eye(self.steps).reshape(self.steps, self.steps, *[1] * len(entries))
            shares = target.windows(np.broadcast_to(pulses, (self.steps, self.steps, *entries)), self.kinds[name])
            shares = shares.reshape(self.steps, len(target.values), -1)
            for place, values in enumerate(target.values.reshape(len(target.values), -1)):
                end = target.first - 1 + target.every * (place + 1)
                begin = int(np.flatnonzero(shares[:end, place].any(1))[:1].sum())
                observation = Observation(
                    name,
                    place,
                    begin,
                    torch.as_tensor(shares[None, begin:end, place], device=self.run.device),
                    torch.as_tensor(values, device=self.run.device),
                )
                found.setdefault(end, []).append(observation)
        return found

    def _roomy(self, work: Any) -> Any:
        try:
            return work()
        except CapacityError as error:
            if "out of memory" not in str(error):
                raise
            sets = f"{self.sets} sets × " if self.sets > 1 else ""
            raise CapacityError(
                f"{self._caller}: memory is short for {sets}{self.particles:,} particles, which are weighed against "
                f"one another and so run at once; lower particles, or run fewer agents: {error}"
            ) from error


def go_on(
    particles: Particles, weigher: Weigher, rows: np.ndarray, ahead: int, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Forecasts from states of a filter: by name `[rows, ahead, …]`, noise of observation included."""
    places = torch.as_tensor(rows, device=particles.run.device)
    first = int(generator.integers(MAX_SEED - len(rows)))
    run = branch(particles.run, places, range(first, first + len(rows)))
    longer = {name: target.ahead(ahead) for name, target in particles.targets.items()}
    more = max(target.last for target in longer.values()) - particles.steps
    run.extend(max(more, 0))
    found = {}
    for name, target in longer.items():
        before = weigher.series[name].index_select(0, places)
        parts = [before, run[name].reshape(len(rows), run[name].shape[1], -1).to(torch.float64)]
        series = torch.cat(parts, dim=1).cpu().numpy()
        series = series.reshape(*series.shape[:2], *target.values.shape[1:])
        seen = target.windows(series, particles.kinds[name])[:, len(target.values) - ahead :]
        assert target.noise is not None
        found[name] = target.noise.draw(seen, generator.random(seen.shape))
    return found


def drawn(weights: np.ndarray, num: int, generator: np.random.Generator) -> np.ndarray:
    """Rows by their weights `[R]`, systematically and in random order: int64 `[num]`."""
    edges = np.cumsum(weights)
    aims = (np.arange(num) + generator.random()) * (edges[-1] / num)
    return generator.permutation(np.searchsorted(edges, aims, side="right").clip(max=len(weights) - 1))
