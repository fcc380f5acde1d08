"""The message steps by Triton's kernels: what is launched, in which order, with what kept in between."""

from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from denizen.nn import _cuda

_ROWS = 64  # of a tile
_TALK_ROWS = 4  # rows that a program of the attention over agents goes through, one after the other


class Launcher:
    """Launches of one pass over the message steps: sizes and dropout, the same for all of them."""

    def __init__(self, h: Tensor, times: int, heads: int, rate: float, eps: float, seed: Tensor | None) -> None:
        self.agents, self.rows, self.width = h.shape
        self.times, self.heads, self.eps = times, heads, eps
        self.scale = (self.width // heads) ** -0.5
        self.blocks = triton.cdiv(self.rows, _ROWS)
        self.sizes = {"WIDTH": self.width, "HEAD": self.width // heads}
        self.drop = rate > 0
        self.seed, self.threshold = (h if seed is None else seed), round(rate * 2**24)  # without dropout it is not read

    def _chance(self, layer: int) -> tuple[Tensor, int, int]:
        return self.seed, layer, self.threshold

    def project(self, h: Tensor, gain: Tensor, weight: Tensor, out: Tensor) -> None:
        """Queries, keys and values of the normed `h`."""
        _cuda._project_kernel[(self.blocks, self.agents, 3)](
            h, gain, weight, out, self.rows, self.eps, WIDTH=self.width, ROWS=_ROWS, num_warps=4,
        )  # fmt: skip

    def project_backward(
        self, dqkv: Tensor, weight: Tensor, h: Tensor, gain: Tensor, dout: Tensor, dh: Tensor, dgain: Tensor
    ) -> None:
        """`dh`: what comes through the norm, and what passes by it (`dout`); `dgain` `[agents * blocks, width]`."""
        _cuda._project_backward_kernel[(self.blocks, self.agents)](
            dqkv, weight, h, gain, dout, dh, dgain, self.rows, self.eps, WIDTH=self.width, ROWS=_ROWS, num_warps=8,
        )  # fmt: skip

    def _past(self) -> tuple[tuple[int, int, int], dict[str, int]]:
        size = max(16, triton.next_power_of_2(self.times))
        return (self.rows // self.times, self.agents, self.heads), {**self.sizes, "TIMES": size, "num_warps": 4}

    def remember(self, qkv: Tensor, h: Tensor, out: Tensor, layer: int) -> None:
        """`h` and what attention over each agent's past adds."""
        grid, sizes = self._past()
        _cuda._remember_kernel[grid](
            qkv, h, out, *self._chance(layer), self.rows, self.times, self.scale, DROP=self.drop, **sizes
        )

    def remember_backward(self, qkv: Tensor, dout: Tensor, dqkv: Tensor, layer: int) -> None:
        """Gradient of `qkv`."""
        grid, sizes = self._past()
        _cuda._remember_backward_kernel[grid](
            qkv, dout, dqkv, *self._chance(layer), self.rows, self.times, self.scale, DROP=self.drop, **sizes
        )

    @property
    def talks(self) -> int:
        """Programs that attend over agents."""
        return triton.cdiv(self.rows, _TALK_ROWS) * self.heads

    def _others(self) -> tuple[tuple[int, int], dict[str, int]]:
        size = max(16, triton.next_power_of_2(self.agents))
        sizes = {**self.sizes, "AGENTS": size, "ROWS": _TALK_ROWS, "num_warps": 1 if size <= 32 else 4}
        return (self.talks // self.heads, self.heads), sizes

    def talk(self, qkv: Tensor, bias: Tensor | None, h: Tensor, out: Tensor, layer: int) -> None:
        """`h` and what attention over agents adds."""
        grid, sizes = self._others()
        _cuda._talk_kernel[grid](
            qkv, bias, h, out, *self._chance(layer), self.rows, self.agents, self.scale, DROP=self.drop, **sizes
        )

    def talk_backward(
        self, qkv: Tensor, bias: Tensor | None, dout: Tensor, dqkv: Tensor, dbias: Tensor | None, layer: int
    ) -> None:
        """Gradient of `qkv`; `dbias` `[talks, agents, agents]`."""
        grid, sizes = self._others()
        _cuda._talk_backward_kernel[grid](
            qkv, bias, dout, dqkv, dbias, *self._chance(layer), self.rows, self.agents, self.scale, DROP=self.drop,
            **sizes,
        )  # fmt: skip

    def think(self, h: Tensor, gain: Tensor, layers: tuple[Tensor, ...], out: Tensor, layer: int) -> None:
        """`h` and what the MLP adds; `layers` are inner, its bias, outer, its bias."""
        _cuda._think_kernel[(self.blocks, self.agents)](
            h, gain, *layers, out, *self._chance(layer), self.rows, self.eps, WIDTH=self.width, ROWS=_ROWS,
            DROP=self.drop, num_warps=8,
        )  # fmt: skip

    def think_backward(
        self, h: Tensor, gain: Tensor, layers: tuple[Tensor, ...], dout: Tensor, dh: Tensor,
        kept: tuple[Tensor, ...], dgain: Tensor, layer: int,
    ) -> None:  # fmt: skip
        """`dh`; into `kept` go the inner activation and the gradients before it and of the outer product."""
        _cuda._think_backward_kernel[(self.blocks, self.agents)](
            h, gain, *layers[:3], dout, dh, *kept, dgain, *self._chance(layer), self.rows, self.eps, WIDTH=self.width,
            ROWS=_ROWS, DROP=self.drop, num_warps=8,
        )  # fmt: skip

    def weight_gradient(
        self, x: Tensor, y: Tensor, dweight: Tensor, *, gain: Tensor | None = None, dbias: Tensor | None = None,
        add: bool,
    ) -> None:  # fmt: skip
        """`dweight` float32 `[agents, width, columns]` of a product of `x`, normed given a gain; `y` its gradient."""
        columns, block = y.shape[-1], min(32, self.width)
        _cuda._weight_gradient_kernel[(columns // block, self.agents)](
            x, x if gain is None else gain, y, dweight, dweight if dbias is None else dbias, self.rows, columns,
            self.eps, int(add), WIDTH=self.width, COLUMNS=block, ROWS=_ROWS, NORM=gain is not None,
            BIAS=dbias is not None, num_warps=4, num_stages=3,
        )  # fmt: skip


class Parts:
    """Which sublayers there are, and their weights as the kernels take them: matrices in the dtype of `h`.

    Attributes:
        attentions: by kind (gain, queries|keys|values `[agents, width, 3 * width]`).
        kinds: of the sublayers of a step, in order.
        bias: float32 `[agents, agents]`.
        mlp: (gain, inner, its bias, outer, its bias).
    """

    def __init__(self, dtype: torch.dtype, weights: Sequence[Tensor | None]) -> None:
        memory_gain, memory, social_gain, social, self.bias, *mlp = weights
        gain, inner, inner_bias, outer, outer_bias = (x for x in mlp if x is not None)
        self.mlp = (gain, (inner.to(dtype), inner_bias, outer.to(dtype), outer_bias))
        self.attentions: dict[str, tuple[Tensor, Tensor]] = {}
        for kind, own, matrix in (("memory", memory_gain, memory), ("social", social_gain, social)):
            if own is not None and matrix is not None:
                self.attentions[kind] = (own, matrix.to(dtype))
        self.kinds = [*self.attentions, "mlp"]


def forward(
    h: Tensor, weights: Sequence[Tensor | None], seed: Tensor | None, times: int, heads: int, steps: int, rate: float,
    eps: float, keep: bool,
) -> list[Tensor]:  # fmt: skip
    """`_fused.message_steps`."""
    to, parts = Launcher(h, times, heads, rate, eps, seed), Parts(h.dtype, weights)
    layers = steps * len(parts.kinds)
    attentions = steps * (len(parts.kinds) - 1)
    out = torch.empty_like(h)
    between = h.new_empty(layers - 1 if keep else min(2, layers - 1), *h.shape)
    qkvs = h.new_empty(attentions if keep else min(1, attentions), *h.shape[:2], 3 * h.shape[2])
    before, attention = h, 0
    for layer in range(layers):
        after = out if layer == layers - 1 else between[layer % len(between)]
        kind = parts.kinds[layer % len(parts.kinds)]
        if kind == "mlp":
            to.think(before, parts.mlp[0], parts.mlp[1], after, layer)
        else:
            qkv = qkvs[attention % len(qkvs)]
            attention += 1
            to.project(before, *parts.attentions[kind], qkv)
            if kind == "memory":
                to.remember(qkv, before, after, layer)
            else:
                to.talk(qkv, parts.bias, before, after, layer)
        before = after
    return [out, between, qkvs]


def backward(
    dout: Tensor, h: Tensor, between: Tensor, qkvs: Tensor, weights: Sequence[Tensor | None], seed: Tensor | None,
    times: int, heads: int, steps: int, rate: float, eps: float,
) -> list[Tensor]:  # fmt: skip
    """`_fused.message_steps_backward`."""
    to, parts = Launcher(h, times, heads, rate, eps, seed), Parts(h.dtype, weights)
    dout, width, kinds = dout.to(h.dtype).contiguous(), h.shape[2], parts.kinds
    single = {"dtype": torch.float32, "device": h.device}
    gains = {kind: torch.empty(steps, to.agents * to.blocks, width, **single) for kind in kinds}
    matrices = {kind: torch.empty(to.agents, width, 3 * width, **single) for kind in kinds if kind != "mlp"}
    inner, outer = (torch.empty(to.agents, width, width, **single) for _ in range(2))
    inner_bias, outer_bias = (torch.empty(to.agents, width, **single) for _ in range(2))
    dbias = torch.empty(steps if "social" in kinds else 0, to.talks, to.agents, to.agents, **single)
    dqkv, kept = torch.empty_like(qkvs[0]) if len(qkvs) else qkvs, tuple(torch.empty_like(h) for _ in range(3))
    room = [torch.empty_like(h), torch.empty_like(h)]
    attention = len(qkvs)
    for layer in range(steps * len(kinds) - 1, -1, -1):
        step, place = divmod(layer, len(kinds))
        kind, before, dh = kinds[place], between[layer - 1] if layer else h, room[layer % 2]
        later = {"add": step < steps - 1}
        if kind == "mlp":
            gain, layers = parts.mlp
            to.think_backward(before, gain, layers, dout, dh, kept, gains[kind][step], layer)
            s, dz, do = kept
            to.weight_gradient(before, dz, inner, gain=gain, dbias=inner_bias, **later)
            to.weight_gradient(s, do, outer, dbias=outer_bias, **later)
        else:
            attention -= 1
            gain, matrix = parts.attentions[kind]
            if kind == "memory":
                to.remember_backward(qkvs[attention], dout, dqkv, layer)
            else:
                to.talk_backward(qkvs[attention], parts.bias, dout, dqkv, dbias[step], layer)
            to.project_backward(dqkv, matrix, before, gain, dout, dh, gains[kind][step])
            to.weight_gradient(before, dqkv, matrices[kind], gain=gain, **later)
        dout = dh
    none = h.new_empty(0)
    found = {kind: gains[kind].sum((0, 1)) for kind in kinds}
    attended = [x for kind in ("memory", "social") for x in (found.get(kind, none), matrices.get(kind, none))]
    shared = dbias.sum((0, 1)) if "social" in kinds else none
    return [dout, *attended, shared, found["mlp"], inner, inner_bias, outer, outer_bias]
