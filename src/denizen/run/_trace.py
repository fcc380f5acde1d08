"""One step of all worlds as a flat graph of torch operations, the form in which the engine rearranges it.

`trace` records the author's step once; what it reads of the model becomes a constant. Nodes carry shape and dtype in
`node.meta["val"]`.
"""

import dataclasses
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from denizen.errors import ModelError
from denizen.run._engine import RunState, Stepper
from denizen.run._recorder import Reads, record


@dataclasses.dataclass(frozen=True)
class Traced:
    """A recorded step; its nodes belong to one graph.

    Attributes:
        module: holds the graph and the constants.
        leaves: state before the step, each `[worlds, …]`.
        switches: int8 `[worlds, interventions]` before the step.
        step: int64 `[]`.
        invariants: keys and parameters, in the order in which `values` gives them.
        values: tensors of the invariants.
        columns: for each logged event the names of its columns.
        num_logged: tensors that a step hands over for its logged events.
    """

    module: GraphModule
    leaves: list[Node]
    switches: Node
    step: Node
    invariants: list[Node]
    values: list[Tensor]
    columns: tuple[tuple[str, ...], ...] = ()
    num_logged: int = 0

    @property
    def new_leaves(self) -> list[Node]:
        """State after the step."""
        return self.outputs[: len(self.leaves)]

    @property
    def new_switches(self) -> Node:
        """Switches after the step."""
        return self.outputs[len(self.leaves)]

    @property
    def records(self) -> list[Node]:
        """One for each series, `[worlds, …]`."""
        return self.outputs[len(self.leaves) + 1 : -1 - self.num_logged]

    @property
    def logged(self) -> list[Node]:
        """Masks and columns of logged events, and identities, `[worlds, agents]` each; see `FlatWorld.step`."""
        return self.outputs[len(self.outputs) - 1 - self.num_logged : -1]

    @property
    def bad(self) -> Node:
        """int8 `[worlds, checks]`."""
        return self.outputs[-1]

    @property
    def outputs(self) -> list[Any]:
        """What a step returns, in order: new leaves, switches, records, what is logged, checks."""
        return list(self.module.graph.output_node().args[0])  # type: ignore[arg-type]

    @property
    def copies(self) -> list[tuple[Tensor, Tensor]]:
        """Constants that are used in another dtype or on another device: (as the model has them, as they are used)."""
        pairs = self.module.meta.get(COPIES, [])
        return [(getattr(self.module, one), getattr(self.module, other)) for one, other in pairs]

    def constant(self, node: Node) -> Tensor:
        """The tensor of a constant."""
        return getattr(self.module, str(node.target))


def trace(stepper: Stepper, run_state: RunState) -> Traced:
    """Record a step of all worlds; runs it once, without effect on the run's state."""
    names = list(stepper.values)
    count = len(run_state.leaves)

    def flat(*args: Tensor) -> list[Tensor]:
        leaves, (switches, step, keys, *values) = list(args[:count]), args[count:]
        given = dict(zip(names, values, strict=True))
        new, after, records, bad = stepper.batched_step(leaves, switches, keys, given, step, {})
        return [*new, after, *records, bad]

    invariants = [stepper.keys, *stepper.values.values()]
    arguments = [*run_state.leaves, run_state.switches, run_state.step, *invariants]
    module = recorded(flat, arguments, devices=True)
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    return Traced(
        module=module,
        leaves=inputs[:count],
        switches=inputs[count],
        step=inputs[count + 1],
        invariants=inputs[count + 2 :],
        values=invariants,
        columns=stepper.logged,
        num_logged=stepper.num_logged,
    )


def recorded(
    function: Callable[..., list[Tensor]],
    arguments: Sequence[Tensor],
    *,
    in_place: bool = False,
    devices: bool = False,
) -> GraphModule:
    """A function of tensors as a flat graph; runs it once or twice.

    Args:
        function: what to record.
        arguments: like those that the graph is for; not changed.
        in_place: keep writes, those into arguments too; else the graph has none.
        devices: `node.meta["val"]` tells a node's device beside shape, strides and dtype, as passes over it need.
    """
    with torch.no_grad():
        if in_place:
            return _finished(*_record(function, [argument.clone() for argument in arguments], {}, devices))
        arguments = [argument.detach() for argument in arguments]  # a tensor given twice would be taken for one input
        root, graph = _record(function, arguments, {}, devices)
        if any(_writes(node) for node in graph.nodes):  # `hazard[:10] = 1.0`: what it changes is not its result
            pure = torch.func.functionalize(GraphModule(root, graph), remove="mutations")
            root, graph = _record(pure, arguments, {torch.ops.aten.copy.default: _copied}, devices)
    return _finished(root, graph)


def _record(
    function: Callable[..., list[Tensor]],
    arguments: list[Tensor],
    rules: Mapping[Any, Callable[..., Any]],
    devices: bool,
) -> tuple[torch.nn.Module, Graph]:
    """(what holds the constants, the graph) of a function."""
    try:
        return record(function, arguments, rules, devices)
    except ModelError:
        raise
    except Exception:  # whatever torch may raise below a mode that it does not know
        pass
    with one_mode(), Reads(lambda tensor: True):  # `make_fx` does not say which are constants
        module = make_fx(function, dict(rules))(*arguments)
    return module, module.graph


