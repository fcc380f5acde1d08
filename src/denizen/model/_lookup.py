"""Table look-ups by a code per agent."""

import torch
from torch import Tensor

from denizen import ops
from denizen.errors import ModelError


def lookup(table: Tensor, codes: Tensor) -> Tensor:
    """One value per agent from a small table, differentiable in the table.

    Args:
        table: float32 `[codes]`, for example one susceptibility per age group.
        codes: int8, uint8 or int16 `[agents]`, each a position in the table.

    Returns:
        float32 `[agents]`.
    """
    if table.dim() != 1 or codes.dim() != 1 or codes.dtype.is_floating_point:
        raise ModelError(
            f"lookup: table {tuple(table.shape)} and codes {codes.dtype} {tuple(codes.shape)}; expected (codes,) and "
            f"integers (agents,)"
        )
    return ops.lookup(table.to(torch.float32)[None, None], codes[None], None)[0]
