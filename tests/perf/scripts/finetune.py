"""Tuning a small language model on padded batches, as such scripts are written; `make` with faults, `mended` without.

`make(device)` and `mended(device)` return a function that does one step of training, over two micro-batches. A comment
names the fault of its line; in parentheses: not one that counting can see.
"""

import math
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

VOCABULARY, WIDTH, LONGEST, IGNORED = 50, 16, 12, -100


class LanguageModel(nn.Module):
    def __init__(self, causal=None):
        super().__init__()
        torch.manual_seed(0)
        self.causal = causal  # None: torch compares the mask with a causal one, on the host
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids, mask):
        length = ids.shape[1]
        x = self.tokens(ids) + self.places(torch.arange(length, device=ids.device))
        ahead = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu(1)
        padding = torch.zeros(mask.shape, device=ids.device).masked_fill(mask == 0, -torch.inf)
        ahead = torch.zeros(ahead.shape, device=ids.device).masked_fill(ahead, -torch.inf)
        x = self.body(x, mask=ahead, src_key_padding_mask=padding, is_causal=self.causal)  # host-sync-bool
        return self.head(x)


def texts(count=64):
    draw = random.Random(0)
    return [[draw.randrange(1, VOCABULARY) for _ in range(draw.randrange(5, LONGEST + 1))] for _ in range(count)]


def collate(rows):
    """Padded to the longest of the batch."""
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return {"ids": ids, "mask": (ids != 0).long(), "labels": ids.masked_fill(ids == 0, IGNORED)}


def collate_to_one_length(rows):
    """Padded to the longest of all: shapes stay."""
    ids = torch.zeros(len(rows), LONGEST, dtype=torch.long)
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = torch.tensor(values)
    return {"ids": ids, "mask": (ids != 0).long(), "labels": ids.masked_fill(ids == 0, IGNORED)}


def endless(loader):
    while True:
        yield from loader


def make(device):
    model = LanguageModel().to(device)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / 10))
    loader = endless(DataLoader(texts(), batch_size=4, collate_fn=collate))  # (loader-collate)
    tokens, guesses = [0], []

    def step():
        total = 0.0
        for _ in range(2):
            batch = {name: value.to(device) for name, value in next(loader).items()}  # h2d-fresh
            tokens[0] += batch["mask"].sum().item()  # host-sync-item
            longest = batch["mask"].sum(1).max()
            batch = {name: value[:, :longest] for name, value in batch.items()}  # host-sync-item host-sync-float
            logits = model(batch["ids"], batch["mask"])
            shifted, labels = logits[:, :-1], batch["labels"][:, 1:]
            kept = labels != IGNORED
            loss = nn.functional.cross_entropy(shifted[kept], labels[kept])  # host-sync-boolindex
            (loss / 2).backward()  # host-sync-boolindex
            total += float(loss.detach())  # host-sync-float
            guesses.extend(shifted.argmax(-1)[kept].tolist())  # host-sync-boolindex host-sync-item
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)  # host-sync-bool
        if norm > 100:  # host-sync-bool
            print("large gradients:", norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        sizes = [p.grad is not None and p.grad.norm().item() for p in decayed]
        return math.exp(total / 2), sizes

    return step


def mended(device):
    model = LanguageModel(causal=True).to(device)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / 10))
    loader = endless(DataLoader(texts(), batch_size=4, collate_fn=collate_to_one_length, pin_memory=True))
    totals = torch.zeros(3, device=device)  # loss, tokens, right guesses

    def step():
        for _ in range(2):
            batch = {name: value.to(device, non_blocking=True) for name, value in next(loader).items()}
            logits = model(batch["ids"], batch["mask"])
            shifted, labels = logits[:, :-1], batch["labels"][:, 1:]
            loss = nn.functional.cross_entropy(shifted.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
            (loss / 2).backward()
            with torch.no_grad():
                right = (shifted.argmax(-1) == labels).sum()
                totals.add_(torch.stack([loss, batch["mask"].sum().float(), right.float()]))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return totals

    return step
