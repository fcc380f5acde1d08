"""Towers of two layers with an activation after each and a linear head, as one operation.

Values and gradients touch memory once: observations in, what the heads give out. The plain torch form is the reference.
On CUDA `_cuda_mlp` keeps the hidden layers in registers and computes them again for the gradient; of wide inputs, such
as planes, the first layer is kept. There is no gradient to the input, which observations do not need.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from denizen.ops import register, variant

ACTIVATIONS = ("tanh", "relu")
TOWER = 6  # tensors of a tower: weight [hidden, inputs] and bias, weight [out, hidden] and bias, and those of the head
TOWERS = 2  # at most
WIDEST = 64  # layer that the kernels hold in registers and shared memory; inputs may be wider
MLP_INPUTS = (torch.float32, torch.uint8)  # whole numbers up to 255 are what they are in every precision


def mlp_fits(weights: Sequence[Tensor]) -> bool:
    """Whether kernels take the weights of towers, as `mlp` has them."""
    first = [weight.shape for weight in weights[:4]]
    return (
        variant(weights[0].device) == "triton"
        and all(weight.dtype == torch.float32 for weight in weights)
        and len(weights) in range(TOWER, TOWERS * TOWER + 1, TOWER)
        and all([w.shape for w in weights[at : at + 4]] == first for at in range(0, len(weights), TOWER))
        and max(weight.shape[0] for weight in weights) <= WIDEST
    )


def _active(values: Tensor, activation: str) -> Tensor:
    return values.tanh() if activation == "tanh" else values.relu()


def _slope(active: Tensor, activation: str) -> Tensor:
    return 1 - active * active if activation == "tanh" else (active > 0).to(active.dtype)


def _towers(weights: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    return [weights[at : at + TOWER] for at in range(0, len(weights), TOWER)]


@register
def mlp(x: Tensor, weights: Sequence[Tensor], activation: str) -> tuple[Tensor, Tensor]:
    """What the heads of towers give, side by side: w3 active(w2 active(w1 x + b1) + b2) + b3: float32 `[rows, heads]`.

    The second result is for the gradients: first layers of wide inputs, `[rows, towers * hidden]`, else empty.

    Args:
        x: `[rows, inputs]`, one of `MLP_INPUTS`.
        weights: of one tower or two: w1 `[hidden, inputs]`, b1, w2 `[out, hidden]`, b2, w3 `[head, out]`, b3 of each.
            Towers are alike but for their heads.
        activation: one of `ACTIVATIONS`.
    """
    if variant(x.device) == "triton":
        from denizen.nn.kernels import _cuda_mlp

        return _cuda_mlp.forward(x, weights, activation)
    found = [_hidden(x, tower, activation) for tower in _towers(weights)]
    first = [one for one, _, _ in found] if wide(weights) else [x.new_empty(x.shape[0], 0, dtype=torch.float32)]
    return torch.cat([head for _, _, head in found], 1), torch.cat(first, 1)


def wide(weights: Sequence[Tensor]) -> bool:
    """Whether the first layer is kept for the gradient."""
    return weights[0].shape[1] > WIDEST


def _hidden(x: Tensor, tower: Sequence[Tensor], activation: str) -> list[Tensor]:
    """Both layers and the head of a tower."""
    w1, b1, w2, b2, w3, b3 = tower
    one = _active(linear(x.to(w1.dtype), w1, b1), activation)
    two = _active(linear(one, w2, b2), activation)
    return [one, two, linear(two, w3, b3)]


@torch.library.register_fake("denizen::mlp")
def _(x: Tensor, weights: Sequence[Tensor], activation: str) -> tuple[Tensor, Tensor]:
    rows, towers = x.shape[0], _towers(weights)
    heads, hidden = sum(tower[4].shape[0] for tower in towers), len(towers) * weights[0].shape[0]
    return weights[0].new_empty(rows, heads), weights[0].new_empty(rows, hidden if wide(weights) else 0)


@register
def mlp_gradients(grad: Tensor, x: Tensor, first: Tensor, weights: Sequence[Tensor], activation: str) -> Tensor:
    """Gradients of all weights from that of what `mlp` gives, and its second result; each begins where `starts` says.

    They are in one tensor: results of an operation must not share memory, and parts of one cost no copy.
    """
    if variant(x.device) == "triton":
        from denizen.nn.kernels import _cuda_mlp

        return _cuda_mlp.gradients(grad, x, first, weights, activation)
    slopes, at = [], 0
    for tower in _towers(weights):
        (_, _, w2, _, w3, _), (one, two, head) = tower, _hidden(x, tower, activation)
        third = grad[:, at : at + head.shape[1]]
        second = (third @ w3) * _slope(two, activation)
        lowest = (second @ w2) * _slope(one, activation)
        for outer, inner in ((lowest, x.to(w2.dtype)), (second, one), (third, two)):
            slopes += [outer.t() @ inner, outer.sum(0)]
        at += head.shape[1]
    places, end = starts(weights)
    flat = grad.new_zeros(end)
    for start, slope in zip(places, slopes, strict=True):
        flat[start : start + slope.numel()] = slope.flatten()
    return flat


def starts(weights: Sequence[Tensor]) -> tuple[list[int], int]:
    """(where each weight's gradient begins, where the last one ends); those of first layers come last."""
    places, end = [0] * len(weights), 0
    for number in sorted(range(len(weights)), key=lambda number: number % TOWER == 0):
        places[number], end = end, end + weights[number].numel()
    return places, end


@torch.library.register_fake("denizen::mlp_gradients")
def _(grad: Tensor, x: Tensor, first: Tensor, weights: Sequence[Tensor], activation: str) -> Tensor:
    return grad.new_empty(starts(weights)[1])


def _context(ctx, inputs, output):  # type: ignore[no-untyped-def]
    x, weights, ctx.activation = inputs
    ctx.save_for_backward(x, output[1], *weights)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx, grad, _):  # type: ignore[no-untyped-def]
    x, first, *weights = ctx.saved_tensors
    flat = mlp_gradients(grad.contiguous(), x, first, weights, ctx.activation)
    slopes = [
        flat[start : start + weight.numel()].view(weight.shape)
        for start, weight in zip(starts(weights)[0], weights, strict=True)
    ]
    return None, slopes, None


torch.library.register_autograd("denizen::mlp", _backward, setup_context=_context)


def precompile_mlp(acting: Tensor, learning: Tensor, weights: Sequence[Tensor], activation: str) -> None:
    """Compile the kernels of `mlp`, for rows to learn from those of its gradients too, of tensors on "meta"."""
    from denizen.nn.kernels import _cuda_mlp

    _cuda_mlp.forward(acting, weights, activation)
    out, first = _cuda_mlp.forward(learning, weights, activation)
    _cuda_mlp.gradients(out, learning, first, weights, activation)
