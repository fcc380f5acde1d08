"""The best policy so far, kept on the device without a host read."""

import torch
from torch import Tensor, nn


class Best:
    """Keeps a copy of a module's parameters and buffers as they were when its score was highest.

    Attributes:
        score: float32 `[]`: the highest so far; -inf before.
        update: int64 `[]`: at which update.
    """

    def __init__(self, module: nn.Module) -> None:
        self._live = module.state_dict(keep_vars=True)
        self._kept = {name: tensor.detach().clone() for name, tensor in self._live.items()}
        device = next(iter(self._kept.values())).device
        self.score = torch.full((), -torch.inf, device=device)
        self.update = torch.zeros((), dtype=torch.int64, device=device)

    @torch.no_grad()
    def offer(self, score: Tensor, update: Tensor) -> None:
        """Keep the module as it is if `score` is higher than before; NaN never is."""
        better = score > self.score
        for name, kept in self._kept.items():
            kept.copy_(torch.where(better, self._live[name], kept))
        self.score.copy_(torch.where(better, score, self.score))
        self.update.copy_(torch.where(better, update, self.update))

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds."""
        return {
            **{f"policy.{name}": tensor for name, tensor in self._kept.items()},
            "score": self.score,
            "update": self.update,
        }

    def weights(self) -> dict[str, Tensor]:
        """The best module's state dict."""
        return dict(self._kept)
