"""The modes under which `dz.check` runs a step: those of the guard, host reads, and where gradients end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from denizen.model import _hazards
from denizen.model._guard import DATA_SHAPE, HOST_READ, Calls, Tell, Writes
from denizen.model._hazards import Hazard
from denizen.model._lines import Line, author_frame, line_of_frame

_READS = {"tolist", "numpy", "__array__", "cpu"}
_INDEX = Hazard(
    "indexing with a mask makes a tensor whose shape depends on values",
    "mask * values, or torch.where(mask != 0, a, b)",
)


class CheckedCalls(Calls):
    """Also host reads that torch makes without an operation, and products that wrap only in larger populations."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _READS:
            self._writes.report("host read", HOST_READ)
        elif (wraps := _hazards.product(name, args)) is not None:
            self._writes.report("int8", wraps)
        return super().__torch_function__(func, types, args, kwargs)


class CheckedOperations(Writes):
    """Also operations that read values on the host, or whose shape depends on them."""

    def look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().look(func, args, kwargs)
        if torch.Tag.data_dependent_output in func.tags:
            self.report("host read", HOST_READ)
        elif func is torch.ops.aten.index.Tensor:
            if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
                self.report("shapes", _INDEX)
        elif torch.Tag.dynamic_output_shape in func.tags and kwargs.get("output_size") is None:
            self.report("shapes", DATA_SHAPE)


@contextmanager
def watching(tell: Tell) -> Iterator[None]:
    """Tell about every rule that a step breaks while it runs."""
    operations = CheckedOperations(tell)
    with operations, CheckedCalls(tell, operations):
        yield


class Cuts(TorchFunctionMode):
    """Notes where a value that depends on parameters turns into one that has no gradient.

    Attributes:
        found: (line, name of the torch function, parameters that the value depends on, whether the author's own call).
    """

    def __init__(self, params: dict[str, Tensor]) -> None:
        super().__init__()
        self._names = {id(value): name for name, value in params.items()}
        self.found: list[tuple[Line, str, set[str], bool]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and not out.requires_grad:
            cut = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
            frame = author_frame() if cut else None
            outer = author_frame(through_denizen=True) if cut and frame is None else frame
            if outer is not None:
                names = set().union(*(self._upstream(tensor) for tensor in cut))
                self.found.append((line_of_frame(outer), getattr(func, "__name__", "?"), names, frame is not None))
        return out

    def _upstream(self, tensor: Tensor) -> set[str]:
        """Parameters on which a tensor depends."""
        if id(tensor) in self._names:
            return {self._names[id(tensor)]}
        seen, open_, names = set(), [tensor.grad_fn], set()
        while open_:
            node = open_.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None and id(variable) in self._names:
                names.add(self._names[id(variable)])
            open_.extend(parent for parent, _ in node.next_functions)
        return names
