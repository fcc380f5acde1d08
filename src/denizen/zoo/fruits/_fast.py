"""A step of many fruit catchers as one operation that changes their tensors; for worlds without resets.

The plain form is `Fruits` itself in `dz.rl.Worlds`, step by step and world by world; the operation gives its bits.
"""

from typing import Any

import torch
from torch import Tensor

from denizen.errors import InputError
from denizen.model import Advanced, InPlace, Observed
from denizen.ops import register_mutating, variant
from denizen.rng import stream_number

CHECKS = ("an action outside the action space", "a reward that is not finite", "rng.bernoulli('spawn')")
FLOWS = ("caught", "missed")
WHOLE = (
    "WIDTH",
    "HEIGHT",
    "HALF",
    "SLOTS",
    "LEAST",
    "GAP",
    "STEPS",
    "WIN",
    "FAIL",
    "STOPS",
    "RAW",
    "CLOCK",
    "SPAWN",
    "COLUMN",
)
Results = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def _results(keys: Tensor, whole: list[int]) -> Results:
    worlds, numbers = keys.shape[0], 1 + 3 * whole[WHOLE.index("SLOTS")] + whole[WHOLE.index("CLOCK")]

    def made(dtype: torch.dtype, *shape: int) -> Tensor:
        return keys.new_empty(shape, dtype=dtype)

    return (
        made(torch.int64),
        made(torch.float32, worlds, numbers),
        made(torch.float32, worlds),
        made(torch.bool, worlds),
        made(torch.bool, worlds),
        made(torch.bool, worlds),
        made(torch.float32, worlds),
        made(torch.float32, worlds),
    )


@register_mutating("state", "books")
def fruits_step(
    state: list[Tensor],
    books: list[Tensor],
    clock: Tensor,
    keys: Tensor,
    action: Tensor,
    prob: Tensor,
    whole: list[int],
) -> Results:
    """A step of all worlds.

    Args:
        state: leaves of the worlds, in the order of `Field`; changed.
        books: age int64, waiting bool, faults int64, waited int64, each `[worlds]`; changed.
        clock: int64 `[]`.
        keys: int64 `[worlds, 2]`.
        action: int64 `[worlds]`.
        prob: float32 `[]`: of an optional fruit.
        whole: in the order of `WHOLE`.

    Returns:
        (clock, observation, reward, terminated, truncated, valid, caught, missed), as `Step` tells of them.
    """
    if not all(tensor.is_contiguous() for tensor in (*state, *books)):
        raise InputError("fruits_step: state and books must be contiguous, since they are changed in place")
    out = _results(keys, whole)
    arguments = (state, books, clock, keys.contiguous(), action.contiguous(), prob, out, whole)
    if variant(keys.device) == "triton":
        from denizen.zoo.fruits._cuda import step
    else:
        from denizen.zoo.fruits._cpu import step
    step(*arguments)
    return out


@torch.library.register_fake("denizen::fruits_step")
def _(state, books, clock, keys, action, prob, whole):  # type: ignore[no-untyped-def]
    return _results(keys, whole)


def in_place(env: Any, device: torch.device, max_resets: int) -> InPlace | None:
    """How worlds of an environment take a step in place; None where the operation does not cover all that it does."""
    from denizen.zoo.fruits.model import score_change

    flows = [name for name, kind in env.all_series.items() if kind == "flow"]
    if max_resets or variant(device) == "reference" or env.pays is not score_change or set(flows) != set(FLOWS):
        return None
    whole = [
        env.width,
        env.height,
        env.half,
        env.max_fruits,
        env.min_fruits,
        env.min_interval,
        env.max_steps or 0,
        env.win_score,
        env.fail_score,
        int(env.stop_at_thresholds),
        int(env.raw),
        int(env.clock),
        stream_number("step/spawn@agents"),
        stream_number("step/column@slots"),
    ]

    def advance(leaves: list[Tensor], books: list[Tensor], clock: Tensor, keys: Tensor, action: Tensor) -> Advanced:
        prob = env.spawn_prob.to(torch.float32)
        clock, seen, reward, over, cut, valid, *landed = fruits_step(leaves, books, clock, keys, action, prob, whole)
        observed, flowing = Observed(seen, None, None, None), dict(zip(FLOWS, landed, strict=True))
        return Advanced(
            clock,
            observed,
            reward,
            over,
            cut,
            valid,
            {name: flowing[name] for name in flows},
            observed,
            torch.arange(keys.shape[0], device=keys.device),
        )

    return InPlace(advance, CHECKS)
