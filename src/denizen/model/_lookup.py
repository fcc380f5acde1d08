"""Table look-ups by a code per agent."""

import torch
from torch import Tensor

from denizen import ops
from denizen.errors import ModelError

_SELECTED = 16  # entries, at most, of a table that is differentiated by choosing


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
    if table.requires_grad and torch.is_grad_enabled() and codes.is_cuda and table.shape[0] <= _SELECTED:
        return selected(table.to(torch.float32), codes)
    return ops.lookup(table.to(torch.float32)[None, None], codes[None], None)[0]


def selected(table: Tensor, codes: Tensor) -> Tensor:
    """`lookup` by choosing between the entries, whose gradients are then plain sums over agents.

    Scattered additions would come in any order on CUDA, with other last bits in every run, and millions of agents
    would queue for a few addresses.
    """
    out = table[0].expand(codes.shape)
    for code in range(1, table.shape[0]):
        out = torch.where(codes == code, table[code], out)
    return out
