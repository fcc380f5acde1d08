"""Places and identities for the newborn, on the CPU.

The reference is `denizen.model.births` in plain torch, which a GPU runs fused: two running sums, a scatter and the
mixing of all identities. On the CPU one loop does it, up to the last child.
"""

import torch
from torch import Tensor

from denizen.ops._library import fold_worlds, register, unfold_worlds, vmap_rule


@register
def place_rows(
    alive: Tensor, parents: Tensor, parent_ids: Tensor, ids: Tensor, step: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Give each parent one free place for its child, both in ascending order; see `denizen.model.births`.

    Args:
        alive: int8 `[W, N]`, 0 for free places.
        parents: int8 `[W, M]`, not 0 for who has a child.
        parent_ids: int64 `[1 or W, M]`.
        ids: int64 `[1 or W, N]`, of those who are there.
        step: int64 `[1 or W, 1]`, as `child_id` takes it; worlds of an environment are of different ages.

    Returns:
        int64 `[W, N]`, the place of the parent of who is born there, -1 for nobody; int64 `[W, N]`, identities with the
        children's; int8 `[W]`, whether there were more children than places.
    """
    from denizen.ops import _cpu_placing

    return _cpu_placing.place(alive, parents, parent_ids, ids, step)


@torch.library.register_fake("denizen::place_rows")
def _(alive, parents, parent_ids, ids, step):  # type: ignore[no-untyped-def]
    made = [alive.new_empty(alive.shape, dtype=torch.int64) for _ in range(2)]
    return *made, alive.new_empty(alive.shape[0])


@vmap_rule("place_rows")
def _(info, in_dims, alive, parents, parent_ids, ids, step):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    given = [
        fold_worlds(one, dim, batch) for one, dim in zip((alive, parents, parent_ids, ids, step), in_dims, strict=True)
    ]
    return tuple(unfold_worlds(one, batch) for one in place_rows(*given)), (0, 0, 0)
