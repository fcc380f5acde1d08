"""Asks for CUDA by name: streams, events and an index."""

import torch


def make():
    dev = torch.device("cuda", torch.cuda.current_device())
    side, net = torch.cuda.Stream(), torch.nn.Linear(8, 8, device=dev)
    batch = torch.randn(64, 8).pin_memory()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def step():
        start.record()
        with torch.cuda.stream(side):
            x = batch.cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad():
            net(x)
        end.record()
        torch.cuda.synchronize()  # host-sync-explicit

    return step