@contextmanager
def one_mode() -> Generator[None]:
    """What is recorded within has its nodes' values in one mode of fake tensors.

    `make_fx` looks for one here, else it makes one for each node, which keeps Python's stack: a third of all its time.
    """
    with tracing(TracingContext(FakeTensorMode())):
        yield


COPIES = "denizen_copies"  # of constants, in the module's meta: (name of the constant, name of its copy)
LIFTS = (torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift_fresh.default)


def _finished(root: torch.nn.Module, graph: Graph) -> GraphModule:
    """Without what is not used, and with constants where they are used: a captured graph copies nothing of the host."""
    copies = []
    for node in list(graph.nodes):
        if node.op != "get_attr" or not isinstance(getattr(root, node.target, None), Tensor):
            continue
        for copy in [user for user in node.users if calls(user, *LIFTS)]:
            if _only_read(copy):
                copy.replace_all_uses_with(node)
        for moved in [user for user in node.users if calls(user, torch.ops.aten._to_copy.default)]:
            name = f"{node.target}_{moved.name}"
            root.register_buffer(name, moved.target(getattr(root, node.target), **moved.kwargs))
            copies.append((str(node.target), name))
            with graph.inserting_before(moved):
                constant = graph.get_attr(name)
                constant.meta["val"] = moved.meta["val"]
                if not _only_read(moved):
                    constant = graph.call_function(torch.ops.aten.clone.default, (constant,))
                    constant.meta["val"] = moved.meta["val"]
                moved.replace_all_uses_with(constant)
    graph.eliminate_dead_code()
    module = GraphModule(root, graph)  # which takes over what the graph names
    copies = [pair for pair in copies if hasattr(module, pair[1])]  # those that are used
    for name, _ in copies:
        module.register_buffer(name, getattr(root, name))
    module.meta[COPIES] = copies
    return module


def _writes(node: Node) -> bool:
    """Whether a node writes into one of its arguments, as a step may do with tensors that it has made."""
    return node.op == "call_function" and getattr(getattr(node.target, "_schema", None), "is_mutable", False)


def _only_read(node: Node) -> bool:
    """Whether nothing writes into a node's tensor or hands it on to the caller, who may; by a view of it or itself."""
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        if schema is None or schema.is_mutable:  # without one, the function's output
            return False
        if any(result.alias_info is not None for result in schema.returns) and not _only_read(user):
            return False
    return True


def _copied(old: Tensor, new: Tensor, non_blocking: bool = False) -> Tensor:
    """What `copy` returns, which has no rule for vmap."""
    return new.to(old.device, old.dtype).expand(old.shape)


def ancestors(nodes: Iterable[Node]) -> set[Node]:
    """The nodes and everything that they are computed from."""
    found: set[Node] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(node.all_input_nodes)
    return found


def calls(node: Node, *targets: Any) -> bool:
    """Whether a node calls one of these operations."""
    return node.op == "call_function" and node.target in targets


def shape(node: Node) -> tuple[int, ...]:
    """Shape of a node's tensor."""
    return tuple(node.meta["val"].shape)


def dtype(node: Node) -> torch.dtype:
    """Dtype of a node's tensor."""
    return node.meta["val"].dtype


class Builder:
    """Builds a function out of parts of traced graphs; its inputs are made as they are needed.

    Attributes:
        graph: the graph so far.
        inputs: what the function's arguments stand for, traced nodes mostly, in order.
    """

    def __init__(self, order: Mapping[Node, int]) -> None:
        """Args:
        order: place of each traced node in its graph.
        """
        self.graph = Graph()
        self.inputs: list[Hashable] = []
        self._order = order
        self._given: dict[Hashable, Node] = {}

    def argument(self, key: Hashable) -> Node:
        """The input that stands for a traced node, or for whatever else the caller knows by `key`; made once."""
        if key not in self._given:
            first = next((node for node in self.graph.nodes if node.op != "placeholder"), None)
            with nullcontext() if first is None else self.graph.inserting_before(first):
                self._given[key] = self.graph.placeholder(f"arg{len(self.inputs)}")
            self.inputs.append(key)
        return self._given[key]

    def copy(self, wanted: Sequence[Node], known: dict[Node, Node], source: Callable[[Node], bool]) -> list[Node]:
        """Copy what is needed to compute `wanted`.

        Args:
            wanted: traced nodes.
            known: what traced nodes are in this graph already; filled by this call.
            source: whether a traced node comes in as an argument.
        """
        missing: set[Node] = set()
        todo = [node for node in wanted if node not in known]
        while todo:
            node = todo.pop()
            if node in missing or node in known:
                continue
            if source(node):
                known[node] = self.argument(node)
                continue
            missing.add(node)
            todo.extend(node.all_input_nodes)
        for node in sorted(missing, key=self._order.__getitem__):
            known[node] = self.graph.node_copy(node, known.__getitem__)
        return [known[node] for node in wanted]

    def call(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        """Append a call."""
        return self.graph.call_function(target, args, kwargs)

    def finish(self, outputs: Sequence[Node]) -> GraphModule:
        """The function that returns `outputs` as a list."""
        self.graph.output(list(outputs))
        self.graph.eliminate_dead_code()
        self.graph.lint()
        return GraphModule(torch.nn.Module(), self.graph)
