"""`_adam.adam` on CUDA with Triton."""

import math

import torch
import triton
import triton.language as tl

from denizen.nn.kernels._precompile import launch

_BLOCK = 1024
_PROGRAMS = 264  # two for each multiprocessor of an H100


@triton.jit
def _squares_kernel(grad, partial, step, skip, n, rounds, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(rounds):
        i = (program.to(tl.int64) * rounds + k) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(grad + i, mask=i < n, other=0.0)
        total += value * value
    tl.store(partial + program, tl.sum(total))
    if program == 0:  # for the next kernel, in which every program reads it
        tl.store(step, tl.load(step) + (1 - tl.load(skip).to(tl.float32)))


@triton.jit
def _adam_kernel(
    weight,
    grad,
    mean,
    square,
    step,
    rate,
    skip,
    partial,
    norm_out,
    n,
    programs,
    max_norm,
    rest1,
    beta2,
    rest2,
    log1,
    log2,
    eps,
    CLIP: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    part = tl.arange(0, PARTS)
    norm = tl.sqrt(tl.sum(tl.load(partial + part, mask=part < programs, other=0.0)))
    if tl.program_id(0) == 0:
        tl.store(norm_out, norm)
    if tl.load(skip) == 0:
        i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(grad + i, mask=i < n, other=0.0)
        if CLIP:
            g = g * tl.minimum(max_norm / (norm + 1e-6), 1.0)
        m = tl.load(mean + i, mask=i < n, other=0.0)
        v = tl.load(square + i, mask=i < n, other=0.0)
        m = m + (g - m) * rest1
        v = v * beta2 + g * g * rest2
        done = tl.load(step).to(tl.float64)  # 1 - beta^t of few steps would lose half its digits in float32
        first = (1.0 - tl.exp(done * log1)).to(tl.float32)
        second = tl.sqrt(1.0 - tl.exp(done * log2)).to(tl.float32)
        change = tl.load(rate) / first * m / (tl.sqrt(v) / second + eps)
        tl.store(weight + i, tl.load(weight + i, mask=i < n, other=0.0) - change, mask=i < n)
        tl.store(mean + i, m, mask=i < n)
        tl.store(square + i, v, mask=i < n)


def adam(
    weight: torch.Tensor,
    grad: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    step: torch.Tensor,
    rate: torch.Tensor,
    skip: torch.Tensor,
    max_norm: float | None,
    betas: tuple[float, float],
    eps: float,
) -> torch.Tensor:
    """`_adam.adam`; the norm's parts are added in a fixed order."""
    n = weight.numel()
    blocks = triton.cdiv(n, _BLOCK)
    rounds = triton.cdiv(blocks, _PROGRAMS)
    programs = triton.cdiv(blocks, rounds)
    partial = torch.empty(programs, dtype=torch.float32, device=weight.device)
    norm = torch.empty((), dtype=torch.float32, device=weight.device)
    launch(_squares_kernel, (programs,), grad, partial, step, skip, n, rounds, BLOCK=_BLOCK)
    rest, logs = [1 - beta for beta in betas], [math.log(beta) for beta in betas]
    launch(
        _adam_kernel,
        (blocks,),
        weight,
        grad,
        mean,
        square,
        step,
        rate,
        skip,
        partial,
        norm,
        n,
        programs,
        max_norm or 0.0,
        rest[0],
        betas[1],
        rest[1],
        *logs,
        eps,
        CLIP=max_norm is not None,
        PARTS=triton.next_power_of_2(programs),
        BLOCK=_BLOCK,
    )
    return norm
