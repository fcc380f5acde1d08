"""The note of `dz.check` on flows that are told by how levels changed, and not by what happened."""

import itertools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from denizen.model._check_runs import same
from denizen.model._history import History
from denizen.model._model import Model
from denizen.model._stage import Stage
from denizen.model._state import plain

LEVELS = 8  # of a stage that are tried, at most


def differences_of_levels(model: Model, before: Any, now: Any) -> list[str]:
    """Names of the series of (before, now) that follow agents who are put into other levels, in either state.

    Such a series counts whoever changed level, for whatever reason: to move an agent by hand changes it.

    Args:
        model: the model.
        before: a state that it was in.
        now: a later one.
    """
    names = [name for name, given in model._series_takes.items() if given == ("before", "now")]
    if not names:
        return []
    earlier, later = _moved(before), _moved(now)
    return [name for name in names if _follows_levels(getattr(model, name), earlier, later)]


def _follows_levels(series: Callable[..., Tensor], earlier: list[Any], later: list[Any]) -> bool:
    """Whether a series differs between some of the earlier states, and between some of the later ones."""
    table = [[series(before, now) for now in later] for before in earlier]
    by_before = any(not same(row, table[0]) for row in table)
    by_now = any(not same([value] * len(row), row) for value, *row in table)
    return by_before and by_now


def _moved(state: Any) -> list[Any]:
    """The state, and others with half of the agents or all of them in one level, for each level of each field."""
    states = [state]
    for name, kind in state.kinds.items():
        if kind.axes[:1] != ("agents",) or kind.name not in ("mask", "stage", "history"):
            continue
        field = getattr(state, name)
        count = plain(field).shape[0]
        for level, first in itertools.product(_levels(field), (count // 2, count)):
            codes = plain(field).clone()
            codes[:first] = level
            if isinstance(field, Tensor):
                moved = codes
            else:
                moved = Stage(codes, field.levels) if isinstance(field, Stage) else History(codes, field.length)
            states.append(state.replace(**{name: moved}))
    return states


def _levels(field: Any) -> list[int]:
    """Codes to try: of a history never, and now."""
    count = len(field.levels) if isinstance(field, Stage) else 2
    return sorted({*range(0, count, -(-count // LEVELS)), count - 1})
