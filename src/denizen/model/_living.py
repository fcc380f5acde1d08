"""Who is alive, where a state declares it by `alive`: fields of the dead and of free places hold nothing.

The engine empties them after `init`, after each stage of a step and at its end. So the dead give 0 to sums over
neighbours, nobody counts them, and whoever is born into their place starts clean.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.model._history import History
from denizen.model._kinds import Alive, Kind
from denizen.model._stage import LivingStage, Stage


def living_axes(owner: str, kinds: Mapping[str, Kind]) -> dict[str, str]:
    """Axis -> its field of kind `alive`; at most one for each.

    Raises:
        ModelError: two of them on one axis.
    """
    found: dict[str, str] = {}
    for name, kind in kinds.items():
        if isinstance(kind, Alive):
            (axis,) = kind.axes
            if axis in found:
                raise ModelError(
                    f"{owner}.{name}: {found[axis]!r} says already who of {axis!r} is alive; keep one of the two"
                )
            found[axis] = name
    return found


def settled(kinds: Mapping[str, Kind], living: Mapping[str, str], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with nothing in the places of who is not alive; stages know who is.

    Args:
        kinds: of the fields.
        living: as `living_axes` gave it.
        fields: values by name, those of the engine among them.
    """
    who = {axis: _mask(fields[name]) for axis, name in living.items()}
    out = dict(fields)
    for name, kind in kinds.items():
        if any(axis in who for axis in kind.axes) and not isinstance(kind, Alive):
            value = fields[name]
            if isinstance(value, Stage):
                out[name] = Stage(emptied(value.value, kind.axes, who), value.levels)
            elif isinstance(value, History):
                out[name] = History(emptied(value.value, kind.axes, who), value.length)
            else:
                out[name] = emptied(value, kind.axes, who)
    return known(kinds, living, out)


def known(kinds: Mapping[str, Kind], living: Mapping[str, str], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields whose stages know who is alive; arguments as those of `settled`."""
    out = dict(fields)
    for name, kind in kinds.items():
        value = fields[name]
        if isinstance(value, Stage) and kind.axes[0] in living:
            out[name] = LivingStage(value.value, value.levels, _mask(fields[living[kind.axes[0]]]))
    return out


def emptied(value: Tensor, axes: tuple[str, ...], who: Mapping[str, Tensor]) -> Tensor:
    """A tensor with 0 wherever one of its axes has somebody who is not alive."""
    for place, axis in enumerate(axes):
        if axis in who:
            alive = who[axis].reshape(-1, *[1] * (value.dim() - 1 - place))
            # A product would keep NaN; of whole numbers it is what costs less on a CPU.
            value = torch.where(alive != 0, value, 0.0) if value.dtype.is_floating_point else value * alive
    return value


def _mask(alive: Tensor) -> Tensor:
    """As an author may have left it within a step: perhaps of bools, or wide."""
    return alive if alive.dtype == torch.int8 else (alive != 0).to(torch.int8)
