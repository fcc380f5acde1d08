"""One world over flat tensors: the form that is batched, compiled and stored, by the engine and by `dz.check` alike."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from denizen.model._apply import Setting, advance, start
from denizen.model._history import History
from denizen.model._model import Model
from denizen.model._precision import check, narrowed, widened
from denizen.model._stage import Stage
from denizen.model._state import State, Time, make, tensors


class FlatWorld:
    """Init and step of one world as functions of tensors.

    Attributes:
        setting: of the run; has custom ids from `init` on where agents are born.
        checks: labels of the device checks, as `init` or `step` made them last.
    """

    def __init__(self, model: Model, setting: Setting, ids: Tensor) -> None:
        """Args:
        model: the model, on its device.
        setting: of the run.
        ids: int64 `[agents]`.
        """
        self.model, self.setting, self.ids = model, setting, ids
        self.checks: list[str] = []
        self._class: type[State] = State
        # How each field is put together again: its name, its number of tensors (0 for one that is the field itself),
        # and for a stage or a history its class and what that needs.
        self._fields: tuple[tuple[str, int, Any, Any], ...] = ()

    def init(self, key: Tensor, values: dict[str, Tensor]) -> tuple[list[Tensor], Tensor]:
        """(leaves, checks int8 `[checks]`) of the initial state.

        Args:
            key: int64 `[2]`.
            values: parameters.
        """
        state, bad = start(self.model.with_values(values), key, self.ids, self.setting)
        check(self.setting.precision, state, self.setting.relax is not None)
        state = narrowed(state, self.setting.precision)
        if "alive" in state.kinds:  # births make identities differ between worlds
            self.setting = dataclasses.replace(self.setting, custom_ids=True)
        self._learn(state)
        return self.leaves(state), self._stack(bad, key)

    def step(
        self,
        leaves: list[Tensor],
        switches: Tensor,
        key: Tensor,
        values: dict[str, Tensor],
        step: Tensor,
        answers: dict[str, Tensor],
    ) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
        """(leaves, switches, records, checks) one step on; arguments as those of `init` and `advance`."""
        model = self.model.with_values(values) if values else self.model
        now = widened(self.state(leaves, step), self.setting.precision)
        out = advance(model, now, switches, key, answers, self.setting)
        return (
            self.leaves(narrowed(out.state, self.setting.precision)),
            out.switches,
            out.records,
            self._stack(out.bad, key),
        )

    def leaves(self, state: Any) -> list[Tensor]:
        """The tensors of a state, in the order of its fields; identities last where they differ from 0 … n - 1."""
        leaves = [tensor for name in state.kinds for tensor in tensors(getattr(state, name))]
        return [*leaves, state.id] if self.setting.custom_ids else leaves

    @property
    def masks(self) -> list[bool]:
        """For each leaf whether it holds only 0 and 1: masks do, as every look at the state checks."""
        masks: list[bool] = []
        for name, columns, *_ in self._fields:
            masks += [self._class.kinds[name].name == "mask"] * max(columns, 1)
        return [*masks, False] if self.setting.custom_ids else masks

    def state(self, leaves: list[Tensor], step: Tensor) -> Any:
        """The state with these tensors, after `step` steps."""
        fields: dict[str, Any] = {}
        place = 0
        for name, columns, cls, rest in self._fields:
            if columns:
                fields[name] = cls(leaves[place : place + columns], rest)
            else:
                fields[name] = leaves[place] if cls is None else cls(leaves[place], rest)
            place += max(columns, 1)
        fields["time"] = Time(step, self.setting.dt, self.model.time_unit)
        fields["id"] = leaves[-1] if self.setting.custom_ids else self.ids
        return make(self._class, fields)

    def _learn(self, state: Any) -> None:
        """Keep how a state is put together."""
        self._class = type(state)
        self._fields = tuple((name, *_structure(getattr(state, name))) for name in state.kinds)

    def _stack(self, bad: list[tuple[str, Tensor]], like: Tensor) -> Tensor:
        self.checks = [label for label, _ in bad]
        if not bad:
            return torch.zeros(0, dtype=torch.int8, device=like.device)
        return torch.stack([flag for _, flag in bad])


def _structure(field: Any) -> tuple[int, Any, Any]:
    """(columns, class, levels or length) of a field."""
    if isinstance(field, Stage):
        return 0, Stage, field.levels
    if isinstance(field, History):
        return len(field.columns or ()), History, field.length
    return 0, None, None
