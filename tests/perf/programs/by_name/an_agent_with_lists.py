"""Asks for CUDA by name: an agent with lists."""

import torch


class Agent:
    def __init__(self, device="cuda:0"):
        self.device, self.q = device, torch.nn.Linear(4, 2).to(device)

    def act(self, state):
        state = torch.FloatTensor(state).unsqueeze(0).to(self.device)  # h2d-fresh
        with torch.no_grad():
            return self.q(state).max(1)[1].item()  # host-sync-item


def make():
    agent = Agent()
    return lambda: agent.act([0.0, 0.1, 0.2, 0.3])
