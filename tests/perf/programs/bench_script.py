"""Modules, weights and steps to bench and to compare."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.q(x) * self.k(x).sigmoid())


class Joined(Net):
    def __init__(self):
        super().__init__()
        del self.q, self.k
        self.qk = nn.Linear(8, 16)

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        return self.out(q * k.sigmoid())


class Wrong(Joined):
    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        return self.out(q * k.tanh())


def weights(state):
    new = {name: tensor for name, tensor in state.items() if name.startswith("out")}
    return new | {f"qk.{kind}": torch.cat([state[f"{n}.{kind}"] for n in "qk"]) for kind in ("weight", "bias")}


def batch():
    return torch.randn(4, 8)


def training(net, more):
    def make(batch_size, device):
        model = net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        x = torch.randn(batch_size, 8, device=device)

        def step():
            print("a step")
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.item() if more else loss

        return step

    return make


make, joined, wrong = (training(net, False) for net in (Net, Joined, Wrong))
