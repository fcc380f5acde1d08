"""What comes later: how many steps, and a count field that keeps what each agent awaits.

A code of the field is 2 * (step in which it comes + 1) + outcome, and 0 where nothing is awaited.
"""

import math
from typing import Any

import torch
from torch import Tensor

from denizen.disease._waning import Waning
from denizen.rng import Rng


def steps(delay: float | Waning, rng: Rng, now: Any, what: str) -> Any:
    """Steps of a delay: a number, rounded up; of a `Waning` int64 `[agents]`, sums of geometric times.

    Args:
        delay: in the model's unit of time.
        rng: of the step.
        now: the state, for its clock.
        what: begins messages.

    Raises:
        InputError: a random delay is shorter than its phases; where its mean is a parameter, at the end of the chunk.
    """
    if not isinstance(delay, Waning):
        return math.ceil(delay / now.time.dt - 1e-9)
    leave = delay.leave(now)
    if isinstance(leave, Tensor):
        rng._require(f"{what}: its mean is shorter than its phases, each a step at least; lower dt", leave <= 1 + 1e-6)
        rate: Any = -torch.log1p(-leave.to(torch.float64).clamp(max=1 - 1e-12))
    else:
        delay.fits(now.time.dt, what)
        rate = -math.log1p(-min(leave, 1 - 1e-12))
    total: Any = 0
    for phase in range(delay.phases):
        total = total + 1 + (rng.exponential(f"delay {phase}").to(torch.float64) / rate).floor().to(torch.int64)
    return total


def living(now: Any, like: Tensor) -> Tensor:
    """Mask int8 `[agents]` of those who are alive, as the state declares it; everybody where it says nothing."""
    who = now._living.get("agents", "alive" if "alive" in now.kinds else None)
    return torch.ones_like(like, dtype=torch.int8) if who is None else getattr(now, who)


def due(now: Any, pending: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bools `[agents]`: who is told in this step, whose outcome then is 1, and who goes on waiting."""
    told = (pending != 0) & (pending // 2 <= now.time.step + 1)
    return told, told & (pending % 2 == 1), (pending != 0) & ~told


def put(now: Any, pending: Tensor, whose: Tensor, outcome: Tensor, wait: Any) -> Tensor:
    """The field with what those of a mask await from now on."""
    code = 2 * (now.time.step + 1 + wait) + outcome
    return torch.where(whose != 0, code, pending).to(pending.dtype)
