"""Gradient accumulation whose step is that of the one large batch."""

import contextlib
import itertools
import math
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from denizen import _tree
from denizen._arguments import whole
from denizen.errors import InputError, expect_function
from denizen.tools._amp import Amp, check_scheduler


def windows(batches: Iterable[Any], size: int | None = None, *, rows: int | None = None) -> Iterator[list[Any]]:
    """Micro-batches in lists, one list for each step of the optimizer; the last one may be shorter.

    Args:
        batches: a loader, or any iterable.
        size: micro-batches in a window.
        rows: instead of `size`: samples in a window at least; the number of micro-batches is ``ceil(rows / batch)``
            where batches are equal.

    Raises:
        InputError: neither or both of `size` and `rows`, or one below 1.
    """
    if (size is None) == (rows is None):
        raise InputError(f"windows(size={size}, rows={rows}): expected one of them, for example windows(loader, 4)")
    whole("windows", *(("rows", rows) if size is None else ("size", size)), 1)
    return _windows(iter(batches), size, rows)


def _windows(batches: Iterator[Any], size: int | None, rows: int | None) -> Iterator[list[Any]]:
    if size is not None:
        while window := list(itertools.islice(batches, size)):
            yield window
        return
    assert rows is not None
    window, gathered = [], 0
    for batch in batches:
        window.append(batch)
        gathered += length(batch)
        if gathered >= rows:
            yield window
            window, gathered = [], 0
    if window:
        yield window


def length(batch: Any) -> int:
    """Samples in a batch: the first axis of the first tensor in it.

    Raises:
        InputError: there is no tensor in it that has an axis.
    """
    for tensor in _tree.tensors(batch):
        if tensor.ndim:
            return tensor.shape[0]
    raise InputError(f"a batch of type {type(batch).__name__} has no tensor to count samples by: pass count=")


_MEAN = 1  # at::Reduction
_SUMS = (
    "SumBackward",
    "AddBackward",
    "SubBackward",
    "NegBackward",
    "MulBackward1",
    "ViewBackward",
    "UnsafeViewBackward",
    "ReshapeAliasBackward",
    "WhereBackward",
    "MaskedFillBackward",
    "MaskedSelectBackward",
    "IndexBackward",
    "SelectBackward",
    "SliceBackward",
    "SqueezeBackward",
    "UnsqueezeBackward",
    "ToCopyBackward",
    "CloneBackward",
    "TransposeBackward",
    "TBackward",
    "PermuteBackward",
)


