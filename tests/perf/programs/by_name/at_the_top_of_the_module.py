"""Asks for CUDA by name: at the top of the module."""

import torch

props = torch.cuda.get_device_properties(0)
free, total = torch.cuda.mem_get_info()
x = torch.randn(64, 8, device="cuda")
net = torch.nn.Linear(8, 8).to(x.device)


def make():
    def step():
        with torch.no_grad():
            if net(x).isfinite().all():  # host-sync-bool
                pass

    return step
