"""A model's steps for `dz.check`: one world over flat tensors, alone, batched by vmap or compiled into one graph.

The engine (`denizen.run`) lies above this layer and steps the same `FlatWorld`, in chunks.
"""

import dataclasses
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from denizen.model._apply import Setting
from denizen.model._flat import FlatWorld
from denizen.model._model import Model


@dataclasses.dataclass(frozen=True)
class Course:
    """What came out of a few steps.

    Attributes:
        first: tensors of the initial state.
        first_bad: of the device checks of init, their labels and int8 `[…, checks]`.
        records: for each step, one tensor per series.
        leaves: tensors of the last state.
        labels: of the device checks, for the last step.
        bad: int8 `[…, checks]` of each step.
    """

    first: list[Tensor]
    first_bad: tuple[list[str], Tensor]
    records: list[list[Tensor]]
    leaves: list[Tensor]
    labels: list[str]
    bad: list[Tensor]


@dataclasses.dataclass(frozen=True)
class MeanField:
    """Carries probabilities in place of draws, like `denizen.relax.MeanField`, which lies above this layer."""

    def draw(self, prob: Tensor, hard: Callable[[], Tensor]) -> Tensor:
        """The probability itself."""
        return prob


class Flat:
    """Init and a few steps of one world, or of several.

    Attributes:
        phase: ``"init"`` or ``"step"``: where `run` is, or where it ended.
    """

    def __init__(self, model: Model, setting: Setting, ids: Tensor, answers: list[dict[str, Tensor]]) -> None:
        """Args:
        model: the model.
        setting: of the run.
        ids: int64 `[agents]`.
        answers: parameters decided on the host, for each step to run.
        """
        self.world, self.answers = FlatWorld(model, setting, ids), answers
        self.phase = "init"

    def state(self, leaves: list[Tensor], step: Tensor) -> Any:
        """The state with these tensors."""
        return self.world.state(leaves, step)

    def init(self, key: Tensor) -> tuple[list[Tensor], Tensor]:
        """(leaves, checks) of the initial state."""
        return self.world.init(key, {})

    def step(
        self, leaves: list[Tensor], switches: Tensor, key: Tensor, step: Tensor, answers: dict[str, Tensor]
    ) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
        """(leaves, switches, records, checks) one step on."""
        return self.world.step(leaves, switches, key, {}, step, answers)

    def run(
        self,
        keys: Tensor,
        *,
        init: Callable[..., Any] | None = None,
        step: Callable[..., Any] | None = None,
        around: Callable[[int], Any] | None = None,
    ) -> Course:
        """All steps of one world (`keys` `[2]`) or of a batch (`[worlds, 2]`).

        Args:
            keys: of the worlds.
            init: stands in for the method of the same name.
            step: stands in for the method of the same name.
            around: makes a context for init (step -1) and for each step.
        """
        around = around or (lambda number: torch.set_grad_enabled(self.world.setting.relax is not None))
        with around(-1):
            leaves, bad = (init or self.init)(keys)
        self.phase, begun, checked = "step", list(leaves), (self.world.checks, bad)
        switches = torch.zeros(*keys.shape[:-1], len(self.world.setting.interventions), dtype=torch.int8)
        records, flags = [], []
        for number, answers in enumerate(self.answers):
            with around(number):
                leaves, switches, row, bad = (step or self.step)(leaves, switches, keys, torch.tensor(number), answers)
            records.append(row)
            flags.append(bad)
        return Course(begun, checked, records, list(leaves), self.world.checks, flags)

    def batched(self, keys: Tensor) -> Course:
        """All steps of a batch of worlds under vmap."""
        step = torch.vmap(self.step, in_dims=(0, 0, 0, None, None))
        return self.run(keys, init=torch.vmap(self.init), step=step)

    def compiled(self, key: Tensor) -> tuple[Course, int]:
        """All steps through one graph without code generation, and the number of operations in it.

        Raises whatever torch raises where there is more than one graph.
        """
        operations = 0

        def backend(graph: Any, inputs: Any) -> Any:
            nonlocal operations
            operations = sum(node.op not in ("placeholder", "output", "get_attr") for node in graph.graph.nodes)
            return graph

        def whole(*args: Any) -> Any:
            return self.step(*args)

        # A code object of its own, since torch keeps its graphs there and counts them over all checks of a process.
        whole = FunctionType(whole.__code__.replace(), whole.__globals__, "step", None, whole.__closure__)
        function = torch.compile(whole, fullgraph=True, dynamic=False, backend=backend)

        def one_graph(leaves: Any, switches: Any, key: Any, step: Any, answers: Any) -> Any:
            if int(step) == 0:
                return function(leaves, switches, key, step, answers)
            with torch.compiler.set_stance("fail_on_recompile"):
                return function(leaves, switches, key, step, answers)

        return self.run(key, step=one_graph), operations


def same(one: list[Tensor], other: list[Tensor], exact: bool = True) -> bool:
    """Whether tensors are equal; reals up to the last bits unless `exact`."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if not a.dtype.is_floating_point or exact:
            different = (a != b) & ~((a != a) & (b != b))
            if bool(different.any()):
                return False
        elif not torch.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True):
            return False
    return True


def flat_records(course: Course) -> list[Tensor]:
    """Every record of every step."""
    return [value for row in course.records for value in row]