class Accumulate:
    """Makes one step of a window of micro-batches, equal to the step of one batch of all their samples.

    ```python
    accumulate = Accumulate(model, optimizer, scheduler=scheduler, max_norm=1.0)
    for window in windows(loader, 4):
        loss = accumulate(window, lambda batch: cross_entropy(model(batch[0]), batch[1], reduction="sum"))
    ```

    The loss function returns a **sum**; the sums are divided by the number of terms in the whole window, which is right
    also where micro-batches differ in length, losses are masked or the last window is short (a mean of means is not).
    What a term is, `count` says: samples, unless it is given. A cross-entropy that adds up something else, tokens or
    pixels, is refused without it.
    Gradients are cleared, unscaled and clipped, the optimizer and the scheduler stepped, once for each window. Under
    `DistributedDataParallel` gradients are exchanged at the last micro-batch alone, and the number of terms is that of
    all processes.

    Batch norm computes its statistics from each micro-batch, so with it the steps differ from the large batch's; that
    is warned of. So does whatever else looks at the whole batch, such as the normalisation of advantages: compute it
    over the window first.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        scheduler: Any = None,
        amp: Amp | None = None,
        max_norm: float | None = None,
    ) -> None:
        """Args:
        model: the outermost module, for example the `DistributedDataParallel` one.
        optimizer: stepped once for each window.
        scheduler: stepped after it, except where float16 overflowed and left its step out; None for none.
        amp: precision; the loss function then runs under its autocast. None for none.
        max_norm: clip the norm of all gradients of the window to this.

        Raises:
            InputError: the scheduler cannot be stepped once for each window.
        """
        if scheduler is not None:
            check_scheduler(scheduler, "Accumulate")
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.amp = amp or Amp("cpu", torch.float32)
        self.max_norm = max_norm
        self._warned = False

    def __call__(
        self,
        window: Sequence[Any],
        loss_sum: Callable[[Any], Tensor],
        count: Callable[[Any], int | Tensor] = length,
    ) -> Tensor:
        """One step of the optimizer.

        Args:
            window: micro-batches, in any form that `loss_sum` takes.
            loss_sum: sum, not mean, of the losses of a micro-batch, 0-d.
            count: number of terms in a micro-batch, over which the loss is a mean: samples, for tokens
                ``lambda batch: batch[1].numel()``, for a masked loss ``lambda batch: batch["mask"].sum()``. A tensor
                stays on its device. A window without terms makes a step with gradients of zero.

        Returns:
            Mean loss of the window (in this process), 0-d, detached, on the device; reading it waits.

        Raises:
            InputError: an empty window, a loss that is not 0-d, a count that is no number, or none where terms are not
                samples.
        """
        if not isinstance(window, Sequence) or isinstance(window, (str, Mapping)) or not window:
            raise InputError(
                f"window is {type(window).__name__} of length {len(window) if hasattr(window, '__len__') else '?'}: "
                "expected a list of micro-batches with at least one, as windows(loader, 4) gives them"
            )
        expect_function("Accumulate: loss_sum", loss_sum, "batch")
        expect_function("Accumulate: count", count, "batch")
        self._warn_of_batch_norm()
        counts = [_number(count(batch)) for batch in window]
        local, (divisor, exchanging) = sum(counts), self._divisor(sum(counts))
        self.optimizer.zero_grad(set_to_none=True)
        total: Any = 0.0
        for number, batch in enumerate(window):
            with self._exchange(number == len(window) - 1):
                with self.amp.autocast() if self.amp.dtype is not torch.float32 else contextlib.nullcontext():
                    loss = loss_sum(batch)
                if not isinstance(loss, Tensor) or loss.ndim:
                    what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"{loss!r}"
                    raise InputError(f'loss_sum returned {what}: expected a 0-d sum, for example with reduction="sum"')
                if count is length:
                    _check_terms(loss, counts[number])
                self.amp.backward(loss * exchanging / divisor)
            total = total + loss.detach()
            del loss  # its graph, before the next one is built
        schedulers = [] if self.scheduler is None else [self.scheduler]
        self.amp.step(self.optimizer, max_norm=self.max_norm, schedulers=schedulers)
        return total / _not_zero(local)

    def _divisor(self, count: int | Tensor) -> tuple[int | Tensor, int]:
        """Terms of the window in all processes, and what undoes the mean over processes that DDP takes."""
        if not isinstance(self.model, nn.parallel.DistributedDataParallel):
            return _not_zero(count), 1
        device = next(self.model.parameters()).device
        everywhere = torch.as_tensor(count, dtype=torch.float64, device=device).clone()
        group = getattr(self.model, "process_group", None)
        torch.distributed.all_reduce(everywhere, group=group)
        return _not_zero(everywhere).float(), torch.distributed.get_world_size(group)

    @contextlib.contextmanager
    def _exchange(self, last: bool) -> Generator[None]:
        """Exchange gradients between processes after the last micro-batch only."""
        no_sync: Any = getattr(self.model, "no_sync", None)
        with contextlib.nullcontext() if last or no_sync is None else no_sync():
            yield

    def _warn_of_batch_norm(self) -> None:
        if self._warned:
            return
        self._warned = True
        for name, module in self.model.named_modules():
            if isinstance(module, _BatchNorm) and module.training:
                warnings.warn(
                    f"batch norm {name!r} takes its statistics from each micro-batch, so the step differs from that of "
                    "the large batch; use group norm or layer norm, or put it into eval mode",
                    stacklevel=3,
                )
                return


def _check_terms(loss: Tensor, samples: int | Tensor) -> None:
    """Raise `InputError` where a loss is a sum of cross-entropies, and not one for each sample.

    By autograd's graph, down from the loss through what leaves a sum a sum.
    """
    reached, known, others = [loss.grad_fn], set[Any](), list[int]()
    while reached:
        node: Any = reached.pop()
        if node is None or node in known:  # what is reached in two ways may be so in thousands
            continue
        known.add(node)
        name = node.name()
        terms, weighted = _cross_entropies(node, name)
        if weighted:
            raise InputError(_what_terms(f"{terms} terms of cross-entropy, weighted by class,", samples))
        if terms is None and (name.startswith(_SUMS) or (name.startswith("MulBackward0") and _shape(node))):
            reached += [source for source, _ in node.next_functions]
        elif terms is not None and terms != samples:
            others.append(terms)
    if others and sum(others) != samples:  # samples may come one by one, or in parts
        raise InputError(_what_terms(f"{sum(others)} terms of cross-entropy", samples))


def _what_terms(found: str, samples: int | Tensor) -> str:
    return (
        f"loss_sum adds up {found} in a micro-batch of {samples} samples, and without count= it is divided by samples; "
        f"say over what it is a mean: count=lambda batch: batch[1].numel() for terms, (batch[1] != -100).sum() where "
        f"some are ignored, weight[batch[1]].sum() where they are weighted, len(batch[0]) for samples"
    )


def _cross_entropies(node: Any, name: str) -> tuple[int | None, bool]:
    """(how many cross-entropies a node of autograd gives or adds up, whether weighted); (None, False) of another."""
    if name.startswith("NllLoss") and node._saved_reduction != _MEAN:
        source, output = node.next_functions[0]
        scores = _shape(source, output)  # [terms, classes, …], or [classes]
        return math.prod(scores) // scores[min(1, len(scores) - 1)], node._saved_weight is not None
    if name.startswith("GatherBackward") and any(
        source is not None and source.name().startswith("LogSoftmax") for source, _ in node.next_functions
    ):
        return math.prod(_shape(node)), False
    return None, False


def _shape(node: Any, output: int = 0) -> tuple[int, ...]:
    """Of what an operation gave."""
    return tuple(node._input_metadata[output].shape)


def _number(count: Any) -> int | Tensor:
    if isinstance(count, Tensor) and count.ndim == 0:
        return count.detach()
    if isinstance(count, (int, float)) and count >= 0:
        return count  # pyrefly: ignore
    raise InputError(f"count returned {count!r}: expected a number of terms, at least 0, or a 0-d tensor of it")


def _not_zero(count: int | Tensor) -> Any:
    return count + (count == 0) if isinstance(count, Tensor) else count or 1
