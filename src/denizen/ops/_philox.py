"""Philox-4x32-10, the counter-based generator behind every draw, as plain torch.

The block function is that of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
What denizen puts where fixes its random numbers for ever:

    key     = (seed, world)                                     two 32-bit words
    counter = (block low, block high, step, stream)             four 32-bit words
    block   = agent id div 4,  word used = agent id mod 4

`words` is the reference; `_cpu_draws.words` computes the same bits with numba, `_cuda.words` with Triton.
"""

import torch
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
MASK32 = 0xFFFFFFFF


def _mulhilo(multiplier: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    # The 64-bit product wraps around in int64; the bits are those of the unsigned product all the same.
    product = multiplier * value
    return (product >> 32) & MASK32, product & MASK32


def philox4x32(counter: tuple[Tensor, ...], key: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One Philox-4x32-10 block for each element.

    Args:
        counter: four int64 tensors holding 32-bit words, broadcast together.
        key: two int64 tensors holding 32-bit words, broadcast with the counter.

    Returns:
        Four int64 tensors holding the 32-bit words of the block.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    # Tensors and not Python integers: inductor writes integers above int32 as int32 constants and fails on CUDA.
    m0, m1 = (torch.tensor(m, dtype=torch.int64, device=c0.device) for m in MULTIPLIERS)
    w0, w1 = (torch.tensor(w, dtype=torch.int64, device=c0.device) for w in WEYL)
    for _ in range(ROUNDS):
        high0, low0 = _mulhilo(m0, c0)
        high1, low1 = _mulhilo(m1, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + w0) & MASK32, (k1 + w1) & MASK32
    return c0, c1, c2, c3


def words(ids: Tensor, key: Tensor, step: Tensor, stream: int) -> Tensor:
    """One 32-bit random word for each id and world.

    Args:
        ids: int64 `[ids]` or `[worlds, ids]`, each in [0, 2**62).
        key: int64 `[worlds, 2]`, rows (seed, world).
        step: int64 `[]`.
        stream: number of the named stream, in [0, 2**32).

    Returns:
        int64 `[worlds, ids]` in [0, 2**32).
    """
    block = ids >> 2
    block = block if block.dim() == 2 else block[None]
    stream_word = torch.full_like(block, stream)
    counter = (block & MASK32, block >> 32, step + torch.zeros_like(block), stream_word)
    out = philox4x32(counter, (key[:, 0:1], key[:, 1:2]))
    lane = (ids & 3).expand(out[0].shape)
    return torch.where(lane < 2, torch.where(lane == 0, out[0], out[1]), torch.where(lane == 2, out[2], out[3]))
