"""Births and deaths within a fixed capacity: agents that are not `alive` are free places."""

from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from denizen import ops
from denizen.errors import InputError, ModelError, nearest
from denizen.model._history import History
from denizen.model._stage import Stage
from denizen.model._state import State, known, make, own, settle
from denizen.rng import Rng

_OVERFLOW = "births: more children than free places{}; raise the capacity of {} places, set in init"
_BORN = 1 << 61  # keeps the ids of the born apart from those of the first agents


def child_id(parent: Tensor, step: Tensor) -> Tensor:
    """Identity of the child that `parent` has in `step`: int64 in [2**61, 2**62), a hash of both.

    The mixing steps are those of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), in wrapping int64 arithmetic. Two
    children share an id with probability below 1e-5 among 6 million.
    """
    # Tensors and not Python integers: inductor writes integers above int32 as int32 constants and fails on CUDA.
    odd = torch.tensor([-7046029254386353131, -4658895280553007687, -7723592293110705685], device=parent.device)
    z = parent * odd[0] + (step + 1) * odd[1]
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * odd[1]
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * odd[2]
    z = z ^ ((z >> 31) & ((1 << 33) - 1))
    return (z & (_BORN - 1)) | _BORN


def births(now: Any, rng: Rng, parents: Tensor, axis: str = "agents", *, of: str | None = None, **fields: Any) -> Any:
    """Give every living agent in `parents` one child, placed into a free place.

    The state says who lives by a field of kind `denizen.model.alive` on the axis; or by a mask field called `alive`,
    whose dead keep their fields. Children take free places in ascending order, parents in ascending order of
    place. A child starts with nothing, whatever lies in its place and whatever its parent has: masks, counts and reals
    are 0, stages in their first level, histories at never. What differs is given, what it has of its parent as well:
    ``births(now, rng, mothers, age=0, genes=now.genes, stage="immune")``. Its id comes from its parent's id and the
    step, so nobody else's random numbers change. Contacts belong to the place.

    Args:
        now: the state.
        rng: of the step; carries the flag when places run out, which stops the run with a `CapacityError`.
        parents: mask `[agents]`; the dead and free places among them have no children.
        axis: of the kind of agents, such as ``"sheep"``; no field may be called so, then.
        of: the parents' axis, where they are of another kind: households that found firms,
            ``births(now, rng, founders, "firms", of="households", capital=now.savings)``.
        fields: values for the children: `[agents]`, indexed by *parent*, so that ``genes=now.genes`` is the parent's;
            or one for all of them: a number, or the name of a level.

    Returns:
        The state with the children in it.
    """
    of = axis if of is None else of
    who = _check(now, rng, parents, axis, of, fields)
    alive, ids = getattr(now, who), _ids(now, axis)
    parents = (parents != 0).to(torch.int8) * getattr(now, str(_lives(now, of)))
    overflow = _OVERFLOW.format("" if axis == "agents" else f" for {axis}", f"{alive.shape[0]:,}")
    earlier = sum(label == overflow for label, _ in rng._bad)  # calls in this step: the children of each have own ids
    born, parent, ids, full = _placed(alive, parents, _ids(now, of), ids, now.time.step + (earlier << 40))
    rng._bad.append((overflow, full))
    values = {
        name: _begun(
            getattr(now, name), kind.axes, axis, {who: 1, **fields}.get(name, 0), born, (parent, len(parents)), name
        )
        for name, kind in now.kinds.items()
        if axis in kind.axes
    }
    after = now.replace(**values)
    if axis in now._living:  # the places of others are empty already, or will be at the end of the stage
        after = make(type(now), known(now.kinds, now._living, after.__dict__))
    return own(after, now.time, ids) if axis == "agents" else own(after, now.time, now.id, {**now.ids, axis: ids})


def deaths(now: Any, dies: Tensor, axis: str = "agents") -> Any:
    """The state without those who die; their fields hold nothing from here on, and their places are free.

    Args:
        now: the state; a field of kind `denizen.model.alive` on the axis says who lives.
        dies: mask `[agents]`; the dead among them stay dead.
        axis: of the kind of agents, such as ``"sheep"``.
    """
    if not isinstance(now, State):
        raise InputError(f"deaths: now is {type(now).__name__}, expected the state of the step: deaths(now, dies)")
    if axis not in now._living:
        raise ModelError(f"deaths: {_nobody(now, axis)}")
    who = now._living[axis]
    alive = getattr(now, who)
    if not isinstance(dies, Tensor) or dies.shape != alive.shape:
        got = f"has shape {tuple(dies.shape)}" if isinstance(dies, Tensor) else f"is {type(dies).__name__}"
        raise ModelError(f"deaths: dies {got}, expected {tuple(alive.shape)}")
    return settle(now.replace(**{who: alive * (dies == 0)}), axis)


