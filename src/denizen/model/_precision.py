"""Fields stored in float16 or bfloat16: narrowed once at the end of a step, computed with in float32.

Masks and stages are a byte and histories one or two already; what can be narrowed is a `real` field, and any field of a
relaxed run, where all are float32. Columns of a relaxed history stay narrow and are widened where they are used, so
that growing older copies nothing here either.
"""

from collections.abc import Mapping
from typing import Any

import torch

from denizen import ops
from denizen.errors import InputError, nearest
from denizen.model._history import History
from denizen.model._stage import Stage
from denizen.model._state import State, make, values

NARROW = (torch.float16, torch.bfloat16)


def check(precision: Mapping[str, torch.dtype], state: State, relaxed: bool) -> None:
    """Raise `InputError` where a field or a dtype cannot be chosen."""
    for name, dtype in precision.items():
        if name not in state.kinds:
            raise InputError(f"precision: {type(state).__name__} has no field {name!r}; {nearest(name, state.kinds)}")
        if dtype not in NARROW:
            raise InputError(f"precision[{name!r}]={dtype!r}, expected torch.float16 or torch.bfloat16")
        kind = state.kinds[name]
        if not relaxed and kind.name != "real":
            raise InputError(
                f"precision: {name!r} is a {kind.name}, stored in {_bits(getattr(state, name))} bits already; only a "
                f"real field, or any field of a relaxed run, can be stored in {dtype}"
            )


def narrowed(state: Any, precision: Mapping[str, torch.dtype]) -> Any:
    """The state as it is stored."""
    return _with(state, {name: _to(getattr(state, name), dtype) for name, dtype in precision.items()})


def widened(state: Any, precision: Mapping[str, torch.dtype]) -> Any:
    """The state as a step sees it: float32, but for the columns of a history."""
    fields = {name: getattr(state, name) for name in precision}
    return _with(state, {n: v if isinstance(v, History) else _to(v, torch.float32) for n, v in fields.items()})


def _with(state: Any, changes: dict[str, Any]) -> Any:
    return make(type(state), {**values(state), **changes}) if changes else state


def _to(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, History):
        return History([column.to(dtype) for column in value.tensors()], value.length)
    return (
        Stage(ops.rounded(value.value, dtype), value.levels) if isinstance(value, Stage) else ops.rounded(value, dtype)
    )


def _bits(value: Any) -> int:
    tensor = value.value if isinstance(value, Stage | History) else value
    return 8 * tensor.element_size()
