"""What `dz.check` asks of a state with a mask `alive`: those who are not alive change nothing for the others.

States of a run are stepped on as they are, and once more with the dead and free places emptied, or with what other dead
have; what then differs depends on them. A field that tells the dead from the living itself, such as a level "dead", is
left as it is, and what nobody dead ever has, since it is cleared at death, is not tried. Where the engine knows who is
alive (`denizen.model.alive`), only series are left to judge.
"""

import dataclasses
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from denizen.model._check_runs import Flat
from denizen.model._flat_world import series_names
from denizen.model._history import History
from denizen.model._stage import Stage
from denizen.model._state import State, make, plain, settle, values

LONGEST = 40  # steps until somebody dies
STATES = 3  # of a run that are looked at
DRAWS, BUDGET = 16, 20_000  # steps from each state, with other random numbers; fewer of more agents


@dataclasses.dataclass
class Depend:
    """What depends on the dead, by name.

    Attributes:
        living: fields of those who are alive.
        born: fields of those who come to life, of what lies in their place.
        series: flows, and levels that depend on the living, too.
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
                "mask what agents give: contacts.sum(now.ill * now.alive, needed=now.alive), (x * now.alive).sum()",
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
                "(… * now.alive).sum(), unless all who ever lived are meant; once places are taken again, sum a flow",
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
        walked = _walk(flat, key, found)
        if walked is None:
            return None
        moments, marks = walked
        found.judged = bool(moments)
        states = [flat.state(moment.leaves, moment.step) for moment in moments]
        dead, living = (_Pool.of(states, alive, marks) for alive in (False, True))
        draws = max(2, min(DRAWS, BUDGET // max(flat.world.ids.numel(), 1)))
        for moment in moments:
            for draw in range(draws):
                _compare(flat, moment, key + torch.tensor([0, draw]), (dead, living), found)
                if found.living or found.born:
                    return found
    return found


def _walk(flat: Flat, key: Tensor, found: Depend) -> tuple[list[Moment], set[str]] | None:
    """The last states of a run with living and dead in it, and what tells one from the other besides `alive`.

    The run is at least as long as the check's, and goes on until somebody has died.
    """
    leaves, _ = flat.init(key)
    switches = torch.zeros(len(flat.world.setting.interventions), dtype=torch.int8)
    mixed = deque[Moment](maxlen=STATES)
    lived = torch.zeros_like(flat.world.ids, dtype=torch.bool)
    seen: dict[str, tuple[set[int], set[int], set[int]]] = {}  # codes of the living, of who died, of all who are dead
    for number in range(LONGEST + 1):
        step, answers = torch.tensor(number), flat.answers[min(number, len(flat.answers) - 1)]
        state = flat.state(leaves, step)
        kind = state.kinds.get("alive")
        if kind is None or (kind.name, kind.axes) != ("mask", ("agents",)):
            return None
        alive = state.alive != 0
        if bool(alive.any()) and not bool(alive.all()):
            mixed.append(Moment(leaves, switches, step, answers))
        for name in _own_fields(state):
            if state.kinds[name].name in ("mask", "stage"):
                codes, sets = plain(getattr(state, name)), seen.setdefault(name, (set(), set(), set()))
                for known, who in zip(sets, (alive, ~alive & lived, ~alive), strict=True):
                    known.update(codes[who].unique().tolist())
        if number == LONGEST or (number >= len(flat.answers) and bool((lived & ~alive).any())):
            break
        lived |= alive
        found.steps = number + 1
        leaves, switches, _, _ = flat.step(leaves, switches, key, step, answers)
    marks = {name for name, (living, died, dead) in seen.items() if dead and not living & (died or dead)}
    return list(mixed), marks


def _own_fields(state: State) -> list[str]:
    """Fields of each agent, without `alive`."""
    return [name for name, kind in state.kinds.items() if kind.axes[:1] == ("agents",) and name != "alive"]


@dataclasses.dataclass(frozen=True)
class _Pool:
    """What agents have had in a run, all fields of an agent together: nothing that the run does not lead to.

    Attributes:
        fields: by name `[agents of all states, …]`; none of what tells the dead.
    """

    fields: dict[str, Tensor]

    @classmethod
    def of(cls, states: list[Any], alive: bool, marks: set[str]) -> "_Pool":
        """Of the living or of the dead."""
        names = [name for name in _own_fields(states[0]) if name not in marks] if states else []
        who = [(state.alive != 0) == alive for state in states]
        picked = zip(states, who, strict=True)
        rows = [{name: plain(getattr(state, name))[these] for name in names} for state, these in picked]
        return cls({name: torch.cat([row[name] for row in rows]) for name in names})

    def others(self, state: Any, who: Tensor) -> Iterator[Any]:
        """A state in which some agents have nothing, and one in which they have what others of the pool have."""
        for empty in (True, False):
            fields = values(state)
            for name, rows in self.fields.items():
                field = fields[name]
                old = plain(field)
                order = torch.arange(1, who.numel() + 1) % max(len(rows), 1)
                new = torch.zeros_like(old) if empty or not len(rows) else rows[order]
                made = torch.where(who.reshape(-1, *[1] * (old.dim() - 1)), new, old)
                rest = (
                    field.levels if isinstance(field, Stage) else field.length if isinstance(field, History) else None
                )
                fields[name] = made if rest is None else type(field)(made, rest)
            yield make(type(state), fields)


def _compare(flat: Flat, moment: Moment, key: Tensor, pools: tuple[_Pool, _Pool], found: Depend) -> None:
    """Step a state on as it is, and with other dead; pools of the dead and of the living."""
    before = flat.state(moment.leaves, moment.step)
    lived = before.alive != 0

    def step(leaves: list[Tensor]) -> tuple[Any, list[Tensor], Tensor]:
        after, _, records, bad = flat.step(leaves, moment.switches, key, moment.step, moment.answers)
        return flat.state(after, moment.step + 1), records, bad

    now, records, bad = step(list(moment.leaves))
    _levels(flat, now, pools, found)
    flows = []
    for filled in pools[0].others(before, ~lived):
        other, changed, failed = step(flat.world.leaves(filled))
        if bool((failed > bad).any()) or _breaks(
            [*flat.world.leaves(now), *records], [*flat.world.leaves(other), *changed]
        ):
            continue
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


def _levels(flat: Flat, now: Any, pools: tuple[_Pool, _Pool], found: Depend) -> None:
    """Series of the state after a step that the dead change, and the living too: one of the dead alone may be meant."""
    model, alive = flat.world.model, now.alive != 0
    for name in (name for name, kind in model.all_series.items() if kind == "level"):
        value = getattr(model, name)
        told = value(now)
        changed = [
            any(_differ(told, its) and not _breaks([told], [its]) for its in map(value, pool.others(now, who)))
            for pool, who in zip(pools, (~alive, alive), strict=True)
        ]
        if all(changed):
            found.series[name] = None


def of_free_places(model: Any, state: Any) -> dict[str, str]:
    """Series of the state after a step that count who is not alive, by name the axis, where the engine knows who is.

    Fields of the dead hold nothing there, so sums leave them out. A series counts them where nobody alive, and
    everybody alive with nothing in their fields, give one and the same value, which is not 0: ``(now.age < 3).sum()``.

    Args:
        model: whose series are judged.
        state: of a run.
    """
    found: dict[str, str] = {}
    for axis, who in state._living.items():
        fields = values(state)
        nobody = settle(make(type(state), {**fields, who: torch.zeros_like(fields[who])}))
        everybody = make(type(state), {**values(nobody), who: torch.ones_like(fields[who])})
        for name, told in ((name, getattr(model, name)) for name, kind in model.all_series.items() if kind == "level"):
            none, all_ = told(nobody), told(everybody)
            if not _differ(none, all_) and bool((none != 0).any()) and _differ(told(state), none):
                found[name] = axis
    return found


def _breaks(mine: list[Tensor], its: list[Tensor]) -> bool:
    """Whether a try ends in what the run never meets: emptied, who is not alive may have 0/0, which no mask takes out.

    Args:
        mine: what came of the state as it is.
        its: what came of the try.
    """
    pairs = zip(mine, its, strict=True)
    return any(bool((torch.isfinite(one) & ~torch.isfinite(other)).any()) for one, other in pairs)


def _differ(one: Tensor, two: Tensor) -> bool:
    return bool(((one != two) & ~((one != one) & (two != two))).any())
