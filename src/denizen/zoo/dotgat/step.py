"""One step of the optimizer, in each variant: eager, compiled, or captured whole in a CUDA graph."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from denizen.errors import InputError
from denizen.run import CapturedFunction, TorchSwitches
from denizen.tools import Accumulate, Amp, TrainingState
from denizen.zoo.dotgat.config import Settings
from denizen.zoo.dotgat.model import Judge

Batch = tuple[Tensor, Tensor]
WARM_UP = 3  # eager steps before a graph is recorded


class Step:
    """Takes one step of AdamW on a window of batches; returns the mean loss, which stays on the device.

    With ``variant="captured"`` forward, backward, clipping and optimizer are one CUDA graph. The first window sets the
    shapes; it is stepped `WARM_UP` times to find what is allocated and chosen, which is then undone. Dropout draws
    afresh in every replay: torch registers its generator with the graph. Where the step cannot be captured, one warning
    says so, and steps are eager.

    Attributes:
        optimizer: fused, its learning rate a tensor so that a captured graph follows the schedule.
        learning_rate: that tensor.
        amp: precision.
    """

    def __init__(self, settings: Settings, model: nn.Module, judge: Judge, device: torch.device) -> None:
        """Args:
        settings: of the training.
        model: the network, wrapped where several processes train it.
        judge: loss of the task.
        device: of both.

        Raises:
            InputError: the step is to be captured, and this is no CUDA device.
        """
        cuda = device.type == "cuda"
        self._captures = settings.variant == "captured"
        if self._captures and not cuda:
            raise InputError("variant='captured' needs a CUDA device; on the CPU take 'fast' or 'compiled'")
        precision = None if settings.precision == "auto" else getattr(torch, settings.precision)
        self.amp, self._judge = Amp(device, precision), judge
        self.learning_rate = torch.tensor(settings.learning_rate, device=device)
        self.optimizer = torch.optim.AdamW(
            model.parameters(), self.learning_rate, weight_decay=settings.weight_decay, fused=True, capturable=cuda
        )
        plain = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
        self._state = TrainingState(plain, self.optimizer, self.amp)
        self._model = _compiled(model) if settings.variant == "compiled" else model
        self._take = Accumulate(model, self.optimizer, amp=self.amp, max_norm=settings.max_norm)
        self._switches = TorchSwitches(grad=True)
        self._graph: CapturedFunction[Tensor] | None = None
        self._window: list[Batch] = []  # what the graph reads

    def __call__(self, window: Sequence[Batch]) -> Tensor:
        """One step, with the gradients of the mean over all series of the window; windows have to have equal shapes."""
        if self._captures and self._graph is None:
            self._capture(window)
        if self._graph is None or not self._graph.captured:
            return self._eager(window)
        for (x, y), (own_x, own_y) in zip(window, self._window, strict=True):
            own_x.copy_(x)
            own_y.copy_(y)
        return self._graph()

    def _eager(self, window: Sequence[Batch]) -> Tensor:
        with self._switches.held():
            return self._take(window, self._loss_sum)

    def _loss_sum(self, batch: Batch) -> Tensor:
        return self._judge.loss(self._model(batch[0]), batch[1]) * len(batch[0])

    def _capture(self, window: Sequence[Batch]) -> None:
        with self._switches.held(), self._state.kept():
            self._window = [(x.clone(), y.clone()) for x, y in window]
            self._graph = CapturedFunction(lambda: self._eager(self._window), "steps", warm_up=WARM_UP)
            self._graph.try_capture()


def _compiled(model: nn.Module) -> Any:
    """One graph. Its sums have the same bits in each process: reductions take one size of blocks, not the fastest."""
    options: dict[str, Any] = {"test_configs.force_filter_reduction_configs": True}
    return torch.compile(model, fullgraph=True, dynamic=False, options=options)
