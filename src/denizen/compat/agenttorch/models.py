"""Models by name, each as a binding: how to build it on a population, and what AgentTorch calls its parts."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from denizen.errors import InputError
from denizen.model import History, Model
from denizen.population import Population
from denizen.zoo.covid import STAGES, Covid
from denizen.zoo.covid import covid as build_covid

NEVER = 2**31 - 1
"""Step of something that never happens."""


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One learnable tensor.

    Attributes:
        short: short name, such as ``"R2"``.
        field: name of the model's field.
        owner: the part of the dotted name before ``learnable_args``.
        part: name of the tensor within the field, where that is a `torch.nn.Module`.
    """

    short: str
    field: str
    owner: str
    part: str = ""

    @property
    def name(self) -> str:
        """The dotted name."""
        return f"{self.owner}.learnable_args.{self.short}"

    @property
    def aliases(self) -> tuple[str, str]:
        """Other names for the same tensor."""
        return self.short, f"{self.owner}.calibrate_{self.short}"


class AgentFields(Protocol):
    """Follows the agents' fields along a run; made anew for each run."""

    def update(self, state: Any, step: int) -> None:
        """Take in the state of a run after `step` steps; called at least every `Binding.memory(model)` steps."""

    def read(self, name: str, state: Any, step: int, before: Any = None) -> Tensor:
        """A field `[agents]` after `step` steps.

        Args:
            name: of the field.
            state: of all replicates, that of the last `update`.
            step: steps done.
            before: the state one step earlier: the field is then read between the two substeps of the last step.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Binding:
    """A model under AgentTorch's names.

    Attributes:
        name: of the model.
        build: function of (population, **options) that returns the model.
        weekly: field of the model with one value for each week, or None.
        parameters: function of the model: its learnable tensors.
        outputs: name of a series -> number of substeps of a step after which its value is known.
        agent_fields: names of fields derived from the state.
        follow: function of the model that starts an `AgentFields`.
        memory: function of the model: number of steps that a state remembers.
    """

    name: str
    build: Callable[..., Model]
    weekly: str | None
    parameters: Callable[[Any], tuple[Parameter, ...]]
    outputs: dict[str, int]
    agent_fields: tuple[str, ...]
    follow: Callable[[Any], AgentFields]
    memory: Callable[[Any], int]


# --- COVID: two substeps a day, transmission and progression ----------------------------------------------------------

_TRANSMISSION = "initializer.transition_function.0.new_transmission"
_PROGRESSION = "initializer.transition_function.1.progression"
_EXPOSED, _INFECTED = STAGES.index("exposed"), STAGES.index("infected")


def _parameters(model: Covid) -> tuple[Parameter, ...]:
    """The learnable tensors that the simulation reads: isolation is a table, those of a module, or asked for."""
    found = [Parameter("R2", "R", _TRANSMISSION)]
    fields = ["susceptibility", "infector"]
    if model.ask is None and model.policy is None:
        fields.append("isolation")
    found += [Parameter(field, field, _TRANSMISSION) for field in fields]
    if model.policy is not None:
        parts = [name for name, _ in model.policy.named_parameters()]
        found += [Parameter(f"policy.{part}", "policy", _TRANSMISSION, part) for part in parts]
    return (*found, Parameter("mortality", "mortality", _PROGRESSION))


class CovidFields:
    """Stage, day of infection and day of the next change of each agent, from the exposure history.

    The state forgets when somebody long recovered was exposed; this remembers it.
    """

    def __init__(self, model: Covid) -> None:
        """Args:
        model: the model, on its device.
        """
        self._origin = model.origin.long()
        stage = model.stage
        # Codes of a history: 0 never, k exposed k steps ago, the last one longer ago.
        self._stage = torch.nn.functional.pad(stage, (1, 0)).to(torch.int8)
        self._stage = torch.nn.functional.pad(self._stage, (0, 1), value=STAGES.index("recovered"))
        # Row by origin, column by stage: steps from exposure until that stage is left.
        self._stay = torch.stack([(stage <= level).sum(dim=1) for level in range(len(STAGES))], dim=1).to(torch.int32)
        self._since: Tensor | None = None

    def update(self, state: Any, step: int) -> None:
        """Note who was exposed when."""
        codes, length = _codes(state.exposed), state.exposed.length
        known = (codes > 0) & (codes <= length)
        before = torch.full_like(codes, NEVER) if self._since is None else self._since
        self._since = torch.where(known, step - codes, before)

    def read(self, name: str, state: Any, step: int, before: Any = None) -> Tensor:
        """`disease_stage` int8, `infected_time` int32 or `next_stage_time` int32, `[agents]`; `NEVER` where not due."""
        assert self._since is not None, "update comes before read"
        _refuse_shares(state.exposed)
        if name == "infected_time":
            return self._since
        stage = self._stages(state, before)
        if name == "disease_stage":
            return stage
        due = self._since + self._stay[self._origin, stage.long()]
        return torch.where((stage == _EXPOSED) | (stage == _INFECTED), due, torch.full_like(due, NEVER))

    def _stages(self, state: Any, before: Any) -> Tensor:
        now = before if before is not None else state
        stage = self._stage[self._origin, _codes(now.exposed).long()]
        stage = torch.where(now.dead[0].detach() != 0, torch.full_like(stage, STAGES.index("dead")), stage)
        if before is None:
            return stage
        caught = (_codes(state.exposed) == 1) & (stage == 0)
        return torch.where(caught, torch.full_like(stage, _EXPOSED), stage)


def _codes(history: History) -> Tensor:
    """Codes int32 `[agents]` of a history `[1, agents, …]`; nonsense where shares are not 0 or 1."""
    value = history.value[0].detach()
    if not history.relaxed:
        return value.to(torch.int32)
    ages = torch.arange(1, value.shape[-1] + 1, dtype=value.dtype, device=value.device)
    return (value @ ages).to(torch.int32)


def _refuse_shares(history: History) -> None:
    if history.relaxed and bool((history.value.round() != history.value).any()):
        raise InputError(
            "the agents' fields are whole numbers, and this relaxation carries shares; read runner.run.state, or use "
            "relax=denizen.relax.StraightThrough()"
        )


def _build(population: Population, **options: Any) -> Covid:
    return build_covid(population, **options)


covid = Binding(
    name="covid",
    build=_build,
    weekly="R",
    parameters=_parameters,
    outputs={"daily_infected": 1, "daily_deaths": 2},
    agent_fields=("disease_stage", "infected_time", "next_stage_time"),
    follow=CovidFields,
    memory=lambda model: model.kernel.numel(),
)
