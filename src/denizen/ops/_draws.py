"""Random words and 0/1 draws: the generator behind every draw, Philox-4x32-10, and thresholds of events.

The block function is that of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
What denizen puts where fixes its random numbers for ever:

    key     = (seed, world)                                     two 32-bit words
    counter = (block low, block high, step, stream)             four 32-bit words
    block   = agent id div 4,  word used = agent id mod 4

An event happens where a 32-bit random word lies below the threshold of its hazard or probability. For that only float32
additions, multiplications and a table of exact powers of two are used, in a fixed order, since `exp` and `expm1` differ
in the last bit between eager and compiled code, between CPU and GPU. `_cpu_draws` and `_cuda_draws` have the same
sequences, and so has `_inductor`.
"""

from typing import Any

import torch
from torch import Tensor

from denizen.ops._library import fold_worlds, register, unfold_worlds, variant, vmap_rule

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
MASK32 = 0xFFFFFFFF

LOG2E = 1.4426950408889634
LN2_HIGH = 0.693359375  # 10 bits: n * LN2_HIGH is exact for the n that occur
LN2_LOW = -2.12194440054690583e-4
COEFFICIENTS = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2)
MAX_EXPONENT = 40.0  # exp(-40) is below 2**-32: the event is certain
TWO32 = 4294967296.0


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


