"""Networks that predict parameters: trained through the simulator, over many places at once.

Each place has a model, covariates and observed series. The network gives free numbers from covariates, beside those of
the model's present values, so nothing that it says leaves the parameters' bounds. The equation of a place is that of
`denizen.fit.Gradient`: residuals from hard runs, slopes from relaxed ones in other worlds.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen._arguments import number, switch, whole
from denizen._printing import Table, plain
from denizen._printing import progress as progress_bar
from denizen.errors import InputError, ModelError, expect_function, nearest
from denizen.fit._adam import optimizer_of
from denizen.fit._experiment import KEEP, Experiment
from denizen.fit._from_priors import of_model
from denizen.fit._gradient import LOOK, Steady, within
from denizen.fit._observed import Observed
from denizen.fit._parameters import Bounded
from denizen.fit._target import Calendar, as_targets, dated
from denizen.model import Env, Model
from denizen.relax import StraightThrough
from denizen.rng import MAX_SEED, Relax
from denizen.run import choose_device

CALLER = "train_network"
LAST = 10  # iterations whose mean loss is shown


@dataclasses.dataclass(frozen=True)
class Place:
    """Somewhere that was observed, and what is known of it.

    Attributes:
        model: its present values are what the network's zero stands for.
        covariates: what the network is given, such as `[weeks, features]`.
        targets: as for `dz.calibrate`.
    """

    model: Model
    covariates: Tensor
    targets: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.model, Model) or isinstance(self.model, Env):
            raise InputError(f"Place: model is {type(self.model).__name__}, expected an object of a dz.Model")
        if not isinstance(self.covariates, Tensor) or not bool(torch.isfinite(self.covariates).all()):
            raise InputError(f"Place: covariates={self.covariates!r}, expected a tensor of finite numbers")
        as_targets("Place", self.targets)


class _Source(torch.nn.Module):
    """Parameters of a place's model, as a network gives them."""

    def __init__(self, network: torch.nn.Module, place: Place) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("covariates", place.covariates.detach())
        with torch.no_grad():
            given = network(place.covariates.to(_device_of(network)))
        name = type(network).__name__
        if not isinstance(given, Mapping) or not given:
            raise InputError(f"{CALLER}: {name} gave {given!r}, expected free numbers by name of the parameter")
        for key in given:
            if key not in place.model.params:
                raise InputError(f"{CALLER}: {name} gave {key!r}; {nearest(key, place.model.params)}")
        self.fitted = of_model(CALLER, place.model, list(given))
        for part in self.fitted.parts:
            shape = tuple(given[part.name].shape)
            if shape != part.shape:
                raise InputError(
                    f"{CALLER}: {name} gave {part.name!r} of shape {shape}, expected {part.shape}, as the model has it"
                )
            self.register_buffer(f"start_{part.name}", torch.tensor(part.free(part.start), dtype=torch.float32))

    def forward(self) -> dict[str, Tensor]:
        """By name."""
        given = self.network(self.covariates)
        return {part.name: self._value(part, given[part.name]) for part in self.fitted.parts}

    def _value(self, part: Bounded, given: Tensor) -> Tensor:
        free = self.get_buffer(f"start_{part.name}") + given
        return within(part.bound(free, tensors=True), part.low, part.high)


