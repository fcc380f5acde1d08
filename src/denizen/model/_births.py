"""Births and deaths within a fixed capacity: agents that are not `alive` are free places."""

from typing import Any

import torch
from torch import Tensor

from denizen.errors import ModelError, nearest
from denizen.model._state import own
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


def births(now: Any, rng: Rng, parents: Tensor, **fields: Tensor) -> Any:
    """Give every agent in `parents` one child, placed into a free place.

    The state needs a mask field `alive`. Children take free places in ascending order, parents in ascending order of
    place. A child inherits every field of its parent but those given; its id comes from its parent's id and the step,
    so nobody else's random numbers change. Contacts belong to the place.

    Args:
        now: the state.
        rng: of the step; carries the flag when places run out, which stops the run with a `CapacityError`.
        parents: mask `[agents]`.
        fields: values for the children, `[agents]`, indexed by *parent*.

    Returns:
        The state with the children in it.
    """
    if "alive" not in now.kinds:
        raise ModelError(f"births: {type(now).__name__} has no field alive; declare: alive: Tensor = dz.mask('agents')")
    if now.alive.dtype.is_floating_point:
        raise ModelError("births: places are not differentiable; run without relax=, or without births")
    if not hasattr(now, "id"):
        raise ModelError("births: the state has no identities yet; call it within a step, not in init")
    for name in fields:
        if name not in now.kinds or now.kinds[name].axes[:1] != ("agents",):
            raise ModelError(f"births: {name!r} is not a field over agents; {nearest(name, now.kinds)}")
    if parents.shape != now.alive.shape:
        raise ModelError(f"births: parents has shape {tuple(parents.shape)}, expected {tuple(now.alive.shape)}")
    parents = (parents != 0).to(torch.int8)
    free = 1 - now.alive
    rank = free.cumsum(0) - 1
    num_born = parents.sum()
    earlier = sum(label == _OVERFLOW for label, _ in rng._bad)  # calls in this step: the children of each have own ids
    rng._bad.append((_OVERFLOW, (num_born > free.sum()).to(torch.int8)))
    born = (free != 0) & (rank < num_born)
    parent = torch.argsort(1 - parents, stable=True)[rank.clamp(min=0)]
    values = {}
    for name, kind in now.kinds.items():
        if kind.axes[:1] == ("agents",):
            default = torch.ones_like(now.alive) if name == "alive" else getattr(now, name)
            values[name] = _inherited(getattr(now, name), fields.get(name, default), born, parent, name)
    ids = torch.where(born, child_id(now.id[parent], now.time.step + (earlier << 40)), now.id)
    return own(now.replace(**values), now.time, ids)


def _inherited(old: Any, source: Any, born: Tensor, parent: Tensor, name: str) -> Any:
    """A field with the children's values put in."""
    if not isinstance(old, Tensor):
        given = source if isinstance(source, Tensor) else source.value
        moved = _inherited(old.value, given, born, parent, name)
        return type(old)(moved, old.levels if hasattr(old, "levels") else old.length)
    if source.shape != old.shape or (source.dtype.is_floating_point and not old.dtype.is_floating_point):
        raise ModelError(
            f"births: {name} of the children is {source.dtype} {tuple(source.shape)}, expected {old.dtype} "
            f"{tuple(old.shape)}, one for each parent"
        )
    given = source[parent]
    narrow = given.to(old.dtype)
    if not old.dtype.is_floating_point:
        narrow = torch.where(narrow == given, narrow, -1)  # what did not fit is found as a fault: 256 is no 0
    return torch.where(born.reshape(-1, *[1] * (old.dim() - 1)), narrow, old)
