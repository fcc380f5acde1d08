"""Activation checkpointing of named blocks: by hand, or as few as a budget of memory needs."""

import contextlib
import dataclasses
import fnmatch
import functools
from collections.abc import Callable, Generator, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from denizen._arguments import number
from denizen.errors import InputError, expect_function, nearest
from denizen.perf.state import Snapshot, TrainingState
from denizen.perf.watch import free, size
from denizen.tools._checkpoint_measure import BlockCost, Run, block_costs, compared, run
from denizen.tools._warm_up import place_of, warn_of_forgotten

HEADROOM = 0.1  # of the free memory is left free where no budget is given


class Checkpointing:
    """Blocks of a model that compute their activations a second time in the backward pass, instead of holding them.

    Attributes:
        blocks: their names.
    """

    def __init__(self, modules: dict[str, nn.Module]) -> None:
        self.blocks = list(modules)
        self._modules = list(modules.values())
        for module in self._modules:
            module.__class__ = _checkpointed_class(type(module))

    def remove(self) -> None:
        """Back to plain blocks; does nothing the second time."""
        for module in self._modules:
            module.__class__ = type(module).__mro__[2]
        self._modules = []


class _Checkpointed:
    """Mixed into the class of a block; copies of the block keep it, names in ``state_dict`` stay as they are."""


def _checkpointed_class(kind: type[nn.Module]) -> type[nn.Module]:
    def forward(self: nn.Module, *args: Any, **options: Any) -> Any:
        plain = super(made, self).forward
        if not torch.is_grad_enabled():
            return plain(*args, **options)
        contexts: dict[str, Any] = {}
        # A compiler keeps writes to buffers out of what it computes again, and takes no contexts.
        if not torch.compiler.is_compiling() and any(True for _ in self.buffers()):
            contexts["context_fn"] = functools.partial(_contexts, self)
        return checkpoint(plain, *args, use_reentrant=False, **contexts, **options)

    made: Any = type(kind.__name__, (_Checkpointed, kind), {"forward": forward, "__module__": kind.__module__})
    return made


def _contexts(block: nn.Module) -> tuple[Any, Any]:
    """For the forward pass, and for its repetition, which must not change buffers (running statistics) again."""
    changed: set[tuple[nn.Module, str]] = set()
    return _noting(block, changed), _leaving_alone(block, changed)


def _buffers(block: nn.Module) -> dict[tuple[nn.Module, str], Tensor]:
    parts = ((module, name, tensor) for module in block.modules() for name, tensor in module._buffers.items())
    return {(module, name): tensor for module, name, tensor in parts if tensor is not None}


@contextlib.contextmanager
def _noting(block: nn.Module, changed: set[tuple[nn.Module, str]]) -> Generator[None]:
    before = {place: (tensor, tensor._version) for place, tensor in _buffers(block).items()}
    yield
    for place, tensor in _buffers(block).items():
        # The kernels of batch norm write running statistics without counting a version.
        known, version = before.get(place, (None, 0))
        if isinstance(place[0], _BatchNorm) or known is not tensor or version != tensor._version:
            changed.add(place)


@contextlib.contextmanager
def _leaving_alone(block: nn.Module, changed: set[tuple[nn.Module, str]]) -> Generator[None]:
    """Buffers that the forward pass has changed are copies in the meantime."""
    real = {place: tensor for place, tensor in _buffers(block).items() if place in changed}
    try:
        for (module, name), tensor in real.items():
            module._buffers[name] = tensor.clone()
        yield
    finally:
        for (module, name), tensor in real.items():
            module._buffers[name] = tensor


def checkpoint_blocks(model: nn.Module, blocks: str | Iterable[str]) -> Checkpointing:
    """Checkpoint blocks of a model by name, in place; names of parameters stay as they are.

    Gradients are those of the plain model, bit for bit where its operations are deterministic: dropout draws the same
    numbers again, and batch norm counts each batch once. Without gradients (evaluation) blocks run as ever. Costs at
    most one more forward pass of the blocks. Apply it before `torch.compile`.

    Args:
        model: the model.
        blocks: names as in ``model.named_modules()``, or patterns such as ``"layers.*"``.

    Returns:
        A handle; its ``remove()`` undoes it.

    Raises:
        InputError: a name that is no module, a block inside another one or inside one that is checkpointed already, or
            an instance whose ``forward`` was replaced.
    """
    return Checkpointing(_chosen(model, blocks))


