"""`LoadPopulation` and `DataLoader`: a population, and a model bound to it. Neither writes anything."""

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen.compat.agenttorch.models import Binding
from denizen.errors import InputError, nearest
from denizen.model import Model
from denizen.population import Population, load


class LoadPopulation:
    """A population, read when first used; one can serve any number of simulations.

    Every column is a member: ``population.age`` is an integer tensor `[population_size]` that shares the memory of the
    column.

    Examples:
        >>> people = LoadPopulation("synthetic:astoria:1000")
        >>> people.population_size, people.age.dtype
        (1000, torch.uint8)
    """

    def __init__(self, source: Any) -> None:
        """Args:
        source: a folder, a table, a package or another object with a `__path__`, ``"synthetic:astoria"``, or a
            `denizen.population.Population`. Read as `denizen.population.load` reads it, and only once.
        """
        self.source = source
        self._loaded: Population | None = source if isinstance(source, Population) else None

    @property
    def population(self) -> Population:
        """The engine's own object, with the report of the choices made while reading."""
        if self._loaded is None:
            self._loaded = load(self.source)
        return self._loaded

    @property
    def population_size(self) -> int:
        """Number of agents."""
        return self.population.size

    @property
    def networks(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Edge tables by name: (source, target), int32 `[edges]` each; source infects target."""
        return {name: (_tensor(a), _tensor(b)) for name, (a, b) in self.population.networks.items()}

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_"):
            raise AttributeError(name)
        columns = self.population.columns
        if name not in columns:
            raise AttributeError(
                f"population {self.population.name!r} has no column {name!r}; {nearest(name, columns)}"
            )
        return _tensor(columns[name])

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.population.columns]


def _tensor(column: np.ndarray) -> Tensor:
    return torch.from_numpy(column if column.flags.writeable else column.copy())


class DataLoader:
    """A model bound to a population. A process may have any number of them; none writes anything.

    Attributes:
        binding: says how the model is built and what its parameters are called.
        population: what it is bound to.
        seconds: spent on reading the population and building the model, so far.
    """

    def __init__(self, model: Binding, population: "LoadPopulation | Any", **options: Any) -> None:
        """Args:
        model: such as `denizen.compat.agenttorch.models.covid`.
        population: a `LoadPopulation`, or what one can be made of.
        **options: of the model, for example ``reference=True`` or ``symmetrize=True``; see `denizen.zoo.covid.covid`.
        """
        if not isinstance(model, Binding):
            raise InputError(
                f"DataLoader: model is {model!r}; expected one of denizen.compat.agenttorch.models, for example covid"
            )
        self.binding = model
        self.population = population if isinstance(population, LoadPopulation) else LoadPopulation(population)
        self._options = options
        self._model: Model | None = None
        self.seconds = 0.0

    @property
    def model(self) -> Model:
        """The bound model, built when first asked for; simulations share it."""
        if self._model is None:
            began = time.perf_counter()
            self._model = self.binding.build(self.population.population, **self._options)
            self.seconds += time.perf_counter() - began
        return self._model
