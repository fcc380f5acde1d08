"""All message steps as one operation: in plain torch, and by kernels that fuse each sublayer, chosen where they fit.

A pass of plain operations over 20 agents and 1,600 rows is bound by launches and by memory: each sublayer reads and
writes its state a dozen times. The kernels read it once or twice. Weights are those of all agents; layouts are
`[agents, rows, width]`, rows being batch times time; columns of `qkv` are ordered head, part, place in the head.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from denizen.errors import ModelError
from denizen.ops import register, variant, vmap_rule

# Beyond these sizes a tile does not fit into a multiprocessor's memory, and plain operations are efficient anyway.
MAX_AGENTS, MAX_TIMES, MAX_WIDTH, HEADS = 64, 128, 128, (16, 32, 64)


def available(device: torch.device) -> bool:
    """Whether the kernels run on a device; not to be asked within a compiled function, which cannot look.

    Nor on AMD's devices, whose shared memory is smaller than the tiles here.
    """
    if device.type != "cuda" or torch.version.hip or variant(device) != "triton":
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)  # older ones have too little shared memory


def fits(h: Tensor, times: int | None, num_heads: int) -> bool:
    """Whether the kernels take states `h` of this many agents and this width, in 16 bits.

    Args:
        h: `[agents, rows, width]`.
        times: of a sample; None without memory.
        num_heads: of the attentions.
    """
    agents, rows, width = h.shape
    if not rows or h.dtype not in (torch.float16, torch.bfloat16) or agents > MAX_AGENTS:
        return False
    head = width // num_heads
    return head in HEADS and width <= MAX_WIDTH and not width & (width - 1) and (times or 0) <= MAX_TIMES


def pack(fused: Tensor, shared: Tensor | None, num_heads: int) -> Tensor:
    """Queries, keys and values of all agents `[agents, width, 3 * width]`, from weights that may share the values."""
    if shared is None:
        return fused
    agents, width = fused.shape[:2]
    own = fused.unflatten(-1, (num_heads, 2, -1))
    values = shared.unflatten(-1, (num_heads, 1, -1)).expand(agents, -1, -1, -1, -1)
    return torch.cat([own, values], -2).reshape(agents, width, 3 * width)


# --- dropout ----------------------------------------------------------------------------------------------------------


def _mixed(x: Tensor) -> Tensor:
    """A permutation of 32-bit numbers, held in int64 (Wellons' lowbias32)."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x = x ^ (x >> 15)
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ (x >> 16)


def dropped(value: Tensor, seed: Tensor | None, layer: int, rate: float) -> Tensor:
    """`value` after dropout: a function of `seed` (int64 `[1]`), `layer` and place, so the backward draws it again."""
    if not rate or seed is None:
        return value
    threshold = round(rate * 2**24)
    key = _mixed(seed + layer & 0xFFFFFFFF)
    place = torch.arange(value.numel(), device=value.device).view(value.shape) & 0xFFFFFFFF
    bits = _mixed(_mixed(place ^ key) + key & 0xFFFFFFFF)
    return torch.where((bits >> 8) >= threshold, value * (2**24 / (2**24 - threshold)), 0.0)


# --- the operation in plain torch -------------------------------------------------------------------------------------


def plain_steps(
    h: Tensor,
    weights: Sequence[Tensor | None],
    seed: Tensor | None,
    times: int,
    heads: int,
    steps: int,
    rate: float,
    eps: float,
) -> Tensor:
    """What `message_steps` computes, written to be read; differentiable, in any dtype."""
    memory_gain, memory, social_gain, social, bias, *mlp = weights
    gain, inner, inner_bias, outer, outer_bias = (x for x in mlp if x is not None)
    agents, rows, width = h.shape

    def norm(x: Tensor, gain: Tensor | None) -> Tensor:
        return F.rms_norm(x, (width,), gain, eps)

    def attend(h: Tensor, gain: Tensor | None, weight: Tensor, past: bool) -> Tensor:
        q, k, v = (norm(h, gain) @ weight).view(agents, rows, heads, 3, -1).unbind(3)  # [agents, rows, heads, d]
        if past:
            q, k, v = (x.unflatten(1, (-1, times)).transpose(2, 3) for x in (q, k, v))
            later = torch.ones(times, times, dtype=torch.bool, device=h.device).triu(1)
            mask = h.new_zeros(times, times).masked_fill(later, -math.inf)
            said = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]) + mask, -1) @ v
            return said.transpose(2, 3).reshape(h.shape)
        q, k, v = (x.permute(1, 2, 0, 3) for x in (q, k, v))  # [rows, heads, agents, d]
        assert bias is not None
        said = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]) + bias.to(h.dtype), -1) @ v
        return said.permute(2, 0, 1, 3).reshape(h.shape)

    layer = 0
    for _ in range(steps):
        for past, own_gain, weight in ((True, memory_gain, memory), (False, social_gain, social)):
            if weight is not None:
                h = h + dropped(attend(h, own_gain, weight, past), seed, layer, rate)
                layer += 1
        thought = F.silu(norm(h, gain) @ inner + inner_bias[:, None]) @ outer + outer_bias[:, None]
        h = h + dropped(thought, seed, layer, rate)
        layer += 1
    return h


