"""Towers of two layers with an activation after each and a linear head, as one operation.

Values and gradients touch memory once: observations in, what the heads give out. The plain torch form is the reference.
On CUDA `_cuda_mlp` keeps the hidden layers in registers and computes them again for the gradient. There is no gradient
to the input, which observations do not need.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from denizen.ops._library import register, variant

ACTIVATIONS = ("tanh", "relu")
TOWER = 6  # tensors of a tower: weight [hidden, inputs] and bias, weight [out, hidden] and bias, and those of the head
TOWERS = 2  # at most
WIDEST = 64  # layer that the kernels hold in registers and shared memory
_ALIGNED = 4  # numbers of float32 in 16 bytes


def fits(x: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether the kernels take an input `[rows, inputs]` and the weights of towers, as `mlp` has them."""
    first = [weight.shape for weight in weights[:4]]
    return (
        variant(x.device) == "triton"
        and x.dim() == 2
        and all(tensor.dtype == torch.float32 for tensor in (x, *weights))
        and len(weights) in range(TOWER, TOWERS * TOWER + 1, TOWER)
        and all([w.shape for w in weights[at : at + 4]] == first for at in range(0, len(weights), TOWER))
        and max(max(w.shape) for w in weights) <= WIDEST
    )


def _active(values: Tensor, activation: str) -> Tensor:
    return values.tanh() if activation == "tanh" else values.relu()


def _slope(active: Tensor, activation: str) -> Tensor:
    return 1 - active * active if activation == "tanh" else (active > 0).to(active.dtype)


def _towers(weights: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    return [weights[at : at + TOWER] for at in range(0, len(weights), TOWER)]


@register
def mlp(x: Tensor, weights: Sequence[Tensor], activation: str) -> Tensor:
    """What the heads of towers give, side by side: w3 active(w2 active(w1 x + b1) + b2) + b3: float32 `[rows, heads]`.

    Args:
        x: `[rows, inputs]`.
        weights: of one tower or two: w1 `[hidden, inputs]`, b1, w2 `[out, hidden]`, b2, w3 `[head, out]`, b3 of each.
            Towers are alike but for their heads.
        activation: one of `ACTIVATIONS`.
    """
    if variant(x.device) == "triton":
        from denizen.ops import _cuda_mlp

        return _cuda_mlp.forward(x, weights, activation)
    return torch.cat([_hidden(x, tower, activation)[-1] for tower in _towers(weights)], 1)


def _hidden(x: Tensor, tower: Sequence[Tensor], activation: str) -> list[Tensor]:
    """Both layers and the head of a tower."""
    w1, b1, w2, b2, w3, b3 = tower
    one = _active(linear(x, w1, b1), activation)
    two = _active(linear(one, w2, b2), activation)
    return [one, two, linear(two, w3, b3)]


@torch.library.register_fake("denizen::mlp")
def _(x: Tensor, weights: Sequence[Tensor], activation: str) -> Tensor:
    return x.new_empty(x.shape[0], sum(tower[4].shape[0] for tower in _towers(weights)))


@register
def mlp_gradients(grad: Tensor, x: Tensor, weights: Sequence[Tensor], activation: str) -> Tensor:
    """Gradients of all weights from that of what `mlp` gives, one after the other from `starts` on."""
    if variant(x.device) == "triton":
        from denizen.ops import _cuda_mlp

        return _cuda_mlp.gradients(grad, x, weights, activation)
    slopes, at = [], 0
    for tower in _towers(weights):
        (_, _, w2, _, w3, _), (one, two, head) = tower, _hidden(x, tower, activation)
        third = grad[:, at : at + head.shape[1]]
        second = (third @ w3) * _slope(two, activation)
        first = (second @ w2) * _slope(one, activation)
        for outer, inner in ((first, x), (second, one), (third, two)):
            slopes += [outer.t() @ inner, outer.sum(0)]
        at += head.shape[1]
    flat = x.new_zeros(starts(weights)[-1])
    for start, slope in zip(starts(weights), slopes, strict=False):
        flat[start : start + slope.numel()] = slope.flatten()
    return flat


def starts(weights: Sequence[Tensor]) -> list[int]:
    """Where each weight's gradient begins in those of all, and where the last one ends; all are aligned."""
    found = [0]
    for weight in weights:
        found.append(found[-1] + -(-weight.numel() // _ALIGNED) * _ALIGNED)
    return found


@torch.library.register_fake("denizen::mlp_gradients")
def _(grad: Tensor, x: Tensor, weights: Sequence[Tensor], activation: str) -> Tensor:
    return x.new_empty(starts(weights)[-1])


def _context(ctx, inputs, output):  # type: ignore[no-untyped-def]
    x, weights, ctx.activation = inputs
    ctx.save_for_backward(x, *weights)


def _backward(ctx, grad):  # type: ignore[no-untyped-def]
    x, *weights = ctx.saved_tensors
    flat = mlp_gradients(grad.contiguous(), x, weights, ctx.activation)
    slopes = [
        flat[start : start + weight.numel()].view(weight.shape)
        for start, weight in zip(starts(weights), weights, strict=False)
    ]
    return None, slopes, None


torch.library.register_autograd("denizen::mlp", _backward, setup_context=_context)
