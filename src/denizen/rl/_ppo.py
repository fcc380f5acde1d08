"""PPO as a frozen object: `init` makes a training, `update` takes it one iteration further."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from denizen import _processes as processes
from denizen._arguments import one_of, whole
from denizen._processes import size, total
from denizen.errors import InputError
from denizen.model import Env
from denizen.rl._against import for_training
from denizen.rl._curriculum import Curriculum, first_values
from denizen.rl._draws import Minibatches, cut, picked
from denizen.rl._from_gymnasium import FromGymnasium
from denizen.rl._gae import advantages, flat, normalised, summed
from denizen.rl._metrics import joined
from denizen.rl._policy import ActorCritic, check_learns
from denizen.rl._roles import parties, policies_of
from denizen.rl._roles_training import RolesTraining
from denizen.rl._settings import (
    LearningRate,
    Linear,
    Rate,
    Schedule,
    by_name,
    numbers,
    rates,
    switches,
    value_at,
    ways,
    wholes,
)
from denizen.rl._training import PRECISIONS, Training
from denizen.rl._worlds import Worlds, check_env
from denizen.rng import MAX_SEED


class Coefficients(NamedTuple):
    """Settings of the loss at one moment, each float32 `[]`."""

    clip: Tensor
    entropy: Tensor
    entropy_floor: Tensor
    value: Tensor
    value_clip: Tensor | None
    floor_penalty: Tensor


class Loss(NamedTuple):
    """The loss and its parts, each float32 `[]`."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor
    clipped: Tensor


_ANNEALED = Linear(2.5e-4, 0.0)
LOSS_NAMES = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "gradient_norm")


