"""A step of many foraging worlds as one operation that changes their tensors; for devices with Triton.

The plain form is `Foraging` itself in `dz.rl.Worlds`, step by step and world by world; the operation gives its bits.
"""

from typing import Any

import torch
from torch import Tensor

from denizen.errors import InputError
from denizen.model import Advanced, InPlace, Observed
from denizen.ops import register_mutating, variant
from denizen.rng import stream_number
from denizen.zoo.foraging.grid import WORD, draws_for
from denizen.zoo.foraging.modes import Pay

MOST_SIDE, MOST_DRAWS = 1024, 4096  # programs have the rows of a torus, and the draws of a fresh world, in registers
CHECKS = ("an action outside the action space", "a reward that is not finite")
FLOWS = ("food", "poison", "deaths")
WHOLE = (
    "HEIGHT",
    "WIDTH",
    "RADIUS",
    "MOVE",
    "LIMIT",
    "GUIDED",
    "LIFE",
    "FOOD_LOW",
    "FOOD_HIGH",
    "POISON_LOW",
    "POISON_HIGH",
    "DRAWS",
    "GROW",
    "PLACE",
    "FOODS",
    "POISONS",
    "CELLS",
)
REAL = (
    "move_cost",
    "food_energy",
    "poison_energy",
    "start_energy",
    "pay_food",
    "pay_poison",
    "pay_step",
    "pay_death",
    "guidance",
    "food_middle",
    "food_scale",
    "poison_middle",
    "poison_scale",
)
Results = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def _results(keys: Tensor, radius: int, most: int) -> Results:
    worlds, rows, size = keys.shape[0], min(most, keys.shape[0]), 2 * radius + 1

    def made(dtype: torch.dtype, *shape: int) -> Tensor:
        return keys.new_empty(shape, dtype=dtype)

    return (
        made(torch.int64),
        made(torch.int16, worlds, 2, size),
        made(torch.float32, worlds, 2),
        made(torch.float32, worlds),
        made(torch.bool, worlds),
        made(torch.bool, worlds),
        made(torch.bool, worlds),
        made(torch.float32, worlds),
        made(torch.float32, worlds),
        made(torch.float32, worlds),
        made(torch.int16, rows, 2, size),
        made(torch.float32, rows, 2),
        made(torch.int64, rows),
    )


@register_mutating("state", "books")
def foraging_step(
    state: list[Tensor],
    books: list[Tensor],
    clock: Tensor,
    keys: Tensor,
    action: Tensor,
    near: Tensor,
    max_resets: int,
    whole: list[int],
    real: list[float],
) -> Results:
    """A step of all worlds, and the resets after it.

    Args:
        state: leaves of the worlds, in the order of `Plot`; changed.
        books: age int64, waiting bool, faults int64, waited int64, each `[worlds]`; changed.
        clock: int64 `[]`.
        keys: int64 `[worlds, 2]`.
        action: int64 `[worlds]`.
        near: float32 `[size, size]`: what guidance takes food in each cell of the view for.
        max_resets: lives that begin anew at most.
        whole: in the order of `WHOLE`.
        real: in the order of `REAL`.

    Returns:
        (clock, observation, privileged, reward, terminated, truncated, valid, food, poison, deaths, last observations,
        what goes with them, their worlds), as `Step` tells of them.
    """
    from denizen.zoo.foraging import _launch

    if not all(tensor.is_contiguous() for tensor in (*state, *books)):
        raise InputError("foraging_step: state and books must be contiguous, since they are changed in place")
    sizes = dict(zip(WHOLE, whole, strict=True))
    out = _results(keys, sizes["RADIUS"], max_resets)
    _launch.step(state, books, clock, keys.contiguous(), action.contiguous(), near, list(out), max_resets, sizes, real)
    return out


@torch.library.register_fake("denizen::foraging_step")
def _(state, books, clock, keys, action, near, max_resets, whole, real):  # type: ignore[no-untyped-def]
    return _results(keys, whole[WHOLE.index("RADIUS")], max_resets)


def in_place(env: Any, device: torch.device, max_resets: int) -> InPlace | None:
    """How worlds of an environment take a step in place; None where the operation does not cover all that it does."""
    flows = [name for name, kind in env.all_series.items() if kind == "flow"]
    draws = draws_for(env.most_items, env.height * env.width)
    if (
        variant(device) != "triton"
        or not max_resets
        or type(env.mode.pay) is not Pay
        or env.width % WORD
        or set(flows) != set(FLOWS)
        or max(env.height, env.width) > MOST_SIDE
        or (env.grid_lifetime == "life" and draws >= min(MOST_DRAWS, env.height * env.width // 2))
    ):
        return None
    pay, moving = env.mode.pay, 0.0 if env.mode.frozen else 1.0
    scales = env._scales
    whole = [
        env.height,
        env.width,
        env.view_radius,
        env.max_move,
        env.steps or 0,
        int(pay.guidance is not None),
        int(env.grid_lifetime == "life"),
        *env.food_range,
        *env.poison_range,
        draws,
        *[
            stream_number(path)
            for path in (
                "step/grow@agents",
                "init/place@agents",
                "init/foods@agents",
                "init/poisons@agents",
                "init/cells@draws",
            )
        ],
    ]
    real = [
        moving * env.move_cost,
        moving * env.food_energy,
        moving * env.poison_energy,
        env.start_energy,
        pay.food,
        pay.poison,
        pay.step,
        pay.death,
        pay.guidance or 0.0,
        *scales[0],
        *scales[1],
    ]
    real = [float(number) for number in real]
    near = env._nearness(device)

    def advance(leaves: list[Tensor], books: list[Tensor], clock: Tensor, keys: Tensor, action: Tensor) -> Advanced:
        results = foraging_step(leaves, books, clock, keys, action, near, max_resets, whole, real)
        clock, observed, known, reward, terminated, truncated, valid, *eaten, final, final_known, index = results
        flowing = dict(zip(FLOWS, eaten, strict=True))
        return Advanced(
            clock,
            Observed(observed, None, known, None),
            reward,
            terminated,
            truncated,
            valid,
            {name: flowing[name] for name in flows},
            Observed(final, None, final_known, None),
            index,
        )

    return InPlace(advance, CHECKS)
