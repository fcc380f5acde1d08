"""Replay: what happened in the last steps of all worlds, in static buffers on the device, and draws from it.

Each look is stored once, in its own dtype: the next look of a step is that of the step after it. Only lives that were
cut off have a last look of their own beside. Returns over several steps are computed when a step is drawn.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from denizen import _tree
from denizen.nn import kernels
from denizen.rl._normaliser import in_units

GONE, RUNNING, DEAD, CUT = range(4)  # kinds of a stored step: nobody acted, life goes on, ended for good, was cut off


class Batch(NamedTuple):
    """Steps that were drawn, each with what followed over up to `n` steps.

    Attributes:
        observation: looks of these steps: a tree of `[rows, …]`.
        action: `[rows, …]`, as the worlds took them.
        reward: float32 `[rows]`: r_1 + gamma r_2 + … + gamma^(m-1) r_m.
        discount: float32 `[rows]`: gamma^m for what comes after these m steps; 0 where the life ended for good.
        following: looks after the m-th step, before any reset, like `observation`.
        following_mask: bool `[rows, choices]`: which choices are open then; None: all.
    """

    observation: Any
    action: Tensor
    reward: Tensor
    discount: Tensor
    following: Any
    following_mask: Tensor | None


class Replay:
    """The last steps of all rows, in a ring over time.

    Attributes:
        slots: steps that fit, of which the present look takes one.
        rows: worlds times actors.
        written: int64 `[]`: steps stored so far, those that are gone included.
    """

    def __init__(
        self,
        steps: int,
        looks: Any,
        action: Tensor,
        *,
        gamma: float,
        n_steps: int = 1,
        action_mask: Tensor | None = None,
        most_cuts: int = 0,
        gaps: bool = False,
    ) -> None:
        """Args:
        steps: of every row that can be drawn.
        looks: what is seen at the moment: a tree of `[rows, …]`, which is stored as the first look.
        action: any actions `[rows, …]`.
        gamma: discount.
        n_steps: n, over which returns are summed up.
        action_mask: which choices are open at the moment: bool `[rows, choices]`; None: always all.
        most_cuts: how often a row's life can be cut off within `steps`; 0: never.
        gaps: whether there are steps in which a row does nothing.
        """
        self.slots, self.rows, self.n_steps = steps + 1, action.shape[0], n_steps
        device = action.device
        self._looks = {"observation": looks} | ({} if action_mask is None else {"mask": action_mask})
        self._ring = _tree.map_tensors(lambda like: like.new_zeros(self.slots, *like.shape), self._looks)
        self._action = action.new_zeros(self.slots, *action.shape)
        self._reward = torch.zeros(self.slots, self.rows, device=device)
        self._kind = torch.zeros(self.slots, self.rows, dtype=torch.uint8, device=device)
        self.written = torch.zeros((), dtype=torch.int64, device=device)
        self._discounts = torch.tensor([gamma**k for k in range(n_steps + 1)], device=device)
        self._most_cuts = most_cuts  # the place behind them takes what is of no use
        if most_cuts:
            self._finals = _tree.map_tensors(lambda like: like.new_zeros(most_cuts + 1, *like.shape), self._looks)
            self._final_place = torch.zeros(self.slots, self.rows, dtype=torch.int32, device=device)
            self._cuts = torch.zeros(self.rows, dtype=torch.int64, device=device)
        self._gaps = gaps
        if gaps:
            self._order = torch.zeros(self.slots, self.rows, dtype=torch.int32, device=device)
            self._counts = torch.zeros(self.slots, dtype=torch.int64, device=device)
        self._looks = {}

    # --- what is stored -----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def add(
        self,
        happened: dict[str, Any],
        looks: Any,
        action_mask: Tensor | None = None,
        finals: dict[str, Any] | None = None,
    ) -> Tensor:
        """Store steps; the oldest go.

        Args:
            happened: `observation`, `action`, `reward`, `terminated`, `truncated`, `valid` and where they exist
                `action_mask` of steps in a row: `[steps, rows, …]`.
            looks: what is seen after the last of them.
            action_mask: which choices are open then.
            finals: `rows` (int64 `[steps, looks]`) of lives that may have been cut off and what was seen last of them:
                `observation` and where it exists `action_mask`.

        Returns:
            int64 `[steps]`: the slots in which they are.
        """
        valid, dead = happened["valid"], happened["terminated"]
        num = valid.shape[0]
        at = (self.written + torch.arange(num, device=valid.device)) % self.slots
        seen = {"observation": happened["observation"]} | _masked(happened.get("action_mask"), self._ring)
        now = {"observation": looks} | _masked(action_mask, self._ring)
        head = (self.written + num).reshape(1) % self.slots
        for ring, stored, present in zip(*map(_tree.tensors, (self._ring, seen, now)), strict=True):
            ring.index_copy_(0, at, stored)
            ring.index_copy_(0, head, present[None])
        self._action.index_copy_(0, at, happened["action"])
        self._reward.index_copy_(0, at, happened["reward"])
        cut = valid & happened["truncated"] & ~dead
        kind = torch.where(dead, DEAD, torch.where(cut, CUT, RUNNING))
        kind = torch.where(valid, kind, GONE).to(torch.uint8)
        self._kind.index_copy_(0, at, kind)
        self._kind.index_fill_(0, head, GONE)
        if self._most_cuts:
            assert finals is not None
            self._keep_finals(at, cut, finals)
        if self._gaps:
            self._order.index_copy_(0, at, torch.argsort((~valid).to(torch.uint8), dim=1, stable=True).to(torch.int32))
            self._counts.index_copy_(0, at, valid.sum(1))
            self._counts.index_fill_(0, head, 0)
        self.written.add_(num)
        return at

    def _keep_finals(self, at: Tensor, cut: Tensor, finals: dict[str, Any]) -> None:
        """Last looks go to the next place of their row; those of no cut to the place behind all.

        A world that was cut off and waits for its reset has none: what it shows next is its last look.
        """
        rows = finals["rows"]
        cut = cut & torch.zeros_like(cut).scatter(1, rows, True)
        place = (self._cuts + cut.cumsum(0) - 1) % self._most_cuts
        place = torch.where(cut, place, self._most_cuts)
        self._cuts.add_(cut.sum(0))
        self._final_place.index_copy_(0, at, place.to(torch.int32))
        places = place.gather(1, rows)
        seen = {"observation": finals["observation"]} | _masked(finals.get("action_mask"), self._ring)
        for kept, look in zip(_tree.tensors(self._finals), _tree.tensors(seen), strict=True):
            kept.index_put_((places, rows), look)

    @torch.no_grad()
    def interrupt(self) -> Tensor:
        """Cut off all lives that go on, where what comes next is not theirs: a step in which nobody acts is stored.

        It shows the present look, which is the last of these lives. The replay must know gaps.

        Returns:
            int64 `[1]`: the slot of that step.
        """
        assert self._gaps
        newest = (self.written - 1).reshape(1) % self.slots
        before = self._kind.index_select(0, newest)
        self._kind.index_copy_(0, newest, torch.where(before == RUNNING, CUT, before).to(torch.uint8))
        at = self.written.reshape(1) % self.slots  # where the present look lies, of kind `GONE`
        self.written.add_(1)
        head = self.written.reshape(1) % self.slots
        self._kind.index_fill_(0, head, GONE)
        self._counts.index_fill_(0, head, 0)
        return at

    @property
    def filled(self) -> Tensor:
        """Int64 `[]`: steps that are there, of each row."""
        return self.written.clamp(max=self.slots - 1)

    def stored(self) -> Tensor:
        """Int64 `[]`: steps of rows that can be drawn."""
        return self._counts.sum() if self._gaps else self.filled * self.rows

    # --- what is drawn ------------------------------------------------------------------------------------------------

    def draw(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Steps drawn uniformly among those that can be.

        Args:
            words: int64 `[rows]`, each uniform on 0 … 2**32 - 1.

        Returns:
            (age int64 `[rows]`: steps from the oldest; row int64 `[rows]`).
        """
        if not self._gaps:
            number = (words * (self.filled * self.rows)) >> 32
            return number // self.rows, number % self.rows
        slot = self.slot(torch.arange(self.slots, device=words.device))
        inside = torch.arange(self.slots, device=words.device) < self.filled
        counts = torch.where(inside, self._counts[slot], 0)
        ends = counts.cumsum(0)
        number = (words * ends[-1]) >> 32
        age = torch.searchsorted(ends, number, right=True).clamp(max=self.slots - 1)
        rank = (number - (ends - counts)[age]).clamp(0, self.rows - 1)
        return age, self._order[slot[age], rank].to(torch.int64)

    def slot(self, age: Tensor) -> Tensor:
        """Where steps are that are so much younger than the oldest."""
        return (self.written - self.filled + age) % self.slots

    def batch(self, age: Tensor, row: Tensor, deviation: Tensor | None = None) -> Batch:
        """Steps and what followed them, as `draw` names them.

        Sums end with a life, and with what has happened so far; there the discount is that of fewer steps.

        Args:
            age: of the steps.
            row: of the steps.
            deviation: float32 `[]`: what rewards are given in units of; None: they are given as they were.
        """
        left, first = self.filled - age, self.slot(age)
        goes_on = torch.ones_like(age, dtype=torch.bool)
        total, length, last = torch.zeros_like(age, dtype=torch.float32), torch.zeros_like(age), first
        ending = torch.full_like(self._kind[first, row], RUNNING)
        for k in range(self.n_steps):
            goes_on = goes_on & (left > k) & (ending == RUNNING)
            at = (first + k) % self.slots
            reward = self._reward[at, row]
            reward = reward if deviation is None else in_units(reward, deviation)
            total = total + torch.where(goes_on, self._discounts[k] * reward, 0.0)
            length, last = torch.where(goes_on, k + 1, length), torch.where(goes_on, at, last)
            ending = torch.where(goes_on, self._kind[at, row], ending)
        discount = torch.where(ending == DEAD, 0.0, self._discounts[length])
        following = _picked(self._ring, (last + 1) % self.slots, row)
        if self._most_cuts:
            place = self._final_place[last, row].to(torch.int64)
            kept = (ending == CUT) & (place < self._most_cuts)
            leaves, structure = _tree.flatten(following)
            chosen = [
                torch.where(kept.view(-1, *[1] * (own.dim() - 1)), final, own)
                for own, final in zip(leaves, _tree.tensors(_picked(self._finals, place, row)), strict=True)
            ]
            following = _tree.unflatten(chosen, structure)
        return Batch(
            observation=_picked(self._ring["observation"], first, row),
            action=self._action[first, row],
            reward=total,
            discount=discount,
            following=following["observation"],
            following_mask=following.get("mask"),
        )

    def tensors(self) -> dict[str, Tensor]:
        """Everything, by name; what a checkpoint holds."""
        held = {"action": self._action, "reward": self._reward, "kind": self._kind, "written": self.written}
        held.update({f"look.{k}": tensor for k, tensor in enumerate(_tree.tensors(self._ring))})
        if self._most_cuts:
            held.update({f"final.{k}": tensor for k, tensor in enumerate(_tree.tensors(self._finals))})
            held.update({"final_place": self._final_place, "cuts": self._cuts})
        if self._gaps:
            held.update({"order": self._order, "counts": self._counts})
        return held


def most_cuts(steps: int, limit: int | None, at_will: bool) -> int:
    """How often lives of one row can be cut off within so many steps.

    Args:
        steps: in a row.
        limit: steps after which a life is cut off; None: no such.
        at_will: whether the environment cuts lives off for other reasons too, which may be after any step.
    """
    if at_will:
        return steps
    return 0 if limit is None else math.ceil(steps / limit)


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Memory that tensors take."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _masked(mask: Tensor | None, ring: dict[str, Any]) -> dict[str, Tensor]:
    return {"mask": mask} if "mask" in ring and mask is not None else {}


def _picked(tree: Any, slot: Tensor, row: Tensor) -> Any:
    return _tree.map_tensors(lambda held: held[slot, row], tree)


# --- priorities -------------------------------------------------------------------------------------------------------


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
