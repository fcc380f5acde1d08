"""Steps with one fault each, and the same steps mended: for doctor_gpu.py.

``# FAULT`` ends the line to blame. Sizes are such that the fault costs something on a large GPU: products that keep it
busy for about a millisecond, and small operations after them which a host that waited launches too late.
"""

import contextlib
import os

import _doctor_waits as waits
import numpy as np
import torch
from _doctor_waits import Work, between, sized
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, LAYERS, BATCH = 256, 6, 256


def net(device, layers=LAYERS):
    torch.manual_seed(0)
    return nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]).to(device)


def train(model, optimizer, x):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def base(device, **options):
    model = net(device)
    return model, torch.optim.Adam(model.parameters(), **options), torch.randn(BATCH, WIDTH, device=device)


def plain(device):
    model, optimizer, x = base(device)

    def step():
        train(model, optimizer, x)

    return step


def unfused(device):
    model, optimizer, x = base(device, foreach=False)

    def step():
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # FAULT

    return step


def memset(device):
    model, optimizer, x = base(device)

    def step():
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=False)  # FAULT
        loss.backward()
        optimizer.step()

    return step


def scaled(device, on=True):
    model, optimizer, x = base(device)
    scaler = torch.amp.GradScaler(device.type, enabled=on)

    def step():
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(x).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # FAULT
        scaler.update()

    return step


def anomaly(device):
    model, optimizer, x = base(device)

    def step():
        with torch.autograd.detect_anomaly():  # FAULT
            train(model, optimizer, x)

    return step


def evaluated(device, grad=True):
    model, optimizer, x = base(device)
    other = net(device, 24)

    def step():
        train(model, optimizer, x)
        with contextlib.nullcontext() if grad else torch.no_grad():
            other(x)  # FAULT

    return step


def compiled(device, once=False):
    model, x = net(device), torch.randn(BATCH, WIDTH, device=device)
    kept = torch.compile(model, backend="eager")

    def step():
        with torch.no_grad():
            return (kept if once else torch.compile(model, backend="eager"))(x)  # FAULT

    return step


def fp32(device, fast=False):
    rows = sized(device, 4096, 512)
    a, b = (torch.randn(rows, rows, device=device) for _ in range(2))

    def step():
        before = torch.get_float32_matmul_precision()
        if fast:
            torch.set_float32_matmul_precision("high")
        torch.mm(a, b)  # FAULT
        torch.set_float32_matmul_precision(before)

    return step


def fp64(device, dtype=np.float64):
    weights = np.linspace(0, 1, sized(device, 1 << 24, 1 << 10)).astype(dtype)
    w, x = torch.from_numpy(weights).to(device), torch.ones(len(weights), device=device)

    def step():
        return (x * w).add(1).relu().sum()  # FAULT

    return step


def wide(device, dtype=torch.int64):
    cells = torch.randint(0, 4, (sized(device, 1 << 26, 1 << 18),), device=device).to(dtype)

    def step():
        return (cells == 2).any()  # FAULT

    return step


def pairs(device):
    x = torch.rand(sized(device, 8192, 512), 2, device=device) * sized(device, 90, 22)

    def step():
        near = torch.cdist(x, x) < 1  # FAULT
        return near.float() @ x

    return step


def pairs_mended(device):
    """The pairs of a cell list, kept as edges, as in a simulation that finds its neighbours every few steps."""
    x = torch.rand(sized(device, 8192, 512), 2, device=device) * sized(device, 90, 22)
    one, other = (torch.cdist(x, x) < 1).nonzero(as_tuple=True)

    def step():
        near = ((x[one] - x[other]).square().sum(1) < 1).float()
        return torch.zeros_like(x).index_add_(0, one, near[:, None] * x[other])

    return step


def clone(device):
    x = torch.rand(sized(device, 1 << 24, 1 << 10), device=device)

    def step():
        return x.clone().mul(2)  # FAULT

    return step


def clone_mended(device):
    x = torch.rand(sized(device, 1 << 24, 1 << 10), device=device)

    def step():
        return x.mul(2)

    return step


def grown(device):
    chunk = torch.rand(sized(device, 1 << 22, 1 << 8), device=device)

    def step():
        out = chunk
        for _ in range(11):
            out = torch.cat([out, chunk])  # FAULT
        return out

    return step


def grown_mended(device):
    chunk = torch.rand(sized(device, 1 << 22, 1 << 8), device=device)

    def step():
        out = chunk.new_empty(12 * len(chunk))
        for k in range(12):
            out[k * len(chunk) : (k + 1) * len(chunk)] = chunk
        return out

    return step


