"""The only loader of this file: with others beside it, its line would not be told. See `strangers_missed.py`."""

import torch
from torch import nn


def faulty_an_iterable_dataset_that_parses(device):
    import json

    from torch.utils.data import DataLoader, IterableDataset

    class Lines(IterableDataset):
        def __iter__(self):
            k = 0
            while True:
                line = json.dumps({"x": [k % 7] * 3000})
                yield torch.tensor(json.loads(line)["x"][:8], dtype=torch.float32)
                k += 1

    loader = DataLoader(Lines(), batch_size=16, pin_memory=True)  # loader-workers
    it, net = iter(loader), nn.Linear(8, 2).to(device)

    def step(i):
        with torch.no_grad():
            return net(next(it).to(device, non_blocking=True))

    return step