class _Runs:
    """Of one place: loss and slopes."""

    def __init__(
        self, place: Place, network: torch.nn.Module, relax: Relax, replicates: int, seed: int, device: torch.device
    ) -> None:
        self.source = _Source(network, place)
        plain = as_targets(CALLER, place.targets)
        targets = dated(CALLER, plain, None, place.model.time_unit)
        hard, soft = max(4, replicates // 2), max(2, replicates // 8)
        self._experiment = Experiment(
            place.model,
            self.source.fitted,
            targets,
            steps=max(one.last for one in targets.values()),
            seed=seed,
            device=device,
            interventions=(),
            calendar=Calendar.of(CALLER, plain, None, place.model),
        )
        start = self.source.fitted.start
        first = self._experiment.observations(start[None], range(hard))[0]
        self._scale = max(float(first.var(0, ddof=1).mean()), 1e-6)
        self._observed = Observed(self._experiment, device)
        self._importance = torch.tensor(self._experiment.weights, dtype=torch.float32, device=device)
        self.gradient = self._experiment.gradient(self._loss, wrt=self.source, relax=relax, replicates=soft, hard=hard)
        self.gradient.worlds.add_(hard)

    def _loss(self, series: Mapping[str, Tensor], hard: Mapping[str, Tensor]) -> Tensor:
        gap = self._observed.values - self._observed(hard, {})[0].mean(0).detach()
        equation = (self._importance * gap / self._scale) @ self._observed(series, {})[0].mean(0)
        return (gap**2).mean() - (equation - equation.detach())

    def __call__(self) -> Tensor:
        """Loss, 0-d, not read; slopes are left in `gradient`. Draws are fresh ones."""
        loss = self.gradient()
        self.gradient.worlds.add_(len(self.gradient.worlds))
        return loss

    def explain(self, place: int) -> None:
        """Raise what the checks of the last run say."""
        try:
            self.gradient.check()
        except (ModelError, InputError) as error:
            raise ModelError(f"{CALLER}: place {place}: {error}; {KEEP}") from error
        raise ModelError(f"{CALLER}: place {place}: the loss is NaN or infinite; {KEEP}")


@dataclasses.dataclass(frozen=True)
class NetworkFit:
    """A network that was trained through simulations.

    Attributes:
        network: it, trained in place.
        losses: mean squared distance of what was observed and the mean of hard runs, as they are compared, before each
            step: `[iterations, places]`.
        runs: worlds simulated, relaxed ones among them.
    """

    network: torch.nn.Module
    losses: np.ndarray
    runs: int

    def model(self, model: Model, covariates: Tensor) -> Model:
        """A model with the parameters that the network gives for these covariates, also of a place it never saw.

        Args:
            model: of the place; its present values are what the network's zero stands for.
            covariates: as those of the places that it was trained with.
        """
        source = _Source(self.network, Place(model, covariates, {"any": [0.0]})).to(_device_of(self.network))
        with torch.no_grad():
            return model.replace(**{name: value.cpu() for name, value in source().items()})

    def __str__(self) -> str:
        table = Table("place", "loss at first", f"last {LAST}", title=f"{type(self.network).__name__}, trained")
        for k, losses in enumerate(self.losses.T):
            table.add_row(str(k), f"{losses[0]:.3g}", f"{losses[-LAST:].mean():.3g}")
        return f"{plain(table, 100).rstrip()}\n{self.runs:,} runs, {len(self.losses)} iterations; no intervals"


def train_network(
    network: torch.nn.Module,
    places: Sequence[Place],
    *,
    relax: Relax | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    lr: float = 0.01,
    iterations: int = 200,
    replicates: int = 16,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> NetworkFit:
    """Train a network from covariates to parameters through simulations of many places.

    Args:
        network: of covariates; gives free numbers by name of the parameter, of its shape, beside those of the model's
            present values: 0 is the present value, 0.1 is 10 % more of what has a lower bound of 0. Trained in place.
        places: where it is trained, at least one; each may have a model of its own.
        relax: how draws become differentiable; None: `dz.relax.StraightThrough()`.
        optimizer: makes an optimiser of a list of parameters and ``lr=``.
        lr: of it. From the middle on steps become shorter, to nothing at the end.
        iterations: steps; each simulates all places.
        replicates: half of so many worlds (at least 4) run hard, an eighth (at least 2) relaxed, in each place.
        seed: of the simulated worlds.
        device: as for `dz.simulate`.
        progress: show what is going on.

    Returns:
        A `NetworkFit`: ``fit.model(model, covariates)`` is a model with the parameters that the network gives.

    Raises:
        InputError: for an argument that does not fit.
        ModelError: the model fails at what the network gives; says where.
    """
    if not isinstance(network, torch.nn.Module):
        raise InputError(f"{CALLER}: network is {type(network).__name__}, expected a torch.nn.Module")
    if not isinstance(places, Sequence) or not places or not all(isinstance(one, Place) for one in places):
        raise InputError(f"{CALLER}: places={places!r}, expected a list of dz.fit.Place, at least one")
    expect_function(f"{CALLER}: optimizer", optimizer, "params")
    number(CALLER, "lr", lr, above=0)
    whole(CALLER, "iterations", iterations, 1)
    whole(CALLER, "replicates", replicates, 2)
    whole(CALLER, "seed", seed, 0, MAX_SEED - len(places))
    switch(CALLER, "progress", progress)
    target = choose_device(device, CALLER)[0]
    network.to(target)
    chosen = StraightThrough() if relax is None else relax
    runs = [_Runs(one, network, chosen, replicates, seed + k, target) for k, one in enumerate(places)]
    params: list[Tensor] = [value for value in network.parameters() if value.requires_grad]
    made = optimizer_of(optimizer, params, lr)
    if not isinstance(made, torch.optim.Optimizer):
        raise InputError(f"{CALLER}: optimizer gave {type(made).__name__}, expected a torch.optim.Optimizer")
    steady = Steady(made, params)
    losses: list[Tensor] = []
    bar = progress_bar()
    bar.disable = not progress
    with bar:
        task = bar.add_task(CALLER, total=iterations, rate="")
        for k in range(iterations):
            steady.share.fill_(min(1.0, 2 * (1 - k / iterations)))
            losses.append(torch.stack([one() for one in runs]))
            slopes = zip(*(one.gradient.gradients.values() for one in runs), strict=True)
            for value, each in zip(params, slopes, strict=True):
                value.grad = torch.stack(each).mean(0)
            made.step()
            if (k + 1) % LOOK == 0 or k + 1 == iterations:
                last = losses[-1].cpu()
                for place in torch.nonzero(~torch.isfinite(last))[:, 0].tolist():
                    runs[place].explain(place)
                bar.update(task, completed=k + 1, rate=f"loss {float(last.mean()):.3g}")
    each = sum(len(one.gradient.worlds) for one in runs)
    return NetworkFit(network, torch.stack(losses).cpu().double().numpy(), each * iterations)


def _device_of(network: torch.nn.Module) -> torch.device:
    return next((value.device for value in network.parameters()), torch.device("cpu"))
