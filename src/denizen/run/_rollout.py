"""All steps of a relaxed run as one differentiable function: pieces of steps, compiled or not, recomputed or not.

The steps are cut into blocks, which the backward pass recomputes one by one where checkpointing is on, and blocks into
pieces of at most `PIECE` steps, the unit of compilation: within a piece the compiler fuses what each step adds to the
gradient of a column, between pieces autograd adds it up. All pieces but the last have one length, so that there are at
most two graphs.
"""

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from denizen import _tree
from denizen.run._engine import RunState, Stepper, one_graph, own_code

PIECE = 4  # steps compiled together, at most


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How steps are cut.

    Attributes:
        steps: number of steps.
        block: steps recomputed together; None keeps what every step saved.
        piece: steps compiled together.
    """

    steps: int
    block: int | None
    piece: int

    @classmethod
    def of(cls, steps: int, block: int | None) -> "Schedule":
        """Pieces that divide a block, so that no third length comes up."""
        most = min(PIECE, steps)
        piece = most if block is None else next(p for p in range(min(most, block), 0, -1) if block % p == 0)
        return cls(steps, block, piece)

    def blocks(self) -> Iterator[list[int]]:
        """Lengths of the pieces of each block."""
        done = 0
        while done < self.steps:
            size = min(self.block or self.steps, self.steps - done)
            rest = size % self.piece
            yield [self.piece] * (size // self.piece) + ([rest] if rest else [])
            done += size


@dataclasses.dataclass(frozen=True)
class Cost:
    """Bytes that a gradient rests on.

    Attributes:
        step: kept for the backward pass by each step, its new state among it.
        fresh: of the new state; columns of histories that only grow older are not new.
        state: of the whole state.
    """

    step: int
    fresh: int
    state: int

    def of(self, steps: int, block: int | None) -> int:
        """Bytes of a gradient over `steps` steps.

        Without recomputation ``steps * step``. With blocks of k steps what is new in the state at each block's start,
        ``ceil(steps / k) * min(state, k * fresh)``, and one recomputed block, ``k * step``. Besides, in both cases, the
        gradient of a state, that of the state before, and what a step computes with: ``3 * state``.
        """
        if block is None:
            return steps * self.step + 3 * self.state
        blocks = -(-steps // block)
        return blocks * min(self.state, block * self.fresh) + block * self.step + 3 * self.state


def choose(steps: int, cost: Cost, budget: int) -> int | None:
    """Steps to recompute together: none where all fits, else the most that fit, else what needs least.

    Every choice but none costs one more forward pass; longer blocks have fewer seams.
    """
    if cost.of(steps, None) <= budget:
        return None
    half = max(steps // 2, 1)
    sizes = [*range(half // PIECE * PIECE, 0, -PIECE), *range(min(PIECE - 1, half), 0, -1)]
    return next((k for k in sizes if cost.of(steps, k) <= budget), min(sizes, key=lambda k: cost.of(steps, k)))


@dataclasses.dataclass
class Ends:
    """What a rollout leaves behind.

    Attributes:
        series: by name, `[worlds, steps, …]`.
        run_state: after the last step, with the checks of all steps.
        start: int8 `[worlds, checks]` of init.
    """

    series: dict[str, Tensor]
    run_state: RunState
    start: Tensor


class Rollout:
    """Runs all steps, from `init` on.

    Attributes:
        graphs: forward graphs compiled so far.
    """

    def __init__(
        self,
        stepper: Stepper,
        checks: int,
        places: Sequence[int],
        used: Sequence[str],
        schedule: Schedule,
        backend: Any,
    ) -> None:
        """Args:
        stepper: of a relaxed run, after a first eager step.
        checks: number of the checks of a step.
        places: of the series to record, among a step's records.
        used: their names.
        schedule: how steps are cut.
        backend: of torch.compile; None stays eager.
        """
        self.schedule, self.graphs = schedule, 0
        self._used, self._places = tuple(used), tuple(places)
        self._stepper, self._backend = stepper, backend
        self._pieces: dict[int, Callable[..., Any]] = {}
        self._checks = checks

    def run(self, keys: Tensor) -> Ends:
        """The whole run.

        Args:
            keys: int64 `[worlds, 2]`.
        """
        self._stepper.keys = keys
        run_state, start = self._start()
        parts: list[list[Tensor]] = []
        for lengths in self.schedule.blocks():
            run_state, records = self._block(run_state, keys, lengths)
            parts.append(records)
        series = {name: torch.cat(column, dim=1) for name, *column in zip(self._used, *parts, strict=True)}
        return Ends(series, run_state, start)

    def first_piece(self, keys: Tensor) -> None:
        """Run the first piece alone, so that it is compiled."""
        self._stepper.keys = keys
        run_state, _ = self._start()
        self._block(run_state, keys, [self.schedule.piece], again=False)

    def cost(self, keys: Tensor, known: Iterable[Tensor]) -> Cost:
        """What a step keeps, measured over one piece.

        What the piece was given does not count: the step before kept it, or the model holds it.

        Args:
            keys: int64 `[worlds, 2]`.
            known: tensors of the model.
        """
        self._stepper.keys = keys
        run_state, _ = self._start()
        before = {_storage(t) for t in (*known, *run_state.tensors(), keys)}
        held: dict[int, tuple[Any, int]] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            held[storage._cdata] = (weakref.ref(storage), storage.nbytes())
            return tensor.detach()  # itself, an output would hold the node that holds it, for ever

        with torch.enable_grad(), saved_tensors_hooks(pack, lambda tensor: tensor):
            out, _ = self._block(run_state, keys, [self.schedule.piece], again=False)
        state = {_storage(t): t.untyped_storage().nbytes() for t in out.leaves}
        fresh = sum(size for where, size in state.items() if where not in before)
        alive = {where: size for where, (storage, size) in held.items() if storage() is not None}  # not unused series
        kept = sum(size for where, size in {**alive, **state}.items() if where not in before)
        steps = self.schedule.piece
        return Cost(-(-kept // steps), -(-fresh // steps), sum(state.values()))

    def _start(self) -> tuple[RunState, Tensor]:
        """The state before the first step, and the checks of init."""
        run_state = self._stepper.start()
        start = run_state.bad
        assert start is not None
        run_state.bad = start.new_zeros(len(start), self._checks)
        return run_state, start

    def _block(
        self, run_state: RunState, keys: Tensor, lengths: list[int], again: bool = True
    ) -> tuple[RunState, list[Tensor]]:
        """The steps of a block: the run's state after it, and the used records `[worlds, steps, …]`."""
        num_leaves = len(run_state.leaves)

        def steps(*tensors: Tensor) -> tuple[Tensor, ...]:
            leaves, rest = _alike(tensors[:num_leaves]), _alike(tensors[num_leaves:])
            parts = []
            for length in lengths:
                new, *rest, records = self._piece(length)(leaves, *rest, keys)
                leaves, rest = _alike(new), _alike(rest)
                parts.append(records)
            return (*leaves, *rest, *(torch.cat(column, dim=1) for column in zip(*parts, strict=True)))

        tensors = run_state.tensors()
        if self.schedule.block is None or not again:
            out = steps(*tensors)
        else:
            out = checkpoint(steps, *tensors, use_reentrant=False, preserve_rng_state=False)
        leaves, (step, switches, bad), records = out[:num_leaves], out[num_leaves:][:3], out[num_leaves + 3 :]
        return RunState(list(leaves), step, switches, bad), list(records)

    def _piece(self, length: int) -> Callable[..., Any]:
        if length not in self._pieces:
            self._pieces[length] = self._compiled(self._several(length))
        return self._pieces[length]

    def _several(self, length: int) -> Callable[..., Any]:
        stepper, wanted = self._stepper, self._places

        def several(leaves: Sequence[Tensor], step: Tensor, switches: Tensor, bad: Tensor, keys: Tensor) -> Any:
            rows = []
            for _ in range(length):
                leaves, switches, records, flags = stepper.batched_step(
                    list(leaves), switches, keys, stepper.values, step, {}
                )
                step, bad = step + 1, torch.maximum(bad, flags)
                rows.append([records[place] for place in wanted])
            return list(leaves), step, switches, bad, [torch.stack(column, dim=1) for column in zip(*rows, strict=True)]

        return several

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self._backend is None:
            return function

        def count() -> None:
            self.graphs += 1

        return one_graph(own_code(function), self._backend, count)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _alike(leaves: Sequence[Tensor]) -> list[Tensor]:
    """Tensors in the form that every piece gets: contiguous, floats with a gradient, none twice, empty ones fresh.

    Otherwise a piece would be compiled anew: the first, whose state may depend on no parameter and be the same for all
    worlds, and those that get an empty tensor with other strides.
    """
    out: list[Tensor] = []
    for leaf in leaves:
        if any(leaf is other for other in out):
            leaf = leaf.clone()
        leaf = leaf.contiguous()
        if leaf.is_floating_point() and not leaf.requires_grad and torch.is_grad_enabled():
            leaf = leaf.detach().requires_grad_()
        if leaf.numel() == 0:
            leaf = leaf.new_zeros(leaf.shape)
        out.append(leaf)
    return out


def model_tensors(model: Any) -> list[Tensor]:
    """Every tensor that a model holds, those of its modules among them."""
    modules = [value for value in model.__dict__.values() if isinstance(value, torch.nn.Module)]
    return [*_tree.tensors(model), *(t for module in modules for t in (*module.parameters(), *module.buffers()))]
