"""Rollouts: a policy acts in worlds for a number of steps, and what happened is kept in buffers on the device."""

import math
from typing import Any

import torch
from torch import Tensor

from denizen import _tree, ops
from denizen.model import Discrete, Env, Look
from denizen.nn import kernels
from denizen.rl._draws import Draws
from denizen.rl._policy import ActorCritic, Judged, for_worlds, rows_of
from denizen.rl._recorded import Recorded
from denizen.rl._worlds import Step, Worlds

FEATURES = "features"  # of each step, where values are computed after the last
CLOCK = -3  # place of the clock among the tensors of a carry


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
        carry, look = worlds.begin()
        self.worlds = carry.clone()  # fields of equal value may share memory
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

    def parts(self) -> dict[str, Any]:
        """Everything, as a step takes it."""
        return {
            "worlds": self.worlds.tensors(),
            "look": self.look,
            "memory": self.memory,
            "first": self.first,
            "returned": self.returned,
            "length": self.length,
        }

    def tensors(self) -> list[Tensor]:
        """Everything, in a fixed order."""
        return _tree.tensors(self.parts())

    def take(self, new: list[Tensor]) -> None:
        """Copy the tensors of what a step gave into these buffers, in the order of `tensors`."""
        held = {id(mine) for mine in self.tensors()}  # a step may hand a buffer on as another one's value
        pairs = [(mine, value) for mine, value in zip(self.tensors(), new, strict=True) if mine is not value]
        values = [value.clone() if id(value) in held else value for _, value in pairs]
        torch._foreach_copy_([mine for mine, _ in pairs], values)


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

    def sums(self, worlds: int) -> dict[str, list[Tensor]]:
        """Where sums over the rollout begin: of each world's flows, and of each row's lives."""
        # Each is a tensor of its own, as in later steps: for inputs that are one tensor a step is compiled apart.
        rows, begin = self.fields["reward"].shape[1], self.lives.new_full
        flows = [begin((worlds,), 0.0) for _ in self.flows]
        return {"flows": flows, "lives": [begin((rows,), value) for value in (0.0, 0.0, torch.inf, -torch.inf, 0.0)]}

    def take(self, sums: dict[str, list[Tensor]]) -> None:
        """Add up what `sums` has become."""
        count, total, least, most, steps = sums["lives"]
        self.lives.copy_(torch.stack([count.sum(), total.sum(), least.min(), most.max(), steps.sum()]))
        if sums["flows"]:
            self.flows.copy_(torch.stack(sums["flows"]).sum(1))


