"""The best policy so far, and when no better one is waited for: both on the device, without a host read."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from denizen.rl._settings import numbers, switches, wholes

SMOOTHING = 0.9  # by which the score follows the mean return of an update


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
        wholes(self, "updates")
        numbers(self, "min_delta", low=0)
        switches(self)


class Stall:
    """Tells on the device whether patience is at its end.

    The host reads `over` when it likes, an update or more late; once it is 1 it stays.

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
        self.patience = patience
        self.over = torch.zeros((), dtype=torch.bool, device=device)
        self.best = torch.full((), -torch.inf, device=device)
        self.since = torch.zeros((), dtype=torch.int64, device=device)

    @torch.no_grad()
    def take(self, score: Tensor, update: Tensor) -> None:
        """Take a score; NaN is never better.

        Args:
            score: float32 `[]`, the higher the better.
            update: int64 `[]`: updates done.
        """
        better = score > self.best + self.patience.min_delta
        self.best.copy_(torch.where(better, score, self.best))
        self.since.copy_(torch.where(better, update, self.since))
        self.over.logical_or_(update - self.since >= self.patience.updates)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds."""
        return {"over": self.over, "best": self.best, "since": self.since}


class BestPolicy:
    """A copy of a policy's parameters and buffers as they were when its score was highest.

    Attributes:
        score: float32 `[]`: the highest so far; -inf before.
        update: int64 `[]`: at which update.
        stall: tells when patience is at its end; None: never.
    """

    def __init__(self, policy: nn.Module, patience: Patience | None = None) -> None:
        """Args:
        policy: which is copied.
        patience: with scores that do not rise; None: endless.
        """
        self._live = policy.state_dict(keep_vars=True)
        self._kept = {name: tensor.detach().clone() for name, tensor in self._live.items()}
        device = next(iter(self._kept.values())).device
        self.score = torch.full((), -torch.inf, device=device)
        self.update = torch.zeros((), dtype=torch.int64, device=device)
        self._smoothed = torch.full((), torch.nan, device=device)
        self.stall = None if patience is None else Stall(patience, device)

    def follow(self, mean_return: Tensor, update: Tensor) -> dict[str, Tensor]:
        """`offer` the policy by the mean return of each update, smoothed; NaN where no life ended changes nothing."""
        now = mean_return
        following = torch.where(torch.isnan(self._smoothed), now, torch.lerp(now, self._smoothed, SMOOTHING))
        self._smoothed.copy_(torch.where(torch.isnan(now), self._smoothed, following))
        return self.offer(self._smoothed, update)

    @torch.no_grad()
    def offer(self, score: Tensor, update: Tensor) -> dict[str, Tensor]:
        """Keep the policy as it is if `score` is higher than before; NaN never is, nor what comes after patience.

        So how late the host reads that patience is at its end changes nothing in the best policy.

        Returns:
            Metrics of patience, where there is one.
        """
        counts = score if self.stall is None else torch.where(self.stall.over, -torch.inf, score)
        better = counts > self.score
        for name, kept in self._kept.items():
            kept.copy_(torch.where(better, self._live[name], kept))
        self.score.copy_(torch.where(better, counts, self.score))
        self.update.copy_(torch.where(better, update, self.update))
        if self.stall is None:
            return {}
        self.stall.take(score, update)
        return {"patience_over": self.stall.over.to(torch.float32)}

    def patience_over(self) -> bool:
        """Whether patience is at its end (reads the device)."""
        return self.stall is not None and bool(self.stall.over)

    def weights(self) -> dict[str, Tensor]:
        """The best policy's state dict."""
        return dict(self._kept)

    def saved(self) -> dict[str, Tensor]:
        """What the file of the best policy holds."""
        policy = {f"policy.{name}": tensor for name, tensor in self._kept.items()}
        return {**policy, "score": self.score, "update": self.update}

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint of the training holds of it."""
        best = {f"best.{name}": tensor for name, tensor in self.saved().items()}
        stall: Mapping[str, Tensor] = {} if self.stall is None else self.stall.tensors()
        return {**best, "score": self._smoothed, **{f"stall.{name}": tensor for name, tensor in stall.items()}}
