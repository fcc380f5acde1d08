"""Rows copied over others in place: the same bits by every variant, and nothing touched but the rows that move."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from denizen import ops

KINDS = [torch.bool, torch.int8, torch.int16, torch.float32, torch.int64, torch.float64]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(5, 1), (7, 4099), (131, 3, 33), (6,), (4, 0)])
@pytest.mark.parametrize("innermost", [False, True])
def test_moved_rows(tools: Any, dtype: torch.dtype, shape: tuple[int, ...], innermost: bool) -> None:
    values = torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)
    rows = torch.arange(shape[0])
    rows[1::2] = rows[::2][torch.randint(0, (shape[0] + 1) // 2, (shape[0] // 2,))]  # even rows stay

    def moved(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        buffer = values.clone()
        if innermost:
            buffer = buffer.movedim(0, -1).contiguous().movedim(-1, 0)
        ops.move_rows(buffer, rows)
        return buffer.contiguous()

    assert torch.equal(tools.both(moved, values, rows), values[rows])


def test_moved_rows_of_other_layouts(tools: Any) -> None:
    """Every second column of a buffer, and entries of 16 bytes."""
    rows = torch.tensor([0, 0, 2, 2])
    for buffer in (torch.randn(4, 10)[:, ::2], torch.randn(4, 3, dtype=torch.complex128)):
        expected = buffer[rows]
        ops.move_rows(buffer, rows)
        assert torch.equal(buffer, expected)


class Written(TorchDispatchMode):
    """Counts the entries that operations on a buffer's rows gather."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.index_select.default, torch.ops.aten.clone.default, torch.ops.aten.copy_.default):
            self.entries += found.numel()
        return found


def test_a_cpu_copies_the_rows_that_move_alone() -> None:
    buffer, rows = torch.randn(100, 50), torch.arange(100)
    rows[[3, 70, 71]] = torch.tensor([4, 4, 9])
    with Written() as written:
        ops.move_rows(buffer, rows)
    assert written.entries == 3 * 50
    with Written() as written:
        ops.move_rows(buffer, torch.arange(100))
    assert written.entries == 0