class Collector:
    """Fills rollouts.

    The policy's draws are keyed by (seed, replica), the worlds' by (seed, world): replicas of one world share its
    random numbers and differ in their actions only. One step of everything (policy, draw, worlds, books) is one
    function, recorded once as a flat graph; compiled where asked. It may write into the worlds that it is given.
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
        self._step = Recorded(self._next, policy, worlds.given, in_place=worlds.in_place)
        self._value, self._ends = Recorded(self._last_value, policy), Recorded(self._values_of_ends, policy)
        self._values = Recorded(self._late_values, policy)

    def compile(self, backend: str | None = "inductor") -> None:
        """Compile a step, and values that are late, when they are next computed; None: no longer."""
        self._step.compile(backend)
        self._values.compile(backend)

    @torch.no_grad()
    def collect(self, memo: Memo, out: Rollout) -> None:
        """Go on from the memo for as many steps as the rollout has; both change in place."""
        out.memory.copy_(memo.memory)
        sums = out.sums(self._worlds.num_envs)
        step, given = self._step.bound(memo.parts(), sums)
        ahead, behind = len(memo.tensors()), len(given) - len(memo.tensors())
        rows: list[list[Tensor]] = []
        results: list[Tensor] = []
        clocks, place = self._clocks(memo, out.steps)
        for clock in clocks[1:]:  # what a step returns is what the next one takes: nothing is copied in between
            results = step(given)
            last = len(results) - behind
            given = results[:ahead] + results[last:]
            given[place] = clock
            rows.append(results[ahead:last])
        _, row, ends, sums = self._step.tree(results)
        columns = list(zip(*rows, strict=True))
        for name, column in zip(row, columns, strict=False):
            if name != FEATURES:
                torch.stack(column, out=out.fields[name])
        memo.take(given[:ahead])
        out.take(sums)
        if FEATURES in row:
            seen = {name: out.fields[name] for name in ("observation", "privileged") if name in out.fields}
            seen[FEATURES] = torch.stack(columns[list(row).index(FEATURES)])
            out.fields["value"].copy_(self._values(seen))
        elif "value" not in row:
            return
        out.bootstrap.copy_(torch.cat([out.fields["value"][1:], self._value(memo.parts())[None]]))
        if self._cuts:
            final = {name: torch.stack(column) for name, column in zip(ends, columns[len(row) :], strict=True)}
            cut = out.fields["truncated"] & ~out.fields["terminated"]
            final, place = self._cut_short(final, cut)
            found = out.bootstrap.flatten().scatter(0, place.flatten(), self._ends(final).flatten())
            out.bootstrap.copy_(torch.where(cut, found.view_as(cut), out.bootstrap))

    def _cut_short(self, final: dict[str, Tensor], cut: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """(last looks, those of lives that were cut short among them; their places in a flat rollout).

        A time limit cuts a life short once in as many steps: there are that many looks at most, of all that may have
        been the last.
        """
        (steps, rows), limit = cut.shape, self._worlds.env.time_limit
        place = torch.arange(0, steps * rows, rows, device=cut.device)[:, None] + final["rows"]
        most = rows * math.ceil(steps / limit) if limit else place.numel()
        if type(self._worlds.env).truncated is not Env.truncated or most >= place.numel():
            return final, place
        where = kernels.first_flagged(cut.flatten()[place.flatten()], most)[0]
        return {name: tensor.flatten(0, 1)[where][None] for name, tensor in final.items()}, place.flatten()[where]

    @staticmethod
    def _clocks(memo: Memo, steps: int) -> tuple[list[Tensor], int]:
        """(the clock at every step, which counted in each step would be a launch; its place in a memo's tensors)."""
        place = next(k for k, tensor in enumerate(memo.tensors()) if tensor is memo.worlds.clock)
        clocks = memo.worlds.clock + torch.arange(steps + 1, device=memo.worlds.clock.device)
        # Each begins at 16 bytes, as compiled code takes its arguments to be.
        return list(clocks[:, None].expand(-1, 2).contiguous()[:, 0].unbind()), place

    def _judge(self, memo: dict[str, Any]) -> tuple[Judged, Tensor | None]:
        """What the policy makes of the looks, and their values where it has any and does not judge them late."""
        look, policy = memo["look"], self._policy
        with self._autocast():
            if policy.judges_late(look.observation.shape[0]):
                given = self._worlds.env.network_input(look.observation)
                return policy.act(given, memo["memory"], look.action_mask, memo["first"]), None
            return policy.with_value(look.observation, memo["memory"], look.action_mask, look.privileged, memo["first"])

    def _late_values(self, seen: dict[str, Tensor]) -> Tensor:
        """Values `[steps, rows]` of what was seen at each step, from the features of a body."""
        rows = {name: tensor.flatten(0, 1) for name, tensor in seen.items()}
        with self._autocast():
            features = self._policy.judge(rows[FEATURES], rows["observation"], rows.get("privileged"))
            return self._policy.head.value(features).view(seen[FEATURES].shape[:2])

    def _last_value(self, memo: dict[str, Any]) -> Tensor:
        look = memo["look"]
        with self._autocast():
            return self._policy.with_value(
                look.observation, memo["memory"], look.action_mask, look.privileged, memo["first"]
            )[1]

    def _next(
        self, memo: dict[str, Any], sums: dict[str, list[Tensor]]
    ) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor], dict[str, list[Tensor]]]:
        """One step: (what goes on, what is kept, what values of lives' ends need, sums over the rollout)."""
        env, look = self._worlds.env, memo["look"]
        judged, value = self._judge(memo)
        action = self.sample(judged, memo["worlds"][CLOCK])
        tensors, step = self._worlds.next_in_place(memo["worlds"], for_worlds(action, env))
        tensors[CLOCK] = memo["worlds"][CLOCK]  # the collector counts

        terminated, truncated = self._spread(step.terminated), self._spread(step.truncated)
        valid, now = self._spread(step.valid), rows_of(step.look, env)
        if look.acting is not None:
            valid = valid & look.acting
            # Who goes out while the world goes on has lived; when it comes back it lives anew.
            terminated = terminated | (valid & ~self._acting_after(step, now))
        ended = terminated | truncated
        reward = torch.where(valid, step.reward.flatten(), 0.0)
        row = {
            "observation": look.observation,
            "first": memo["first"],
            "action": action,
            "log_prob": judged.actions.log_prob(action),
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "valid": valid,
        }
        row.update({n: getattr(look, n) for n in ("action_mask", "privileged") if getattr(look, n) is not None})
        if value is not None:
            row["value"] = value
        elif judged.features.shape[-1]:
            row[FEATURES] = judged.features
        lives, returned, length = _count(sums["lives"], memo, reward, valid, ended)
        # Flows are 0 where a world waited already; what reads the same flags is compiled into one kernel.
        flowed = [torch.where(step.valid, flow, 0.0) for flow in step.flows.values()]
        flows = [whole + flow for whole, flow in zip(sums["flows"], flowed, strict=True)]
        state = {
            "worlds": tensors,
            "look": now,
            "memory": judged.memory,
            "first": ended | ~valid,
            "returned": returned,
            "length": length,
        }
        ends = self._last_looks(step, judged.memory) if self._cuts else {}
        return state, row, ends, {"flows": flows, "lives": lives}

    def sample(self, judged: Judged, clock: Tensor) -> Tensor:
        """Actions of every row, drawn for this step, and as they are kept: ratios begin at 1."""
        space = self._worlds.env.action_space
        num = 1 if isinstance(space, Discrete) else math.prod(space.shape)
        return ops.rounded(judged.actions.sample(self._draws.uniform("action", clock, num)), space.dtype)

    def _spread(self, flags: Tensor) -> Tensor:
        """Flags of worlds for every row."""
        return flags if self._actors == 1 else flags[:, None].expand(-1, self._actors).flatten()

    def _acting_after(self, step: Step, now: Look) -> Tensor:
        """Bool `[rows]`: who acts in the state that the step led to, before any reset."""
        final = rows_of(step.final, self._worlds.env)
        assert now.acting is not None
        assert final.acting is not None
        return now.acting.index_copy(0, self._rows(step.final_index), final.acting)

    def _rows(self, index: Tensor) -> Tensor:
        """Rows of worlds."""
        if self._actors == 1:
            return index
        return (index[:, None] * self._actors + torch.arange(self._actors, device=index.device)).flatten()

    def _last_looks(self, step: Step, memory: Tensor) -> dict[str, Tensor]:
        """What the critic sees of lives that may have ended, and their rows."""
        final, rows = rows_of(step.final, self._worlds.env), self._rows(step.final_index)
        seen = {"rows": rows, "observation": final.observation, "memory": memory[rows]}
        return seen if final.privileged is None else {**seen, "privileged": final.privileged}

    def _values_of_ends(self, ends: dict[str, Tensor]) -> Tensor:
        """Values of last looks `[steps, ends]`, all steps at once."""
        shape = ends["rows"].shape
        seen = {name: tensor.flatten(0, 1) for name, tensor in ends.items()}
        with self._autocast():
            _, value = self._policy.with_value(seen["observation"], seen["memory"], None, seen.get("privileged"))
            return value.view(shape)


def _count(
    lives: list[Tensor], memo: dict[str, Any], reward: Tensor, valid: Tensor, ended: Tensor
) -> tuple[list[Tensor], Tensor, Tensor]:
    """(each row's lives that ended, rewards so far, steps so far) after a step."""
    returned, length, ended = memo["returned"] + reward, memo["length"] + valid, ended & valid
    count, total, least, most, steps = lives
    new = [
        count + ended,
        total + torch.where(ended, returned, 0.0),
        torch.minimum(least, torch.where(ended, returned, torch.inf)),
        torch.maximum(most, torch.where(ended, returned, -torch.inf)),
        steps + torch.where(ended, length, 0),
    ]
    return new, torch.where(ended, 0.0, returned), torch.where(ended, 0, length)
