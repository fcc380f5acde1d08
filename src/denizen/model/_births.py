"""Births and deaths within a fixed capacity: agents that are not `alive` are free places."""

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.model._state import State, own
from denizen.rng import Rng

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


def births(now: State, rng: Rng, parents: Tensor, **fields: Tensor) -> State:
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
    free = 1 - now.alive
    rank = free.cumsum(0) - 1
    num_born = parents.sum()
    rng._bad.append(("births: more children than free places; raise the capacity", (num_born > free.sum()).to(torch.int8)))
    born = (free != 0) & (rank < num_born)
    parent = torch.argsort(1 - parents, stable=True)[rank.clamp(min=0)]
    values = {}
    for name in now.kinds:
        old = getattr(now, name)
        source = fields.get(name, torch.ones_like(now.alive) if name == "alive" else old)
        if isinstance(old, Tensor):
            values[name] = torch.where(born.reshape(-1, *[1] * (old.dim() - 1)), source[parent].to(old.dtype), old)
        else:
            given = source if isinstance(source, Tensor) else source.value
            moved = torch.where(born, given[parent].to(old.value.dtype), old.value)
            values[name] = type(old)(moved, old.levels if hasattr(old, "levels") else old.length)
    state = now.replace(**values)
    return own(state, now.time, torch.where(born, child_id(now.id[parent], now.time.step), now.id))
