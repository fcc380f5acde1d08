"""The best policy so far, and when no better one is waited for: both on the device, without a host read."""

import dataclasses

import torch
from torch import Tensor, nn

from denizen.errors import InputError
from denizen.rl._schedules import check_amounts, check_switches


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience:
    """When a training that no longer gets better ends.

    Attributes:
        updates: after which it ends, if the score did not rise by more than `min_delta` in them.
        min_delta: by which a score must exceed the best before to count as better.
        restore_best: at the end the policy is the best one, in place of the last.
    """

    updates: int = 500
    min_delta: float = 0.05
    restore_best: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.updates, int) or isinstance(self.updates, bool) or self.updates < 1:
            raise InputError(f"Patience(updates={self.updates!r}): expected a whole number, at least 1")
        check_amounts(self, "min_delta")
        check_switches(self)


class Stall:
    """Tells on the device whether patience is at its end.

    The host reads `over` when it likes, an update or more late; once it is 1 it stays, so the best policy should be
    kept as it is from then on, and how late the host was makes no difference.

    Attributes:
        over: bool `[]`.
        best: float32 `[]`: the score to beat.
        since: int64 `[]`: the update at which it was reached.
    """

    def __init__(self, patience: Patience, device: torch.device) -> None:
        """Args:
        patience: when it ends.
        device: of the scores.
        """
        self._patience = patience
        self.over = torch.zeros((), dtype=torch.bool, device=device)
        self.best = torch.full((), -torch.inf, device=device)
        self.since = torch.zeros((), dtype=torch.int64, device=device)

    @torch.no_grad()
    def look(self, score: Tensor, update: Tensor) -> None:
        """Take a score; NaN is never better.

        Args:
            score: float32 `[]`, the higher the better.
            update: int64 `[]`: updates done.
        """
        better = score > self.best + self._patience.min_delta
        self.best.copy_(torch.where(better, score, self.best))
        self.since.copy_(torch.where(better, update, self.since))
        self.over.logical_or_(update - self.since >= self._patience.updates)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds."""
        return {"over": self.over, "best": self.best, "since": self.since}
