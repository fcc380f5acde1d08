"""Where the COVID model's numbers come from, and how it is bound to a population."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from denizen.disease import Vaccine
from denizen.errors import DataError, InputError
from denizen.model import whole
from denizen.population import Population
from denizen.run import choose_device
from denizen.space import Graph
from denizen.zoo._contacts import check_params

if TYPE_CHECKING:
    from .model import Covid

AGE_GROUPS = ("under 19", "20-29", "30-39", "40-49", "50-64", "65+")


@dataclasses.dataclass(frozen=True)
class Course:
    """How a case runs, by its stage at the start: ordinary (susceptible then), exposed seed, infected seed.

    Ages are in days after exposure, minus one, as in the kernel.

    Attributes:
        start_age: days since exposure at the start; 0 for never.
        last_exposed: last age in stage exposed.
        last_infected: last age in stage infected.
    """

    start_age: tuple[int, int, int]
    last_exposed: tuple[int, int, int]
    last_infected: tuple[int, int, int]

    def stages(self) -> Tensor:
        """Stage at each age: int64 `[origins, ages]`, the last age being past every infection."""
        age = torch.arange(max(self.last_infected) + 2)
        rows = [
            1 + (age > exposed).long() + (age > infected).long()
            for exposed, infected in zip(self.last_exposed, self.last_infected, strict=True)
        ]
        return torch.stack(rows)


def gamma_kernel(length: int, scale: float = 5.5, rate: float = 2.4) -> Tensor:
    """Share of infectiousness on each day after exposure: float32 `[length]`.

    Entry k is F(k) - F(k - 1) with F the gamma distribution function of scale b = rate^2 / scale and shape scale / b;
    entry 0 is 0.
    """
    b = rate**2 / scale
    days = torch.arange(length, dtype=torch.float64)
    cdf = torch.special.gammainc(torch.full_like(days, scale / b), days / b)
    return torch.diff(cdf, prepend=cdf[:1]).to(torch.float32)


def covid(
    population: Population,
    *,
    network: str = "0",
    symmetrize: bool = False,
    reference: bool = False,
    age_order: Sequence[str] | None = None,
    isolation: Any = 0.0,
    exposed_days: int = 5,
    infected_days: int = 5,
    sample_deaths: bool = False,
    vaccine: Any = None,
    device: str | torch.device | None = None,
    **params: Any,
) -> "Covid":
    """The COVID model on a population.

    Args:
        population: with columns `age` and `disease_stages` and a network.
        network: name of the contact network.
        symmetrize: add the opposite direction of every contact; lists such as Astoria's write each contact once.
        reference: the accidental numbers of the original in the corrected code, for comparison with its series: age
            codes taken as groups, 2 interactions for all, the sum of the weekly R in each week, seeds that wait 3 days.
        age_order: labels of the age codes 0, 1, … where the population brings none.
        isolation: probability to isolate: a number, six numbers by age group, a function of (age group, day) asked once
            for each group and day, or a torch module from `[groups, 2]` (share infected, week) to `[groups]`.
        exposed_days: dwell time in stage exposed.
        infected_days: dwell time in stage infected.
        sample_deaths: draw deaths instead of counting expected ones.
        vaccine: a `denizen.disease.Vaccine`, which makes the model a `CovidWithVaccine`; not on the command line.
        device: where the model is made; a GPU also builds the graph of contacts, which takes a CPU a second for 8
            million agents. `dz.simulate` moves a model that was made elsewhere.
        **params: other parameters of `Covid` by name.

    Raises:
        DataError: for a population that lacks what the model needs.
        InputError: for a wrong value.
    """
    from .model import Covid

    if not isinstance(population, Population):
        raise InputError(f"covid: population is {type(population).__name__}, expected one of denizen.population.load")
    exposed_days = whole("covid", "exposed_days", exposed_days, 1, 1000)
    infected_days = whole("covid", "infected_days", infected_days, 1, 1000)
    check_params("covid", Covid, params)
    last = exposed_days + infected_days
    course = Course((0, 1, exposed_days + 2), (exposed_days,) * 3, (last,) * 3)
    group = _age_groups(population, age_order)
    if reference:
        course = Course((0, 1, 3), (exposed_days, 3, 1), (last, 3 + infected_days, 7))
        group = population.column("age").astype(np.uint8)
        weekly = Covid.params["R"].read(_vectors(params).get("R", [4.75, 4.75, 4.75]), "Covid.R")
        params = {"interactions": [2.0] * 6, **params, "R": weekly.sum().expand_as(weekly)}
    there = torch.device("cpu") if device is None else choose_device(device, "covid")[0]
    source, target, weight = (
        None if array is None else torch.from_numpy(np.require(array, requirements="W")).to(there)
        for array in population.edges(network, symmetrize=symmetrize)
    )
    cls, product = _with_vaccine(vaccine)
    made = cls(
        contacts=Graph.from_edges(source, target, population.size, weight=weight),
        group=torch.from_numpy(group),
        origin=torch.from_numpy(_origins(population)),
        kernel=gamma_kernel(max(course.last_infected) + 2),
        stage=course.stages(),
        start_age=torch.tensor(course.start_age, dtype=torch.int16),
        sample_deaths=sample_deaths,
        **product,
        **_isolation(isolation),
        **_vectors(params),
    )
    return made.to(there)


def _with_vaccine(vaccine: Any) -> tuple[Any, dict[str, Any]]:
    """Class of the model and what it takes besides."""
    from .model import Covid
    from .vaccine import CovidWithVaccine

    if vaccine is None:
        return Covid, {}
    if not isinstance(vaccine, Vaccine):
        raise InputError(f"covid: vaccine={vaccine!r}, expected denizen.disease.Vaccine(efficacy, kind), or None")
    return CovidWithVaccine, {"vaccine": vaccine}


def _age_groups(population: Population, order: Sequence[str] | None) -> np.ndarray:
    if order is None:
        return population.codes_of("age", AGE_GROUPS).astype(np.uint8)
    labels = list(order)
    stated = dataclasses.replace(population, labels={**population.labels, "age": labels})
    return stated.codes_of("age", AGE_GROUPS).astype(np.uint8)


def _origins(population: Population) -> np.ndarray:
    stage = population.column("disease_stages")
    wrong = np.flatnonzero((stage < 0) | (stage > 2))
    if wrong.size:
        raise DataError(
            f"{population.source}: disease_stages of agent {wrong[0]} is {stage[wrong[0]]} ({wrong.size} in all, "
            f"codes up to {stage.max()}; agents count from 0); expected 0 (susceptible), 1 (exposed) or 2 (infected) "
            f"at the start"
        )
    return stage.astype(np.uint8)


def _isolation(isolation: Any) -> dict[str, Any]:
    if isinstance(isolation, torch.nn.Module):
        return {"policy": isolation}
    if isinstance(isolation, Callable):  # type: ignore[arg-type]  # the abstract class is meant as a test
        return {"ask": isolation}
    return {"isolation": _per_group("isolation", isolation)}


def _per_group(name: str, value: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(value, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"covid: {name}={value!r}, expected a number or {len(AGE_GROUPS)} numbers") from error
    if tensor.dim() > 1 or tensor.numel() != (1 if tensor.dim() == 0 else len(AGE_GROUPS)):
        raise InputError(
            f"covid: {name} has shape {tuple(tensor.shape)}, expected one number or {len(AGE_GROUPS)}, one for each of "
            f"{', '.join(AGE_GROUPS)}"
        )
    return tensor.expand(len(AGE_GROUPS)) if tensor.dim() == 0 else tensor


def _vectors(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters with single numbers expanded to one for each age group or week."""
    out = dict(params)
    for name in ("susceptibility", "interactions"):
        if name in out:
            out[name] = _per_group(name, out[name])
    if "R" in out and np.ndim(out["R"]) == 0 and not isinstance(out["R"], str | type(None)):
        out["R"] = torch.as_tensor(out["R"], dtype=torch.float32).reshape(1)
    return out