def _placed(
    alive: Tensor, parents: Tensor, parent_ids: Tensor, ids: Tensor, step: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(who is born, the place of each one's parent, identities, 1 where places ran out)."""
    if ops.variant(alive.device) == "numba":
        rows = ops.place_rows(alive[None], parents[None], parent_ids[None], ids[None], step[None, None])
        parent = rows[0][0]
        return parent >= 0, parent.clamp(min=0), rows[1][0], rows[2][0]
    free = 1 - alive
    rank = free.cumsum(0) - 1
    num_born = parents.sum()
    born = (free != 0) & (rank < num_born)
    parent = _places(parents)[rank.clamp(0, parents.shape[0] - 1)]
    ids = torch.where(born, child_id(parent_ids[parent], step), ids)
    return born, parent, ids, (num_born > free.sum()).to(torch.int8)


def _places(mask: Tensor) -> Tensor:
    """Places of those in a mask, in ascending order: int64 `[agents]`, what follows them is 0."""
    num = mask.shape[0]
    to = torch.where(mask != 0, mask.cumsum(0) - 1, num)
    places = torch.arange(num, device=mask.device)
    return torch.zeros(num + 1, dtype=torch.int64, device=mask.device).scatter(0, to, places)[:num]


def _ids(now: Any, axis: str) -> Tensor:
    return now.id if axis == "agents" else now.ids[axis]


def _nobody(now: Any, axis: str) -> str:
    """What is wrong where nothing says who of a kind of agents is alive."""
    name = type(now).__name__
    valid = f"; {nearest(axis, now._living)}" if now._living else ""
    return f"no field of {name} says who of {axis!r} is alive{valid}; declare: alive: Tensor = dz.model.alive({axis!r})"


def _lives(now: Any, axis: str) -> str | None:
    """The field that says who of a kind is alive."""
    return now._living.get(axis, "alive" if axis == "agents" and "alive" in now.kinds else None)


def _check(now: Any, rng: Any, parents: Any, axis: str, of: str, fields: dict[str, Any]) -> str:
    """The field that says who is alive, where all arguments fit."""
    if not all(isinstance(value, kind) for value, kind in ((now, State), (rng, Rng))):
        given = f"now={type(now).__name__}, rng={type(rng).__name__}"
        raise InputError(f"births: {given}, expected the state and the rng of the step: births(now, rng, parents)")
    who, begetters = _lives(now, axis), _lives(now, of)
    if who is None or begetters is None:
        raise ModelError(f"births: {_nobody(now, axis if who is None else of)}")
    alive = getattr(now, who)
    if alive.dtype.is_floating_point:
        raise ModelError("births: places are not differentiable; run without relax=, or without births")
    if not hasattr(now, "id"):
        raise ModelError("births: the state has no identities yet; call it within a step, not in init")
    if any(kind != "agents" and kind not in getattr(now, "ids", {}) for kind in (axis, of)):
        raise ModelError(
            f"births: {axis if axis != 'agents' else of} have no identities in an environment; births there are of "
            f"agents alone"
        )
    for name in fields:
        if name not in now.kinds or now.kinds[name].axes[:1] != (axis,):
            raise ModelError(f"births: {name!r} is not a field over {axis}; {nearest(name, now.kinds)}")
    wanted = getattr(now, begetters).shape
    if not isinstance(parents, Tensor) or parents.shape != wanted:
        got = f"has shape {tuple(parents.shape)}" if isinstance(parents, Tensor) else f"is {type(parents).__name__}"
        raise ModelError(f"births: parents {got}, expected {tuple(wanted)}")
    return str(who)


def _begun(
    old: Any, axes: tuple[str, ...], own: str, source: Any, born: Tensor, parent: tuple[Tensor, int], name: str
) -> Any:
    """A field with the children's values put in; `parent` is the place of each one's, and how many there are."""
    if isinstance(old, Stage | History):
        begun = _begun(old.value, axes, own, _codes(old, source, name), born, parent, name)
        return Stage(begun, old.levels) if isinstance(old, Stage) else History(begun, old.length)
    if axes[0] == own:
        given = _given(old, source, parent[1], name)
        given = given[parent[0]] if given.dim() else given
        narrow = given.to(old.dtype)
        if not old.dtype.is_floating_point:
            narrow = torch.where(narrow == given, narrow, -1)  # what did not fit is found as a fault: 256 is no 0
        old = torch.where(born.reshape(-1, *[1] * (old.dim() - 1)), narrow, old)
    for place, axis in enumerate(axes):
        if axis == own and place:  # what others hold of the one who had the place
            old = torch.where(born.reshape(-1, *[1] * (old.dim() - 1 - place)), torch.zeros_like(old), old)
    return old


def _codes(old: Stage | History, source: Any, name: str) -> Any:
    """What is given of a stage or a history, as codes."""
    if isinstance(source, str) and isinstance(old, Stage):
        return old.code(source)
    if not isinstance(source, Stage | History):
        return source
    there, here = (one.levels if isinstance(one, Stage) else one.length for one in (source, old))
    if isinstance(source, Stage) != isinstance(old, Stage) or there != here:
        raise ModelError(f"births: {name} of the children is {source!r}, expected the form of {old!r}")
    return source.value


def _given(old: Tensor, source: Any, num: int, name: str) -> Tensor:
    """What is given of a field: a value for each parent, or 0-d for all children."""
    if isinstance(source, Real):  # wide, so that what does not fit is found
        number = int(source) if isinstance(source, Integral) else float(source)
        dtype = torch.int64 if isinstance(number, int) else torch.float32
        source = torch.full((), number, dtype=dtype, device=old.device)  # made there: a number would be copied
    if not isinstance(source, Tensor):
        raise ModelError(
            f"births: {name} of the children is {type(source).__name__} {source!r}, expected a number for all or a "
            f"tensor, one for each parent"
        )
    floats = source.dtype.is_floating_point and not old.dtype.is_floating_point
    wanted = (num, *old.shape[1:])
    if source.shape not in ((), wanted) or floats:
        raise ModelError(
            f"births: {name} of the children is {source.dtype} {tuple(source.shape)}, expected {old.dtype} "
            f"{wanted}, one for each parent, or one number"
        )
    return source
