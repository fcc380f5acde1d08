"""What `dz.check` asks of a state with a mask `alive`: those who are not alive change nothing for the others.

States of a run are stepped on as they are, and once more with other values in the fields of the dead and of free
places; what then differs depends on them. A field that tells the dead from the living itself, such as a level "dead",
is left as it is.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from denizen.model._apply import series_names
from denizen.model._check_runs import Flat
from denizen.model._history import History
from denizen.model._stage import Stage
from denizen.model._state import State, make, plain, values

LONGEST = 40  # steps until somebody dies
STATES = 3  # of a run that are looked at
DRAWS, BUDGET = 16, 20_000  # steps from each state, with other random numbers; fewer of more agents


@dataclasses.dataclass
class Depend:
    """What depends on the dead, by name.

    Attributes:
        living: fields of those who are alive.
        born: fields of those who come to life, of what lies in their place.
        series: those that depend on the living, too.
        steps: that were taken until there were dead.
        judged: whether there were any.
    """

    living: dict[str, None] = dataclasses.field(default_factory=dict)
    born: dict[str, None] = dataclasses.field(default_factory=dict)
    series: dict[str, None] = dataclasses.field(default_factory=dict)
    steps: int = 0
    judged: bool = False

    def sentences(self) -> Iterator[tuple[str, str, str]]:
        """(what is wrong, what to write instead, name of a series or ``"step"``) for each finding."""
        if self.living:
            names = ", ".join(self.living)
            yield (
                f"the dead take part: {names} of the living, or of the world, change with fields of who is not alive",
                "mask what agents give: contacts.sum(now.ill * now.alive, where=now.alive), (x * now.alive).sum()",
                "step",
            )
        if self.born:
            yield (
                f"{', '.join(self.born)} of who comes to life changes with what the dead left in the place",
                "return dz.model.births(now, rng, parents, age=0, …), last in step: children start with nothing else",
                "step",
            )
        for name in self.series:
            yield (
                f"series {name!r} counts who is not alive along with the living",
                "(… * now.alive).sum(); what counts for ever is the sum of a flow",
                name,
            )


@dataclasses.dataclass(frozen=True)
class Moment:
    """A state of a run: its tensors, the switches of interventions, the step and what was asked for it."""

    leaves: list[Tensor]
    switches: Tensor
    step: Tensor
    answers: dict[str, Tensor]


def on_the_dead(flat: Flat, key: Tensor) -> Depend | None:
    """What depends on those who are not alive; None for a state without `alive`.

    Args:
        flat: of a hard run of one world.
        key: int64 `[2]` of the run.
    """
    found = Depend()
    with torch.no_grad():
        moments = _moments(flat, key, found)
        if moments is None:
            return None
        states = [flat.state(moment.leaves, moment.step) for moment in moments]
        marks = _marks(states)
        mixed = [moment for moment, state in zip(moments, states, strict=True) if 0 < _count(state) < state.id.numel()]
        draws = max(2, min(DRAWS, BUDGET // max(states[0].id.numel(), 1)))
        for moment in mixed[-STATES:]:
            found.judged = True
            for draw in range(draws):
                _compare(flat, moment, key + torch.tensor([0, draw]), marks, found)
                if found.living or found.born:
                    return found
    return found


def _moments(flat: Flat, key: Tensor, found: Depend) -> list[Moment] | None:
    """States of a run, at least as long as the check's, until somebody has died."""
    leaves, _ = flat.init(key)
    switches = torch.zeros(len(flat.world.setting.interventions), dtype=torch.int8)
    moments, died = [], False
    for number in range(LONGEST + 1):
        step, answers = torch.tensor(number), flat.answers[min(number, len(flat.answers) - 1)]
        moments.append(Moment(leaves, switches, step, answers))
        kind = flat.state(leaves, step).kinds.get("alive")
        if kind is None or (kind.name, kind.axes) != ("mask", ("agents",)):
            return None
        if number == LONGEST or (number >= len(flat.answers) and died):
            break
        alive = flat.state(leaves, step).alive
        leaves, switches, _, _ = flat.step(leaves, switches, key, step, answers)
        found.steps = number + 1
        died = died or bool((alive > flat.state(leaves, step + 1).alive).any())
    return moments


def _count(state: Any) -> int:
    return int((state.alive != 0).sum())


