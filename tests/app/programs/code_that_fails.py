"""Functions and modules of a user, most of which fail."""

import sys

import torch
from torch import nn


def make(device):
    return lambda: torch.ones(3) + torch.ones(4)


def raises():
    raise ValueError("no [data] here")


def chained():
    try:
        raises()
    except ValueError as error:
        raise RuntimeError("cannot load") from error


def quits():
    sys.exit(0)


def pipe():
    raise BrokenPipeError("theirs")


def ours():
    import denizen as dz

    dz.Graph.from_edges([0], [5, 6])


def needs(first, second):
    return first


def number():
    return 3


def fine():
    return lambda: torch.ones(3) * 2


class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)


class Fails(Net):
    def forward(self, x):
        raise KeyError("in forward")