@dataclasses.dataclass(frozen=True)
class MemoryFit:
    """What `fit_memory` has done; print it, with `print` or with rich.

    Attributes:
        blocks: the blocks that are checkpointed now, in the order they were chosen.
        costs: what each candidate would save and cost, the best first.
        budget_bytes: what a step may hold beyond what is held before it.
        peak_before: what the plain step held; None if it ran out of memory.
        peak_after: what it holds now.
        ms_before: milliseconds of the plain step; None if it ran out of memory.
        ms_after: of the step now.
        gradients: ``"bit-equal"`` or ``"within tolerance"`` of the plain step's; ``"not compared: …"`` if that ran out
            of memory.
        checkpointing: its ``remove()`` undoes it.
    """

    blocks: list[str]
    costs: list[BlockCost]
    budget_bytes: int
    peak_before: int | None
    peak_after: int
    ms_before: float | None
    ms_after: float
    gradients: str
    checkpointing: Checkpointing

    def __rich__(self) -> Any:
        from rich.console import Group

        from denizen._printing import Table, as_it_is

        table = Table()
        for title in ("block", "saves", "recompute ms", "checkpointed"):
            table.add_column(title, justify="left" if title == "block" else "right")
        for cost in self.costs:
            mark = "yes" if cost.name in self.blocks else ""
            table.add_row(cost.name, size(cost.saved_bytes), f"{cost.recompute_ms:.2f}", mark)
        before = "out of memory" if self.peak_before is None else size(self.peak_before)
        took = "-" if self.ms_before is None else f"{self.ms_before:.2f}"
        return Group(
            as_it_is(
                f"peak of a step {before} -> {size(self.peak_after)} (budget {size(self.budget_bytes)}), "
                f"{took} -> {self.ms_after:.2f} ms, gradients {self.gradients}"
            ),
            table,
        )

    def __str__(self) -> str:
        from denizen._printing import plain

        return plain(self, 100)


def fit_memory(
    model: nn.Module,
    step: Callable[[], object],
    *,
    budget_bytes: int | None = None,
    blocks: str | Iterable[str] | None = None,
    state: Any = (),
) -> MemoryFit:
    """Checkpoint as few blocks as it takes for a step to fit, those first that save most for the time they cost.

    ```python
    fit = dz.tools.fit_memory(model, step, budget_bytes=8 * 2**30, state=[optimizer])
    print(fit)
    ```

    The plain step and the result are run, and gradients, loss and buffers of both compared. What was changed on the way
    is put back; the chosen blocks stay checkpointed.

    Args:
        model: the model; changed in place.
        step: one step: forward and backward, with or without the optimizer, on the largest batch that will come.
        budget_bytes: what a step may hold at once beyond what is held before it (weights, optimizer); None takes the
            device's free memory but for a tenth.
        blocks: candidates, by name or pattern; None takes the members of the outermost ``ModuleList`` and
            ``Sequential`` containers.
        state: what the step changes besides `model`, such as the optimizer.

    Returns:
        What was chosen, with peak and time before and after.

    Raises:
        InputError: the step does not fit with every candidate checkpointed (the model is left plain); checkpointing
            changes a gradient or a buffer; or an argument is wrong.

    Warns:
        UserWarning: the step uses an optimizer, scheduler or generator that is not in `state`.
    """
    if budget_bytes is not None:
        number("fit_memory", "budget_bytes", budget_bytes, 1)
    expect_function("fit_memory: step", step)
    training = TrainingState(model, *([state] if not isinstance(state, (list, tuple)) else state))
    device = place_of(training)
    candidates = _chosen(model, blocks if blocks is not None else _containers(model))
    with training.kept(drop_fresh=True) as snapshot:
        warn_of_forgotten(step, snapshot, "fit_memory")
        if budget_bytes is None:
            room = free(device)
            if room is None:
                raise InputError(f"budget_bytes: the free memory of {device} is not known; pass a number of bytes")
            budget_bytes = int((1 - HEADROOM) * room)
        fitting = _Fitting(model, step, snapshot, device, candidates)
        before = fitting.run([])
        costs: list[BlockCost] = []
        chosen, after = [], before
        if before is None or before.peak_bytes > budget_bytes:
            costs = fitting.costs()
            chosen, after = fitting.choose(costs, before, budget_bytes)
        assert after is not None
        gradients = compared(before, after)
    return MemoryFit(
        chosen,
        costs,
        budget_bytes,
        before.peak_bytes if before else None,
        after.peak_bytes,
        before.milliseconds if before else None,
        after.milliseconds,
        gradients,
        Checkpointing({name: candidates[name] for name in chosen}),
    )


