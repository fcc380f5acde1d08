"""Lots against a sort: ties, priorities of every kind, and any layout of agents."""

import pytest
import torch

from denizen.disease._lots import first, first_shares

PRIORITIES = {
    "none": lambda n: None,
    "groups": lambda n: torch.arange(n) % 3,
    "signed": lambda n: (torch.arange(n) % 5 - 2).to(torch.int8),
    "scores": lambda n: torch.linspace(-2.0, 1.0, n)[torch.arange(n) * 7 % n].round(decimals=1),
    "zeros": lambda n: torch.where(torch.arange(n) % 2 == 0, 0.0, -0.0),
    "extreme": lambda n: torch.tensor([-3e38, 3e38, 1e-40, -1e-40, 0.0])[torch.arange(n) % 5],
}


@pytest.mark.parametrize("kind", PRIORITIES)
@pytest.mark.parametrize("some_ahead", [False, True])
def test_the_first_are_those_of_a_sort(kind, some_ahead):
    n, draw = 60, torch.Generator().manual_seed(3)
    priority = PRIORITIES[kind](n)
    lot = torch.randint(0, 12, (n,), generator=draw)  # many ties, five of each on average
    ids = torch.randperm(n, generator=draw) * 1_000_003
    able = (torch.rand(n, generator=draw) < 0.8).to(torch.int8)
    ahead = (torch.rand(n, generator=draw) < 0.2).to(torch.int8) if some_ahead else None

    def place(k: int) -> tuple:
        high = 0.0 if priority is None else -float(priority[k]) + 0.0
        return (0 if ahead is None else -int(ahead[k]), high, int(lot[k]), int(ids[k]))

    order = sorted((k for k in range(n) if able[k]), key=place)
    for amount in (0, 1, 7, 20, int(able.sum()), n):
        got = first(able, priority, ahead, lot, ids, torch.tensor(amount), max(amount, 1) + 3)
        assert sorted(got.nonzero().flatten().tolist()) == sorted(order[:amount])
        assert got.dtype == torch.int8
    moved = torch.randperm(n, generator=draw)
    parts = [None if part is None else part[moved] for part in (able, priority, ahead, lot, ids)]
    whole = first(able, priority, ahead, lot, ids, torch.tensor(9), 9)
    assert torch.equal(first(*parts, torch.tensor(9), 9), whole[moved])


def test_shares_are_handed_out_in_turn():
    able, lot = torch.tensor([0.5, 1.0, 0.25, 1.0]), torch.tensor([3, 1, 2, 0])
    assert first_shares(able, None, lot, torch.tensor(2)).tolist() == [0.0, 1.0, 0.0, 1.0]
    assert first_shares(able, torch.tensor([1, 0, 1, 0]), lot, torch.tensor(1)).tolist() == [0.5, 0.0, 0.25, 0.25]
