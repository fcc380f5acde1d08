"""Steps to a neighbouring cell drawn at random, of Moore's neighbourhood, on the CPU.

The reference is `Grid.random_neighbour` in plain torch, which a GPU runs fused. On the CPU its divisions of whole
numbers are passes of their own over everybody, and several kernels repeat them.
"""

import torch
from torch import Tensor

from denizen.ops._draws import _ids
from denizen.ops._library import fold_worlds, register, unfold_worlds, vmap_rule


@register
def step_rows(
    place: Tensor,
    who: Tensor | None,
    shape: list[int],
    radius: int,
    torus: bool,
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    stream: int,
) -> Tensor:
    """Move agents to one of the cells around theirs; see `Grid.random_neighbour`.

    Args:
        place: int64 `[W, N]`, where each is; who is outside the grid stays.
        who: int8 `[W, N]`, not 0 for those who move; or None.
        shape: of the grid.
        radius: of the neighbourhood; on a torus no box is longer than the grid.
        torus: whether the grid is one.
        ids: int64 `[1 or W, N]`, or empty for 0 … N - 1.
        key: int64 `[W, 2]`.
        step: int64 `[]`.
        stream: of the draws.

    Returns:
        int64 `[W, N]`.
    """
    from denizen.ops import _cpu_stepping

    return _cpu_stepping.step_aside(place, who, shape, radius, torus, ids, key, step, stream)


@torch.library.register_fake("denizen::step_rows")
def _(place, who, shape, radius, torus, ids, key, step, stream):  # type: ignore[no-untyped-def]
    return place.new_empty(place.shape)


@vmap_rule("step_rows")
def _(info, in_dims, place, who, shape, radius, torus, ids, key, step, stream):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    place, who = fold_worlds(place, in_dims[0], batch), fold_worlds(who, in_dims[1], batch)
    key = fold_worlds(key, in_dims[6], batch)
    ids = _ids(ids, in_dims[5], batch, key.shape[0])
    return unfold_worlds(step_rows(place, who, shape, radius, torus, ids, key, step, stream), batch), 0
