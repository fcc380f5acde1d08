"""Records the torch operations of a function as a flat graph, as `make_fx` does in about five times the time.

`make_fx` serves symbolic shapes, subclasses, and much else that a step has not, and pays for it at each operation. What
is not known here, such as operations that take functions, raises; then it is `make_fx`'s to record, or to refuse.
"""

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental import proxy_tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from denizen import ops
from denizen.errors import ModelError
from denizen.model._guard import unwrapped
from denizen.model._source_lines import author_frame, line_of_frame

PLAIN = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
MOST = 1  # numbers in a constant whose value may be read while it is recorded, as for `make_fx`
READ = (
    "what is recorded once and then run at every step reads the value of a tensor ({}), which may differ from step to "
    "step; {}"
)
BRANCH = READ.format("if, while, float(…), .item()", "use torch.where(condition, this, that)")
SHAPE = READ.format(
    "in a shape: nonzero, unique, bincount, x[mask]", "use a mask times values, or torch.where(mask, this, that)"
)
NUMBERS = {"__float__", "__int__", "__index__", "__bool__", "__complex__", "item", "is_nonzero"}
# Functions that read or write the memory of their first argument without an operation.
RAW = {"tolist", "numpy", "__array__", "__dlpack__", "__repr__", "__str__", "__format__", "apply_", "map_", "map2_"}
PLACES = {"data_ptr", "untyped_storage", "storage", "_typed_storage", "__deepcopy__", "__reduce_ex__"}  # libraries ask
_DATA = vars(torch._C.TensorBase)["data"]  # the property
MAKERS = {"tensor", "as_tensor", "asarray", "new_tensor"}  # which read numbers within lists


class Unknown(Exception):
    """An operation or argument that is not recorded here."""


def record(
    function: Callable[..., Sequence[Tensor]],
    arguments: Sequence[Tensor],
    rules: Mapping[Any, Callable[..., Any]],
    devices: bool = True,
) -> tuple[nn.Module, Graph]:
    """What a function does with tensors, each of which counts as one input: (what holds the constants, the graph).

    Args:
        function: what to record; runs once.
        arguments: no two of them the same tensor.
        rules: what to do instead of an operation.
        devices: `node.meta["val"]` tells a node's device beside shape, strides and dtype, for which torch imports its
            compiler, which takes two seconds.
    """
    ops.keep_compiler_out(_Recorder)
    recorder = _Recorder(rules, devices)
    with torch._C.DisableTorchFunction():
        recorder.given = {_place(argument) for argument in arguments}
    for number, argument in enumerate(arguments):
        recorder.see(argument, recorder.graph.placeholder(f"arg{number}_1"))
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # a weight that was cast before would be a constant
    try:
        with recorder, Reads(recorder.varies):
            results = function(*arguments)
    finally:
        torch.set_autocast_cache_enabled(cached)
    recorder.graph.output([recorder.argument(result) for result in results])
    return recorder.root, recorder.graph


