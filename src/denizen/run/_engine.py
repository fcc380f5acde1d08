"""The stepper: one world or a batch of worlds, eager or compiled, as a function over flat tensors.

Batching is `torch.vmap` over the author's step for one world; ops below it see a leading axis of worlds. A single
world runs without vmap. Nothing here reads a value on the host.
"""

import dataclasses
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from denizen import _tree
from denizen.model import Model, OneWorldAtATimeError, Setting, State, Time, advance, own, restore, start


@dataclasses.dataclass
class Carry:
    """What goes from step to step, for all worlds.

    Attributes:
        leaves: state tensors, each `[worlds, …]`.
        step: int64 `[]`.
        switches: int8 `[worlds, interventions]`.
        bad: int8 `[worlds, checks]`, or None before the first step: 1 where a check on the device failed.
    """

    leaves: list[Tensor]
    step: Tensor
    switches: Tensor
    bad: Tensor | None

    def tensors(self) -> list[Tensor]:
        """Everything, as one list."""
        return [*self.leaves, self.step, self.switches, *([] if self.bad is None else [self.bad])]

    def clone(self) -> "Carry":
        """A copy that shares no memory."""
        bad = None if self.bad is None else self.bad.clone()
        return Carry([leaf.clone() for leaf in self.leaves], self.step.clone(), self.switches.clone(), bad)


class Stepper:
    """Steps all worlds of a run.

    Attributes:
        keys: int64 `[worlds, 2]`.
        checks: labels of the device checks, known after the first step.
    """

    def __init__(self, model: Model, setting: Setting, keys: Tensor, ids: Tensor, values: dict[str, Tensor]) -> None:
        """Args:
        model: the model, on its device.
        setting: of the run.
        keys: int64 `[worlds, 2]`.
        ids: int64 `[agents]`.
        values: parameters with a leading axis of worlds.
        """
        self.model, self.setting, self.keys, self.ids, self.values = model, setting, keys, ids, values
        self.checks: list[str] = []
        self._structure: Any = None
        self._class: type[State] = State
        self._time_unit = model.time_unit
        self._in_turn = False
        self.batched_step: Callable[..., Any] = self._batched(self._one)
        self._advance = self.batched_step

    @property
    def worlds(self) -> int:
        """Number of worlds."""
        return self.keys.shape[0]

    def start(self) -> Carry:
        """Draw the initial state of every world."""
        with torch.set_grad_enabled(self.setting.relax is not None):  # hard draws carry no gradient: do not record
            try:
                leaves, bad = self._batched(self._start_one, batched=2)(self.keys, self.values)
            except OneWorldAtATimeError:
                self._take_turns()
                leaves, bad = self._batched(self._start_one, batched=2)(self.keys, self.values)
        switches = torch.zeros(self.worlds, len(self.setting.interventions), dtype=torch.int8, device=self.keys.device)
        step = torch.zeros((), dtype=torch.int64, device=self.keys.device)
        # The checks of init and of step differ; those of init are looked at once, by the caller.
        return Carry(list(leaves), step, switches, bad)

    def _start_one(self, key: Tensor, values: dict[str, Tensor]) -> tuple[list[Tensor], Tensor]:
        state, bad = start(self.model.with_values(values), key, self.ids, self.setting)
        if "alive" in state.kinds:  # births make identities differ between worlds
            self.setting = dataclasses.replace(self.setting, custom_ids=True)
        leaves, self._structure = self._fields(state)
        self._class = type(state)
        self.checks = [label for label, _ in bad]
        return leaves, _stack(bad, key)

    def advance(self, carry: Carry, answers: dict[str, Tensor]) -> tuple[Carry, list[Tensor]]:
        """One step of every world: the next carry, and each record `[worlds, …]`."""
        with torch.set_grad_enabled(self.setting.relax is not None):
            arguments = (carry.leaves, carry.switches, self.keys, self.values, carry.step, answers)
            try:
                leaves, switches, records, bad = self._advance(*arguments)
            except OneWorldAtATimeError:
                self._take_turns()
                leaves, switches, records, bad = self._advance(*arguments)
        bad = bad if carry.bad is None else torch.maximum(carry.bad, bad)
        return Carry(list(leaves), carry.step + 1, switches, bad), list(records)

    def _one(
        self, leaves: list[Tensor], switches: Tensor, key: Tensor, values: dict[str, Tensor], step: Tensor,
        answers: dict[str, Tensor],
    ) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:  # fmt: skip
        now = self._state(leaves, step)
        out = advance(self.model.with_values(values), now, switches, key, answers, self.setting)
        fields, _ = self._fields(out.state)
        self.checks = [label for label, _ in out.bad]
        return fields, out.switches, out.records, _stack(out.bad, key)

    def _batched(self, one: Callable[..., Any], batched: int = 4) -> Callable[..., Any]:
        """Over all worlds: the first `batched` arguments have an axis of worlds, the others are shared.

        A single world runs as it is and gets the axis put on afterwards; so do several where a function of one agent
        cannot run under vmap.
        """
        if self.worlds > 1 and not self._in_turn:

            def over_worlds(*args: Any) -> Any:
                dims = (0,) * batched + (None,) * (len(args) - batched)
                return torch.vmap(one, in_dims=dims)(*args)

            return over_worlds

        def single(*args: Any, world: int = 0) -> Any:
            alone = _tree.tree_map(lambda t: t[world], args[:batched])
            return _tree.tree_map(lambda t: t[None], one(*alone, *args[batched:]))

        def in_turn(*args: Any) -> Any:
            parts = [_tree.flatten(single(*args, world=world)) for world in range(self.worlds)]
            leaves = [torch.cat(column) for column in zip(*(leaves for leaves, _ in parts), strict=True)]
            return _tree.unflatten(leaves, parts[0][1])

        return in_turn if self._in_turn else single

    def _take_turns(self) -> None:
        """From now on one world after another, which gives the same bits."""
        self._in_turn = True
        self.batched_step = self._batched(self._one)
        self.eager()

    def compile(self, backend: str) -> None:
        """Compile the step into one graph; raises what torch raises where that fails."""
        self._advance = torch.compile(own_code(self.batched_step), fullgraph=True, dynamic=False, backend=backend)

    def eager(self) -> None:
        """Back to plain torch."""
        self._advance = self.batched_step

    def state(self, carry: Carry, world: int | None = None) -> Any:
        """The state of all worlds (fields `[worlds, …]`) or of one, by position."""
        leaves = carry.leaves if world is None else [leaf[world] for leaf in carry.leaves]
        return self._state(leaves, carry.step)

    def _state(self, leaves: list[Tensor], step: Tensor) -> Any:
        fields = _tree.unflatten(leaves, self._structure)
        bare = restore(self._class, fields)
        return own(bare, Time(step, self.setting.dt, self._time_unit), fields.get("id", self.ids))

    def _fields(self, state: State) -> tuple[list[Tensor], Any]:
        names = (*state.kinds, "id") if self.setting.custom_ids else tuple(state.kinds)
        return _tree.flatten({name: getattr(state, name) for name in names})


def own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a function with a code object of its own.

    Dynamo keeps compiled graphs with the code object and refuses a ninth, so the ninth model of a process would stay
    eager.
    """
    if isinstance(function, MethodType):
        return MethodType(own_code(function.__func__), function.__self__)
    assert isinstance(function, FunctionType)
    code = function.__code__.replace()
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _stack(bad: list[tuple[str, Tensor]], like: Tensor) -> Tensor:
    if not bad:
        return torch.zeros(0, dtype=torch.int8, device=like.device)
    return torch.stack([flag for _, flag in bad])
