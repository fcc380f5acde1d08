"""A function of nested tensors as a flat graph of torch operations.

Running the graph skips the author's Python and vmap's dispatch, which together take most of a small step's time.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from denizen import _tree
from denizen.run._engine import own_code
from denizen.run._trace import recorded


class Recorded:
    """Records a function of trees of tensors at its first call; later calls run the graph.

    Attributes:
        graph: the function over flat lists of tensors; None before the first call.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._shapes: list[Any] = []
        self._structure: Any = None
        self._places: list[int] = []
        self._width = 0
        self.graph: Any = None
        self._backend: str | None = None

    def compile(self, backend: str | None) -> None:
        """Compile the graph when it is next recorded, anew at the next call; None: no longer."""
        self._backend, self.graph = backend, None

    def __call__(self, *args: Any) -> Any:
        """What the function returns; nothing but tensors may change from call to call."""
        leaves, structure = _tree.flatten(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        shapes = [(tensor.shape, tensor.dtype) for tensor in tensors]
        if self.graph is None or shapes != self._shapes:
            self._record(leaves, structure, tensors)
            self._shapes = shapes
        given = self.graph(*tensors)
        values: list[Any] = [None] * self._width
        for place, value in zip(self._places, given, strict=True):
            values[place] = value
        return _tree.unflatten(values, self._structure)

    def _record(self, leaves: list[Any], structure: Any, tensors: list[Tensor]) -> None:
        def flat(*given: Tensor) -> list[Tensor]:
            rest = iter(given)
            filled = [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            values, self._structure = _tree.flatten(self._function(*_tree.unflatten(filled, structure)))
            self._places = [place for place, value in enumerate(values) if isinstance(value, Tensor)]
            self._width = len(values)
            return [values[place] for place in self._places]

        graph = recorded(flat, tensors)
        self.graph = graph
        if self._backend is not None:
            self.graph = torch.compile(
                own_code(lambda *given: graph(*given)), fullgraph=True, dynamic=False, backend=self._backend
            )
