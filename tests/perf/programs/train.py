"""A script with a step that reads, and functions that make steps."""

import sys

import torch

import denizen as dz


def make(device):
    x = torch.ones(3, device=device)

    def step():
        print("noise")
        return x.sum().item()  # <- read

    return step


def good(device):
    x = torch.ones(3, device=device)
    return lambda: x.sum()


def bad(device):
    return lambda: 1 / 0


if __name__ == "__main__":
    step = make(dz.budget(device="simulated").device)
    assert sys.argv[1:] == ["--lr", "3"]
    while True:
        with dz.perf.region():
            step()
