"""A training with groups: replicas that begin alike, and rollouts of one life each."""

import contextlib
import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from denizen import ops
from denizen.rl import _processes as processes
from denizen.rl._ahead import ahead
from denizen.rl._curriculum import Curriculum
from denizen.rl._draws import Draws
from denizen.rl._grpo_loss import Terms
from denizen.rl._optimizer import FlatAdam
from denizen.rl._policy import ActorCritic, Judged, rows_of
from denizen.rl._ppo import _FIRST_SCALE, PRECISIONS
from denizen.rl._rollout import Collector, Memo, Rollout
from denizen.rl._summary import joined, told
from denizen.rl._times import Phases
from denizen.rl._worlds import Worlds
from denizen.rng import stream_number
from denizen.run._engine import one_graph, own_code

if TYPE_CHECKING:
    from denizen.rl._grpo import GRPO


class GroupCollector(Collector):
    """Fills rollouts of one life in each world, without values."""

    def __init__(self, worlds: Worlds, policy: ActorCritic, draws: Draws, autocast: Any) -> None:
        """As `Collector`."""
        super().__init__(worlds, policy, draws, autocast)
        self._cuts = False  # nothing is bootstrapped

    def _judge(self, memo: dict[str, Any]) -> tuple[Judged, None]:
        look = memo["look"]
        with self._autocast():
            judged = self._policy(
                look.observation, memo["memory"], look.action_mask, first=memo["first"], actor_only=True
            )
        return judged, None


