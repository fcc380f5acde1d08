"""What a model must tell so that a `Runner` can present it under AgentTorch's names."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from denizen.model import Model

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

    def look(self, state: Any, step: int) -> None:
        """Take in the state of a run after `step` steps; called at least every `Binding.memory(model)` steps."""

    def read(self, name: str, state: Any, step: int, before: Any = None) -> Tensor:
        """A field `[agents]` after `step` steps.

        Args:
            name: of the field.
            state: of all replicates, the one last looked at.
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
