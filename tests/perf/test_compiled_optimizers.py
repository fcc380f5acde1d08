"""Whoever looks at a step adds no guards to it: a compiled optimizer stays as it was compiled."""

import pytest
import torch
from torch import nn

import denizen as dz

CPU = torch.device("cpu")


def make(device):
    net = nn.Linear(4, 4).to(device)
    optimizer, x = torch.optim.SGD(net.parameters(), 1e-3), torch.ones(2, 4, device=device)
    stepped = torch.compile(optimizer.step, backend="eager")

    def step():
        optimizer.zero_grad()
        net(x).sum().backward()
        stepped()

    return step


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.compile
@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_the_doctor_causes_no_recompilation(device):
    report = dz.doctor(make=make, device=device, steps=4, rank=False)
    assert not {one.kind for one in report.findings} & {"recompile", "recompile-limit"}
