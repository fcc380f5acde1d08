"""A function of nested tensors as a flat graph of torch operations.

Running the graph skips the author's Python and vmap's dispatch, which together take most of a small step's time.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module

from denizen import _tree
from denizen.run import one_graph, own_code, recorded


class Recorded:
    """Records a function of trees of tensors at its first call; later calls run the graph.

    Attributes:
        graph: the function over flat lists of tensors; None before the first call.
    """

    def __init__(self, function: Callable[..., Any], *modules: nn.Module, in_place: bool = False) -> None:
        """Args:
        function: what to record.
        modules: whose parameters and buffers it reads. They become inputs: what torch computes from a tensor that is
            none, it computes once and never again.
        in_place: the function may write into its arguments.
        """
        self._function, self._modules, self._in_place = function, modules, in_place
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
        tensors = self._ready(args)
        return self.tree(self.graph(*tensors))

    def bound(self, *args: Any) -> tuple[Callable[[list[Tensor]], list[Tensor]], list[Tensor]]:
        """(the function over the flat tensors of its arguments, those of these arguments); flat results at each call.

        Saves the walk through arguments, parameters and results, which takes longer than a small step.
        """
        tensors = self._ready(args)
        graph, held = self.graph, tensors[: len(tensors) - len(_tree.tensors(args))]
        return lambda given: graph(*held, *given), tensors[len(held) :]

    def _ready(self, args: Any) -> list[Tensor]:
        """Flat inputs of the graph, which is recorded where there is none for their shapes."""
        held = [{**dict(m.named_parameters()), **dict(m.named_buffers())} for m in self._modules]
        leaves, structure = _tree.flatten((held, args))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        shapes = [(tensor.shape, tensor.dtype) for tensor in tensors]
        if self.graph is None or shapes != self._shapes:
            self._record(leaves, structure, tensors)
            self._shapes = shapes
        return tensors

    def tree(self, given: Sequence[Tensor]) -> Any:
        """Flat results as the function returned them."""
        return _filled(given, self._places, self._width, self._structure)

    def _record(self, leaves: list[Any], structure: Any, tensors: list[Tensor]) -> None:
        def flat(*given: Tensor) -> list[Tensor]:
            rest = iter(given)
            filled = [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            held, args = _tree.unflatten(filled, structure)
            with ExitStack() as bound:
                for module, tensors in zip(self._modules, held, strict=True):
                    bound.enter_context(_reparametrize_module(module, tensors))
                values, self._structure = _tree.flatten(self._function(*args))
            self._places = [place for place, value in enumerate(values) if isinstance(value, Tensor)]
            self._width = len(values)
            return [values[place] for place in self._places]

        graph = recorded(flat, tensors, in_place=self._in_place)
        self.graph = graph
        if self._backend is not None:
            self.graph = one_graph(own_code(lambda *given: graph(*given)), self._backend)


class AsItIs:
    """A function with the interface of `Recorded` that is run as it is: it does what no graph holds."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Args:
        function: over trees of tensors.
        """
        self._function, self._structure, self._places, self._width = function, None, [0], 0

    def compile(self, backend: str | None) -> None:
        """Nothing is compiled."""

    def bound(self, *args: Any) -> tuple[Callable[[list[Tensor]], list[Tensor]], list[Tensor]]:
        """As `Recorded.bound`."""
        leaves, structure = _tree.flatten(args)

        def step(given: list[Tensor]) -> list[Tensor]:
            rest = iter(given)
            filled = [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            values, self._structure = _tree.flatten(self._function(*_tree.unflatten(filled, structure)))
            self._places = [place for place, value in enumerate(values) if isinstance(value, Tensor)]
            self._width = len(values)
            return [values[place] for place in self._places]

        return step, [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def tree(self, given: Sequence[Tensor]) -> Any:
        """As `Recorded.tree`."""
        return _filled(given, self._places, self._width, self._structure)


def _filled(given: Sequence[Tensor], places: list[int], width: int, structure: Any) -> Any:
    """The tree of a structure with tensors at these places, and None elsewhere."""
    values: list[Any] = [None] * width
    for place, value in zip(places, given, strict=True):
        values[place] = value
    return _tree.unflatten(values, structure)
