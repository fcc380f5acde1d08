"""Each kernel of message steps by itself, over tiles: what `TILES` of `nn.kernels._cuda_message_steps` should say."""

from collections.abc import Callable
from typing import Any

import torch
from _dotgat import TIMES, timed

LAUNCHES = 20  # in a graph, so that launching costs nothing


def _candidates() -> dict[str, list[dict[str, int]]]:
    def tiles(rows: tuple[int, ...], warps: tuple[int, ...], **more: int) -> list[dict[str, int]]:
        return [{"ROWS": r, "num_warps": w, **more} for r in rows for w in warps]

    return {
        "project": tiles((64, 128), (4, 8), PARTS=1)
        + [tile for stages in (1, 2, 3) for tile in tiles((32, 64, 128), (4, 8), PARTS=3, num_stages=stages)],
        "project_backward": [tile for stages in (1, 2, 3) for tile in tiles((32, 64), (4, 8), num_stages=stages)],
        "remember": [{"num_warps": w} for w in (2, 4, 8)],
        "remember_backward": [{"num_warps": w} for w in (4, 8)],
        "talk": tiles((1, 2, 4, 8), (1, 2)),
        "talk_backward": tiles((2, 4, 8), (1, 2, 4)),
        "think": tiles((32, 64), (4, 8)) + tiles((32, 64), (8,), maxnreg=128),
        "think_backward": tiles((32, 64), (4, 8)) + tiles((32,), (8,), maxnreg=128),
        "weight_gradient": [
            {"ROWS": r, "COLUMNS": c, "num_warps": w, "num_stages": s}
            for r, s in ((32, 4), (64, 3), (64, 4), (128, 2))
            for c, w in ((32, 4), (64, 4), (64, 8))
        ],
    }


Work = tuple[Callable[[], Any], int, list[torch.Tensor]]


def _works(device: str, dtype: torch.dtype, batch: int) -> tuple[dict[str, Work], Any]:
    """What each kernel's launch is, the bytes that it has to move and what it fills; and the table of tiles."""
    from denizen.nn.kernels import _cuda_message_steps

    agents, width, heads, rows = 20, 128, 4, batch * TIMES
    h = torch.randn(agents, rows, width, device=device, dtype=dtype)
    to = _cuda_message_steps.Launcher(h, TIMES, heads, 0.1, 1e-6, torch.tensor([7], device=device))
    out, dh, u = (torch.randn_like(h) for _ in range(3))
    qkv, dqkv = (torch.randn(agents, rows, 3 * width, device=device, dtype=dtype) for _ in range(2))
    gain, bias = torch.ones(width, device=device), torch.zeros(agents, agents, device=device)
    wide = torch.randn(agents, width, 3 * width, device=device, dtype=dtype) / 11
    inner, outer = (torch.randn(agents, width, width, device=device, dtype=dtype) / 11 for _ in range(2))
    layers = (inner, torch.zeros(agents, width, device=device), outer, torch.zeros(agents, width, device=device))
    kept, dgain = h.new_zeros(4, *h.shape), torch.zeros(agents * rows, width, device=device)
    dbias = torch.empty(rows * heads, agents, agents, device=device)
    dwide, pair = (
        torch.empty(agents, width, 3 * width, device=device),
        torch.empty(2, agents, width, width, device=device),
    )
    biases, n = torch.empty(2, agents, width, device=device), h.numel() * h.element_size()
    return {
        "project": (lambda: to.project(h, gain, wide, qkv), 4 * n, [qkv]),
        "project_backward": (
            lambda: to.project_backward(dqkv, wide, h, gain, out, dh, u, dgain, add=True),
            7 * n,
            [dh, u],
        ),
        "remember": (lambda: to.remember(qkv, h, out, 0), 5 * n, [out]),
        "remember_backward": (lambda: to.remember_backward(qkv, out, dqkv, 0), 7 * n, [dqkv]),
        "talk": (lambda: to.talk(qkv, bias, h, out, 1), 5 * n, [out]),
        "talk_backward": (lambda: to.talk_backward(qkv, bias, out, dqkv, dbias, 1, add=True), 7 * n, [dqkv]),
        "think": (lambda: to.think(h, gain, layers, out, 2), 2 * n, [out]),
        "think_backward": (
            lambda: to.think_backward(h, gain, layers, out, dh, kept, dgain, 2, add=True),
            7 * n,
            [dh, kept],
        ),
        "weight_gradient": (
            lambda: to.weight_gradient(h, dqkv, dwide, None, add=True),
            4 * n + 2 * 4 * dwide.numel(),
            [dwide],
        ),
        "weight_gradient of both matrices": (
            lambda: to.weight_gradient(kept[:2], kept[2:], pair, biases, add=True),
            4 * n + 2 * 4 * pair.numel(),
            [pair, biases],
        ),
    }, _cuda_message_steps.TILES


def kernel_rows(device: str, dtype: torch.dtype, batch: int, add: Callable[[dict[str, Any]], None]) -> None:
    """A line for every kernel and tile.

    Microseconds, the share of a copy's 2.99 TB/s that its bytes come to, and how far what it fills is off from what the
    usual tile fills, as a share of the largest number.
    """
    works, table = _works(device, dtype, batch)
    candidates = _candidates()
    for name, (work, moved, filled) in works.items():
        kernel, wanted = name.split()[0], []
        usual = table[kernel]
        for tile in [usual, *(tile for tile in candidates[kernel] if tile != usual)]:
            table[kernel] = tile
            row = {"kernel": name, "batch": batch, **tile, "usual": tile == usual}
            try:
                graph = torch.cuda.CUDAGraph()
                for tensor in filled:
                    tensor.zero_()
                work()
                torch.cuda.synchronize()
                found = [tensor.to(torch.float32, copy=True) for tensor in filled]
                wanted = wanted or found
                row["off"] = max(
                    float((mine - its).abs().max() / its.abs().max()) for mine, its in zip(found, wanted, strict=True)
                )
                with torch.cuda.graph(graph):
                    for _ in range(LAUNCHES):
                        work()
                us = timed(graph.replay, device, 20) * 1e3 / LAUNCHES
                add(row | {"us": round(us, 2), "of_a_copy": round(moved / us / 2.99e6, 3)})
            except Exception as error:  # a tile that does not fit is a line too
                add(row | {"failed": f"{type(error).__name__}: {error}"[:200]})
        table[kernel] = usual
