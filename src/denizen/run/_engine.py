"""The stepper: one world or a batch of worlds, eager or compiled, as a function over flat tensors.

Batching is `torch.vmap` over the author's step for one world; ops below it see a leading axis of worlds. A single
world runs without vmap. Nothing here reads a value on the host.
"""

import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from denizen import _tree
from denizen.model import FlatWorld, Model, OneWorldAtATimeError, Setting, own


@dataclasses.dataclass
class RunState:
    """What goes from step to step, for all worlds.

    Attributes:
        leaves: state tensors, each `[worlds, …]`.
        step: int64 `[]`.
        switches: int8 `[worlds, interventions]`.
        bad: int8 `[worlds, checks]`, or None before the first step: 1 where a check on the device failed.
    """

    leaves: list[Tensor]
    step: Tensor
    switches: Tensor
    bad: Tensor | None

    def tensors(self) -> list[Tensor]:
        """Everything, as one list."""
        return [*self.leaves, self.step, self.switches, *([] if self.bad is None else [self.bad])]

    def clone(self) -> "RunState":
        """A copy that shares no memory."""
        bad = None if self.bad is None else self.bad.clone()
        return RunState([leaf.clone() for leaf in self.leaves], self.step.clone(), self.switches.clone(), bad)


class Stepper:
    """Steps all worlds of a run.

    Attributes:
        keys: int64 `[worlds, 2]`.
        ids: int64 `[agents]`.
        values: parameters with a leading axis of worlds.
    """

    def __init__(self, model: Model, setting: Setting, keys: Tensor, ids: Tensor, values: dict[str, Tensor]) -> None:
        """Args:
        model: the model, on its device.
        setting: of the run.
        keys: int64 `[worlds, 2]`.
        ids: int64 `[agents]`.
        values: parameters with a leading axis of worlds.
        """
        self.keys, self.ids, self.values = keys, ids, values
        self._world = FlatWorld(model, setting, ids)
        self._in_turn = False
        self.batched_step: Callable[..., Any] = self._batched(self._world.step)
        self._advance = self.batched_step

    @property
    def setting(self) -> Setting:
        """Of the run; has custom ids once a state with births is drawn."""
        return self._world.setting

    @property
    def model(self) -> Model:
        """The model, on its device."""
        return self._world.model

    @property
    def identified(self) -> tuple[str, ...]:
        """Axes of other kinds of agents whose identities are part of the state."""
        return self._world.identified

    @property
    def checks(self) -> list[str]:
        """Labels of the device checks of init, or of the last step."""
        return self._world.checks

    @property
    def masks(self) -> list[bool]:
        """For each leaf of the state whether it holds only 0 and 1."""
        return self._world.masks

    @property
    def logged(self) -> tuple[tuple[str, ...], ...]:
        """For each logged event the names of its columns; known after a step."""
        return self._world.logged

    @property
    def num_logged(self) -> int:
        """Tensors behind the records of a step that are of logged events."""
        return self._world.num_logged

    @property
    def worlds(self) -> int:
        """Number of worlds."""
        return self.keys.shape[0]

    def start(self) -> RunState:
        """Draw the initial state of every world."""
        with torch.set_grad_enabled(self.setting.relax is not None):  # hard draws have no gradient: do not record
            try:
                leaves, bad = self._batched(self._world.init, batched=2)(self.keys, self.values)
            except OneWorldAtATimeError:
                self._take_turns()
                leaves, bad = self._batched(self._world.init, batched=2)(self.keys, self.values)
        switches = torch.zeros(self.worlds, len(self.setting.interventions), dtype=torch.int8, device=self.keys.device)
        step = torch.zeros((), dtype=torch.int64, device=self.keys.device)
        # The checks of init and of step differ; those of init are looked at once, by the caller.
        return RunState(list(leaves), step, switches, bad)

    def advance(self, run_state: RunState, answers: dict[str, Tensor]) -> tuple[RunState, list[Tensor]]:
        """One step of every world: the next run state, and each record `[worlds, …]`."""
        with torch.set_grad_enabled(self.setting.relax is not None):
            arguments = (run_state.leaves, run_state.switches, self.keys, self.values, run_state.step, answers)
            try:
                leaves, switches, records, bad = self._advance(*arguments)
            except OneWorldAtATimeError:
                self._take_turns()
                leaves, switches, records, bad = self._advance(*arguments)
            except Exception:
                if self._advance is not self.batched_step:
                    self.batched_step(*arguments)  # the model's own error; torch.compile's lacks its message
                raise
        bad = bad if run_state.bad is None else torch.maximum(run_state.bad, bad)
        return RunState(list(leaves), run_state.step + 1, switches, bad), list(records)

    @property
    def takes_several(self) -> bool:
        """Whether several steps may be one call."""
        return hasattr(self._advance, "several")

    def advance_several(self, run_state: RunState, count: int) -> tuple[RunState, list[Tensor]]:
        """So many steps in one call: the run state after them, and each record `[worlds, steps, …]`.

        An error within may lack the model's own message, which `advance` in torch has.
        """
        arguments = (run_state.leaves, run_state.switches, self.keys, self.values, run_state.step)
        with torch.no_grad():
            leaves, switches, records, bad = self._advance.several(count, *arguments)  # type: ignore[attr-defined]
        bad = bad.amax(0)
        bad = bad if run_state.bad is None else torch.maximum(run_state.bad, bad)
        columns = [record.transpose(0, 1).contiguous() for record in records]
        return RunState(list(leaves), run_state.step + count, switches, bad), columns

    def _batched(self, one: Callable[..., Any], batched: int = 4) -> Callable[..., Any]:
        """Over all worlds: the first `batched` arguments have an axis of worlds, the others are shared.

        A single world runs as it is and gets the axis put on afterwards; so do several where a function of one agent
        cannot run under vmap.
        """
        if self.worlds > 1 and not self._in_turn:

            def over_worlds(*args: Any) -> Any:
                dims = (0,) * batched + (None,) * (len(args) - batched)
                return torch.vmap(one, in_dims=dims)(*args)

            return over_worlds

        def single(*args: Any, world: int = 0) -> Any:
            return _each(lambda t: t[None], one(*_each(lambda t: t[world], args[:batched]), *args[batched:]))

        def in_turn(*args: Any) -> Any:
            parts = [_tree.flatten(single(*args, world=world)) for world in range(self.worlds)]
            leaves = [torch.cat(column) for column in zip(*(leaves for leaves, _ in parts), strict=True)]
            return _tree.unflatten(leaves, parts[0][1])

        return in_turn if self._in_turn else single

    def _take_turns(self) -> None:
        """From now on one world after another, which gives the same bits."""
        self._in_turn = True
        self.batched_step = self._batched(self._world.step)
        self.eager()

    def with_rows(self, keys: Tensor, values: dict[str, Tensor]) -> "Stepper":
        """The stepper of other rows, whose states are alike."""
        other = copy.copy(self)
        other.keys, other.values, other._world = keys, values, copy.copy(self._world)
        other.batched_step = other._batched(other._world.step)
        other.eager()
        return other

    def compile(self, backend: str) -> None:
        """Compile the step into one graph; raises what torch raises where that fails."""
        self._advance = one_graph(own_code(self.batched_step), backend)

    def use(self, step: Callable[..., Any]) -> None:
        """Take another function for `batched_step`, of the same arguments and results."""
        self._advance = step

    def eager(self) -> None:
        """Back to plain torch."""
        self._advance = self.batched_step

    @contextlib.contextmanager
    def in_torch(self) -> Iterator[None]:
        """Within this context steps are plain torch."""
        kept = self._advance
        self.eager()
        try:
            yield
        finally:
            self._advance = kept

    def state(self, run_state: RunState, world: int | None = None) -> Any:
        """The state of all worlds (fields `[worlds, …]`) or of one, by position."""
        leaves = run_state.leaves if world is None else [leaf[world] for leaf in run_state.leaves]
        state = self._world.state(leaves, run_state.step)
        if world is None and not self.setting.custom_ids:
            return own(state, state.time, self.ids.expand(self.worlds, -1))
        return state


