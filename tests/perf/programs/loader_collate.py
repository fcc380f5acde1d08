"""The only loader of this file: with others beside it, its line would not be told. See `doctor_faults.py`."""

import torch
from torch import nn


def faulty_a_slow_collate_function(device):
    from torch.utils.data import DataLoader

    def collate(samples):
        rows = []
        for sample in samples:
            rows.append(torch.tensor([float(v) for v in sample.tolist()]))
        return torch.stack(rows)

    data = list(torch.randn(2048, 2048))
    loader = DataLoader(data, batch_size=32, collate_fn=collate, pin_memory=True)  # loader-collate
    batches = iter(loader)
    net = nn.Linear(2048, 2).to(device)

    def step(i):
        batch = next(batches)
        with torch.no_grad():
            net(batch.to(device, non_blocking=True))

    return step
