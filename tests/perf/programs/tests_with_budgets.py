"""Tests of a project that installs denizen, with the budget of its pytest plugin; some are meant to fail."""

import pytest
import torch


def test_fixture_good(budget):
    x = torch.ones(3, device=budget.device)
    with budget:
        x.add(1)


def test_fixture_bad(budget):
    x = torch.ones(3, device=budget.device)
    with budget:
        x.sum().item()


@pytest.fixture
def x(budget):
    value = torch.ones(3).to(budget.device)
    value.sum().item()
    return value


@pytest.mark.budget(host_reads=1)
def test_marker_good(x):
    x.sum().item()


@pytest.mark.budget
def test_marker_bad(x):
    x.sum().item()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.budget(host_reads=1)
def test_marker_each(x, times):
    for _ in range(times):
        x.sum().item()


def test_steps(budget):
    x = torch.ones(3, device=budget.device)
    guard = budget(host_reads=1, ops=2)
    with guard:
        for _ in guard.steps(4):
            x.sum().item()


@pytest.mark.budget
def test_fails(budget):
    torch.ones(3, device=budget.device).sum().item()
    pytest.fail("mine")


@pytest.mark.budget(host_reads=-1)
def test_limit_wrong():
    pass


@pytest.mark.budget(hostreads=1)
def test_limit_misspelt():
    pass
