"""Rows that are copied over others in place, as particles of a filter that go on from others are.

Which rows move is known on the device alone. So that the host need not ask how many, the GPU's kernel looks at every
row and copies those that move.
"""

import torch
from torch import Tensor

from denizen.ops._library import variant

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an entry: its bits are copied


def move_rows(buffer: Tensor, rows: Tensor) -> None:
    """Copy row `rows[k]` over row k, in place; where `rows[k]` is k nothing is read or written.

    Args:
        buffer: `[W, …]`, any dtype.
        rows: int64 `[W]`. A row that is copied stays itself: ``rows[rows[k]] == rows[k]``.
    """
    if not buffer.numel():
        return
    which, flat = variant(buffer.device), _flat(buffer)
    if which == "reference" or flat is None:
        buffer.copy_(buffer.index_select(0, rows))
    elif which == "triton":
        from denizen.ops import _cuda_moves

        _cuda_moves.move_rows(flat, rows)
    else:
        moved = (rows != torch.arange(len(rows))).nonzero()[:, 0]
        if len(moved):
            buffer.index_copy_(0, moved, buffer.index_select(0, rows[moved]))


def _flat(buffer: Tensor) -> Tensor | None:
    """A view `[W, entries]` of whole numbers as wide as the entries; None where their places follow no two strides."""
    word = _WORDS.get(buffer.element_size())
    if word is None:
        return None
    entries = buffer.movedim(0, -1)
    if not (buffer.is_contiguous() or entries.is_contiguous()):
        return None
    if buffer.is_contiguous():
        return buffer.view(word).view(len(buffer), -1)
    return entries.view(word).view(-1, len(buffer)).t()
