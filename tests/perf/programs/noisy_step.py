"""A step that prints."""

import torch


def make(device):
    x = torch.ones(4, device=device)

    def step():
        x.add_(1)
        print("noise")

    return step


number = 3
