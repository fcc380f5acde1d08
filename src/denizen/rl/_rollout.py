"""Rollouts: a policy acts in worlds for a number of steps, and what happened is kept in buffers on the device."""

import math
from typing import Any

import torch
from torch import Tensor

from denizen.model import Box, Discrete, Env, Look
from denizen.rl._draws import Draws
from denizen.rl._policy import ActorCritic, rows_of
from denizen.rl._worlds import Worlds


class Memo:
    """What goes from step to step of a run beside the worlds, in static buffers.

    Attributes:
        worlds: the worlds' carry.
        look: of every row.
        memory: float32 `[rows, memory_size]`.
        first: bool `[rows]`: a life begins with this look.
        returned: float32 `[rows]`: rewards of the present life so far.
        length: int64 `[rows]`: steps of the present life so far.
    """

    def __init__(self, worlds: Worlds, policy: ActorCritic) -> None:
        self.worlds, look = worlds.begin()
        self.look = Look(*[None if part is None else part.clone() for part in rows_of(look, worlds.env)])  # type: ignore[arg-type]  # pyrefly: ignore
        rows, device = self.look.observation.shape[0], worlds.device
        self.memory = policy.first_memory(rows, device)
        self.first = torch.ones(rows, dtype=torch.bool, device=device)
        self.returned = torch.zeros(rows, device=device)
        self.length = torch.zeros(rows, dtype=torch.int64, device=device)

    @property
    def rows(self) -> int:
        """Worlds times actors."""
        return self.first.shape[0]

    def tensors(self) -> list[Tensor]:
        """Everything, in a fixed order."""
        looks = [part for part in self.look if part is not None]
        return [*self.worlds.tensors(), *looks, self.memory, self.first, self.returned, self.length]


class Rollout:
    """Buffers of one rollout, each `[steps, rows, …]`.

    Attributes:
        fields: observation, action, log_prob, value, reward, terminated, truncated, valid, first, and where they exist
            action_mask and privileged.
        memory: float32 `[rows, memory_size]` before the first step.
        bootstrap: float32 `[steps, rows]`: value of the state each step led to, before a reset.
        flows: sums over the rollout of the environment's flows: float32 `[flows]`.
        lives: of lives that ended: count, sum, smallest and largest return, sum of lengths: float32 `[5]`.
    """

    def __init__(self, memo: Memo, env: Env, steps: int) -> None:
        rows, device = memo.rows, memo.first.device

        def buffer(like: Tensor) -> Tensor:
            return like.new_zeros(steps, *like.shape)

        space = env.action_space
        self.fields: dict[str, Tensor] = {"observation": buffer(memo.look.observation)}
        self.fields["action"] = torch.zeros(steps, rows, *space.shape, dtype=space.dtype, device=device)
        for name in ("log_prob", "value", "reward"):
            self.fields[name] = torch.zeros(steps, rows, device=device)
        for name in ("terminated", "truncated", "valid", "first"):
            self.fields[name] = torch.zeros(steps, rows, dtype=torch.bool, device=device)
        if memo.look.action_mask is not None:
            self.fields["action_mask"] = buffer(memo.look.action_mask)
        if memo.look.privileged is not None:
            self.fields["privileged"] = buffer(memo.look.privileged)
        self.memory = memo.memory.clone()
        self.bootstrap = torch.zeros(steps, rows, device=device)
        self.flows = torch.zeros(sum(kind == "flow" for kind in env.all_series.values()), device=device)
        self.lives = torch.zeros(5, device=device)
        self.steps = steps

    def clear(self) -> None:
        """Sums of a new rollout, on the device."""
        self.flows.zero_()
        self.lives.zero_()
        self.lives[2].fill_(torch.inf)
        self.lives[3].fill_(-torch.inf)


