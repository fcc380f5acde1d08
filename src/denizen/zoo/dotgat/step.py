"""One step of the optimizer, in each variant: eager, compiled, or captured whole in a CUDA graph."""

from collections.abc import Sequence

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
    """Takes a window of batches to one step of AdamW; returns the mean loss, which stays on the device.

    Attributes:
        model: as it computes: wrapped for several processes or compiled.
        switches: torch's switches, under which it is compiled and every step is taken.
        optimizer: fused, its learning rate a tensor so that a captured graph follows the schedule.
        amp: precision.
    """

    def __init__(self, settings: Settings, model: nn.Module, judge: Judge, device: torch.device) -> None:
        precision = None if settings.precision == "auto" else getattr(torch, settings.precision)
        self.amp, self._judge = Amp(device, precision), judge
        self.learning_rate = torch.tensor(settings.learning_rate, device=device)
        cuda = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            model.parameters(), self.learning_rate, weight_decay=settings.weight_decay, fused=True, capturable=cuda
        )
        self.model = torch.compile(model, fullgraph=True, dynamic=False) if settings.variant == "compiled" else model
        self._take = Accumulate(model, self.optimizer, amp=self.amp, max_norm=settings.max_norm)
        self.switches = TorchSwitches(grad=True)

    def __call__(self, window: Sequence[Batch]) -> Tensor:
        """One step; gradients are those of the mean over all series of the window."""
        with self.switches.held():
            return self._take(window, self._loss_sum)

    def _loss_sum(self, batch: Batch) -> Tensor:
        return self._judge.loss(self.model(batch[0]), batch[1]) * len(batch[0])


class CapturedStep:
    """A step as one CUDA graph: forward, backward, clipping and optimizer in one launch from Python.

    The first window sets the shapes; it is stepped `WARM_UP` times to find what is allocated and chosen, which is then
    undone. Dropout draws afresh in every replay: torch registers its generator with the graph. Where that cannot be
    recorded, one warning says so, and steps are eager.
    """

    def __init__(self, step: Step, state: Sequence[object]) -> None:
        """Args:
        step: an eager one.
        state: what it changes, to be put back after warming up.

        Raises:
            InputError: the step is not on a CUDA device.
        """
        if step.amp.device.type != "cuda":
            raise InputError("variant='captured' needs a CUDA device; on the CPU take 'fast' or 'compiled'")
        self._step, self._state = step, state
        self._captured: CapturedFunction[Tensor] | None = None
        self._window: list[Batch] = []

    def __call__(self, window: Sequence[Batch]) -> Tensor:
        """One step; windows have to have equal shapes."""
        if self._captured is None:
            self._captured = self._capture(window)
        if not self._captured.captured:
            return self._step(window)
        for (x, y), (own_x, own_y) in zip(window, self._window, strict=True):
            own_x.copy_(x)
            own_y.copy_(y)
        return self._captured()

    def _capture(self, window: Sequence[Batch]) -> CapturedFunction[Tensor]:
        step = self._step
        with step.switches.held(), TrainingState(*self._state).kept():
            self._window = own = [(x.clone(), y.clone()) for x, y in window]
            # In the stream of the warm-up: every stream that multiplies matrices keeps 32 MiB for it.
            captured = CapturedFunction(lambda: step(own), "steps", warm_up=WARM_UP)
            captured.try_capture()
        return captured
