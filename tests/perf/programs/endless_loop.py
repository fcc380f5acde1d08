"""A loop without an end, on the device that a flag names."""

import argparse

import torch

import denizen as dz

words = argparse.ArgumentParser()
words.add_argument("--device", default="cpu")
x = torch.ones(3, device=words.parse_args().device)
while True:
    with dz.perf.region():
        x.add_(1).sum().item()  # <- read
