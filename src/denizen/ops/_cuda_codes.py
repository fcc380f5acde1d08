"""`_codes.pack` and histograms of codes on CUDA with Triton; the same values.

`pack` is one pass, which reads a byte an entry and writes what is left of it.
"""

import torch
import triton
import triton.language as tl

_BLOCK = 512  # bytes that a program writes


@triton.jit(do_not_specialize_on_alignment=["out"])  # another kernel could not be loaded while a graph is recorded
def _pack_kernel(codes, out, n, width, BITS: tl.constexpr, BLOCK: tl.constexpr):
    EACH: tl.constexpr = 8 // BITS
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    byte = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, EACH)[None, :]
    place = byte[:, None] * EACH + k
    code = tl.load(codes + row * n + place, mask=place < n, other=0).to(tl.int32)
    tl.store(out + row * width + byte, tl.sum(code << (BITS * k), 1).to(tl.uint8), mask=byte < width)


def pack(codes: torch.Tensor, bits: int, out: torch.Tensor) -> None:
    """`_codes.pack`."""
    codes, n, width = codes.contiguous(), codes.shape[-1], out.shape[-1]
    rows = codes.numel() // n
    _pack_kernel[(triton.cdiv(width, _BLOCK) * rows,)](codes, out, n, width, BITS=bits, BLOCK=_BLOCK)


# --- tables -----------------------------------------------------------------------------------------------------------


_AGENTS = 1024  # that a program reads at once
_PROGRAMS = 528  # that share a histogram at most: each ends with an atomic addition for each bin
_MOST_BINS = 1024  # above, programs add to the counts directly


@triton.jit
def _histogram_kernel(
    codes,
    group,
    counts,
    n,
    num_codes,
    bins,
    parts,
    rounds,
    HAS_GROUP: tl.constexpr,
    BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    world, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    found = tl.zeros((BINS,), tl.int32)
    for k in range(rounds):
        i = (part.to(tl.int64) * rounds + k) * BLOCK + tl.arange(0, BLOCK)
        place = tl.load(codes + world * n + i, mask=i < n, other=0).to(tl.int32)
        if HAS_GROUP:
            place += tl.load(group + i, mask=i < n, other=0).to(tl.int32) * num_codes
        found += tl.histogram(tl.where(i < n, place, BINS - 1), BINS)  # the last bin is spare
    bin = tl.arange(0, BINS)
    tl.atomic_add(counts + world * bins + bin, found, mask=(bin < bins) & (found != 0), sem="relaxed")


@triton.jit
def _scatter_kernel(codes, group, counts, n, num_codes, bins, HAS_GROUP: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(n, BLOCK)
    world = (tl.program_id(0) // blocks).to(tl.int64)
    i = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(codes + world * n + i, mask=i < n, other=0).to(tl.int64)
    if HAS_GROUP:
        place += tl.load(group + i, mask=i < n, other=0).to(tl.int64) * num_codes
    tl.atomic_add(counts + world * bins + place, 1, mask=i < n, sem="relaxed")


def add_histogram(counts: torch.Tensor, codes: torch.Tensor, group: torch.Tensor | None) -> None:
    """`_codes.add_histogram`."""
    worlds, n = codes.shape
    bins, num_codes = counts.shape[1] * counts.shape[2], counts.shape[2]
    if not n * worlds:
        return
    codes, group = codes.contiguous(), None if group is None else group.contiguous()
    programs = triton.cdiv(n, _AGENTS)
    if bins >= _MOST_BINS:
        _scatter_kernel[(programs * worlds,)](
            codes, group, counts, n, num_codes, bins, HAS_GROUP=group is not None, BLOCK=_AGENTS
        )
        return
    rounds = triton.cdiv(programs, max(1, _PROGRAMS // worlds))
    parts = triton.cdiv(programs, rounds)
    _histogram_kernel[(parts * worlds,)](  # a second axis would end at 65,535 worlds
        codes,
        group,
        counts,
        n,
        num_codes,
        bins,
        parts,
        rounds,
        HAS_GROUP=group is not None,
        BINS=triton.next_power_of_2(bins + 1),
        BLOCK=_AGENTS,
    )


def histogram(codes: torch.Tensor, group: torch.Tensor | None, num_groups: int, num_codes: int) -> torch.Tensor:
    """`_codes.histogram`."""
    counts = torch.zeros(codes.shape[0], num_groups, num_codes, dtype=torch.int32, device=codes.device)
    add_histogram(counts, codes, group)
    return counts.to(torch.int64)
