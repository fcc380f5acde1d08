"""Two linear layers with an activation after each, as one operation: values and gradients touch memory once.

The plain torch form is the reference. On CUDA `_cuda_mlp` keeps the hidden layer in registers and computes it again for
the gradient. There is no gradient to the input, which observations do not need.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear

from denizen.ops._library import register, variant

ACTIVATIONS = ("tanh", "relu")
WIDEST = 64  # layer that the kernels hold in registers and shared memory


def fits(x: Tensor, first: Tensor, second: Tensor) -> bool:
    """Whether the kernels take an input `[rows, inputs]` and weights `[hidden, inputs]` and `[out, hidden]`."""
    return (
        variant(x.device) == "triton"
        and x.dim() == 2
        and x.dtype == first.dtype == second.dtype == torch.float32
        and max(*first.shape, *second.shape) <= WIDEST
    )


def _active(values: Tensor, activation: str) -> Tensor:
    return values.tanh() if activation == "tanh" else values.relu()


def _slope(active: Tensor, activation: str) -> Tensor:
    return 1 - active * active if activation == "tanh" else (active > 0).to(active.dtype)


@register
def mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, activation: str) -> Tensor:
    """Activation of (w2 activation of (w1 x + b1) + b2): float32 `[rows, out]`.

    Args:
        x: `[rows, inputs]`.
        w1: `[hidden, inputs]`.
        b1: `[hidden]`.
        w2: `[out, hidden]`.
        b2: `[out]`.
        activation: one of `ACTIVATIONS`.
    """
    if variant(x.device) == "triton":
        from denizen.ops import _cuda_mlp

        return _cuda_mlp.forward(x, w1, b1, w2, b2, activation)
    return _active(linear(_active(linear(x, w1, b1), activation), w2, b2), activation)


@torch.library.register_fake("denizen::mlp")
def _(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, activation: str) -> Tensor:
    return x.new_empty(x.shape[0], w2.shape[0])


@register
def mlp_gradients(
    grad: Tensor, x: Tensor, out: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of w1, b1, w2 and b2 from that of the output `out` of `mlp`."""
    if variant(x.device) == "triton":
        from denizen.ops import _cuda_mlp

        return _cuda_mlp.gradients(grad, x, out, w1, b1, w2, activation)
    hidden = _active(linear(x, w1, b1), activation)
    second = grad * _slope(out, activation)
    first = (second @ w2) * _slope(hidden, activation)
    return first.t() @ x, first.sum(0), second.t() @ hidden, second.sum(0)


@torch.library.register_fake("denizen::mlp_gradients")
def _(
    grad: Tensor, x: Tensor, out: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return w1.new_empty(w1.shape), w1.new_empty(b1.shape), w1.new_empty(w2.shape), w1.new_empty(w2.shape[0])


def _context(ctx, inputs, output):  # type: ignore[no-untyped-def]
    x, w1, b1, w2, _, ctx.activation = inputs
    ctx.save_for_backward(x, output, w1, b1, w2)


def _backward(ctx, grad):  # type: ignore[no-untyped-def]
    x, out, w1, b1, w2 = ctx.saved_tensors
    return None, *mlp_gradients(grad.contiguous(), x, out, w1, b1, w2, ctx.activation), None


torch.library.register_autograd("denizen::mlp", _backward, setup_context=_context)