class Collector:
    """Fills rollouts.

    The policy's draws are keyed by (seed, replica), the worlds' by (seed, world): replicas of one world share its
    random numbers and differ in their actions only.
    """

    def __init__(self, worlds: Worlds, policy: ActorCritic, draws: Draws, autocast: Any) -> None:
        """Args:
        worlds: on their device.
        policy: on the same.
        draws: one key for each row.
        autocast: makes the context in which the policy runs.
        """
        self._worlds, self._policy, self._draws, self._autocast = worlds, policy, draws, autocast
        env = worlds.env
        self._cuts = env.time_limit is not None or type(env).truncated is not Env.truncated
        self._actors = env.num_actors or 1

    @torch.no_grad()
    def collect(self, memo: Memo, out: Rollout) -> None:
        """Go on from the memo for as many steps as the rollout has; both change in place."""
        out.memory.copy_(memo.memory)
        out.clear()
        for t in range(out.steps):
            self._step(memo, out, t)
        with self._autocast():
            judged = self._policy(
                memo.look.observation, memo.memory, memo.look.action_mask, memo.look.privileged, memo.first
            )
            last = self._policy.head.value(judged.features)
        following = torch.cat([out.fields["value"][1:], last[None]])
        cut = out.fields["truncated"] & ~out.fields["terminated"]
        out.bootstrap.copy_(torch.where(cut, out.bootstrap, following) if self._cuts else following)

    def _step(self, memo: Memo, out: Rollout, t: int) -> None:
        look, fields = memo.look, out.fields
        with self._autocast():
            judged = self._policy(look.observation, memo.memory, look.action_mask, look.privileged, memo.first)
            value = self._policy.head.value(judged.features)
        action = self.sample(judged, memo.worlds.clock)
        fields["observation"][t].copy_(look.observation)
        fields["first"][t].copy_(memo.first)
        for name in ("action_mask", "privileged"):
            if name in fields:
                fields[name][t].copy_(getattr(look, name))
        fields["action"][t].copy_(action)
        fields["log_prob"][t].copy_(judged.actions.log_prob(action))
        fields["value"][t].copy_(value)
        acting = look.acting

        carry, step = self._worlds.advance(memo.worlds, self.for_env(action))
        terminated, truncated = self._spread(step.terminated), self._spread(step.truncated)
        awake = self._spread(step.valid)
        valid = awake if acting is None else awake & acting
        reward = step.reward.flatten()
        fields["reward"][t].copy_(torch.where(valid, reward, 0.0))
        fields["terminated"][t].copy_(terminated)
        fields["truncated"][t].copy_(truncated)
        fields["valid"][t].copy_(valid)
        if step.flows:
            out.flows.add_(torch.stack([flow.sum() for flow in step.flows.values()]))
        if self._cuts:
            out.bootstrap[t].copy_(self._values_of_ends(step, judged.memory, out.bootstrap[t]))
        self._count(memo, out, torch.where(valid, reward, 0.0), valid, terminated | truncated)
        memo.memory.copy_(judged.memory)
        memo.first.copy_(terminated | truncated | ~awake)
        for mine, new in zip(memo.look, rows_of(step.look, self._worlds.env), strict=True):
            if mine is not None:
                assert new is not None
                mine.copy_(new)
        memo.worlds.copy_(carry)

    def sample(self, judged: Any, clock: Tensor) -> Tensor:
        """Actions of every row, drawn for this step."""
        space = self._worlds.env.action_space
        num = 1 if isinstance(space, Discrete) else math.prod(space.shape)
        return judged.actions.sample(self._draws.uniform("action", clock, num))

    def for_env(self, action: Tensor) -> Tensor:
        """Actions of rows as the worlds take them: within the bounds, with an axis of actors where there is one."""
        space = self._worlds.env.action_space
        if isinstance(space, Box) and space.bounded:
            action = action.clamp(space.low, space.high)
        return action if self._worlds.env.num_actors is None else action.unflatten(0, (-1, self._actors))

    def _spread(self, flags: Tensor) -> Tensor:
        """Flags of worlds for every row."""
        return (
            flags
            if self._actors == 1
            else flags.repeat_interleave(self._actors, output_size=flags.shape[0] * self._actors)
        )

    def _values_of_ends(self, step: Any, memory: Tensor, into: Tensor) -> Tensor:
        """Values of the final looks, at the rows of their worlds."""
        final = rows_of(step.final, self._worlds.env)
        index = step.final_index
        if self._actors > 1:
            offsets = torch.arange(self._actors, device=index.device)
            index = (index[:, None] * self._actors + offsets).flatten()
        with self._autocast():
            judged = self._policy(final.observation, memory[index], final.action_mask, final.privileged)
            value = self._policy.head.value(judged.features)
        return into.index_copy(0, index, value)

    @staticmethod
    def _count(memo: Memo, out: Rollout, reward: Tensor, valid: Tensor, ended: Tensor) -> None:
        returned, length = memo.returned + reward, memo.length + valid
        lives, total = out.lives, torch.where(ended, returned, 0.0)
        lives[0].add_(ended.sum())
        lives[1].add_(total.sum())
        lives[2].copy_(torch.minimum(lives[2], torch.where(ended, returned, torch.inf).min()))
        lives[3].copy_(torch.maximum(lives[3], torch.where(ended, returned, -torch.inf).max()))
        lives[4].add_(torch.where(ended, length, 0).sum())
        memo.returned.copy_(torch.where(ended, 0.0, returned))
        memo.length.copy_(torch.where(ended, 0, length))
