"""Priorities of the steps in a replay: who was judged worst is drawn most (Schaul et al., 2016, proportional form)."""

import torch
from torch import Tensor

from denizen.nn import kernels
from denizen.rl._replay import Replay

LEAST = 1e-6  # added to an error, so that every step can be drawn
UNIT, MOST = 2**20, 2**30  # a priority of 1 as a whole number, and the largest; a sum over 2**32 steps fits


class Priorities:
    """Weights by which the steps of a replay are drawn, in a sum tree.

    Attributes:
        tree: int64: one leaf for each slot and row, and sums.
        largest: int64 `[]`: of all priorities so far, which steps begin with.
    """

    def __init__(self, replay: Replay, exponent: float) -> None:
        """Args:
        replay: whose steps.
        exponent: alpha: priorities are (|error| + 1e-6) to this power.
        """
        self._replay, self._exponent, self.size = replay, exponent, replay.slots * replay.rows
        device = replay.written.device
        self.tree = kernels.sum_tree(self.size, device)
        self.largest = torch.full((), UNIT, dtype=torch.int64, device=device)

    @torch.no_grad()
    def store(self, slots: Tensor, valid: Tensor) -> None:
        """Steps were stored: who acted begins with the largest priority, others and the present look have none.

        Args:
            slots: int64 `[steps]`, as `Replay.add` gives them.
            valid: bool `[steps, rows]`.
        """
        replay = self._replay
        head = replay.written.reshape(1) % replay.slots
        places = torch.cat([slots, head])[:, None] * replay.rows + torch.arange(replay.rows, device=slots.device)
        weight = torch.cat([torch.where(valid, self.largest, 0), torch.zeros_like(places[-1:])])
        kernels.tree_set(self.tree, self.size, places.flatten(), weight.flatten())

    def draw(self, words: Tensor) -> Tensor:
        """Leaves drawn by priority, one out of each of as many equal parts of their sum: int64 `[rows]`.

        Args:
            words: int64 `[rows]`, each uniform on 0 … 2**32 - 1.
        """
        rows, total = len(words), kernels.tree_total(self.tree)
        share = (torch.arange(rows, device=words.device) + (words.to(torch.float64) + 0.5) / 2**32) / rows
        target = (share * total).to(torch.int64)
        return kernels.tree_find(self.tree, self.size, torch.minimum(target, total - 1).clamp(min=0))

    def steps(self, leaf: Tensor) -> tuple[Tensor, Tensor]:
        """(age, row) of leaves, as `Replay.batch` takes them."""
        replay, rows = self._replay, self._replay.rows
        return (leaf // rows - replay.written + replay.filled) % replay.slots, leaf % rows

    def corrections(self, leaf: Tensor, exponent: Tensor) -> Tensor:
        """(N P(i))^-beta over the largest of the minibatch: float32 `[rows]`, 1 for the step that is drawn least.

        Args:
            leaf: int64 `[rows]`: what was drawn.
            exponent: float32 `[]`: beta.
        """
        weight = self.tree[leaf].clamp(min=1).to(torch.float64)
        return (weight.amin() / weight).pow(exponent.to(torch.float64)).to(torch.float32)

    @torch.no_grad()
    def learn(self, leaf: Tensor, error: Tensor, ready: Tensor) -> None:
        """Take what was found of steps into their priorities.

        Args:
            leaf: int64 `[rows]`: which steps.
            error: float32 `[rows]`: of their values.
            ready: bool `[]`: whether to; else all stays.
        """
        weight = ((error.abs() + LEAST).pow(self._exponent) * UNIT).clamp(1, MOST).to(torch.int64)
        weight = torch.where(ready, weight, self.tree[leaf])
        self.largest.copy_(torch.maximum(self.largest, weight.amax()))
        kernels.tree_set(self.tree, self.size, leaf, weight)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds."""
        return {"tree": self.tree, "largest": self.largest}
