"""Exponential times by numba."""

import pytest
import torch

from denizen.ops._draws import exponential


def test_exponential_times_of_all_words() -> None:
    """Those at both ends and every 65,536th of the others have the float32 of torch's logarithm in float64."""
    waits = pytest.importorskip("denizen.ops._cpu_draws", exc_type=ImportError)._waits
    low = torch.arange(4096)
    words = torch.cat([low, 2**32 - 1 - low, 2**31 + low, torch.arange(0, 2**32, 2**16) + 12345])
    made = torch.empty(len(words))
    waits(words.numpy(), len(words), torch.empty(len(words), dtype=torch.float64).numpy(), made.numpy())
    assert torch.equal(made, exponential(words, torch.ones(())))