class GroupTraining:
    """A training under way; `GRPO.update` changes it in place.

    Rows are worlds times actors; the worlds of a group stand side by side.

    Attributes:
        algorithm: its settings.
        worlds: the worlds.
        groups: of worlds in this process.
        policy: the policy, on the device.
        reference: the policy that the KL is taken to; None where there is none.
        optimizer: of the parameters that actions depend on.
        memo: what goes from step to step.
        rollout: the last one.
        updates: int64 `[]` on the device: updates done.
        num_updates: updates to come in all, which schedules go by.
    """

    def __init__(
        self,
        algorithm: "GRPO",
        worlds: Worlds,
        starts: Worlds,
        policy: ActorCritic,
        num_updates: int,
        seed: int,
        reference: ActorCritic | None,
        groups: range,
        curriculum: Curriculum,
    ) -> None:
        ops.start_compilers(worlds.device)
        self.algorithm, self.worlds, self.num_updates, self.seed = algorithm, worlds, num_updates, seed
        self._starts, self.groups, self.curriculum, device = starts, groups, curriculum, worlds.device
        self.phases = Phases(device)
        self.policy = policy.to(device).train()
        self.reference = None if not algorithm.beta else _frozen(reference or policy).to(device)
        self._dtype, self._device = PRECISIONS[algorithm.precision], device
        self.optimizer = FlatAdam(
            [_actor(self.policy)],
            max_norm=algorithm.max_grad_norm,
            eps=algorithm.adam_eps,
            scale=_FIRST_SCALE if self._dtype == torch.float16 else None,
        )
        self.memo = Memo(worlds, self.policy)
        self.rollout = Rollout(self.memo, worlds.env, algorithm.num_steps)
        replicas = torch.arange(self.memo.rows, device=device) + processes.rank() * self.memo.rows
        self.collector = GroupCollector(worlds, self.policy, Draws(seed, replicas), self.autocast)
        self._group_keys = torch.tensor([[seed, group] for group in groups], device=device)
        self.updates = torch.zeros((), dtype=torch.int64, device=device)
        self.loss: Callable[..., Terms] = algorithm._loss

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The precision in which the policy runs."""
        if self._dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, self._dtype, cache_enabled=False)

    def ahead(self) -> None:
        """Have the policy's own kernels compiled."""
        learning = self.algorithm.samples // self.algorithm.num_minibatches
        ahead(self.policy, [self.policy.actor], self.memo.rows, learning, self._dtype)

    def compile(self, backend: str | None = "inductor", loss: bool = True) -> None:
        """Compile what an update is made of, when it is next run; None: no longer.

        Args:
            backend: of torch.compile.
            loss: the loss with its backward as well, which takes longest.
        """
        self.collector.compile(backend)
        self.loss = self.algorithm._loss
        if backend is not None and loss:
            self.loss = one_graph(own_code(self.algorithm._loss), backend)

    def begin(self) -> None:
        """A new life in every world: each group a start of its own that no rollout had before."""
        memo, worlds = self.memo, self.memo.worlds
        carry, look = self._starts.begin(worlds.clock)
        carry.faults = worlds.faults  # of the whole run
        seen = [part for part in rows_of(look, self.worlds.env) if part is not None]
        memo.take(
            [
                *carry.tensors(),
                *seen,
                torch.zeros_like(memo.memory),
                torch.ones_like(memo.first),
                torch.zeros_like(memo.returned),
                torch.zeros_like(memo.length),
            ]
        )

    @torch.no_grad()
    def refresh(self, every: int | None) -> None:
        """Copy the policy into the reference at every so many updates, decided on the device."""
        if self.reference is None or every is None:
            return
        due = (self.updates > 0) & (self.updates % every == 0)
        for kept, live in zip(self.reference.state_dict().values(), self.policy.state_dict().values(), strict=True):
            kept.copy_(torch.where(due, live, kept))

    def shares(self, shuffle: Tensor, parts: int) -> list[Tensor]:
        """Rows in random order, in parts that each have an equal share of every group.

        Args:
            shuffle: int64 `[]`: number of the shuffle, which with the seed and the group fixes the order.
            parts: how many.
        """
        each = self.memo.rows // len(self.groups)
        keys = self._group_keys
        words = ops.draw_words(keys.new_empty(0), each, keys, shuffle, stream_number("learn/shuffle"))
        first = torch.arange(len(self.groups), device=keys.device)[:, None] * each
        return [part.flatten() for part in (torch.argsort(words, stable=True) + first).chunk(parts, dim=1)]

    def grouped(self, field: Tensor) -> Tensor:
        """`[steps, rows]` as `[steps, groups, replicas]`; each actor of several is a group of its own."""
        groups, actors = len(self.groups), self.worlds.env.num_actors or 1
        return field.unflatten(1, (groups, -1, actors)).transpose(2, 3).flatten(1, 2)

    def ungrouped(self, field: Tensor) -> Tensor:
        """`[steps, groups, replicas]` as `[steps, rows]`."""
        groups, actors = len(self.groups), self.worlds.env.num_actors or 1
        return field.unflatten(1, (groups, actors)).transpose(2, 3).flatten(1, 3)

    @property
    def progress(self) -> Tensor:
        """Share of the updates that are done: float32 `[]`."""
        return self.updates.to(torch.float32) / self.num_updates

    def summary(self) -> dict[str, Tensor]:
        """Of the last rollout: lives, flows, faults; of all processes."""
        fields = self.rollout.fields
        returns = fields["reward"].sum(0)
        faulty = (self.memo.worlds.faults >= 0).any().to(torch.float32)
        sums = [torch.ones_like(returns).sum(), returns.sum(), fields["valid"].sum(), faulty]
        count, whole, steps, faulty = processes.total(torch.stack([one.to(torch.float32) for one in sums])).unbind()
        summary = {
            "episodes": count,
            "return_sum": whole,
            "return_mean": whole / count,
            "return_min": processes.least(returns.min()),
            "return_max": processes.most(returns.max()),
            "length_mean": steps / count,
            "faulty": faulty,
        }
        return joined(self.worlds.env, summary, told(self.worlds.env, self.rollout))

    def check(self) -> None:
        """Raise `ModelError` where a check on the device has failed (reads the device)."""
        self.worlds.check(self.memo.worlds)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that an update depends on, by name; what a checkpoint holds."""
        held = {f"policy.{name}": tensor for name, tensor in self.policy.state_dict().items()}
        held.update({f"optimizer.{name}": tensor for name, tensor in self.optimizer.tensors().items()})
        held.update({f"memo.{k}": tensor for k, tensor in enumerate(self.memo.tensors())})
        if self.reference is not None:
            held.update({f"reference.{name}": tensor for name, tensor in self.reference.state_dict().items()})
        held["updates"] = self.updates
        return {**held, **self.curriculum.tensors()}


def _frozen(policy: ActorCritic) -> ActorCritic:
    """A copy that does not learn; the environment is shared."""
    return copy.deepcopy(policy, {id(policy.env): policy.env}).eval().requires_grad_(False)


def _actor(policy: ActorCritic) -> list[torch.nn.Parameter]:
    """Parameters that actions depend on."""
    parts = (policy.critic_body, policy.critic, policy.head)
    critic = {id(p) for part in parts if part is not None for p in part.parameters()}
    return [p for p in policy.parameters() if p.requires_grad and id(p) not in critic]
