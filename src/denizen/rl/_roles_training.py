"""A training in which each role of a world learns a policy of its own, all in the same worlds and the same update.

RolesTraining
  RolesRollout    one step of the worlds by what all parties do
    Rollout       of each party: its rows, draws and buffers
  PPOTraining     of each party that learns: optimiser, minibatches, learning rate
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from denizen import _processes as processes
from denizen import _tree
from denizen.ops import start_compilers
from denizen.rl._against import pool_of
from denizen.rl._curriculum import Curriculum
from denizen.rl._metrics import Phases, flow_metrics, joined, summary_of
from denizen.rl._normaliser import take_in
from denizen.rl._recorded import Recorded
from denizen.rl._roles import Party, Policies, Seats, actions_of, step_of
from denizen.rl._rollout import CLOCK, Rollout, RolloutState, clocks_of, flowed
from denizen.rl._training import PRECISIONS, Training
from denizen.rl._worlds import Worlds, WorldsState

WORLD = ("waited", "faulty")  # of worlds, and so the same for all parties
LIVES = ("episodes", "return_sum", "return_mean", "length_mean")  # of all parties, which a training is judged by


class RolesState(RolloutState):
    """What goes on from step to step: the worlds, and what each party has of its own.

    Attributes:
        worlds: the worlds' run state.
    """

    def __init__(self, worlds: WorldsState, rollouts: dict[str, Rollout]) -> None:
        """Args:
        worlds: which the states of the rollouts then share.
        rollouts: of each party.
        """
        self.worlds, self._rollouts = worlds, rollouts
        for rollout in rollouts.values():
            rollout.state.worlds = worlds

    def parts(self) -> dict[str, Any]:
        """Everything, as a step takes it."""
        own = {name: dict(rollout.state.parts()) for name, rollout in self._rollouts.items()}
        return {
            "worlds": self.worlds.tensors(),
            **{name: {k: v for k, v in parts.items() if k != "worlds"} for name, parts in own.items()},
        }


class RolesRollout:
    """All parties in the same worlds: as `Rollout`, whose buffers each party has.

    Attributes:
        state: what goes on from rollout to rollout.
        flows: sums over the rollout of the environment's flows: float32 `[flows]`.
    """

    def __init__(self, worlds: Worlds, begun: WorldsState, found: list[Party], rollouts: dict[str, Rollout]) -> None:
        """Args:
        worlds: on their device.
        begun: their first states.
        found: the parties.
        rollouts: of each, which it is to fill.
        """
        self._worlds, self._parties, self._rollouts = worlds, found, rollouts
        self.state = RolesState(begun.clone(), rollouts)
        self.flows = torch.zeros(sum(kind == "flow" for kind in worlds.env.all_series.values()), device=worlds.device)
        policies = [party.policy for party in found]
        self._step = Recorded(self._next, *policies, worlds.world_params, *worlds.modules)

    def compile(self, backend: str | None) -> None:
        """As `Rollout.compile`."""
        self._step.compile(backend)
        for rollout in self._rollouts.values():
            rollout.compile(backend)

    def _sums(self) -> dict[str, Any]:
        flows = [self.flows.new_zeros(self._worlds.num_envs) for _ in self.flows]
        return {"flows": flows, **{name: rollout.sums()["lives"] for name, rollout in self._rollouts.items()}}

    @torch.no_grad()
    def collect(self) -> None:
        """As `Rollout.collect`."""
        state, rollouts = self.state, self._rollouts
        held = [id(tensor) for tensor in state.tensors()]
        memory = {name: held.index(id(rollout.state.memory)) for name, rollout in rollouts.items()}
        memories: dict[str, list[Tensor]] = {name: [] for name in rollouts}
        steps = next(iter(rollouts.values())).steps
        step, given = self._step.bound(state.parts(), self._sums())
        front, back = len(held), len(given) - len(held)
        rows: list[list[Tensor]] = []
        results: list[Tensor] = []
        clocks, place = clocks_of(state, steps)
        for number, clock in enumerate(clocks[1:]):
            for name, rollout in rollouts.items():
                if number % rollout.segment == 0:
                    memories[name].append(given[memory[name]])
            results = step(given)
            last = len(results) - back
            given = results[:front] + results[last:]
            given[place] = clock
            rows.append(results[front:last])
        _, kept, sums = self._step.tree(results)
        columns = iter(zip(*rows, strict=True))
        of_each = {name: [next(columns) for _ in _tree.tensors(parts)] for name, parts in kept.items()}
        for name, rollout in rollouts.items():
            rollout.fill(kept[name][0], of_each[name])
            torch.stack(memories[name], out=rollout.memories)
        state.take(given[:front])
        if sums["flows"]:
            self.flows.copy_(torch.stack(sums["flows"]).sum(1))
        for name, rollout in rollouts.items():
            rollout.add_up({"flows": [], "lives": sums[name]})
            row, ends = kept[name]
            rollout.finish(row, ends, of_each[name])

    def _next(self, state: dict[str, Any], sums: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict]:
        """One step: (what goes on, of each party what is kept and what values of lives' ends need, sums)."""
        clock, rollouts = state["worlds"][CLOCK], self._rollouts
        acted = {name: rollout.act(state[name], clock) for name, rollout in rollouts.items()}
        action = actions_of(self._worlds.env, [(party, acted[party.name][2]) for party in self._parties])
        tensors, step = self._worlds.next_in_place(state["worlds"], action)
        tensors[CLOCK] = clock  # the rollout counts
        onwards: dict[str, Any] = {"worlds": tensors}
        kept: dict[str, Any] = {}
        new: dict[str, Any] = {"flows": flowed(step, sums["flows"])}
        for party in self._parties:
            name, own = party.name, {"flows": [], "lives": sums[party.name]}
            onwards[name], row, ends, own = rollouts[name].kept(state[name], *acted[name], step_of(party, step), own)
            kept[name], new[name] = (row, ends), own["lives"]
        return onwards, kept, new


class RolesTraining(Training):
    """A training with a policy for each role.

    Attributes:
        policy: the policies.
        learners: a training of each party that learns; those whose weights all are frozen act only.
    """

    def __init__(
        self,
        algorithm: Any,
        worlds: Worlds,
        policies: Policies,
        found: list[Party],
        num_updates: int,
        seed: int,
        curriculum: Curriculum,
        learner: Callable[..., Training],
    ) -> None:
        """Args:
        algorithm: its settings.
        worlds: on their device.
        policies: are moved there.
        found: the parties that they are.
        num_updates: to come in all.
        seed: of actions.
        curriculum: of the worlds' parameters.
        learner: makes the training of a party, as `PPOTraining` does.
        """
        start_compilers(worlds.device)
        self.algorithm, self.num_updates, self.seed = algorithm, num_updates, seed
        self.worlds, self.curriculum, self.phases = worlds, curriculum, Phases(worlds.device)
        self.pool = pool_of(worlds.env, algorithm)
        self.reward_scale = None  # each party has its own
        self.policy: Any = policies.to(worlds.device).train()
        self._dtype, self._device = PRECISIONS[algorithm.precision], worlds.device
        begun = worlds.begin()
        self.learners: dict[str, Training] = {}
        rollouts: dict[str, Rollout] = {}
        first = 0
        for party in found:
            seats = Seats(party, worlds, begun)
            if any(weight.requires_grad for weight in party.policy.parameters()):
                none = Curriculum(None, seats)
                self.learners[party.name] = learner(algorithm, seats, party.policy, num_updates, seed, none)
                rollouts[party.name] = self.learners[party.name].rollout
            else:
                acts: Any = seats
                party.policy.eval()  # what is frozen acts as in an evaluation: no dropout, no statistics that move
                rollouts[party.name] = Rollout(
                    acts, party.policy, algorithm.num_steps, seed, self.autocast, values=False
                )
            rows = rollouts[party.name].state.rows
            rollouts[party.name].number_rows(seed, first + processes.rank() * rows)  # no two draw by the same numbers
            first += processes.size() * rows
        self._parties, self._rollouts = found, rollouts
        self.rollout: Any = RolesRollout(worlds, begun[0], found, rollouts)
        self.updates = torch.zeros((), dtype=torch.int64, device=worlds.device)

    def updated(self, learn: Callable[[Any], dict[str, Tensor]]) -> dict[str, Tensor]:
        """An update: a rollout of all, and what `learn` makes of each party's; metrics are ``party/metric``."""
        self.phases.begin()
        self.curriculum.begin(self.progress)
        with self.prepared():
            self.rollout.collect()
        self.phases.ended(0)
        told = {name: learn(learner) for name, learner in self.learners.items()}
        for party in self._parties:
            if party.name not in told:
                told[party.name] = summary_of(party.view, self._rollouts[party.name])
        self.updates.add_(1)
        for party in self._parties:
            if party.name in self.learners and party.policy.normaliser is not None:
                take_in(party.policy, self._rollouts[party.name].fields)  # type: ignore[arg-type]  # pyrefly: ignore
        metrics = self.curriculum.end(self._metrics(told))
        self.phases.ended(1)
        return metrics

    def _metrics(self, told: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
        """Of the worlds and of all parties' lives, then of each party."""
        first, env = next(iter(told.values())), self.worlds.env
        rewards, steps, lived = [], [], []
        for name, rollout in self._rollouts.items():
            rewards.append(rollout.fields["reward"].sum())
            steps.append(rollout.fields["valid"].sum().to(torch.float32))
            lengths = told[name]["length_mean"] * told[name]["episodes"]
            lived.append(torch.where(told[name]["episodes"] > 0, lengths, 0.0))
        count = torch.stack([one["episodes"] for one in told.values()]).sum()
        total = torch.stack([one["return_sum"] for one in told.values()]).sum()
        some, least = count > 0, count.clamp(min=1)
        none = torch.full_like(count, torch.nan)
        length = torch.stack(lived).sum()
        whole = (
            count,
            total,
            torch.where(some, total / least, none),
            torch.where(some, length / least, none),
        )
        world = {**dict(zip(LIVES, whole, strict=True)), **{name: first[name] for name in WORLD}}
        flows = flow_metrics(env, torch.stack(rewards).sum(), torch.stack(steps).sum(), self.rollout.flows)
        each = {
            f"{name}/{metric}": value
            for name, metrics in told.items()
            for metric, value in metrics.items()
            if metric not in WORLD
        }
        return joined(env, world, flows, each)

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """As of any training, of all policies."""
        with contextlib.ExitStack() as held:
            for party in self._parties:
                held.enter_context(party.policy.prepared(self._dtype))
            yield

    def precompile(self) -> None:
        """As of any training, of all that learn."""
        for learner in self.learners.values():
            learner.precompile()

    def heads(self) -> list[nn.Linear]:
        """Of all that learn."""
        return [head for learner in self.learners.values() for head in learner.heads()]

    def compile(self, backend: str | None = "inductor", loss: bool = True) -> None:
        """As of any training."""
        for learner in self.learners.values():
            learner.compile(backend, loss)
        self.rollout.compile(backend)

    def names(self) -> Sequence[str]:
        """Of the parties, as metrics have them."""
        return list(self._rollouts)

    def shared_tensors(self) -> dict[str, Tensor]:
        """As of any training, of each that learns."""
        held = {f"policy.{name}": tensor for name, tensor in self.policy.state_dict().items()}
        for name, learner in self.learners.items():
            mine = learner.shared_tensors().items()
            held.update({f"{name}/{key}": tensor for key, tensor in mine if not key.startswith("policy.")})
        return {**held, "updates": self.updates, **self.curriculum.tensors()}

    def own_tensors(self) -> dict[str, Tensor]:
        """As of any training, of all."""
        held = super().own_tensors()
        for name, learner in self.learners.items():
            mine = learner.own_tensors().items()
            held.update({f"{name}/{key}": tensor for key, tensor in mine if not key.startswith("memo.")})
        return held
