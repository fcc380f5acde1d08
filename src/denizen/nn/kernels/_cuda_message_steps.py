"""The message steps by Triton's kernels: what is launched, in which order, with what kept in between."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from denizen.nn.kernels import _cuda_message_kernels

# Rows of a program and warps; talk goes through its rows one after the other, remember takes a whole sample, project
# makes as many of queries, keys and values.
TILES: dict[str, dict[str, int]] = {
    "project": {"ROWS": 64, "PARTS": 3, "num_warps": 8, "num_stages": 1},
    "project_backward": {"ROWS": 64, "num_warps": 4, "num_stages": 1},
    "remember": {"num_warps": 4},
    "remember_backward": {"num_warps": 4},
    "talk": {"ROWS": 4, "num_warps": 2},
    "talk_backward": {"ROWS": 4, "num_warps": 2},
    "think": {"ROWS": 64, "num_warps": 4},
    "think_backward": {"ROWS": 64, "num_warps": 4},
    "weight_gradient": {"ROWS": 64, "COLUMNS": 64, "num_warps": 4, "num_stages": 4},
}

_MATRICES = (1, 3, 6, 8)  # among the weights of the operation


class Launcher:
    """Launches of one pass over the message steps: sizes and dropout, the same for all of them."""

    def __init__(self, h: Tensor, times: int, heads: int, rate: float, eps: float, seed: Tensor | None) -> None:
        self.agents, self.rows, self.width = h.shape
        self.times, self.heads, self.eps = times, heads, eps
        self.scale = (self.width // heads) ** -0.5
        self.seed = h if seed is None else seed  # without dropout it is not read
        self.threshold = round(rate * 2**24)
        self.whole = {"WIDTH": self.width}
        self.head = {**self.whole, "HEAD": self.width // heads, "DROP": rate > 0}
        self.past = {**self.head, "TIMES": max(16, triton.next_power_of_2(times))}
        self.others = {**self.head, "AGENTS": max(16, triton.next_power_of_2(self.agents))}

    def blocks(self, kernel: str) -> int:
        """Programs that share the rows of an agent, or of all agents."""
        return triton.cdiv(self.rows, TILES[kernel]["ROWS"])

    def _attention(self, kernel: str) -> dict[str, Any]:
        """Sizes and tile of an attention; one over more than 64 times or 32 agents takes twice the warps."""
        sizes, usual = (self.past, 64) if "remember" in kernel else (self.others, 32)
        more = max(sizes.get("TIMES", 0), sizes.get("AGENTS", 0)) // usual
        return {**sizes, **TILES[kernel], "num_warps": TILES[kernel]["num_warps"] * max(1, more)}

    def _chance(self, layer: int) -> tuple[Tensor, int, int]:
        return self.seed, layer, self.threshold

    def project(self, h: Tensor, gain: Tensor, weight: Tensor, out: Tensor) -> None:
        """Queries, keys and values of the normed `h`."""
        _cuda_message_kernels._project_kernel[(self.blocks("project"), self.agents, 3 // TILES["project"]["PARTS"])](
            h, gain, weight, out, self.rows, self.eps, **self.whole, **TILES["project"]
        )

    def project_backward(
        self,
        dqkv: Tensor,
        weight: Tensor,
        h: Tensor,
        gain: Tensor,
        dafter: Tensor,
        dh: Tensor,
        u: Tensor,
        dgain: Tensor,
        *,
        add: bool,
    ) -> None:
        """`dh`: what comes through the norm and what passes by it (`dafter`); `u`: normed `h`; the gain's shares."""
        _cuda_message_kernels._project_backward_kernel[(self.blocks("project_backward"), self.agents)](
            dqkv,
            weight,
            h,
            gain,
            dafter,
            dh,
            u,
            dgain,
            self.rows,
            self.eps,
            int(add),
            **self.whole,
            **TILES["project_backward"],
        )

    def remember(self, qkv: Tensor, h: Tensor, out: Tensor, layer: int) -> None:
        """`h` and what attention over each agent's past adds."""
        _cuda_message_kernels._remember_kernel[(self.rows // self.times, self.agents, self.heads)](
            qkv, h, out, *self._chance(layer), self.rows, self.times, self.scale, **self._attention("remember")
        )

    def remember_backward(self, qkv: Tensor, dafter: Tensor, dqkv: Tensor, layer: int) -> None:
        """Gradient of `qkv`."""
        _cuda_message_kernels._remember_backward_kernel[(self.rows // self.times, self.agents, self.heads)](
            qkv,
            dafter,
            dqkv,
            *self._chance(layer),
            self.rows,
            self.times,
            self.scale,
            **self._attention("remember_backward"),
        )

    def talk(self, qkv: Tensor, bias: Tensor | None, h: Tensor, out: Tensor, layer: int) -> None:
        """`h` and what attention over agents adds."""
        _cuda_message_kernels._talk_kernel[(self.blocks("talk"), self.heads)](
            qkv, bias, h, out, *self._chance(layer), self.rows, self.agents, self.scale, **self._attention("talk")
        )

    def talk_backward(
        self, qkv: Tensor, bias: Tensor | None, dafter: Tensor, dqkv: Tensor, dbias: Tensor, layer: int, *, add: bool
    ) -> None:
        """Gradient of `qkv`; `dbias` `[blocks * heads, agents, agents]`."""
        _cuda_message_kernels._talk_backward_kernel[(self.blocks("talk_backward"), self.heads)](
            qkv,
            bias,
            dafter,
            dqkv,
            dbias,
            *self._chance(layer),
            self.rows,
            self.agents,
            self.scale,
            int(add),
            **self._attention("talk_backward"),
        )

    def think(self, h: Tensor, gain: Tensor, layers: tuple[Tensor, ...], out: Tensor, layer: int) -> None:
        """`h` and what the MLP adds; `layers` are inner, its bias, outer, its bias."""
        _cuda_message_kernels._think_kernel[(self.blocks("think"), self.agents)](
            h,
            gain,
            *layers,
            out,
            *self._chance(layer),
            self.rows,
            self.eps,
            **self.whole,
            DROP=self.head["DROP"],
            **TILES["think"],
        )

    def think_backward(
        self,
        h: Tensor,
        gain: Tensor,
        layers: tuple[Tensor, ...],
        dafter: Tensor,
        dh: Tensor,
        kept: Tensor,
        dgain: Tensor,
        layer: int,
        *,
        add: bool,
    ) -> None:
        """`dh`; `kept`: what goes into both products, then the gradients of what comes out of them."""
        _cuda_message_kernels._think_backward_kernel[(self.blocks("think_backward"), self.agents)](
            h,
            gain,
            *layers[:3],
            dafter,
            dh,
            *kept,
            dgain,
            *self._chance(layer),
            self.rows,
            self.eps,
            int(add),
            **self.whole,
            DROP=self.head["DROP"],
            **TILES["think_backward"],
        )

    def weight_gradient(self, x: Tensor, y: Tensor, dweight: Tensor, dbias: Tensor | None, *, add: bool) -> None:
        """`dweight` float32 `[products, width, columns]` of products of `x`; `y` is the gradient of their results."""
        columns, tile = y.shape[-1], TILES["weight_gradient"]
        block = min(tile["COLUMNS"], self.width)  # wide ones read `x` less often, narrow ones are more programs
        _cuda_message_kernels._weight_gradient_kernel[(columns // block, x.shape[:-2].numel())](
            x,
            y,
            dweight,
            dweight if dbias is None else dbias,
            self.rows,
            columns,
            int(add),
            BIAS=dbias is not None,
            **self.whole,
            **{**tile, "COLUMNS": block},
        )


class Parts:
    """Which sublayers there are, and their weights as the kernels take them.

    Attributes:
        attentions: by kind (gain, queries|keys|values `[agents, width, 3 * width]`).
        kinds: of the sublayers of a step, in order.
        bias: float32 `[agents, agents]`.
        mlp: (gain, (inner, its bias, outer, its bias)).
    """

    def __init__(self, weights: Sequence[Tensor | None]) -> None:
        weights = [None if weight is None else weight.contiguous() for weight in weights]
        memory_gain, memory, social_gain, social, self.bias, *mlp = weights
        gain, *layers = (x for x in mlp if x is not None)
        self.mlp = (gain, tuple(layers))
        self.attentions: dict[str, tuple[Tensor, Tensor]] = {}
        for kind, own, matrix in (("memory", memory_gain, memory), ("social", social_gain, social)):
            if own is not None and matrix is not None:
                self.attentions[kind] = (own, matrix)
        self.kinds = [*self.attentions, "mlp"]


def forward(
    h: Tensor,
    weights: Sequence[Tensor | None],
    seed: Tensor | None,
    times: int,
    heads: int,
    steps: int,
    rate: float,
    eps: float,
    keep: bool,
) -> list[Tensor]:
    """`_message_steps.message_steps`."""
    matrices = {i: weight.to(h.dtype, copy=True) for i in _MATRICES if (weight := weights[i]) is not None}
    to = Launcher(h, times, heads, rate, eps, seed)
    parts = Parts([matrices.get(i, weight) for i, weight in enumerate(weights)])
    layers = steps * len(parts.kinds)
    attentions = steps * len(parts.attentions)
    out = torch.empty_like(h)
    between = h.new_empty(layers - 1 if keep else min(2, layers - 1), *h.shape)
    qkvs = h.new_empty(attentions if keep else min(1, attentions), *h.shape[:2], 3 * h.shape[2])
    before, attention = h, 0
    for layer in range(layers):
        after = out if layer == layers - 1 else between[layer % len(between)]
        kind = parts.kinds[layer % len(parts.kinds)]
        if kind == "mlp":
            to.think(before, *parts.mlp, after, layer)
        else:
            qkv = qkvs[attention % len(qkvs)]
            attention += 1
            to.project(before, *parts.attentions[kind], qkv)
            if kind == "memory":
                to.remember(qkv, before, after, layer)
            else:
                to.talk(qkv, parts.bias, before, after, layer)
        before = after
    return [out, between, qkvs, *(matrices[i] if i in matrices else h.new_empty(0) for i in _MATRICES)]


class Gradients:
    """Room for the gradients of weights, in float32; each step adds to it. What programs add is summed in the end."""

    def __init__(self, to: Launcher, parts: Parts, device: torch.device) -> None:
        def room(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.float32, device=device)

        agents, width = to.agents, to.width
        kernels = {kind: "think_backward" if kind == "mlp" else "project_backward" for kind in parts.kinds}
        self.gains = {kind: room(agents * to.blocks(kernel), width) for kind, kernel in kernels.items()}
        self.attentions = {kind: room(agents, width, 3 * width) for kind in parts.attentions}
        self.mlp, self.mlp_biases = room(2, agents, width, width), room(2, agents, width)
        talks = to.blocks("talk_backward") * to.heads if "social" in parts.kinds else 0
        self.biases = room(talks, agents, agents)

    def all(self) -> list[Tensor]:
        """As `_message_steps.message_steps_backward` returns them, after the gradient of `h`."""
        none = self.mlp.new_empty(0)
        gains = {kind: shares.sum(0) for kind, shares in self.gains.items()}
        found = [x for kind in ("memory", "social") for x in (gains.get(kind, none), self.attentions.get(kind, none))]
        found.append(self.biases.sum(0) if "social" in gains else none)
        return [*found, gains["mlp"], self.mlp, self.mlp_biases]


class Inline:
    """Runs work at once, in the stream at hand.

    Attributes:
        rooms: in how many places sublayers leave, in turn, what the gradients of their weights are made of.
    """

    rooms = 1

    def run(self, room: int, work: Callable[[], None]) -> None:
        """Work that reads a room."""
        work()

    def free(self, room: int) -> None:
        """From here on the stream at hand may write into a room."""

    def join(self) -> None:
        """From here on the stream at hand sees all that was done."""


class Aside(Inline):
    """Runs work beside the stream at hand, for where a CUDA graph is recorded: to launch costs the host nothing there.

    Gradients of weights leave a third of an H100 idle, and nothing waits for them.
    """

    rooms = 2

    def __init__(self) -> None:
        self._main = torch.cuda.current_stream()
        self._side = _side_stream(self._main.device)
        self._done: dict[int, Any] = {}

    def run(self, room: int, work: Callable[[], None]) -> None:
        """Work that reads what the stream at hand has put into a room."""
        self._side.wait_stream(self._main)
        with torch.cuda.stream(self._side):
            work()
        self._done[room] = self._side.record_event()

    def free(self, room: int) -> None:
        """As of `Inline`."""
        if room in self._done:
            self._main.wait_event(self._done[room])

    def join(self) -> None:
        """As of `Inline`."""
        self._main.wait_stream(self._side)


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def backward(
    dafter: Tensor,
    h: Tensor,
    between: Tensor,
    qkvs: Tensor,
    weights: Sequence[Tensor | None],
    seed: Tensor | None,
    times: int,
    heads: int,
    steps: int,
    rate: float,
    eps: float,
) -> list[Tensor]:
    """`_message_steps.message_steps_backward`."""
    to, parts = Launcher(h, times, heads, rate, eps, seed), Parts(weights)
    grads, kinds = Gradients(to, parts, h.device), parts.kinds
    dafter, attention = dafter.to(h.dtype).contiguous(), len(qkvs)
    aside = Aside() if h.is_cuda and torch.cuda.is_current_stream_capturing() else Inline()
    rooms, results = h.new_empty(aside.rooms, 4, *h.shape), h.new_empty(2, *h.shape)
    for layer in range(steps * len(kinds) - 1, -1, -1):
        step, place = divmod(layer, len(kinds))
        kind, before, dh, add = kinds[place], between[layer - 1] if layer else h, results[layer % 2], step < steps - 1
        number = layer % aside.rooms
        room = rooms[number]
        aside.free(number)
        products: tuple[Any, ...]
        if kind == "mlp":
            to.think_backward(before, *parts.mlp, dafter, dh, room, grads.gains[kind], layer, add=add)
            products = room[:2], room[2:], grads.mlp, grads.mlp_biases
        else:
            attention -= 1
            (gain, matrix), u, dqkv = parts.attentions[kind], room[0], room[1:].view(qkvs.shape[1:])
            if kind == "memory":
                to.remember_backward(qkvs[attention], dafter, dqkv, layer)
            else:
                to.talk_backward(qkvs[attention], parts.bias, dafter, dqkv, grads.biases, layer, add=add)
            to.project_backward(dqkv, matrix, before, gain, dafter, dh, u, grads.gains[kind], add=add)
            products = u, dqkv, grads.attentions[kind], None
        aside.run(number, functools.partial(to.weight_gradient, *products, add=add))
        dafter = dh
    aside.join()
    return [results[0], *grads.all()]
