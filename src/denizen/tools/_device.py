"""Where a training loop runs."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from denizen.perf.state._training_state import TrainingState


def place_of(training: TrainingState) -> torch.device:
    """Where the tensors of the parts are."""
    for tensor in _tensors(training):
        if tensor.device.type != "cpu":
            return tensor.device
    return torch.device("cpu")


def _tensors(training: TrainingState) -> Iterator[Tensor]:
    for part in training.parts.values():
        if isinstance(part, nn.Module):
            yield from part.parameters()
        elif isinstance(part, torch.optim.Optimizer):
            yield from (weight for group in part.param_groups for weight in group["params"])
        elif isinstance(part, Tensor):
            yield part
