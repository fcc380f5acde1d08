"""Image classification with a DataLoader, as such scripts are written; `make` with its faults, `mended` without.

`make(device)` and `mended(device)` return a function that does one step of training. A comment names the fault of its
line; in parentheses: not one that counting can see.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 5


class Images(Dataset):
    """Noisy pictures, each class of another brightness."""

    def __init__(self, size=256):
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.randint(0, CLASSES, (size,), generator=generator)
        self.images = torch.randn(size, 3, 8, 8, generator=generator) + self.labels.view(-1, 1, 1, 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], int(self.labels[index])


def network(device):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(16, CLASSES),
    ).to(device)


def endless(loader):
    while True:
        yield from loader


def make(device):
    model = network(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    loader = endless(DataLoader(Images(), batch_size=16, shuffle=True, drop_last=True))  # (loader-workers)
    running = {"loss": 0.0, "correct": 0, "seen": 0}
    history = []

    def step():
        images, labels = next(loader)
        images = images.to(device)  # h2d-fresh
        labels = labels.to(device)  # h2d-fresh
        weights = torch.tensor([1.0, 1.0, 2.0, 1.0, 0.5], device=device)  # h2d-fresh
        optimizer.zero_grad(set_to_none=False)  # (grad-memset)
        logits = model(images)
        loss = nn.functional.cross_entropy(logits, labels, weight=weights)
        if torch.isnan(loss):  # host-sync-bool
            raise ValueError("the loss is not a number")
        loss.backward()
        optimizer.step()
        scheduler.step()
        running["loss"] += loss.item() * len(labels)  # host-sync-item
        running["correct"] += int((logits.argmax(1) == labels).sum())  # host-sync-float
        running["seen"] += len(labels)
        history.append(loss)  # (graph-retention)
        return running["loss"] / running["seen"]

    return step


def mended(device):
    model = network(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    loader = endless(DataLoader(Images(), batch_size=16, shuffle=True, drop_last=True, pin_memory=True))
    weights = torch.tensor([1.0, 1.0, 2.0, 1.0, 0.5]).to(device)
    totals = torch.zeros(3, device=device)  # loss, correct, not a number

    def step():
        images, labels = next(loader)
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        logits = model(images)
        loss = nn.functional.cross_entropy(logits, labels, weight=weights)
        loss.backward()
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            correct = (logits.argmax(1) == labels).sum()
            totals.add_(torch.stack([loss * len(labels), correct.float(), loss.isnan().float()]))
        return totals

    return step
