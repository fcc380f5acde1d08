"""Prints by how many megabytes memory grows while a large file is read, here and in workers."""

import resource
import sys

import numpy as np
from torch.utils.data import DataLoader

from denizen import tools


def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


path, rows, workers, shuffle = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "shuffle"
header = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, 64, 1024))  # sparse on the disk
del header
data = tools.MappedDataset(path)
before, most, seen = held(), 0.0, 0
loader = DataLoader(data, 16, shuffle=shuffle, num_workers=workers, collate_fn=data.collate)
for batch in tools.PrefetchLoader(loader, "cpu"):
    seen += len(batch)
    most = max(most, held())
assert seen == rows, seen
print(most - before, max(0.0, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024 - before))