def agents(device):
    x, w = torch.rand(200, device=device), torch.rand(200, device=device)

    def step():
        out = torch.zeros(200, device=device)
        for k in range(200):
            out[k] = x[k] * w[k]  # FAULT
        return out

    return step


def agents_mended(device):
    x, w = torch.rand(200, device=device), torch.rand(200, device=device)

    def step():
        return x * w

    return step


class Decoded(Dataset):
    def __len__(self):
        return 1 << 16

    def __getitem__(self, place):
        values = np.sin(np.arange(place, place + 40_000))  # half a millisecond, as to decode a small picture
        return torch.from_numpy(values[:64].astype(np.float32))


def loaded(device, workers=0):
    options = {"persistent_workers": workers > 0, "pin_memory": True}
    loader = DataLoader(Decoded(), 16, num_workers=workers, **options)  # FAULT
    batches, w = iter(loader), Work(device)

    def step():
        x = next(batches).to(device, non_blocking=True)
        w.heavy()
        return x.sum()

    return step


def given(make, **changes):
    """A maker with other arguments."""
    return lambda device: make(device, **changes)


# Name: kind, step with the fault, step without it.
CASES = {
    "item": ("host-sync-item", between(waits.item), between(waits.nothing)),
    "float": ("host-sync-float", between(waits.floated), between(waits.nothing)),
    "if isnan": ("host-sync-bool", between(waits.nan_guard), between(waits.nothing)),
    "synchronize": ("host-sync-explicit", between(waits.synchronise), between(waits.nothing)),
    "metrics to NumPy": ("host-sync-copy", between(waits.metrics), between(waits.nothing)),
    "f-string": ("host-sync-print", between(waits.printed), between(waits.nothing)),
    "mask as index": ("host-sync-boolindex", between(waits.mask), between(waits.mask_mended)),
    "list of places": ("host-sync-nonzero", between(waits.places), between(waits.mask_mended)),
    "repeats": ("host-sync-item", between(waits.repeated), between(waits.repeated_mended)),
    "fresh host tensor": ("h2d-fresh", between(waits.fresh), between(waits.fresh_mended)),
    "index of the host": ("h2d-index", waits.host_index, waits.host_index_mended),
    "pageable batch": ("h2d-pageable", waits.pageable, given(waits.pageable, pin=True)),
    "through NumPy": ("roundtrip", between(waits.roundtrip), between(waits.roundtrip_mended)),
    "rollout to the host": ("d2h-accumulate", between(waits.rollout), between(waits.rollout_mended)),
    "optimizer in a loop": ("optimizer-unfused", unfused, plain),
    "gradients filled": ("grad-memset", memset, plain),
    "bfloat16 with a scaler": ("host-sync-scaler", scaled, given(scaled, on=False)),
    "float32 products": ("dtype-fp32", fp32, given(fp32, fast=True)),
    "float64 from NumPy": ("dtype-fp64", fp64, given(fp64, dtype=np.float32)),
    "int64 for four states": ("dtype-wide-int", wide, given(wide, dtype=torch.int8)),
    "all pairs": ("dense-quadratic", pairs, pairs_mended),
    "a clone for nothing": ("alloc-churn", clone, clone_mended),
    "cat in a loop": ("alloc-churn", grown, grown_mended),
    "empty_cache": ("alloc-churn", between(waits.emptied), between(waits.emptied_mended)),
    "evaluation with a graph": ("no-grad-missing", evaluated, given(evaluated, grad=False)),
    "compile in the step": ("compile-overhead", compiled, given(compiled, once=True)),
    "a wait at the end of long work": ("host-sync-item", waits.late_wait, waits.late_wait_mended),
    "anomaly detection": ("debug-left-on", anomaly, plain),
    "a loop over agents": ("launch-bound", agents, agents_mended),
    "a loader without workers": ("loader-workers", loaded, given(loaded, workers=min(8, os.cpu_count() or 1))),
}
ON_CPU = ("gradients filled", "anomaly detection", "evaluation with a graph", "a loop over agents", "cat in a loop")


def blamed(make):
    """File and line of a maker's fault."""
    code = getattr(make, "line", make).__code__
    with open(code.co_filename, encoding="utf-8") as file:
        source = file.read().splitlines()
    lines = range(code.co_firstlineno, len(source) + 1)
    return code.co_filename, next(number for number in lines if source[number - 1].endswith("# FAULT"))