def words_of_all(num: int, key: Tensor, step: Tensor, stream: int) -> Tensor:
    """`words` of the ids 0 … num - 1, int64 `[worlds, num]`: four neighbours share a block, which is computed once."""
    block = torch.arange((num + 3) // 4, device=key.device)[None]
    counter = (block, torch.zeros_like(block), step + torch.zeros_like(block), torch.full_like(block, stream))
    lanes = torch.stack(philox4x32(counter, (key[:, 0:1], key[:, 1:2])), dim=-1)
    return lanes.flatten(1)[:, :num].contiguous()


def hazard_threshold(hazard: Tensor) -> tuple[Tensor, Tensor]:
    """Threshold of the event 1 - exp(-hazard), and where the hazard is unusable.

    Args:
        hazard: float32, any shape, integrated over the step; must be finite or +inf, and not negative.

    Returns:
        (int64 threshold in [0, 2**32], bool mask of negative or NaN hazards, whose threshold is 0).
    """
    bad = ~(hazard >= 0)
    x = torch.where(bad, torch.zeros_like(hazard), hazard).clamp(max=MAX_EXPONENT)
    n = torch.floor(x * LOG2E + 0.5)
    y = n * LN2_HIGH - x
    y = y + n * LN2_LOW
    q = torch.full_like(y, COEFFICIENTS[0])
    for c in COEFFICIENTS[1:]:
        q = q * y + c
    q = q * y * y + y  # expm1(-r) of the reduced argument
    powers = torch.tensor([2.0**-k for k in range(64)], dtype=torch.float32, device=hazard.device)
    s = powers[n.to(torch.int64)]
    p = (1.0 - s) - s * q
    return (p * TWO32).to(torch.int64), bad


def prob_threshold(prob: Tensor) -> tuple[Tensor, Tensor]:
    """Threshold of a probability, and where it lies outside [0, 1] or is NaN (threshold 0 there).

    Args:
        prob: float32, any shape.
    """
    bad = ~((prob >= 0) & (prob <= 1))
    return (torch.where(bad, torch.zeros_like(prob), prob) * TWO32).to(torch.int64), bad


def _ids(ids: Tensor, dim: int | None, batch: int, worlds: int) -> Tensor:
    """Fold a vmapped axis into the rows of `ids`: none, one row for all worlds, or a row for each of `worlds`."""
    if ids.numel() == 0 or (dim is None and ids.shape[0] == 1):
        return ids
    rows = ids.expand(batch, *ids.shape) if dim is None else ids.movedim(dim, 0)
    return rows.expand(batch, worlds // batch, -1).flatten(0, 1)


def _fast(device: torch.device) -> Any:
    """The module with the fast draws for a device, or None."""
    name = variant(device)
    if name == "numba":
        from denizen.ops import _cpu_draws

        return _cpu_draws
    if name == "triton":
        from denizen.ops import _cuda_draws

        return _cuda_draws
    return None


@register
def draw_words(ids: Tensor, num: int, key: Tensor, step: Tensor, stream: int) -> Tensor:
    """32-bit words as int64 `[W, num]`; `ids` int64 `[1 or W, num]`, or empty for 0 … num - 1; see `words`."""
    fast = _fast(key.device)
    if fast is not None:
        return fast.words(ids, num, key, step, stream)
    return words(ids, key, step, stream) if ids.numel() else words_of_all(num, key, step, stream)


@torch.library.register_fake("denizen::draw_words")
def _(ids: Tensor, num: int, key: Tensor, step: Tensor, stream: int) -> Tensor:
    return key.new_empty(key.shape[0], num)


@vmap_rule("draw_words")
def _(info, in_dims, ids, num, key, step, stream):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    key = fold_worlds(key, in_dims[2], batch)
    out = draw_words(_ids(ids, in_dims[0], batch, key.shape[0]), num, key, step, stream)
    return unfold_worlds(out, batch), 0


@register
def draw_mask(
    values: Tensor, hazard: bool, ids: Tensor, key: Tensor, step: Tensor, stream: int
) -> tuple[Tensor, Tensor]:
    """0/1 draws int8 `[W, n]` from float32 hazards (`hazard`) or probabilities; int8 `[W]` is 1 where one was bad."""
    fast = _fast(values.device)
    if fast is not None:
        return fast.draw_mask(values, hazard, ids, key, step, stream)
    threshold, bad = (hazard_threshold if hazard else prob_threshold)(values)
    word = words(ids, key, step, stream) if ids.numel() else words_of_all(values.shape[1], key, step, stream)
    drawn = word < threshold
    return drawn.to(torch.int8), bad.any(dim=1).to(torch.int8)


@torch.library.register_fake("denizen::draw_mask")
def _(values, hazard, ids, key, step, stream):  # type: ignore[no-untyped-def]
    return values.new_empty(values.shape, dtype=torch.int8), values.new_empty(values.shape[:1], dtype=torch.int8)


@vmap_rule("draw_mask")
def _(info, in_dims, values, hazard, ids, key, step, stream):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    values, key = fold_worlds(values, in_dims[0], batch), fold_worlds(key, in_dims[3], batch)
    out, bad = draw_mask(values, hazard, _ids(ids, in_dims[2], batch, key.shape[0]), key, step, stream)
    return (unfold_worlds(out, batch), unfold_worlds(bad, batch)), (0, 0)


def gated(values: Tensor, where: Tensor, alive: Tensor, num: int) -> Tensor:
    """float32 `[W, num]`: values of those in both masks, 0 for the others; arguments as `draw_among`."""
    if where.shape[1]:
        values = values * (where != 0)
    if alive.shape[1]:
        values = torch.where(alive != 0, values, 0.0)
    return values.expand(-1, num)


@register
def draw_among(
    values: Tensor,
    where: Tensor,
    alive: Tensor,
    num: int,
    hazard: bool,
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    stream: int,
) -> tuple[Tensor, Tensor]:
    """`draw_mask` of values and masks that are not multiplied before: in plain steps on the CPU.

    Args:
        values: float32 `[W, num]`, or `[W, 1]`: one for all.
        where: int8 `[W, num]`, or `[W, 0]` for none: those with 0 have the value times 0.
        alive: int8 `[W, num]`, or `[W, 0]` for none: those with 0 have the value 0, whatever theirs is.
        num: agents.
        hazard: as `draw_mask`.
        ids: as `draw_mask`.
        key: as `draw_mask`.
        step: as `draw_mask`.
        stream: as `draw_mask`.
    """
    if variant(values.device) == "numba":
        from denizen.ops import _cpu_draws

        return _cpu_draws.draw_among(values, where, alive, num, hazard, ids, key, step, stream)
    return draw_mask(gated(values, where, alive, num).contiguous(), hazard, ids, key, step, stream)


@torch.library.register_fake("denizen::draw_among")
def _(values, where, alive, num, hazard, ids, key, step, stream):  # type: ignore[no-untyped-def]
    return (
        values.new_empty(key.shape[0], num, dtype=torch.int8),
        values.new_empty(key.shape[:1], dtype=torch.int8),
    )


@vmap_rule("draw_among")
def _(info, in_dims, values, where, alive, num, hazard, ids, key, step, stream):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    values, where, alive = (
        fold_worlds(one, dim, batch) for one, dim in zip((values, where, alive), in_dims[:3], strict=True)
    )
    key = fold_worlds(key, in_dims[6], batch)
    ids = _ids(ids, in_dims[5], batch, key.shape[0])
    out, bad = draw_among(values, where, alive, num, hazard, ids, key, step, stream)
    return (unfold_worlds(out, batch), unfold_worlds(bad, batch)), (0, 0)


def exponential(words: Tensor, rates: Tensor) -> Tensor:
    """Exponential times by inversion: float32 of 32-bit words and float32 rates."""
    return -torch.log1p(-((words.to(torch.float64) + 0.5) * 2.0**-32)).to(torch.float32) / rates


@register
def draw_exponential(
    rates: Tensor, where: Tensor, ids: Tensor, key: Tensor, step: Tensor, stream: int
) -> tuple[Tensor, Tensor]:
    """Exponential times of those in a mask, 0 for the others: float32 `[W, num]`; int8 `[W]`: 1 where a rate was bad.

    Args:
        rates: float32 `[W, num]`, or `[W, 1]`: one for all.
        where: mask int8 `[W, num]`.
        ids: as `draw_words`.
        key: as `draw_words`.
        step: as `draw_words`.
        stream: as `draw_words`.
    """
    num = where.shape[1]
    if variant(rates.device) == "numba":
        from denizen.ops import _cpu_draws

        return _cpu_draws.exponential(rates, where, ids, key, step, stream)
    drawn = exponential(draw_words(ids, num, key, step, stream), rates)
    bad = (~(rates >= 0) & (where != 0)).any(dim=1)
    return torch.where(where != 0, drawn, 0.0), bad.to(torch.int8)


@torch.library.register_fake("denizen::draw_exponential")
def _(rates, where, ids, key, step, stream):  # type: ignore[no-untyped-def]
    return rates.new_empty(where.shape), where.new_empty(where.shape[:1])


@vmap_rule("draw_exponential")
def _(info, in_dims, rates, where, ids, key, step, stream):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    rates, where = (fold_worlds(one, dim, batch) for one, dim in zip((rates, where), in_dims[:2], strict=True))
    key = fold_worlds(key, in_dims[3], batch)
    out, bad = draw_exponential(rates, where, _ids(ids, in_dims[2], batch, key.shape[0]), key, step, stream)
    return (unfold_worlds(out, batch), unfold_worlds(bad, batch)), (0, 0)
