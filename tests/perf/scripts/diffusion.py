"""A denoising model of small images, as such scripts are written; `make` with its faults, `mended` without.

`make(device)` and `mended(device)` return a function that does one step of training. A comment names the fault of its
line; in parentheses: not one that counting can see.
"""

import copy
import math

import torch
from torch import nn

TIMES, BATCH = 100, 8


def extract(schedule, t, like):
    """Values of the schedule at some times, as wide as images."""
    values = schedule[t.cpu()].to(t.device)  # host-sync-copy roundtrip h2d-fresh
    return values.view(-1, *[1] * (like.dim() - 1))


class Denoiser(nn.Module):
    def __init__(self, embed):
        super().__init__()
        torch.manual_seed(0)
        self.embed = embed
        self.time = nn.Linear(16, 8)
        self.first, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.last = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x, t):
        hidden = self.first(x) + self.time(self.embed(t))[:, :, None, None]
        return self.last(nn.functional.silu(self.norm(hidden)))


def embed_on_host(t):
    """Sines of the time; its frequencies are made anew each time."""
    frequencies = torch.exp(-math.log(10000) * torch.arange(8) / 8).to(t.device)  # h2d-fresh
    angles = t[:, None].float() * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1)


def embed(t):
    frequencies = torch.exp(-math.log(10000) * torch.arange(8, device=t.device) / 8)
    angles = t[:, None].float() * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1)


def make(device):
    model = Denoiser(embed_on_host).to(device)
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    scaler = torch.amp.GradScaler(device.type)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, TIMES), 0)
    images = torch.randn(64, 1, 8, 8)
    best, count = {"loss": math.inf}, [0]

    def step():
        first = count[0] * BATCH % 64
        count[0] += 1
        x = images[first : first + BATCH].to(device, non_blocking=True)  # h2d-pageable
        t = torch.randint(0, TIMES, (BATCH,)).to(device)  # h2d-fresh
        noise = torch.randn(x.shape).to(device)  # h2d-fresh
        share = extract(kept, t, x)
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = nn.functional.mse_loss(model(noisy, t), noise)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)  # host-sync-scaler
        scaler.update()
        for name, value in model.state_dict().items():
            average.state_dict()[name].copy_(0.99 * average.state_dict()[name] + 0.01 * value)  # (launch-bound)
        if loss < best["loss"]:  # host-sync-bool
            best["loss"] = loss.detach()
        torch.cuda.synchronize()  # host-sync-explicit
        return f"loss {loss:.4f}, norm {norm:.2f}"  # host-sync-print

    return step


def mended(device):
    model = Denoiser(embed).to(device)
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, TIMES), 0).to(device)
    images = torch.randn(64, 1, 8, 8).pin_memory()
    best, log, count = torch.full((), math.inf, device=device), torch.zeros(2, device=device), [0]

    def step():
        first = count[0] * BATCH % 64
        count[0] += 1
        x = images[first : first + BATCH].to(device, non_blocking=True)
        t = torch.randint(0, TIMES, (BATCH,), device=device)
        noise = torch.randn_like(x)
        share = kept[t].view(-1, 1, 1, 1)
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = nn.functional.mse_loss(model(noisy, t), noise)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.01)
            torch.minimum(best, loss, out=best)
            log.copy_(torch.stack([loss, norm]))
        return log

    return step