def _each(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """`function` of every tensor in nested lists, tuples and dicts; torch's own walk takes 8 times as long."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {name: _each(function, value) for name, value in tree.items()}
    return [_each(function, value) for value in tree]


# Inductor of torch 2.11 pads rows of buffers and then may write a buffer without the padding and read it with: sampled
# deaths of COVID were wrong in every world but the first (docs/log.md). Without padding layouts also stay as they were.
#
# For a reduction inductor times several sizes of blocks in each process, and each adds in an order of its own: sums of
# reals had other bits in another process, so a resumed training had, too (docs/log.md). Filtered, one size is left.
# `deterministic`, which filters as well, refuses all of inductor's other timings.
INDUCTOR = {"comprehensive_padding": False, "test_configs.force_filter_reduction_configs": True}


def one_graph(
    function: Any, backend: str | Callable[..., Any], count: Callable[[], None] | None = None
) -> Callable[..., Any]:
    """A function or module compiled as one graph for one set of shapes; an error where that is not possible.

    Nothing is compiled while a CUDA graph is captured: compiling runs and times kernels, which would break the capture
    with an error of CUDA that names no cause.

    Args:
        function: what to compile; `run/_torch_switches.py` says what besides its arguments has to stay as it was.
        backend: of torch.compile.
        count: called for each graph that is compiled.
    """
    from torch._dynamo import lookup_backend

    inner = lookup_backend(backend)
    options = {}
    if backend == "inductor":
        from denizen.run._inductor_pass import SafeWrites  # imports inductor, which takes seconds

        options = {"config_patches": INDUCTOR | {"post_grad_custom_post_pass": SafeWrites()}}

    def compiled(graph: Any, inputs: Any) -> Any:
        if _capturing():
            raise RuntimeError(
                "a function would have to be compiled anew within the capture of a CUDA graph, since something that "
                "torch.compile goes by changed after the warm-up (TORCH_LOGS=recompiles says what)"
            )
        if count is not None:
            count()
        with warnings.catch_warnings():  # what torch says of itself; as errors they would end the compilation
            warnings.simplefilter("ignore")
            return inner(graph, inputs, **options)

    # A module's own call goes through the hooks that a program put on all modules, here for every step.
    called = function.forward if isinstance(function, GraphModule) else function
    return torch.compile(called, fullgraph=True, dynamic=False, backend=compiled)


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a function with a code object of its own.

    Dynamo keeps compiled graphs with the code object and refuses a ninth, so the ninth model of a process would stay
    eager.
    """
    if isinstance(function, MethodType):
        return MethodType(own_code(function.__func__), function.__self__)
    if hasattr(function, "__wrapped__"):  # what torch's decorators make dynamo reads through code that all of it share
        return own_code(lambda *args, **kwargs: function(*args, **kwargs))
    assert isinstance(function, FunctionType)
    code = function.__code__.replace()
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
