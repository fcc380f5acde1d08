"""From a hazard or a probability to a 32-bit threshold, by arithmetic that has the same bits everywhere.

An event happens where a 32-bit random word lies below the threshold. Only float32 additions, multiplications and a
table of exact powers of two are used, in a fixed order, since `exp` and `expm1` differ in the last bit between
eager and compiled code, between CPU and GPU. The same sequence stands in `_cpu.py` for numba.
"""

import torch
from torch import Tensor

LOG2E = 1.4426950408889634
LN2_HIGH = 0.693359375  # 10 bits: n * LN2_HIGH is exact for the n that occur
LN2_LOW = -2.12194440054690583e-4
COEFFICIENTS = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2)
MAX_EXPONENT = 40.0  # exp(-40) is below 2**-32: the event is certain
TWO32 = 4294967296.0


def hazard_threshold(hazard: Tensor) -> tuple[Tensor, Tensor]:
    """Threshold of the event 1 - exp(-hazard), and where the hazard is unusable.

    Args:
        hazard: float32, any shape, integrated over the step; must be finite or +inf, and not negative.

    Returns:
        (int64 threshold in [0, 2**32], bool mask of negative or NaN hazards, whose threshold is 0).
    """
    bad = ~(hazard >= 0)
    x = torch.where(bad, torch.zeros_like(hazard), hazard).clamp(max=MAX_EXPONENT)
    n = torch.floor(x * LOG2E + 0.5)
    y = n * LN2_HIGH - x
    y = y + n * LN2_LOW
    q = torch.full_like(y, COEFFICIENTS[0])
    for c in COEFFICIENTS[1:]:
        q = q * y + c
    q = q * y * y + y  # expm1(-r) of the reduced argument
    powers = torch.tensor([2.0**-k for k in range(64)], dtype=torch.float32, device=hazard.device)
    s = powers[n.to(torch.int64)]
    p = (1.0 - s) - s * q
    return (p * TWO32).to(torch.int64), bad


def prob_threshold(prob: Tensor) -> tuple[Tensor, Tensor]:
    """Threshold of a probability, and where it lies outside [0, 1] or is NaN (threshold 0 there).

    Args:
        prob: float32, any shape.
    """
    bad = ~((prob >= 0) & (prob <= 1))
    return (torch.where(bad, torch.zeros_like(prob), prob) * TWO32).to(torch.int64), bad
