"""How a sum over neighbours that runs before the compiled body accumulates, and what the body makes of it."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor
from torch.fx import Node

from denizen import ops
from denizen._device import device_ms
from denizen.ops import SWITCH, from_fixed
from denizen.run._trace import Builder, calls, dtype

aten, own = torch.ops.aten, torch.ops.denizen
VIEWS = (aten.view.default, aten.unsqueeze.default, aten.select.int, aten.permute.default, aten.alias.default)
LARGE = 1 << 18  # agents below which a launch costs more than either way
COUNTS, FIXED = own.sum_counts.default, own.sum_fixed.default


@dataclasses.dataclass(frozen=True)
class Sum:
    """A sum over neighbours that runs before the body.

    Attributes:
        node: the traced call.
        graph: its tensors of the graph, as the op takes them.
        width: dtype of the accumulator: uint8 where counts of 0 and 1 fit a byte, int32 or int64 otherwise.
        switch: from how many active senders for each eligible receiver on counts are pulled.
    """

    node: Node
    graph: tuple[Tensor | None, ...]
    width: torch.dtype
    switch: float = SWITCH

    @property
    def fixed(self) -> bool:
        """Whether real values are added in fixed point."""
        return calls(self.node, FIXED)

    @property
    def values(self) -> Node:
        """What is summed."""
        return self.node.args[0]  # type: ignore[return-value]

    @property
    def arguments(self) -> list[Node]:
        """What the kernel reads: values and, for counts, who is eligible.

        Fixed point takes everyone for that: a bad message to somebody else counts, too.
        """
        where = self.node.args[1]
        return [self.values, where] if isinstance(where, Node) and not self.fixed else [self.values]

    def total(self, builder: Builder, known: dict[Node, Node], source: Callable[[Node], bool]) -> Node:
        """What the op would return, from the accumulator (and the flags of bad values, one for each world)."""
        total, where = builder.argument(self.node), self.node.args[1]
        if not self.fixed:
            total = builder.call(aten._to_copy.default, total, dtype=dtype(self.node))
        if isinstance(where, Node):
            (receives,) = builder.copy([where], known, source)
            total = builder.call(aten.mul.Tensor, total, builder.call(aten.ne.Scalar, receives, 0))
        if not self.fixed:
            return total
        return builder.call(from_fixed, total, builder.argument(("bad", self.node)), self.node.args[8])

    def measured(self) -> "Sum":
        """The sum with its switch measured on this device and graph, where that is large enough to tell."""
        pointer = self.graph[1 if self.fixed else 0]
        if pointer is None or not pointer.is_cuda or pointer.numel() <= LARGE:
            return self
        agents = pointer.numel() - 1
        every = torch.arange(agents, device=pointer.device)[None]
        eighth, half = ((every % k == 0).to(torch.int8) for k in (8, 2))
        arguments, receivers = [eighth, half], 2
        if self.fixed:  # all receive
            bound = self.node.args[9]
            assert isinstance(bound, int | float)
            arguments, receivers = [eighth * (bound * 2.0**-20)], 1  # good messages by any weight
        total = torch.zeros(1, agents, dtype=self.width, device=pointer.device)
        bad = torch.zeros(1, dtype=torch.int32, device=pointer.device)
        push, pull = (
            _milliseconds(way, lambda: self.run(arguments, total, None, bad, None)) for way in ("push", "pull")
        )
        return dataclasses.replace(self, switch=receivers * pull / (8 * push))

    def run(
        self,
        arguments: list[Tensor],
        total: Tensor,
        clear: Tensor | None,
        bad: Tensor | None,
        traffic: ops.Traffic | None,
    ) -> None:
        """Add into an accumulator.

        Args:
            arguments: of the kernel.
            total: the accumulator, zeros.
            clear: that of the next step, to be filled with zeros.
            bad: int32 `[worlds]` that becomes 1 where a value was bad; for fixed point alone.
            traffic: decides which way to go.
        """
        if self.fixed:
            traffic = traffic if self.switch < 1 else None  # all receive: there are never more senders
            bits, bound = self.node.args[8:10]
            ops.add_fixed(total, clear, bad, arguments[0], self.graph[0], traffic, *self.graph[1:], bits, bound)  # type: ignore[arg-type]
        else:
            where = arguments[1] if len(arguments) > 1 else None
            ops.add_counts(total, clear, arguments[0], where, traffic, *self.graph)  # type: ignore[arg-type]


def _milliseconds(way: str, call: Callable[[], None]) -> float:
    """Device time of a call that goes one way: the best of five after one that compiles."""
    with ops.direction(way):
        call()
        return min(device_ms(call) for _ in range(5))


def as_sum(node: Node, masks: set[Node], constant: Callable[[Node], Tensor]) -> Sum | None:
    """The sum of a traced call; None where its graph is not constant.

    Args:
        node: the call.
        masks: traced inputs that hold only 0 and 1.
        constant: the tensor of a constant.
    """
    given = node.args[2 : 6 if calls(node, COUNTS) else 8]
    if any(isinstance(tensor, Node) and tensor.op != "get_attr" for tensor in given):
        return None
    graph = tuple(constant(tensor) if isinstance(tensor, Node) else None for tensor in given)
    if calls(node, FIXED):
        return Sum(node, graph, torch.int64)
    values, pointer = node.args[0], graph[0]
    assert isinstance(values, Node)
    assert pointer is not None
    most = int((pointer[1:] - pointer[:-1]).max()) if pointer.numel() > 1 else 0
    narrow = most <= 255 and _is_mask(values, masks)
    return Sum(node, graph, torch.uint8 if narrow else dtype(node))


def _is_mask(node: Node, masks: set[Node]) -> bool:
    """Whether a node holds only 0 and 1, as far as its making shows."""
    if node in masks or dtype(node) == torch.bool:
        return True
    if calls(node, *VIEWS, aten._to_copy.default, aten.sign.default, own.wrap.default):
        source = node.args[0]
        return isinstance(source, Node) and _is_mask(source, masks)
    if calls(node, aten.mul.Tensor, aten.bitwise_and.Tensor, aten.bitwise_or.Tensor):
        return all(isinstance(factor, Node) and _is_mask(factor, masks) for factor in node.args)
    return calls(node, own.code_range.default)
