"""A step that reads a value and waits for the device."""

import torch

net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.001)
seen = []


def step():
    optimizer.zero_grad()
    loss = net(torch.ones(8, 4)).square().sum()  # <- nothing
    loss.backward()
    optimizer.step()
    seen.append(loss.item())  # <- read
    torch.cuda.synchronize()  # <- wait
    if seen[-1] > 1e9:
        raise ValueError