# --- the operation by kernels -----------------------------------------------------------------------------------------


@register
def message_steps(
    h: Tensor,
    memory_gain: Tensor | None,
    memory: Tensor | None,
    social_gain: Tensor | None,
    social: Tensor | None,
    bias: Tensor | None,
    gain: Tensor,
    inner: Tensor,
    inner_bias: Tensor,
    outer: Tensor,
    outer_bias: Tensor,
    seed: Tensor | None,
    times: int,
    heads: int,
    steps: int,
    rate: float,
    eps: float,
    keep: bool,
) -> list[Tensor]:
    """States after all message steps, and what the backward needs.

    Returns: [states, states in between, qkv of attentions, then in the dtype of `h`, empty where None: `memory`,
    `social`, `inner`, `outer`].

    Args:
        h: `[agents, rows, width]`; matrices are taken in its dtype.
        memory_gain: `[width]`, of the norm before the attention over each agent's past.
        memory: `[agents, width, 3 * width]` as of `pack`; None without memory.
        social_gain: `[width]`, of the norm before the attention over agents.
        social: like `memory`; None where agents do not talk.
        bias: `[agents, agents]`, added to the scores of the attention over agents.
        gain: `[width]`, of the norm before the MLP.
        inner: `[agents, width, width]`, first of the MLP's matrices.
        inner_bias: `[agents, width]`.
        outer: `[agents, width, width]`.
        outer_bias: `[agents, width]`.
        seed: int64 `[1]`, of the dropout; None without.
        times: rows of a sample.
        heads: of both attentions.
        steps: at least 1; all have the same weights.
        rate: of the dropout of what each sublayer adds.
        eps: of the norms.
        keep: whether a backward will come.
    """
    from denizen.nn.kernels import _cuda_message_steps

    weights = (memory_gain, memory, social_gain, social, bias, gain, inner, inner_bias, outer, outer_bias)
    with torch.cuda.device_of(h):  # Triton launches on the current device
        return _cuda_message_steps.forward(h.contiguous(), weights, seed, times, heads, steps, rate, eps, keep)


@torch.library.register_fake("denizen::message_steps")
def _(h, *args):  # type: ignore[no-untyped-def]
    steps, keep, attentions = args[13], args[16], (args[1] is not None) + (args[3] is not None)
    layers = steps * (attentions + 1)
    between = layers - 1 if keep else min(2, layers - 1)
    qkvs = steps * attentions if keep else min(1, attentions)
    agents, rows, width = h.shape
    out = h.new_empty(agents, rows, width)
    wide = [h.new_empty((agents, width, 3 * width) if args[i] is not None else (0,)) for i in (1, 3)]
    square = [h.new_empty(agents, width, width) for _ in range(2)]
    return [out, h.new_empty(between, *h.shape), h.new_empty(qkvs, agents, rows, 3 * width), *wide, *square]