def _marks(states: list[Any]) -> set[str]:
    """Masks and stages that never have a value in common for the dead and for the living."""
    lived = torch.zeros_like(states[0].alive, dtype=torch.bool)
    seen: dict[str, tuple[set[int], set[int], set[int]]] = {}
    for state in states:
        alive = state.alive != 0
        for name in _own_fields(state):
            if state.kinds[name].name in ("mask", "stage"):
                codes = plain(getattr(state, name))
                sets = seen.setdefault(name, (set(), set(), set()))
                for known, who in zip(sets, (alive, ~alive & lived, ~alive), strict=True):
                    known.update(codes[who].unique().tolist())
        lived |= alive
    return {name for name, (living, died, dead) in seen.items() if (died or dead) and not living & (died or dead)}


def _own_fields(state: State) -> list[str]:
    """Fields of each agent, without `alive`."""
    return [name for name, kind in state.kinds.items() if kind.axes[:1] == ("agents",) and name != "alive"]


def _filled(state: Any, who: Tensor, full: bool, marks: set[str]) -> Any:
    """A state with other values for some agents: none, or all there are, in turn."""
    order = torch.arange(who.numel())
    living = (state.alive != 0).nonzero().flatten()
    other = living[order % living.numel()]
    fields = values(state)
    for name in _own_fields(state):
        if name in marks:
            continue
        field = fields[name]
        old = plain(field)
        new = torch.zeros_like(old)
        if full and isinstance(field, Stage | History):
            count = len(field.levels) if isinstance(field, Stage) else field.length + 2
            new = _along(order % count, old).to(old.dtype)
        elif full:
            new = torch.ones_like(old) if state.kinds[name].name == "mask" else old[other]
        made = torch.where(_along(who, old), new, old)
        rest = field.levels if isinstance(field, Stage) else field.length if isinstance(field, History) else None
        fields[name] = made if rest is None else type(field)(made, rest)
    return make(type(state), fields)


def _along(each: Tensor, like: Tensor) -> Tensor:
    """A value for each agent, for all entries of a field."""
    return each.reshape(-1, *[1] * (like.dim() - 1))


def _compare(flat: Flat, moment: Moment, key: Tensor, marks: set[str], found: Depend) -> None:
    """Step a state on as it is, and with other dead."""
    before = flat.state(moment.leaves, moment.step)
    lived = before.alive != 0

    def step(leaves: list[Tensor]) -> tuple[Any, list[Tensor]]:
        after, _, records, _ = flat.step(leaves, moment.switches, key, moment.step, moment.answers)
        return flat.state(after, moment.step + 1), records

    now, records = step(list(moment.leaves))
    _levels(flat, now, marks, found)
    flows = []
    for full in (False, True):
        other, changed = step(flat.world.leaves(_filled(before, ~lived, full, marks)))
        stayed = lived & (now.id == before.id) & (other.id == before.id)
        born = ~stayed & (now.alive != 0) & (other.alive != 0)
        for name, kind in now.kinds.items():
            one, two = plain(getattr(now, name)), plain(getattr(other, name))
            if "agents" not in kind.axes or name == "alive":  # who is born, too
                found.living |= {name: None} if _differ(one, two) else {}
            elif kind.axes[0] == "agents":
                found.living |= {name: None} if _differ(one[stayed], two[stayed]) else {}
                found.born |= {name: None} if _differ(one[born], two[born]) else {}
        flows += [k for k, (mine, its) in enumerate(zip(records, changed, strict=True)) if _differ(mine, its)]
    if not found.living and not found.born:  # of which flows may be a consequence
        names, model = series_names(flat.world.model, flat.world.setting), flat.world.model
        found.series |= {names[k]: None for k in flows if model.all_series.get(names[k]) != "level"}


def _levels(flat: Flat, now: Any, marks: set[str], found: Depend) -> None:
    """Series of the state after a step that the dead change, and the living too: one of the dead alone may be meant."""
    model, alive = flat.world.model, now.alive != 0
    for name in (name for name, kind in model.all_series.items() if kind == "level"):
        value = getattr(model, name)
        told = value(now)
        changed = [
            any(_differ(told, value(_filled(now, who, full, marks))) for full in (False, True))
            for who in (~alive, alive)
        ]
        if all(changed):
            found.series[name] = None


def _differ(one: Tensor, two: Tensor) -> bool:
    return bool(((one != two) & ~((one != one) & (two != two))).any())
