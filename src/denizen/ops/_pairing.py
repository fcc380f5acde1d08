"""Two kinds of agents in pairs by lot within groups, such as wolves and sheep of a cell.

`pair_kinds` is written for one world, in plain torch, on `couples`; a GPU runs it, fused and captured. On the CPU that
is a dozen passes over everybody and a random word for each, though most groups have one of a kind or none; so
`pair_rows` does the same there in one loop, which draws for those alone who have rivals.
"""

import torch
from torch import Tensor

from denizen.ops._couples import couples
from denizen.ops._draws import _ids, draw_words
from denizen.ops._library import fold_worlds, register, unfold_worlds, variant, vmap_rule


def pair_kinds(
    first: Tensor,
    second: Tensor,
    first_ids: Tensor,
    second_ids: Tensor,
    num_groups: int,
    key: Tensor,
    step: Tensor,
    first_stream: int,
    second_stream: int,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Pair two kinds of agents of one world; see `denizen.space.pairing`.

    Args:
        first: int64 `[N]`, the group of each, -1 for who takes no part.
        second: int64 `[M]`, the same of the other kind.
        first_ids: int64 `[1, N]`, or empty for 0 … N - 1.
        second_ids: int64 `[1, M]`, or empty for 0 … M - 1.
        num_groups: number of groups.
        key: int64 `[1, 2]`.
        step: int64 `[]`.
        first_stream: of the words of the first kind.
        second_stream: of those of the second.

    Returns:
        int64 `[N]` and `[M]`, the place of each one's partner, -1 for nobody; int8 `[]` for each kind: whether a group
        was none of them. Who was in one takes no part.
    """
    if variant(key.device) == "numba":
        rows = pair_rows(
            first[None], second[None], first_ids, second_ids, num_groups, key, step, first_stream, second_stream
        )
        return rows[0][0], rows[1][0], list(rows[2][0].unbind())
    num, pools, words, names, beyond = first.shape[0], [], [], [], []
    for side, (group, ids, stream) in enumerate(
        ((first, first_ids, first_stream), (second, second_ids, second_stream))
    ):
        wrong = (group < -1) | (group >= num_groups)
        beyond.append(wrong.any().to(torch.int8))
        group = torch.where(wrong, -1, group)
        pools.append(torch.where(group >= 0, 2 * group + side, -1))
        words.append(draw_words(ids, group.shape[0], key, step, stream)[0])
        names.append(ids[0] if ids.numel() else torch.arange(group.shape[0], device=group.device))
    pool = torch.cat(pools).to(torch.int32)[None]
    partner = couples(pool, torch.cat(words)[None], torch.cat(names)[None], 2 * num_groups, True)[0].to(torch.int64)
    return torch.where(partner[:num] >= 0, partner[:num] - num, -1), partner[num:], beyond


@register
def pair_rows(
    first: Tensor,
    second: Tensor,
    first_ids: Tensor,
    second_ids: Tensor,
    num_groups: int,
    key: Tensor,
    step: Tensor,
    first_stream: int,
    second_stream: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """`pair_kinds` of all worlds: `[W, …]` throughout, identities `[1 or W, …]`."""
    from denizen.ops import _cpu_pairing

    return _cpu_pairing.pair(first, second, first_ids, second_ids, num_groups, key, step, first_stream, second_stream)


@torch.library.register_fake("denizen::pair_rows")
def _(first, second, first_ids, second_ids, num_groups, key, step, first_stream, second_stream):  # type: ignore[no-untyped-def]
    bad = first.new_empty(first.shape[0], 2, dtype=torch.int8)
    return first.new_empty(first.shape), second.new_empty(second.shape), bad


@vmap_rule("pair_rows")
def _(info, in_dims, first, second, first_ids, second_ids, num_groups, key, step, first_stream, second_stream):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    first, second = fold_worlds(first, in_dims[0], batch), fold_worlds(second, in_dims[1], batch)
    key = fold_worlds(key, in_dims[5], batch)
    names = [_ids(ids, in_dims[k], batch, key.shape[0]) for k, ids in ((2, first_ids), (3, second_ids))]
    out = pair_rows(first, second, *names, num_groups, key, step, first_stream, second_stream)
    return tuple(unfold_worlds(one, batch) for one in out), (0, 0, 0)
