"""Arrivals by which causes are drawn."""

import torch

from denizen.ops import _attribution


def test_arrivals_are_exponential_to_the_last_digits() -> None:
    first = torch.tensor([0, 1, 2**31, 2**32 - 1, 2**31 - 1, 123456789])
    second = torch.tensor([0, 2**32 - 1, 0, 2**32 - 1, 5, 987654321])
    odd = 2 * (first * 2**20 + second // 2**12) + 1
    exact = [
        -torch.log(torch.tensor(int(k), dtype=torch.float64)) + 53 * torch.log(torch.tensor(2.0).double()) for k in odd
    ]
    drawn = _attribution.arrival(first, second, torch.ones(6, dtype=torch.float64))
    assert torch.allclose(drawn[[0, 1, 2, 4, 5]], torch.stack(exact)[[0, 1, 2, 4, 5]], rtol=1e-11)
    assert abs(float(drawn[3]) * 2**53 - 1) < 1e-9
