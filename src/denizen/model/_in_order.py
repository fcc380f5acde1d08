"""Steps of several stages, each seeing what the ones before it did; and agents who act one after another.

The names of the stages, and how each is shuffled, are part of a model's fingerprint, which the manifest of a run keeps.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import whole
from denizen.errors import InputError, ModelError
from denizen.model._state import State, settle
from denizen.rng import BY_ID, Known, Rng, identities

MOST_ROUNDS = 256  # each is traced on its own


@dataclasses.dataclass(frozen=True)
class Shuffle:
    """A stage in which agents act in random order, see `shuffle`."""

    name: str
    axis: str
    rounds: int

    def __str__(self) -> str:
        return f"{self.name} (shuffled over {self.axis} in {self.rounds} rounds)"


def shuffle(name: str, *, rounds: int = 8, axis: str = "agents") -> Shuffle:
    """A stage of `in_order` in which agents act in random order, one part of them after another.

    Every agent draws a priority, keyed by identity, and acts in the round that it falls into. A round sees what the
    earlier ones did; within a round all act at once. With more rounds this comes closer to agents that act one by one;
    where agents do not interact, any number of rounds gives the same bits.

    Args:
        name: of a method ``(self, now, rng, acting)``; `acting` is a mask int8 of those whose turn it is, and what the
            others would do must be masked by it. Its random numbers do not depend on the round.
        rounds: 1 … 256.
        axis: of the kind of agents.
    """
    return Shuffle(_named("shuffle", name), axis, whole("shuffle", "rounds", rounds, 1, MOST_ROUNDS))


def in_order(*stages: str | Shuffle) -> Callable[..., Any]:
    """A step of several stages, one after another.

    It is written in the body of a model: ``step = in_order("graze", shuffle("trade"), "bear")``. Each stage is a method
    ``(self, now, rng)`` of the model that returns the state. It sees what the stages before it did, and its streams lie
    in a scope of its name: ``rng.event("die", …)`` of two stages differ. Where the state says who lives, the dead are
    emptied between stages.

    Args:
        stages: names of methods, or stages in random order as `shuffle` makes them.

    Raises:
        InputError: no stage, or one twice.
    """
    names = [stage.name if isinstance(stage, Shuffle) else _named("in_order", stage) for stage in stages]
    if not names or len(set(names)) != len(names):
        raise InputError(f"in_order: stages={names}, expected names of methods, at least one and none twice")

    def step(self: Any, now: Any, rng: Rng) -> Any:
        for number, stage in enumerate(stages):
            now = settle(now) if number else now
            name = stage.name if isinstance(stage, Shuffle) else stage
            act = getattr(self, name)
            within = _at(now, rng)[name]
            now = _rounds(act, stage, now, within) if isinstance(stage, Shuffle) else _after(act(now, within), name)
        return now

    step.__stages__ = stages  # type: ignore[attr-defined]
    return step


def stages(model: Any) -> tuple[str, ...]:
    """The stages of a model's step, in words, as a manifest has them; none for a step of one piece."""
    return tuple(map(str, _stages(type(model))))


def check_stages(cls: type) -> None:
    """Raise `ModelError` where a class has no method for a stage of its step, or one that takes something else."""
    for stage in _stages(cls):
        name, *acting = (stage.name, "acting") if isinstance(stage, Shuffle) else (stage,)
        takes = ("now", "rng", *acting)
        wanted = f"write def {name}(self, {', '.join(takes)})"
        act = getattr(cls, name, None)
        if act is None:
            methods = [one for one in dir(cls) if not one.startswith("_") and inspect.isfunction(getattr(cls, one))]
            near = difflib.get_close_matches(name, methods, n=1)
            raise ModelError(
                f"{cls.__name__} has no stage {name!r}: {f'did you mean {near[0]!r}? or ' if near else ''}{wanted}"
            )
        given = inspect.signature(act, follow_wrapped=False)
        try:
            given.bind(*["self"] if inspect.isfunction(act) else [], *takes)
        except TypeError as error:
            raise ModelError(f"{cls.__name__}: stage {name!r} takes {given}: {wanted}; {error}") from None


def _stages(cls: Any) -> tuple[str | Shuffle, ...]:
    return getattr(cls.step, "__stages__", ())


def _ids(now: Any, axis: str) -> Tensor | None:
    """Identities on an axis; None where they stay 0, 1, …: of other kinds of agents in environments."""
    return now.id if axis == "agents" else now.ids.get(axis)


def _named(caller: str, name: Any) -> str:
    if not isinstance(name, str) or not name.isidentifier() or name in ("step", "init"):
        raise InputError(f"{caller}: stage {name!r}, expected the name of a method of the model, such as 'move'")
    return name


def _after(now: Any, name: str) -> Any:
    if not isinstance(now, State):
        raise ModelError(f"stage {name!r} returned {type(now).__name__}, expected the state; end it with: return now")
    return now


def _at(now: Any, rng: Rng) -> Rng:
    """The random numbers for a state that earlier stages changed, where some have died and others were born."""
    axes = dict(rng._axes)
    for axis, field in now._living.items():
        alive = getattr(now, field)
        axes[axis] = Known(alive.shape[0], _ids(now, axis), alive)
    return rng._of(axes)


def _rounds(act: Any, stage: Shuffle, now: Any, rng: Rng) -> Any:
    """All rounds of a shuffled stage, which draw the same numbers: each agent acts in one of them."""
    turn = (rng.on(stage.axis).uniform("priority") * stage.rounds).long()
    lives = now._living.get(stage.axis)
    ids = _ids(now, stage.axis) if lives else None
    before = dict(rng._recorded)
    told: dict[str, Tensor] = {}
    details: dict[str, dict[str, Tensor]] = {}
    for number in range(stage.rounds):
        acting = (turn == number).to(torch.int8)
        if lives:
            acting = acting * getattr(now, lives)
        if ids is not None:  # who is born in a round waits for the next step
            acting = acting * (_ids(now, stage.axis) == ids)
        one = _at(now, rng)._again()
        now = settle(_after(act(now, one, acting), stage.name))
        for name, happened in one._recorded.items():
            if name not in before:
                told[name] = told[name] + happened if name in told else happened
                if name in one._details:
                    details[name] = _detailed(one._details[name], happened, details.get(name))
    rng._recorded.update(told)
    rng._details.update(details)
    return now


def _detailed(new: dict[str, Tensor], happened: Tensor, old: dict[str, Tensor] | None) -> dict[str, Tensor]:
    """Columns of a logged event after a round: of those to whom it happened in it, as the round has them."""
    ids, columns = new.get("id"), {}
    for name, column in new.items():
        if name == "by" and ids is not None:  # who was in a place, in this round
            columns[BY_ID] = identities(column, ids)
        else:
            columns[name] = column
    if old is None:
        return columns
    here = happened.reshape(happened.shape[0], -1).any(dim=1)
    return {name: torch.where(here, column, old[name]) for name, column in columns.items()}
