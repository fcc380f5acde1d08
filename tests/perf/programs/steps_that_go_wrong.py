"""Steps that work on another device, and that fail."""

import torch


def elsewhere(device):
    x = torch.ones(3)
    return lambda: x.add_(1)


def crashing(device):
    x = torch.ones(3, device=device)
    return lambda: x + torch.ones(4, device=device)  # <- crash
