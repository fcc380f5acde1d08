"""Births and deaths within a fixed capacity: agents that are not `alive` are free places."""

from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from denizen.errors import InputError, ModelError, nearest
from denizen.model._history import History
from denizen.model._stage import Stage
from denizen.model._state import State, own
from denizen.rng import Rng

_OVERFLOW = "births: more children than free places; raise the capacity"
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


def births(now: Any, rng: Rng, parents: Tensor, **fields: Any) -> Any:
    """Give every living agent in `parents` one child, placed into a free place.

    The state needs a mask field `alive`. Children take free places in ascending order, parents in ascending order of
    place. A child starts with nothing, whatever lies in its place and whatever its parent has: masks, counts and reals
    are 0, stages in their first level, histories at never. What differs is given, what it has of its parent as well:
    ``births(now, rng, mothers, age=0, genes=now.genes, stage="immune")``. Its id comes from its parent's id and the
    step, so nobody else's random numbers change. Contacts belong to the place.

    Args:
        now: the state.
        rng: of the step; carries the flag when places run out, which stops the run with a `CapacityError`.
        parents: mask `[agents]`; the dead and free places among them have no children.
        fields: values for the children: `[agents]`, indexed by *parent*, so that ``genes=now.genes`` is the parent's;
            or one for all of them: a number, or the name of a level.

    Returns:
        The state with the children in it.
    """
    _check(now, rng, parents, fields)
    parents = (parents != 0).to(torch.int8) * now.alive
    free = 1 - now.alive
    rank = free.cumsum(0) - 1
    num_born = parents.sum()
    earlier = sum(label == _OVERFLOW for label, _ in rng._bad)  # calls in this step: the children of each have own ids
    rng._bad.append((_OVERFLOW, (num_born > free.sum()).to(torch.int8)))
    born = (free != 0) & (rank < num_born)
    parent = torch.argsort(1 - parents, stable=True)[rank.clamp(min=0)]
    values = {
        name: _begun(getattr(now, name), kind.axes, {"alive": 1, **fields}.get(name, 0), born, parent, name)
        for name, kind in now.kinds.items()
        if "agents" in kind.axes
    }
    ids = torch.where(born, child_id(now.id[parent], now.time.step + (earlier << 40)), now.id)
    return own(now.replace(**values), now.time, ids)


def _check(now: Any, rng: Any, parents: Any, fields: dict[str, Any]) -> None:
    if not all(isinstance(value, kind) for value, kind in ((now, State), (rng, Rng))):
        given = f"now={type(now).__name__}, rng={type(rng).__name__}"
        raise InputError(f"births: {given}, expected the state and the rng of the step: births(now, rng, parents)")
    if "alive" not in now.kinds:
        raise ModelError(f"births: {type(now).__name__} has no field alive; declare: alive: Tensor = dz.mask('agents')")
    if now.alive.dtype.is_floating_point:
        raise ModelError("births: places are not differentiable; run without relax=, or without births")
    if not hasattr(now, "id"):
        raise ModelError("births: the state has no identities yet; call it within a step, not in init")
    for name in fields:
        if name not in now.kinds or now.kinds[name].axes[:1] != ("agents",):
            raise ModelError(f"births: {name!r} is not a field over agents; {nearest(name, now.kinds)}")
    if not isinstance(parents, Tensor) or parents.shape != now.alive.shape:
        got = f"has shape {tuple(parents.shape)}" if isinstance(parents, Tensor) else f"is {type(parents).__name__}"
        raise ModelError(f"births: parents {got}, expected {tuple(now.alive.shape)}")


def _begun(old: Any, axes: tuple[str, ...], source: Any, born: Tensor, parent: Tensor, name: str) -> Any:
    """A field with the children's values put in."""
    if isinstance(old, Stage | History):
        begun = _begun(old.value, axes, _codes(old, source, name), born, parent, name)
        return Stage(begun, old.levels) if isinstance(old, Stage) else History(begun, old.length)
    if axes[0] == "agents":
        given = _given(old, source, name)
        given = given[parent] if given.dim() else given
        narrow = given.to(old.dtype)
        if not old.dtype.is_floating_point:
            narrow = torch.where(narrow == given, narrow, -1)  # what did not fit is found as a fault: 256 is no 0
        old = torch.where(born.reshape(-1, *[1] * (old.dim() - 1)), narrow, old)
    for place, axis in enumerate(axes):
        if axis == "agents" and place:  # what others hold of the one who had the place
            old = torch.where(born.reshape(-1, *[1] * (old.dim() - 1 - place)), torch.zeros_like(old), old)
    return old


def _codes(old: Stage | History, source: Any, name: str) -> Any:
    """What is given of a stage or a history, as codes."""
    if isinstance(source, str) and isinstance(old, Stage):
        return old.code(source)
    if not isinstance(source, Stage | History):
        return source
    there, here = (one.levels if isinstance(one, Stage) else one.length for one in (source, old))
    if type(source) is not type(old) or there != here:
        raise ModelError(f"births: {name} of the children is {source!r}, expected the form of {old!r}")
    return source.value


def _given(old: Tensor, source: Any, name: str) -> Tensor:
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
    if source.shape not in ((), old.shape) or floats:
        raise ModelError(
            f"births: {name} of the children is {source.dtype} {tuple(source.shape)}, expected {old.dtype} "
            f"{tuple(old.shape)}, one for each parent, or one number"
        )
    return source