@register
def message_steps_backward(
    dafter: Tensor,
    h: Tensor,
    between: Tensor,
    qkvs: Tensor,
    memory_gain: Tensor | None,
    memory: Tensor | None,
    social_gain: Tensor | None,
    social: Tensor | None,
    bias: Tensor | None,
    gain: Tensor,
    inner: Tensor,
    inner_bias: Tensor,
    outer: Tensor,
    outer_bias: Tensor,
    seed: Tensor | None,
    times: int,
    heads: int,
    steps: int,
    rate: float,
    eps: float,
) -> list[Tensor]:
    """Gradients of `h` and, in float32, of the weights of `message_steps`; empty for those that are None.

    Matrices come in the dtype of `h`, as `message_steps` returns them.

    Those of `inner` and `outer` are one tensor, those of their biases another.
    """
    from denizen.nn.kernels import _cuda_message_steps

    weights = (memory_gain, memory, social_gain, social, bias, gain, inner, inner_bias, outer, outer_bias)
    sizes = times, heads, steps, rate, eps
    with torch.cuda.device_of(h):
        return _cuda_message_steps.backward(dafter, h.contiguous(), between, qkvs, weights, seed, *sizes)


@torch.library.register_fake("denizen::message_steps_backward")
def _(dafter, h, between, qkvs, *args):  # type: ignore[no-untyped-def]
    def like(weight: Tensor | None) -> Tensor:
        if weight is None:
            return h.new_empty(0)
        return h.new_empty(weight.shape, dtype=torch.float32)

    inner, bias = args[6], args[7]
    pairs = [inner.new_empty(2, *x.shape, dtype=torch.float32) for x in (inner, bias)]
    return [h.new_empty(h.shape), *(like(weight) for weight in args[:6]), *pairs]


def _context(ctx, inputs, output):  # type: ignore[no-untyped-def]
    h, memory_gain, memory, social_gain, social, bias, gain, _, inner_bias, _, outer_bias, seed, *rest, _ = inputs
    _, between, qkvs, *matrices = output
    matrices = [None if whole is None else own for whole, own in zip((memory, social, h, h), matrices, strict=True)]
    small_memory, small_social, inner, outer = matrices
    ctx.save_for_backward(
        h,
        between,
        qkvs,
        memory_gain,
        small_memory,
        social_gain,
        small_social,
        bias,
        gain,
        inner,
        inner_bias,
        outer,
        outer_bias,
        seed,
    )
    ctx.rest = rest
    ctx.set_materialize_grads(False)  # what is kept for the backward gets no gradient: no zeros in place of it


def _backward(ctx, grads):  # type: ignore[no-untyped-def]
    saved = ctx.saved_tensors
    dh, *found, pair, biases = message_steps_backward(grads[0], *saved, *ctx.rest)
    found += [pair[0], biases[0], pair[1], biases[1]]
    given = (None if weight is None else grad for weight, grad in zip(saved[3:13], found, strict=True))
    return dh, *given, *[None] * 7


def _twice(ctx, *grads):  # type: ignore[no-untyped-def]
    raise ModelError(
        "the kernels of DynamicDotGAT have no second derivatives; take them in float32, without autocast, under "
        "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)"
    )


torch.library.register_autograd("denizen::message_steps", _backward, setup_context=_context)
torch.library.register_autograd("denizen::message_steps_backward", _twice)


@vmap_rule("message_steps")
def _(info, in_dims, h, *rest):  # type: ignore[no-untyped-def]
    *weights, seed = in_dims[1:12]
    if any(dim is not None for dim in weights):
        raise ModelError(
            "the weights of a DynamicDotGAT differ between worlds; run one network for each set of weights"
        )
    if seed is not None:  # one will do: what is dropped follows from the place as well
        rest = (*rest[:10], rest[10].select(seed, 0), *rest[11:])
    batched = h.expand(info.batch_size, *h.shape) if in_dims[0] is None else h.movedim(in_dims[0], 0)
    folded = batched.movedim(0, 1)  # worlds are samples: between agents and rows
    out, between, qkvs, *matrices = message_steps(folded.flatten(1, 2), *rest)
    states = [
        out.unflatten(1, (info.batch_size, -1)),
        *(x.unflatten(2, (info.batch_size, -1)) for x in (between, qkvs)),
    ]
    return [*states, *matrices], [1, 2, 2, *[None] * len(matrices)]
