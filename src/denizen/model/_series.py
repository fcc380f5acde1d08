"""What a series is computed from: the state after a step, both states, or the events that the step recorded."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from denizen.errors import ModelError
from denizen.rng import Events

SERIES_FORMS = "(now) or (before, now), or (events) for what rng.record noted"


def series_takes(function: Callable[..., Any], skip: int = 0) -> tuple[str, ...] | None:
    """What a function of a series is given, some of ``("before", "now", "events")``; None for one of another form.

    One argument is the state after the step, two are the states before and after it, and a last one that is called
    `events` is what the step recorded. Arguments with a default are the author's own: ``lambda now, group=group: …``.

    Args:
        function: the function.
        skip: arguments before those: 1 for a method that is not bound.
    """
    try:
        arguments = list(inspect.signature(function).parameters.values())[skip:]
    except ValueError:  # of what is written in C
        return None
    needed = [argument for argument in arguments if argument.default is argument.empty]
    if any(argument.kind is argument.KEYWORD_ONLY for argument in needed):
        return None
    names = [argument.name for argument in needed if argument.kind is not argument.VAR_KEYWORD]
    recorded = ("events",) if names and names[-1] == "events" else ()
    states = names[: len(names) - len(recorded)]
    if "events" in states or len(states) > 2 or not names:
        return None
    return (*("before", "now")[2 - len(states) :], *recorded)


def kind(given: tuple[str, ...]) -> str:
    """``"level"`` for a value after the step, ``"flow"`` for what happened within it."""
    return "level" if given == ("now",) else "flow"


def value(
    name: str, function: Callable[..., Any], given: tuple[str, ...], before: Any, now: Any, events: Events
) -> Tensor:
    """What a series is after a step.

    Args:
        name: of the series.
        function: of what `given` names.
        given: as `series_takes` told it.
        before: the state as the author's step found it, after the interventions.
        now: the state after the step.
        events: what the step and its interventions recorded.
    """
    known = {"before": before, "now": now, "events": events}
    found = function(*[known[argument] for argument in given])
    if not isinstance(found, Tensor):
        raise ModelError(
            f"series {name!r} returned {type(found).__name__} {found!r}; expected a tensor, without .item()"
        )
    return found
