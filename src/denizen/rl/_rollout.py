"""Rollouts: a policy acts in worlds for a number of steps, and what happened is kept in buffers on the device."""

import math
from typing import Any

import torch
from torch import Tensor

from denizen import _processes as processes
from denizen import _tree, ops
from denizen.model import Env, Observed, whole_env
from denizen.nn import kernels
from denizen.rl._draws import Draws
from denizen.rl._from_gymnasium import FromGymnasium
from denizen.rl._policy import Judged, Policy
from denizen.rl._recorded import AsItIs, Recorded
from denizen.rl._rows import for_worlds, rows_of
from denizen.rl._worlds import Step, Worlds

FEATURES = "features"  # of each step, where values are computed after the last
CLOCK = -3  # place of the clock among the tensors of a run state


class RolloutState:
    """What goes on from step to step, and from rollout to rollout, in static buffers.

    Attributes:
        worlds: the worlds' run state.
        observed: what every row sees.
        memory: float32 `[rows, memory_size]`.
        first: bool `[rows]`: a life begins here.
        returned: float32 `[rows]`: rewards of the present life so far.
        length: int64 `[rows]`: steps of the present life so far.
    """

    def __init__(self, worlds: Worlds | FromGymnasium, policy: Policy) -> None:
        run_state, observed = worlds.begin()
        self.worlds = run_state.clone()  # fields of equal value may share memory
        self.observed = Observed(*[None if part is None else part.clone() for part in rows_of(observed, worlds.env)])  # type: ignore[arg-type]  # pyrefly: ignore
        rows, device = self.observed.observation.shape[0], worlds.device
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
            "observed": self.observed,
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


def can_cut(env: Env) -> bool:
    """Whether an environment can cut a life off."""
    env = whole_env(env)
    return env.time_limit is not None or type(env).truncated is not Env.truncated


