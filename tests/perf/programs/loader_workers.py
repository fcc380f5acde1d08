"""The only loader of this file: with others beside it, its line would not be told. See `doctor_faults.py`."""

import torch
from torch import nn


def faulty_a_loader_without_workers(device):
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self):
            return 4096

        def __getitem__(self, i):
            return torch.tensor([sum(k * 0.5 for k in range(3000))] * 4)

    loader = DataLoader(Slow(), batch_size=16, pin_memory=True)  # loader-workers
    batches = iter(loader)
    net = nn.Linear(4, 2).to(device)

    def step(i):
        batch = next(batches)
        with torch.no_grad():
            net(batch.to(device, non_blocking=True))

    return step