@by_name
@dataclasses.dataclass(frozen=True, kw_only=True)
class PPO:
    """Proximal policy optimisation; `recipes/ppo.py` is the same algorithm in one page.

    The defaults are those of CleanRL's ppo.py, its learning rate annealed.

    Attributes:
        num_envs: worlds.
        num_steps: steps of a rollout.
        update_epochs: passes over a rollout.
        num_minibatches: parts of it; `num_envs * num_steps` must divide. With a memory, parts are whole segments.
        segment_length: of policies with a memory: steps that are learnt together, from the memory that the rollout had
            before the first of them; None: all `num_steps`, so that parts are whole worlds.
        gamma: discount.
        gae_lambda: of the advantages.
        learning_rate: of Adam; a number, a `Linear` over the run, or an `AdaptiveKL`.
        clip_coef: of the probability ratio; a number or a `Linear`.
        value_clip: of the change of values, in the units in which they are learnt; None: unclipped.
        vf_coef: weight of the mean squared error of values.
        ent_coef: weight of the entropy; a number or a `Linear`.
        entropy_floor: nats below which entropy is penalised; a number or a `Linear`; 0: no floor.
        floor_penalty: weight of what is lacking to the floor.
        normalise_advantages: to mean 0 and standard deviation 1.
        normalise_minibatches: over each minibatch rather than once over the whole rollout.
        normalise_rewards: divide rewards by the running deviation of discounted returns, this rollout's included, and
            clip them to -10 … 10; metrics of returns stay as they are.
        target_kl: no further change within an update once a minibatch's KL exceeds it; None: never.
        max_grad_norm: of the gradient; of actor with body and of the critic apart where `clip_apart`.
        clip_apart: clip the critic's gradient by itself.
        adam_eps: of Adam.
        precision: ``"float32"``, ``"bfloat16"`` or ``"float16"``: in which the policy runs, in rollout and update.
        shuffle_groups: groups of worlds that are shuffled apart, each of which gives every minibatch an equal part. A
            multiple of the number of processes makes several processes learn what one does; raised to that number.
        max_resets: worlds reset in a step at most; None: as `Worlds` has it.
    """

    num_envs: int = 64
    num_steps: int = 128
    update_epochs: int = 4
    num_minibatches: int = 4
    segment_length: int | None = dataclasses.field(default=None, metadata={"unless": None})
    gamma: float = 0.99
    gae_lambda: float = 0.95
    learning_rate: LearningRate = _ANNEALED
    clip_coef: Schedule = 0.2
    value_clip: float | None = 0.2
    vf_coef: float = 0.25
    ent_coef: Schedule = 0.01
    entropy_floor: Schedule = 0.0
    floor_penalty: float = 0.0
    normalise_advantages: bool = True
    normalise_minibatches: bool = True
    normalise_rewards: bool = dataclasses.field(default=False, metadata={"unless": False})
    target_kl: float | None = None
    max_grad_norm: float | None = 0.5
    clip_apart: bool = False
    adam_eps: float = 1e-5
    precision: str = "float32"
    shuffle_groups: int = 1
    max_resets: int | None = None

    def __post_init__(self) -> None:
        wholes(self, "num_envs", "num_steps", "update_epochs", "num_minibatches", "shuffle_groups")
        wholes(self, "segment_length", none=True)
        if self.segment_length is not None and self.num_steps % self.segment_length:
            length = self.segment_length
            near = ways(segment_length=(length, lambda other: self.num_steps % other == 0))
            raise InputError(
                f"PPO: num_steps={self.num_steps} does not divide into segment_length={length}; take {near}"
            )
        if self.max_resets is not None:
            hint = ", or None: with none, no life would begin anew and nothing more be learnt"
            object.__setattr__(self, "max_resets", whole("PPO", "max_resets", self.max_resets, 1, hint=hint))
        rates(self)
        numbers(self, "clip_coef", "ent_coef", "entropy_floor", low=0, schedule=True)
        numbers(self, "vf_coef", "floor_penalty", "adam_eps", low=0)
        numbers(self, "gamma", "gae_lambda", low=0, high=1)
        numbers(self, "value_clip", "target_kl", "max_grad_norm", above=0, none=True)
        switches(self)
        one_of("PPO", "precision", self.precision, PRECISIONS)
        envs, steps, parts = self.num_envs, self.num_steps, self.num_minibatches
        if envs * steps % parts:
            near = ways(
                num_minibatches=(parts, lambda other: envs * steps % other == 0),
                num_envs=(envs, lambda other: other * steps % parts == 0),
                num_steps=(steps, lambda other: envs * other % parts == 0),
            )
            raise InputError(
                f"PPO: num_envs={envs} worlds x num_steps={steps} steps do not divide into num_minibatches={parts}; "
                f"take {near}, since a ragged minibatch would weigh its samples more"
            )

    @property
    def samples(self) -> int:
        """Steps of worlds in one update."""
        return self.num_envs * self.num_steps

    def init(
        self,
        env: "Env | FromGymnasium",
        policy: ActorCritic | Mapping[str, ActorCritic],
        *,
        total_steps: int,
        seed: int = 0,
        device: torch.device | str | None = None,
        params: dict[str, Any] | None = None,
    ) -> "PPOTraining | RolesTraining":
        """A training before its first update.

        Args:
            env: the environment, or environments of Gymnasium.
            policy: is moved to the device and learns in place; of an environment with roles one for each.
            total_steps: steps of worlds to come in all, which schedules go by; rounded up to whole updates.
            seed: of worlds, actions and shuffles; the policy's first weights are the policy's own.
            device: None: CUDA where there is a device that works, else the CPU.
            params: parameters that differ between worlds, as `Worlds` takes them, or change: a `Linear` or an `Earned`.

        Raises:
            InputError: an argument does not fit.
        """
        if getattr(env, "roles", None) is not None:
            return self._init_roles(env, policy, total_steps, seed, device, params)
        spaces, hosted = (env.env, True) if isinstance(env, FromGymnasium) else (env, False)
        policy = check_learns(policy, spaces, "PPO.init", hosted=hosted)
        total_steps = whole("PPO.init", "total_steps", total_steps, 1)
        seed = whole("PPO.init", "seed", seed, 0, MAX_SEED)
        updates = -(-total_steps // self.samples)
        if isinstance(env, FromGymnasium):
            self._share(env.env, policy)
            host = env.for_training(self, seed, device, params)
            return PPOTraining(self, host, policy, updates, seed, Curriculum(None, host))
        env = for_training(env, policy, seed)
        worlds = self._worlds(env, self._share(env, policy), seed, device, params)
        return PPOTraining(self, worlds, policy, updates, seed, Curriculum(params, worlds))

    def _init_roles(
        self, env: Any, policy: Any, total_steps: int, seed: int, device: Any, params: dict[str, Any] | None
    ) -> "RolesTraining":
        """`init` for a policy for each role, of which those without a weight that learns act only."""
        check_env(env, "PPO.init")
        policies = policies_of(policy, env, "PPO.init")
        total_steps = whole("PPO.init", "total_steps", total_steps, 1)
        seed = whole("PPO.init", "seed", seed, 0, MAX_SEED)
        found = parties(env, policies)
        learn = [party for party in found if any(weight.requires_grad for weight in party.policy.parameters())]
        if not learn:
            raise InputError("PPO.init: all weights of all policies are frozen; nothing could be learnt")
        for party in learn:
            check_learns(party.policy, party.view, f"PPO.init: policy[{party.roles[0]!r}]")
        here = [self._share(party.view, cast(ActorCritic, party.policy)) for party in learn]
        worlds = self._worlds(env, here[0], seed, device, params)
        updates = -(-total_steps // self.samples)
        curriculum = Curriculum(params, worlds)
        return RolesTraining(self, worlds, policies, found, updates, seed, curriculum, PPOTraining)

    def _worlds(self, env: Env, here: range, seed: int, device: Any, params: dict[str, Any] | None) -> Worlds:
        """The worlds of these numbers, which are those of this process."""
        values = first_values(env, params, self.num_envs)
        if len(here) != self.num_envs:
            values = {name: value[here.start : here.stop] for name, value in values.items()}
        return Worlds(env, len(here), seed=seed, device=device, max_resets=self.max_resets, params=values, worlds=here)

    def _share(self, env: Env, policy: ActorCritic) -> range:
        """Numbers of the worlds of this process; raises `InputError` where worlds cannot be shared out."""
        parts, groups = processes.size(), self.groups
        if groups % parts:
            raise InputError(f"PPO: shuffle_groups={groups} is no multiple of the number of processes, {parts}")
        envs, minibatches = self.num_envs, self.num_minibatches
        if envs % groups:
            near = ways(num_envs=(envs, lambda other: other % groups == 0))
            raise InputError(f"PPO: num_envs={envs}: {envs} worlds do not divide into {groups} groups; take {near}")
        if self.segment_length is not None and not policy.memory_size:
            raise InputError(
                f"PPO: segment_length={self.segment_length}, but the policy has no memory; make one with it, such as "
                f"dz.rl.mlp(env, memory=dz.rl.LSTM(64)), or leave it out"
            )
        each = (env.num_actors or 1) * (self._segments if policy.memory_size else self.num_steps)
        if envs // groups * each % minibatches:
            near = ways(
                num_minibatches=(minibatches, lambda other: envs // groups * each % other == 0),
                num_envs=(envs, lambda other: other % groups == 0 and other // groups * each % minibatches == 0),
            )
            raise InputError(
                f"PPO: num_envs={envs} worlds in {groups} groups do not divide into num_minibatches={minibatches}"
                + ("; a policy with a memory learns from whole worlds, or segment_length" if policy.memory_size else "")
                + f"; take {near}"
            )
        share = self.num_envs // parts
        return range(processes.rank() * share, (processes.rank() + 1) * share)

    @property
    def _segments(self) -> int:
        """Of a world's rollout, where the policy has a memory."""
        return self.num_steps // (self.segment_length or self.num_steps)

    @property
    def groups(self) -> int:
        """Groups of worlds that are shuffled apart."""
        return self.shuffle_groups if self.shuffle_groups > 1 else processes.size()

    def update(self, training: "PPOTraining | RolesTraining") -> dict[str, Tensor]:
        """One iteration: a rollout, advantages, all epochs; no host read.

        Returns:
            Metrics, float32 `[]` each, on the device.
        """
        return training.updated(self.learn)

    def learn(self, training: "PPOTraining") -> dict[str, Tensor]:
        """Learn from the rollout that the training holds."""
        fields = training.rollout.fields
        gained = advantages(
            training.rewards(),
            fields["value"],
            training.rollout.bootstrap,
            fields["terminated"],
            fields["truncated"],
            fields["valid"],
            self.gamma,
            self.gae_lambda,
        )
        weight = fields["valid"].to(torch.float32)
        head = training.policy.head
        target, old_value = head.prepare_targets(gained.returns, fields["value"], weight)
        advantage = gained.advantage
        if self.normalise_advantages and not self.normalise_minibatches:
            advantage = normalised(advantage, weight)
        learned = {"advantage": advantage, "target": target, "old_value": old_value, "weight": weight}
        settings = self._settings(training.progress, training.rate)
        means = self._epochs(training, learned, settings)
        training.updates.add_(1)
        metrics = dict(zip(LOSS_NAMES, means.unbind(), strict=True))
        metrics.update(settings)
        metrics.update(training.reward_unit())
        metrics["explained_variance"] = _explained(gained.returns, fields["value"], weight)
        return joined(training.worlds.env, metrics, training.summary())

    def _learnt(self, policy: ActorCritic) -> list[list[nn.Parameter]]:
        """Parameters whose gradient is clipped together: all, or the critic's apart."""
        learnable = [p for p in policy.parameters() if p.requires_grad]
        if not self.clip_apart:
            return [learnable]
        parts = (policy.critic_body, policy.critic, policy.head)
        critic = {id(p) for part in parts if part is not None for p in part.parameters()}
        return [[p for p in learnable if id(p) not in critic], [p for p in learnable if id(p) in critic]]

    def _settings(self, progress: Tensor, rate: Rate) -> dict[str, Tensor]:
        """What follows a schedule, at this progress; by the names of its metrics."""
        now = {
            "clip": self.clip_coef,
            "entropy_coefficient": self.ent_coef,
            "entropy_floor": self.entropy_floor,
        }
        return {"learning_rate": rate.at(progress), **{n: value_at(value, progress) for n, value in now.items()}}

    def _coefficients(self, now: dict[str, Tensor]) -> Coefficients:
        like = now["clip"]
        return Coefficients(
            clip=now["clip"],
            entropy=now["entropy_coefficient"],
            entropy_floor=now["entropy_floor"],
            value=torch.full_like(like, self.vf_coef),
            value_clip=None if self.value_clip is None else torch.full_like(like, self.value_clip),
            floor_penalty=torch.full_like(like, self.floor_penalty),
        )

    def _epochs(self, training: "PPOTraining", learned: dict[str, Tensor], settings: dict[str, Tensor]) -> Tensor:
        """Every minibatch of every epoch; means of the losses over those that changed the policy: float32 `[6]`."""
        coefficients, rate = self._coefficients(settings), settings["learning_rate"]
        # Among several processes the loss talks to the others, which is not compiled.
        loss_of = training.compiled(self._loss) if processes.size() == 1 else self._loss
        stopped = torch.zeros((), dtype=torch.bool, device=rate.device)
        seen: list[Tensor] = []  # summed up at the end: on a GPU every sum of a few numbers is a launch
        stops: list[Tensor] = []
        for epoch in range(self.update_epochs):
            for part in self._parts(training, learned, epoch):
                loss = loss_of(training, part, coefficients)
                training.optimizer.backward(loss.total)
                if training.rate.follows is not None and stops:  # before the first step nothing has moved
                    rate = training.rate.after(processes.total(loss.kl), stopped)
                if self.target_kl is not None:
                    stopped = stopped | (processes.total(loss.kl) > self.target_kl)
                norm = training.optimizer.step(rate, stopped)
                seen += [loss.policy, loss.value, loss.entropy, loss.kl, loss.clipped, norm]
                stops.append(stopped)
        settings["learning_rate"] = rate  # the last one, where it follows the KL
        rows, counted = torch.stack(seen).detach().view(len(stops), -1), ~torch.stack(stops)
        sums = torch.where(counted[:, None], rows, 0.0).sum(0)
        sums[:-1] = processes.total(sums[:-1])  # the norm is of the whole gradient already
        return sums / counted.sum().clamp(min=1)

    def _parts(self, training: "PPOTraining", learned: dict[str, Tensor], epoch: int) -> list[dict[str, Tensor]]:
        """Minibatches in random order: rows of single steps, or segments of worlds where the policy has a memory.

        Each is all fields and which `rows` of them count; the loss picks them, so that compiled it copies nothing.
        """
        fields = {**training.rollout.fields, **learned}
        wanted = ("observation", "action", "log_prob", "first", "action_mask", "privileged", *learned)
        fields = {name: fields[name] for name in wanted if name in fields}
        recurrent = training.policy.memory_size > 0
        if recurrent:
            fields = {name: cut(field, self._segments) for name, field in fields.items()}
            fields["memory"] = training.rollout.memories.flatten(0, 1)[None]
        else:
            fields = {name: field.flatten(0, 1) for name, field in fields.items()}
        if self.num_minibatches == 1:
            return [fields]
        times, rows = self._segments if recurrent else self.num_steps, training.rollout.state.rows
        shuffle = training.updates * self.update_epochs + epoch
        return [{**fields, "rows": index} for index in training.minibatches.parts(shuffle, times, rows)]

    def _loss(self, training: "PPOTraining", part: dict[str, Tensor], coefficients: Coefficients) -> Loss:
        part = picked(part)
        with training.autocast():
            judged, value = training.policy.with_value(
                part["observation"],
                part["memory"],
                part.get("action_mask"),
                part.get("privileged"),
                part["first"],
                learnt=True,
            )
        advantage = part["advantage"]
        if self.normalise_advantages and self.normalise_minibatches:
            advantage = normalised(advantage, part["weight"])
        loss = ppo_loss(
            judged.actions.log_prob(part["action"]),
            judged.actions.entropy(),
            value,
            part["log_prob"],
            advantage,
            part["target"],
            part["old_value"],
            part["weight"],
            coefficients,
        )
        # Compiled, each result with a gradient costs a tensor of zeros in every backward.
        return Loss(loss.total, *(part.detach() for part in loss[1:]))


class PPOTraining(Training):
    """A training with PPO.

    Attributes:
        minibatches: rows of a rollout in random order.
    """

    def __init__(
        self,
        algorithm: PPO,
        worlds: Worlds | FromGymnasium,
        policy: ActorCritic,
        num_updates: int,
        seed: int,
        curriculum: Curriculum,
    ) -> None:
        """As `Training`."""
        super().__init__(algorithm, worlds, policy, num_updates, seed, curriculum, learnt=algorithm._learnt)
        self.policy.head.bind(self.optimizer.moments)
        share = algorithm.groups // processes.size()
        groups = range(processes.rank() * share, (processes.rank() + 1) * share)
        self.minibatches = Minibatches(seed, worlds.device, groups, algorithm.num_minibatches)
        if algorithm.segment_length is not None:
            self.rollout.keep_memories(algorithm.segment_length)


def ppo_loss(
    log_prob: Tensor,
    entropy: Tensor,
    value: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    target: Tensor,
    old_value: Tensor,
    weight: Tensor,
    coefficients: Coefficients,
) -> Loss:
    """L = -mean min(rho A, clip(rho) A) + c_v L_v - c_e H + c_f max(0, floor - H), means over rows of weight 1.

    Of several processes each gives its share, which add up to the loss of all. L_v is the mean squared error; clipped,
    for each element the larger of the two squared errors.

    Args:
        log_prob: of the stored actions under the present policy; every argument but the last is `[rows]`.
        entropy: of the present policy.
        value: in the units of `target`.
        old_log_prob: under the policy that acted.
        advantage: normalised or not.
        target: what values are to become.
        old_value: of the policy that acted, in the units of `target`.
        weight: 1 where the row counts.
        coefficients: settings.
    """
    count = total(summed(weight)).clamp(min=1)

    def mean(rows: Tensor) -> Tensor:
        return summed(rows * weight) / count

    # Rows that do not count may hold anything, also what overflows.
    change = torch.where(weight > 0, log_prob - old_log_prob, 0.0)
    ratio = change.exp()
    bounded = torch.clamp(ratio, 1 - coefficients.clip, 1 + coefficients.clip)
    policy = -mean(torch.minimum(ratio * advantage, bounded * advantage))
    error = torch.where(weight > 0, value - target, 0.0).square()
    if coefficients.value_clip is not None:
        near = old_value + torch.clamp(value - old_value, -coefficients.value_clip, coefficients.value_clip)
        error = torch.maximum(error, torch.where(weight > 0, near - target, 0.0).square())
    value_loss = mean(error)
    spread = mean(torch.where(weight > 0, entropy, 0.0))
    below = coefficients.entropy_floor > total(spread)
    lacking = torch.where(below, coefficients.entropy_floor / size() - spread, 0.0)
    whole = policy + coefficients.value * value_loss - coefficients.entropy * spread
    whole = whole + coefficients.floor_penalty * lacking
    with torch.no_grad():
        kl = mean(ratio - 1 - change)
        clipped = mean(((ratio - 1).abs() > coefficients.clip).to(torch.float32))
    return Loss(whole, policy, value_loss, spread, kl, clipped)


def _explained(returns: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    """Share of the variance of returns that the values explain; NaN where returns vary by no more than rounding."""
    count = processes.total(weight.sum()).clamp(min=1)

    def variance(entries: Tensor) -> Tensor:
        mean = processes.total((entries * weight).sum()) / count
        return processes.total(((entries - mean).square() * weight).sum()) / count

    spread = variance(returns)
    varies = (spread > 0) & ~flat(returns, weight)
    return torch.where(varies, 1 - variance(returns - value) / spread.clamp(min=1e-30), torch.nan)