class Rollout:
    """A policy in worlds, and buffers of what happened in so many steps, each `[steps, rows, …]`.

    The policy's draws are keyed by (seed, replica), the worlds' by (seed, world): replicas of one world share its
    random numbers and differ in their actions only. One step of everything (policy, draw, worlds, books) is one
    function, recorded once as a flat graph; compiled where asked. It may write into the worlds that it is given.

    Attributes:
        state: what goes on from rollout to rollout.
        steps: of a rollout.
        segment: steps between two memories that are kept.
        fields: observation, action, log_prob, value, reward, terminated, truncated, valid, first, and where they exist
            action_mask and privileged.
        memories: float32 `[segments, rows, memory_size]` before the first step of each segment.
        bootstrap: float32 `[steps, rows]`: value of the state each step led to, before a reset.
        flows: sums over the rollout of the environment's flows: float32 `[flows]`.
        lives: of lives that ended: count, sum, smallest and largest return, sum of lengths: float32 `[5]`.
        finals: last looks of lives that may have been cut off, and their `rows`, each `[steps, looks, …]`, where they
            are kept and lives can be cut off.
    """

    def __init__(
        self,
        worlds: Worlds | FromGymnasium,
        policy: Policy,
        steps: int,
        seed: int,
        autocast: Any,
        *,
        values: bool = True,
        finals: bool = False,
    ) -> None:
        """Args:
        worlds: on their device.
        policy: on the same.
        steps: of a rollout.
        seed: of actions.
        autocast: makes the context in which the policy runs.
        values: whether the critic judges states; else `value` and `bootstrap` stay 0.
        finals: whether to keep what was seen last of lives that may have been cut off.
        """
        self._worlds, self._autocast, self._with_values = worlds, autocast, values
        self._policy: Any = policy
        self.state, self.steps = RolloutState(worlds, policy), steps
        env, rows, device = worlds.env, self.state.rows, worlds.device
        self._cuts = (values or finals) and can_cut(env)
        self._actors = env.num_actors or 1
        self.number_rows(seed, processes.rank() * rows)
        if isinstance(worlds, FromGymnasium):
            self._step: Recorded | AsItIs = AsItIs(self._next)
        else:
            self._step = Recorded(self._next, policy, worlds.world_params, *worlds.modules, in_place=worlds.in_place)
        self._value, self._ends = Recorded(self._last_value, policy), Recorded(self._values_of_ends, policy)
        self._values = Recorded(self._late_values, policy)
        self.fields = self._buffers()
        self.keep_memories(steps)
        self.bootstrap = torch.zeros(steps, rows, device=device)
        self.flows = torch.zeros(sum(kind == "flow" for kind in env.all_series.values()), device=device)
        self.lives = torch.zeros(5, device=device)
        self.finals: dict[str, Tensor] = {}

    def number_rows(self, seed: int, first: int) -> None:
        """Have rows draw by these numbers, from the first on."""
        self._draws = Draws(seed, torch.arange(self.state.rows, device=self._worlds.device) + first)

    def keep_memories(self, length: int) -> None:
        """Keep memories at the start of every segment of so many steps, which `steps` divide into."""
        self.segment = length
        self.memories = self.state.memory.new_zeros(self.steps // length, *self.state.memory.shape)

    @property
    def memory(self) -> Tensor:
        """Before the first step: float32 `[rows, memory_size]`."""
        return self.memories[0]

    def _buffers(self) -> dict[str, Tensor]:
        observed, space, steps, rows = self.state.observed, self._worlds.env.action_space, self.steps, self.state.rows
        device = self._worlds.device

        def buffer(like: Tensor) -> Tensor:
            return like.new_zeros(steps, *like.shape)

        fields = {"observation": buffer(observed.observation)}
        fields["action"] = torch.zeros(steps, rows, *space.shape, dtype=space.dtype, device=device)
        for name in ("log_prob", "value", "reward"):
            fields[name] = torch.zeros(steps, rows, device=device)
        for name in ("terminated", "truncated", "valid", "first"):
            fields[name] = torch.zeros(steps, rows, dtype=torch.bool, device=device)
        if observed.action_mask is not None:
            fields["action_mask"] = buffer(observed.action_mask)
        if observed.privileged is not None:
            fields["privileged"] = buffer(observed.privileged)
        return fields

    def sums(self) -> dict[str, list[Tensor]]:
        """Where sums over the rollout begin: of each world's flows, and of each row's lives."""
        # Each is a tensor of its own, as in later steps: for inputs that are one tensor a step is compiled apart.
        rows, worlds, begin = self.state.rows, self._worlds.num_envs, self.lives.new_full
        flows = [begin((worlds,), 0.0) for _ in self.flows]
        return {"flows": flows, "lives": [begin((rows,), value) for value in (0.0, 0.0, torch.inf, -torch.inf, 0.0)]}

    def add_up(self, sums: dict[str, list[Tensor]]) -> None:
        """Add up what `sums` has become."""
        count, total, least, most, steps = sums["lives"]
        self.lives.copy_(torch.stack([count.sum(), total.sum(), least.min(), most.max(), steps.sum()]))
        if sums["flows"]:
            self.flows.copy_(torch.stack(sums["flows"]).sum(1))

    def begin_anew(self) -> None:
        """Begin every world anew where the state of what goes on was lost."""
        run_state, observed = self._worlds.begin(self.state.worlds.clock)
        fresh = {**self.state.parts(), "worlds": run_state.tensors(), "observed": rows_of(observed, self._worlds.env)}
        fresh["memory"] = self._policy.first_memory(self.state.rows, self._worlds.device)
        fresh["first"] = torch.ones_like(self.state.first)
        fresh["returned"], fresh["length"] = torch.zeros_like(self.state.returned), torch.zeros_like(self.state.length)
        self.state.take(_tree.tensors(fresh))

    def compile(self, backend: str | None = "inductor") -> None:
        """Compile a step, and values that are late, when they are next computed; None: no longer."""
        self._step.compile(backend)
        self._values.compile(backend)

    @torch.no_grad()
    def collect(self) -> None:
        """Go on from the state for as many steps as there are; state and buffers change in place."""
        state = self.state
        memory = next(k for k, tensor in enumerate(state.tensors()) if tensor is state.memory)
        memories: list[Tensor] = []
        sums = self.sums()
        step, given = self._step.bound(state.parts(), sums)
        front, back = len(state.tensors()), len(given) - len(state.tensors())
        rows: list[list[Tensor]] = []
        results: list[Tensor] = []
        clocks, place = clocks_of(state, self.steps)
        # What a step returns is what the next one takes: nothing is copied in between.
        for number, clock in enumerate(clocks[1:]):
            if number % self.segment == 0:
                memories.append(given[memory])
            results = step(given)
            last = len(results) - back
            given = results[:front] + results[last:]
            given[place] = clock
            rows.append(results[front:last])
        _, row, ends, sums = self._step.tree(results)
        columns = list(zip(*rows, strict=True))
        self.fill(row, columns)
        torch.stack(memories, out=self.memories)
        state.take(given[:front])
        self.add_up(sums)
        self.finish(row, ends, columns)

    def fill(self, row: dict[str, Tensor], columns: list[tuple[Tensor, ...]]) -> None:
        """Fill the buffers; before the state changes, which the looks of the first step are a part of.

        Args:
            row: what the last step kept, for its names.
            columns: of each name, in order, what every step kept.
        """
        for name, column in zip(row, columns, strict=False):
            if name != FEATURES:
                torch.stack(column, out=self.fields[name])

    def finish(self, row: dict[str, Tensor], ends: dict[str, Tensor], columns: list[tuple[Tensor, ...]]) -> None:
        """Judge what is judged after the last step.

        Args:
            row: what the last step kept, for its names.
            ends: likewise what values of lives' ends need.
            columns: of each name of both, in order, what every step gave.
        """
        state, fields = self.state, self.fields
        if FEATURES in row:
            seen = {name: fields[name] for name in ("observation", "privileged") if name in fields}
            seen[FEATURES] = torch.stack(columns[list(row).index(FEATURES)])
            fields["value"].copy_(self._values(seen))
        elif "value" not in row:
            self.finals = {n: torch.stack(column) for n, column in zip(ends, columns[len(row) :], strict=True)}
            return
        self.bootstrap.copy_(torch.cat([fields["value"][1:], self._value(state.parts())[None]]))
        if self._cuts:
            final = {name: torch.stack(column) for name, column in zip(ends, columns[len(row) :], strict=True)}
            cut = fields["truncated"] & ~fields["terminated"]
            final, place = self._cut_short(final, cut)
            found = self.bootstrap.flatten().scatter(0, place.flatten(), self._ends(final).flatten())
            self.bootstrap.copy_(torch.where(cut, found.view_as(cut), self.bootstrap))

    def _cut_short(self, final: dict[str, Tensor], cut: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """(last looks, those of lives that were cut short among them; their places in a flat rollout).

        A time limit cuts a life short once in as many steps: there are that many looks at most, of all that may have
        been the last.
        """
        (steps, rows), limit = cut.shape, self._worlds.env.time_limit
        place = torch.arange(0, steps * rows, rows, device=cut.device)[:, None] + final["rows"]
        most = rows * math.ceil(steps / limit) if limit else place.numel()
        if type(whole_env(self._worlds.env)).truncated is not Env.truncated or most >= place.numel():
            return final, place
        where = kernels.first_flagged(cut.flatten()[place.flatten()], most)[0]
        return {name: tensor.flatten(0, 1)[where][None] for name, tensor in final.items()}, place.flatten()[where]

    def _judge(self, state: dict[str, Any]) -> tuple[Judged, Tensor | None]:
        """What the policy makes of the looks, and their values where they are wanted and not judged late."""
        observed, memory, first, policy = state["observed"], state["memory"], state["first"], self._policy
        with self._autocast():
            if not self._with_values:
                return policy(observed.observation, memory, observed.action_mask, first=first, actor_only=True), None
            if policy.judges_late(observed.observation.shape[0]):
                given = policy.normalised(policy.inputs(observed.observation))
                return policy.act(given, memory, observed.action_mask, first), None
            return policy.with_value(observed.observation, memory, observed.action_mask, observed.privileged, first)

    def _late_values(self, seen: dict[str, Tensor]) -> Tensor:
        """Values `[steps, rows]` of what was seen at each step, from the features of a body."""
        rows = {name: tensor.flatten(0, 1) for name, tensor in seen.items()}
        with self._autocast():
            features = self._policy.judge(rows[FEATURES], rows["observation"], rows.get("privileged"))
            return self._policy.head.value(features).view(seen[FEATURES].shape[:2])

    def _last_value(self, state: dict[str, Any]) -> Tensor:
        observed = state["observed"]
        with self._autocast():
            return self._policy.with_value(
                observed.observation, state["memory"], observed.action_mask, observed.privileged, state["first"]
            )[1]

    def _next(
        self, state: dict[str, Any], sums: dict[str, list[Tensor]]
    ) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor], dict[str, list[Tensor]]]:
        """One step: (what goes on, what is kept, what values of lives' ends need, sums over the rollout)."""
        judged, value, action = self.act(state, state["worlds"][CLOCK])
        tensors, step = self._worlds.next_in_place(state["worlds"], for_worlds(action, self._worlds.env))
        tensors[CLOCK] = state["worlds"][CLOCK]  # the rollout counts
        onwards, row, ends, sums = self.kept(state, judged, value, action, step, sums)
        return {"worlds": tensors, **onwards}, row, ends, sums

    def act(self, state: dict[str, Any], clock: Tensor) -> tuple[Judged, Tensor | None, Tensor]:
        """(what the policy makes of the looks, their values where they are wanted now, actions of rows)."""
        judged, value = self._judge(state)
        return judged, value, self.sample(judged, clock)

    def kept(
        self,
        state: dict[str, Any],
        judged: Judged,
        value: Tensor | None,
        action: Tensor,
        step: Step,
        sums: dict[str, list[Tensor]],
    ) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor], dict[str, list[Tensor]]]:
        """As `_next` has them but for the worlds, after their step.

        Args:
            state: before the step.
            judged: what the policy made of it.
            value: of that; None: judged late, or not at all.
            action: of rows.
            step: what it gave.
            sums: over the rollout so far.
        """
        env, observed = self._worlds.env, state["observed"]
        terminated, truncated = self._spread(step.terminated), self._spread(step.truncated)
        valid, now = self._spread(step.valid), rows_of(step.observed, env)
        if observed.acting is not None:
            valid = valid & observed.acting
            # Who goes out while the world goes on has lived; when it comes back it lives anew.
            terminated = terminated | (valid & ~self._acting_after(step, now))
        ended = terminated | truncated
        reward = torch.where(valid, step.reward.flatten(), 0.0)
        row = {
            "observation": observed.observation,
            "first": state["first"],
            "action": action,
            "log_prob": judged.actions.log_prob(action),
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "valid": valid,
        }
        row.update({n: getattr(observed, n) for n in ("action_mask", "privileged") if getattr(observed, n) is not None})
        if value is not None:
            row["value"] = value
        elif judged.features.shape[-1]:
            row[FEATURES] = judged.features
        lives, returned, length = _count(sums["lives"], state, reward, valid, ended)
        flows = flowed(step, sums["flows"])
        onwards = {
            "observed": now,
            "memory": judged.memory,
            "first": ended | ~valid,
            "returned": returned,
            "length": length,
        }
        ends = self._last_looks(step, judged.memory) if self._cuts else {}
        return onwards, row, ends, {"flows": flows, "lives": lives}

    def sample(self, judged: Judged, clock: Tensor) -> Tensor:
        """Actions of every row, drawn for this step, and as they are kept: ratios begin at 1."""
        uniform = self._draws.uniform("action", clock, self._policy.draws)
        return ops.rounded(judged.actions.sample(uniform), self._worlds.env.action_space.dtype)

    def _spread(self, flags: Tensor) -> Tensor:
        """Flags of worlds for every row."""
        return flags if self._actors == 1 else flags[:, None].expand(-1, self._actors).flatten()

    def _acting_after(self, step: Step, now: Observed) -> Tensor:
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