class _Recorder(ops.Tracer):
    """Adds a node for each operation within.

    Attributes:
        root: holds the constants.
        graph: the graph so far.
        given: where arguments have their memory, which may be a constant's: a first state may hold the model's tensors.
    """

    supports_higher_order_operators = True  # so that they come here, and are refused

    def __init__(self, rules: Mapping[Any, Callable[..., Any]], devices: bool) -> None:
        super().__init__()
        self.root, self.graph, self.given = nn.Module(), Graph(), set[int]()
        self._rules = rules
        # (node, whether its values depend on small constants alone, on constants alone)
        self._seen: Any = WeakTensorKeyDictionary()
        self._names: Any = WeakTensorKeyDictionary()  # of constants
        self._fake = FakeTensorMode() if devices else None  # one for all: each keeps Python's stack, which takes long
        self._like: dict[Any, Tensor] = {}

    def see(self, tensor: Tensor, node: Node, known: bool = False, steady: bool = False) -> None:
        """Note that a node stands for a tensor."""
        self._seen[tensor] = (node, known and tensor.numel() <= MOST, steady)
        node.meta["val"] = self._value(tensor)

    def varies(self, tensor: Tensor) -> bool:
        """Whether a tensor may have other values when what is recorded runs."""
        tensor = unwrapped(tensor)
        seen = self._seen.get(tensor)
        if seen is not None:
            return not seen[2]
        return self._alias(tensor)

    def _alias(self, tensor: Tensor) -> bool:
        """Whether a tensor that no operation made has the memory of one that varies, as `nn.Parameter(x)` has."""
        place = _place(tensor)
        if not place or place in self.given:
            return False
        return any(_place(one) == place and not same for one, (_, _, same) in self._seen.items())

    def argument(self, value: Any) -> Any:
        """What stands for an operation's argument in the graph."""
        if isinstance(value, Tensor):
            seen = self._seen.get(value)
            return self._constant(value) if seen is None else seen[0]
        if isinstance(value, list | tuple):
            return [self.argument(part) for part in value]
        if not isinstance(value, PLAIN):
            raise Unknown(type(value))
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():  # kernels may read what they like
            return self._recorded(func, args, kwargs or {})

    def _recorded(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if not isinstance(func, torch._ops.OpOverload):
            raise Unknown(func)
        tensors = list(_tensors([*args, *kwargs.values()]))
        seen = [self._seen.get(value) for value in tensors]
        for value, found in zip(tensors, seen, strict=True):
            if found is None and type(value) not in proxy_tensor.HANDLED_TYPES:
                raise Unknown(type(value))  # a class that may consist of other tensors
        rule = self._rules.get(func) or _decomposition(func, tensors)
        if rule is not None:
            with self:
                return rule(*args, **kwargs)
        fixed = all(known for _, known, _ in filter(None, seen))
        steady = all(same for _, _, same in filter(None, seen))
        if torch.Tag.data_dependent_output in func.tags:
            if not fixed:
                refuse(BRANCH)
            return func(*args, **kwargs)
        if torch.Tag.dynamic_output_shape in func.tags and any(map(self.varies, _shaping(func, args, kwargs))):
            refuse(SHAPE)
        lifted = func is torch.ops.aten.lift_fresh.default
        if lifted:  # what follows may write into it
            func = torch.ops.aten.lift_fresh_copy.default
        taken = tuple(self.argument(value) for value in args)
        named = {name: self.argument(value) for name, value in kwargs.items()}
        node = self.graph.create_node("call_function", func, taken, named, func.overloadpacket.__name__)
        result = func(*args, **kwargs)
        random = torch.Tag.nondeterministic_seeded in func.tags
        if func._schema.is_mutable and (random or not fixed):
            self._forget(tensors)
        self._note(result, node, lifted or (fixed and any(seen) and not random), steady and not random)
        return result

    def _forget(self, written: Sequence[Tensor]) -> None:
        """Note that values which may share memory with these depend on more than constants."""
        places = {tensor.untyped_storage()._cdata for tensor in written}
        for tensor, (node, known, steady) in list(self._seen.items()):
            if (known or steady) and tensor.untyped_storage()._cdata in places:
                self._seen[tensor] = (node, False, False)

    def _note(self, result: Any, node: Node, known: bool, steady: bool) -> None:
        """Nodes for what an operation returned."""
        if isinstance(result, Tensor):
            self.see(result, node, known, steady)
        elif isinstance(result, list | tuple):
            node.meta["val"] = type(result)([self._value(part) for part in result])
            for place, part in enumerate(result):
                if isinstance(part, Tensor):
                    self.see(part, self.graph.call_function(operator.getitem, (node, place)), known, steady)

    def _constant(self, tensor: Tensor) -> Node:
        """A use of a tensor that no operation made."""
        name = self._names.get(tensor)
        if name is None:
            if self._alias(tensor):
                refuse(READ.format("as another tensor with its memory", "use the tensor itself, or its clone()"))
            kind = "_param_constant" if isinstance(tensor, nn.Parameter) else "_tensor_constant"
            name = f"{kind}{sum(held.startswith(kind) for held in self._names.values())}"
            self._names[tensor] = name
            setattr(self.root, name, tensor)
        node = self.graph.get_attr(name)
        node.meta["val"] = self._value(tensor)
        return node

    def _value(self, tensor: Any) -> Any:
        """A tensor without memory that tells shape, strides, dtype and, where asked for, device."""
        if not isinstance(tensor, Tensor):
            return tensor
        form = (tensor.shape, tensor.stride(), tensor.dtype, "meta" if self._fake is None else tensor.device)
        if form not in self._like:
            with self._fake or nullcontext():
                self._like[form] = torch.empty_strided(form[0], form[1], dtype=form[2], device=form[3])
        return self._like[form]


class Reads(TorchFunctionMode):
    """Refuses what reads values without an operation, which would be constants: `x.tolist()`, `torch.tensor([x])`."""

    def __init__(self, varies: Callable[[Tensor], bool]) -> None:
        """Args:
        varies: whether a tensor may have other values later.
        """
        super().__init__()
        self._varies = varies

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in NUMBERS and self._any(args[:1]):
            refuse(BRANCH)
        if (name in RAW or (name in PLACES and author_frame() is not None)) and self._any(args[:1]):
            refuse(READ.format(f"by {name.strip('_')}", "keep it a tensor, and use operations of torch"))
        if name in MAKERS and self._any([*args[name == "new_tensor" :], *kwargs.values()], within=True):
            refuse(READ.format(f"in a list, by torch.{name}", "use torch.stack([…])"))
        if name == "__set__" and getattr(func, "__self__", None) is _DATA and self._any(args[1:]):
            refuse(READ.format("as the data of another", "use the tensor itself, or its clone()"))
        if name == "tensor_split" and self._any([*args[1:], *kwargs.values()]):
            refuse(READ.format("where torch.tensor_split cuts", "use fixed places, or a mask times values"))
        return func(*args, **kwargs)

    def _any(self, values: Sequence[Any], within: bool = False) -> bool:
        """Whether one of these tensors varies; only of those within lists, where that is asked."""
        lists = [value for value in values if isinstance(value, list | tuple)]
        tensors = _tensors(lists) if within else (value for value in values if isinstance(value, Tensor))
        return any(map(self._varies, tensors))


def _place(tensor: Tensor) -> int:
    """Where a tensor's memory begins; 0 of one without."""
    plain = tensor.layout == torch.strided and not tensor.is_meta and not isinstance(tensor, FakeTensor)
    return tensor.data_ptr() if plain else 0


def refuse(what: str) -> NoReturn:
    """Raise `ModelError` for what reads a value, with the author's line where there is one."""
    frame = author_frame()
    raise ModelError(what if frame is None else f"{line_of_frame(frame)}: {what}")


def _shaping(func: Any, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """Tensors whose values determine the shape of what an operation returns."""
    if func is torch.ops.aten.index.Tensor:
        masks = (part for part in args[1] if part is not None)
        yield from (mask for mask in masks if mask.dtype in (torch.bool, torch.uint8))
    elif func is torch.ops.aten.masked_select.default:
        yield args[1]
    elif kwargs.get("output_size") is None:
        yield from _tensors(args)


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    """All tensors, those in lists too."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _decomposition(func: Any, tensors: list[Tensor]) -> Callable[..., Any] | None:
    """What autograd would have run in place of an operation that consists of others."""
    if not _consists_of_others(func) or not proxy_tensor.autograd_would_have_decomposed(func, tensors):
        return None
    return func.decompose


@functools.cache
def _consists_of_others(func: Any) -> bool:
    aten = torch.ops.aten
    return func not in (aten.size.default, aten.stride.default, aten.storage_offset.default) and func._can_decompose()