class _Fitting:
    """Runs the step with sets of blocks checkpointed, each time from the same state."""

    def __init__(
        self,
        model: nn.Module,
        step: Callable[[], object],
        snapshot: Snapshot,
        device: torch.device,
        candidates: dict[str, nn.Module],
    ) -> None:
        self.model, self.step, self.snapshot, self.device, self.candidates = model, step, snapshot, device, candidates

    def run(self, names: list[str]) -> Run | None:
        """With these blocks checkpointed; None if it runs out of memory."""
        with self._checkpointed(names):
            return run(self.model, self.step, self.snapshot, self.device)

    def costs(self) -> list[BlockCost]:
        """Of the candidates that save anything, the best first; all of them are checkpointed, so that it fits."""
        with self._checkpointed(list(self.candidates)):
            found = block_costs(self.candidates, self.step, self.snapshot, self.device)
        saving = [cost for cost in found if cost.saved_bytes > 0]
        return sorted(saving, key=lambda cost: -cost.saved_bytes / max(cost.recompute_ms, 1e-6))

    def choose(self, costs: list[BlockCost], before: Run | None, budget: int) -> tuple[list[str], Run]:
        everything = [cost.name for cost in costs]
        smallest: Run | None = None
        if before is None:
            smallest = self.run(everything)
            expected = smallest.peak_bytes + sum(cost.saved_bytes for cost in costs) if smallest else 0
        else:
            expected = before.peak_bytes
        chosen: list[str] = []
        for cost in costs:
            chosen.append(cost.name)
            expected -= cost.saved_bytes
            if expected > budget and len(chosen) < len(costs):
                continue
            after = self.run(chosen)
            if after is not None and after.peak_bytes <= budget:
                return chosen, after
            expected, smallest = (after.peak_bytes if after else budget + 1), after or smallest
        held = "runs out of memory" if smallest is None else f"holds {size(smallest.peak_bytes)}"
        raise InputError(
            f"budget_bytes={budget} ({size(budget)}): the step {held}, with {', '.join(everything) or 'no block'} "
            "checkpointed; use a smaller batch (dz.tools.find_batch_size), more or smaller blocks, or a larger budget"
        )

    @contextlib.contextmanager
    def _checkpointed(self, names: list[str]) -> Generator[None]:
        handle = Checkpointing({name: self.candidates[name] for name in names})
        try:
            yield
        finally:
            handle.remove()


def _chosen(model: nn.Module, blocks: str | Iterable[str]) -> dict[str, nn.Module]:
    """Modules by name, checked."""
    patterns = [blocks] if isinstance(blocks, str) else list(blocks)
    modules = {name: module for name, module in model.named_modules() if name}
    found: dict[str, nn.Module] = {}
    for pattern in patterns:
        named = [name for name in modules if fnmatch.fnmatchcase(name, pattern)]
        deepest = min((name.count(".") for name in named), default=0)
        named = [name for name in named if name.count(".") == deepest]  # "layers.*" means no parts of layers
        if not named:
            raise InputError(f"blocks={pattern!r} is no module of the model; {nearest(pattern, modules)}")
        found |= {name: modules[name] for name in named}
    for name, module in found.items():
        outer = [other for other in found if name.startswith(f"{other}.")]
        if outer:
            raise InputError(f"blocks: {name!r} lies inside {outer[0]!r}; checkpoint one of them")
        if any(isinstance(part, _Checkpointed) for part in module.modules()):
            raise InputError(f"blocks: {name!r} is checkpointed already; remove() that first")
        if "forward" in vars(module):
            raise InputError(f"blocks: the forward of {name!r} was replaced on the instance, and would be bypassed")
    return found


def _containers(model: nn.Module) -> list[str]:
    """Names of the members of the outermost lists and sequences of modules."""
    names: list[str] = []
    containers: list[str] = []
    for name, module in model.named_modules():
        if any(not outer or name.startswith(f"{outer}.") for outer in containers):
            continue
        if isinstance(module, (nn.ModuleList, nn.Sequential)) and len(module) > 1:
            containers.append(name)
            names += [f"{name}.{key}" if name else key for key, _ in module.named_children()]
    if not names:
        raise InputError("blocks: the model has no ModuleList and no Sequential; name its blocks, as in blocks=[…]")
    return names
