"""Which saved tensors no backward pass asks for, what keeps a graph, which backward pass keeps it for nobody."""

import ast
import contextlib
import dataclasses
import gc
import inspect
import linecache
from collections import deque
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor

from denizen.perf._doctor.operations import Operations, caller
from denizen.perf.watch._calls import replaced
from denizen.perf.watch._faults import METHODS
from denizen.perf.watch._places import USER, Place, locate, role


@dataclasses.dataclass
class Saved:
    """What a line had saved for a backward pass.

    Attributes:
        place: the line that called the model, or the operation.
        used: tensors that a backward pass asked for.
        steps: in which it saved.
        count: tensors saved.
        bytes: of them.
        weights: whether a parameter is among them.
    """

    place: Place
    used: int = 0
    steps: list[int] = dataclasses.field(default_factory=list)
    count: int = 0
    bytes: int = 0
    weights: bool = False


@dataclasses.dataclass(frozen=True)
class Backward:
    """A call of a backward pass."""

    step: int
    place: Place
    retains: bool
    creates: bool


class Graphs:
    """Watches autograd within a block.

    Attributes:
        saved: by line.
        backwards: calls, in order.
    """

    def __init__(self, operations: Operations) -> None:
        self.saved: dict[tuple[str, int], Saved] = {}
        self.backwards: list[Backward] = []
        self.step = -1
        self._operations = operations

    @contextlib.contextmanager
    def watching(self, hooks: bool = True) -> Generator[None]:
        """Watch this thread; `hooks`: with hooks on saved tensors, which `torch.func` does not allow."""
        on_saved: Any = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        with (
            on_saved if hooks else contextlib.nullcontext(),
            replaced(torch.autograd, "backward", self._wrapped),
            replaced(torch.autograd, "grad", self._wrapped),
        ):
            yield

    def _wrapped(self, original: Any) -> Any:
        signature = inspect.signature(original)

        def backward(*args: Any, **kwargs: Any) -> Any:
            place = locate(METHODS)
            given = signature.bind_partial(*args, **kwargs).arguments
            creates, retains = bool(given.get("create_graph")), given.get("retain_graph")
            if self.step >= 0 and role(place.file) == USER:
                self.backwards.append(Backward(self.step, place, bool(retains), creates))
            return original(*args, **kwargs)

        return backward

    def _pack(self, tensor: Tensor) -> Any:
        kept = tensor.detach()  # an output itself would hold the node that holds it, where nothing goes backward
        if self.step < 0:
            return None, kept
        place = caller()
        saved = self.saved.setdefault((place.file, place.line), Saved(place))
        if not saved.steps or saved.steps[-1] != self.step:
            saved.steps.append(self.step)
        saved.count += 1
        saved.bytes += tensor.numel() * tensor.element_size()
        saved.weights |= self._operations.of_parameter(tensor)
        return saved, kept

    def _unpack(self, packed: Any) -> Tensor:
        saved, tensor = packed
        if saved is not None:
            saved.used += 1
        return tensor


def kept(operations: Operations, put: dict[int, Place]) -> dict[tuple[str, int], tuple[Place, list[int], str]]:
    """Results with a graph that something of the user's still holds, steps later: where each is put away.

    Args:
        operations: of some steps.
        put: the line that last put something into a container, by its identity.

    Returns:
        By line: the place, the steps whose results are kept, and what holds them.
    """
    last = operations.steps[-1] if operations.steps else 0
    old = [(step, place, weak) for step, place, weak in operations.results if step < last and weak() is not None]
    tensors = [tensor for _, _, weak in old if (tensor := weak()) is not None and tensor.grad_fn is not None]
    holders = _holders(tensors)
    found: dict[tuple[str, int], tuple[Place, list[int], str]] = {}
    for step, place, weak in old:
        tensor = weak()
        if tensor is not None and id(tensor) in holders:
            holder, named = holders[id(tensor)]
            where = put.get(holder) or _put_away(place)
            found.setdefault((where.file, where.line), (where, [], named))[1].append(step)
    return found


def _holders(tensors: list[Tensor]) -> dict[int, tuple[int, str]]:
    """What holds each of some tensors, itself or in a tuple, by identity: the holder's identity and name."""
    holders, among = _containers(tensors)
    outer, _ = _containers(among)
    for part in among:
        for tensor in part:
            if id(part) in outer:
                holders.setdefault(id(tensor), outer[id(part)])
    return holders


def _containers(things: list[Any]) -> tuple[dict[int, tuple[int, str]], list[tuple[Any, ...]]]:
    """Containers of things, and tuples with any; the collector is asked once, for it looks through everything."""
    holders: dict[int, tuple[int, str]] = {}
    among: list[tuple[Any, ...]] = []
    wanted = {id(thing) for thing in things}
    for referrer in gc.get_referrers(*things) if things else ():
        if isinstance(referrer, tuple):
            among.append(referrer)
        if referrer is things or not isinstance(referrer, list | deque | dict | set):
            continue
        for value in list(referrer.values()) if isinstance(referrer, dict) else list(referrer):
            if id(value) in wanted:
                holders.setdefault(id(value), (id(referrer), f"a {type(referrer).__name__} of {len(referrer)}"))
    return holders, among


def _put_away(made: Place) -> Place:
    """The line that stores what a line has made: ``x.append(name)``, ``x[...] = name`` or ``self.x = name``."""
    text = "".join(linecache.getlines(made.file))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return made
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [f for f in functions if f.lineno <= made.line <= (f.end_lineno or 0)]
    scope: ast.AST = max(around, key=lambda f: f.lineno) if around else tree
    names = {name for node in ast.walk(scope) if _spans(node, made.line) for name in _targets(node)}
    for node in ast.walk(scope):
        if isinstance(node, ast.Expr | ast.Assign) and _stores(node, names, made.line):
            return Place(made.file, node.lineno, made.function)
    return made


def _spans(node: ast.AST, line: int) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and (
        node.lineno <= line <= (node.end_lineno or node.lineno)
    )


def _targets(node: ast.AST) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [
        part.id for target in targets if target is not None for part in ast.walk(target) if isinstance(part, ast.Name)
    ]


def _stores(node: ast.Expr | ast.Assign, names: set[str], line: int) -> bool:
    """Whether a statement puts one of the names, or what its own line makes, into something that lasts."""
    here = node.lineno <= line <= (node.end_lineno or node.lineno)
    if isinstance(node, ast.Assign):
        lasting = any(isinstance(target, ast.Subscript | ast.Attribute) for target in node.targets)
        return lasting and (here or _mentions(node.value, names))
    call = node.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr not in ("append", "extend", "appendleft", "add", "insert", "put", "push", "setdefault", "update"):
        return False
    return here or any(_mentions(argument, names) for argument in call.args)


def _mentions(node: ast.AST, names: set[str]) -> bool:
    """Whether a value is one of the names, or holds them as they are; not what a call makes of them."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Tuple | ast.List | ast.Dict):
        return any(_mentions(child, names) for child in ast.iter_child_nodes(node))
    return False