def clocks_of(state: RolloutState, steps: int) -> tuple[list[Tensor], int]:
    """(the clock at every step, which counted in each step would be a launch; its place in a state's tensors)."""
    place = next(k for k, tensor in enumerate(state.tensors()) if tensor is state.worlds.clock)
    clocks = state.worlds.clock + torch.arange(steps + 1, device=state.worlds.clock.device)
    # Each begins at 16 bytes, as compiled code takes its arguments to be.
    return list(clocks[:, None].expand(-1, 2).contiguous()[:, 0].unbind()), place


def flowed(step: Step, flows: list[Tensor]) -> list[Tensor]:
    """Sums of each world's flows after a step."""
    # Flows are 0 where a world waited already; what reads the same flags is compiled into one kernel.
    more = [torch.where(step.valid, flow, 0.0) for flow in step.flows.values()]
    return [whole + flow for whole, flow in zip(flows, more, strict=True)]


def _count(
    lives: list[Tensor], state: dict[str, Any], reward: Tensor, valid: Tensor, ended: Tensor
) -> tuple[list[Tensor], Tensor, Tensor]:
    """(each row's lives that ended, rewards so far, steps so far) after a step."""
    returned, length, ended = state["returned"] + reward, state["length"] + valid, ended & valid
    count, total, least, most, steps = lives
    new = [
        count + ended,
        total + torch.where(ended, returned, 0.0),
        torch.minimum(least, torch.where(ended, returned, torch.inf)),
        torch.maximum(most, torch.where(ended, returned, -torch.inf)),
        steps + torch.where(ended, length, 0),
    ]
    return new, torch.where(ended, 0.0, returned), torch.where(ended, 0, length)
