"""Launches of the kernels of a step: one where every life that ended may begin anew, else two.

One more where each life has a world of its own.
"""

from typing import NamedTuple

import torch
import triton

from denizen.zoo.foraging._cuda import _life_kernel, _step_kernel
from denizen.zoo.foraging._cuda_few import _few_kernel

FEW = 4096  # worlds up to which each has a warp of its own: beyond, a thread for each is faster
STEP_WHOLE = ("MOVE", "LIMIT", "GUIDED", "LIFE", "GROW", "PLACE")
LIFE_WHOLE = (
    "FOOD_LOW",
    "FOOD_HIGH",
    "POISON_LOW",
    "POISON_HIGH",
    "FOODS",
    "POISONS",
    "CELLS",
    "PLACE",
    "DRAWS",
)


class Shape(NamedTuple):
    """(Worlds of a program, warps) of programs that do both, that act, that renew."""

    both: tuple[int, int]
    act: tuple[int, int]
    renew: tuple[int, int]


def shape(n: int) -> Shape:
    """Each thread has a world as far as that goes."""
    if n <= 16_384:
        return Shape((16, 2), (32, 1), (16, 2))
    return Shape((32, 2), (128, 4), (32, 2))


def step(
    state: list[torch.Tensor],
    books: list[torch.Tensor],
    clock: torch.Tensor,
    keys: torch.Tensor,
    action: torch.Tensor,
    near: torch.Tensor,
    out: list[torch.Tensor],
    most: int,
    whole: dict[str, int],
    real: list[float],
) -> None:
    """One step; see `_fast.foraging_step`, for the order of `real` too. `out` is what it returns, to be filled."""
    n = keys.shape[0]
    rows = triton.next_power_of_2(whole["HEIGHT"])
    world = {name: whole[name] for name in ("HEIGHT", "WIDTH", "RADIUS")}
    sizes = {name: whole[name] for name in STEP_WHOLE}
    over = torch.empty(n, dtype=torch.bool, device=keys.device)
    everybody, shapes = most >= n, shape(n)
    launches = [(shapes.both, True, True)] if everybody else [(shapes.act, True, False), (shapes.renew, False, True)]
    group = shapes.act[0]
    if n <= FEW:
        _few_kernel[(n,)](
            *state,
            *books,
            clock,
            keys,
            action,
            near,
            *out,
            over,
            *real,
            **world,
            **sizes,
            ALL=everybody,
            ROWS=rows,
            num_warps=1,
            enable_fp_fusion=False,
        )
        launches, group = launches[1:], 1
    groups = triton.cdiv(n, group)
    counts = over.view(torch.int8) if group == 1 else torch.empty(groups, dtype=torch.int32, device=keys.device)
    for (block, warps), act, renew in launches:
        _step_kernel[(triton.cdiv(n, block),)](
            *state,
            *books,
            clock,
            keys,
            action,
            near,
            *out,
            over,
            counts,
            n,
            most,
            groups,
            *real,
            **world,
            **sizes,
            ACT=act,
            RENEW=renew,
            ALL=everybody,
            GROUP=group,
            GROUPS=triton.next_power_of_2(groups),
            ROWS=rows,
            CHUNK=max(4, block // 16),
            BLOCK=block,
            num_warps=warps,
            enable_fp_fusion=False,
        )
    if whole["LIFE"]:
        _life_kernel[(min(most, n),)](
            *state,
            books[0],
            clock,
            keys,
            out[1],
            out[2],
            out[12],
            over,
            real[3],
            *real[9:],
            **world,
            **{name: whole[name] for name in LIFE_WHOLE},
            BLOCK=max(32, triton.next_power_of_2(whole["DRAWS"])),
            ROWS=rows,
            num_warps=4,
            enable_fp_fusion=False,
        )
