"""One step of two processes, each with micro-batches of its own."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

from denizen import tools

store, out = sys.argv[1:]
child = os.fork()  # which imports nothing anew
rank = 0 if child else 1
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
exchanges = []


def hook(state, bucket):
    exchanges.append(1)
    return dist.all_reduce(bucket.buffer().div_(2), async_op=True).get_future().then(lambda f: f.value()[0])


model.register_comm_hook(None, hook)
x = torch.arange(40).double().reshape(10, 4).sin()
mine = [x[:2], x[2:3], x[3:4]] if rank == 0 else [x[4:9], x[9:]]
tools.Accumulate(model, optimizer)(mine, lambda b: model(b).square().sum())
assert len(exchanges) == 1, exchanges
torch.save([w.grad for w in model.parameters()], out + str(rank))
dist.destroy_process_group()
if child:
    assert os.waitpid(child, 0)[1] == 0
