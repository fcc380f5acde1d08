"""GRPO as a frozen object: a policy learns from how replicas of one start compare, without a value function."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from denizen import _processes as processes
from denizen._arguments import one_of, whole
from denizen.errors import InputError
from denizen.model import Env
from denizen.rl._against import for_training
from denizen.rl._curriculum import Curriculum, first_values
from denizen.rl._draws import Minibatches
from denizen.rl._group_advantages import ADVANTAGES, SCALES, group_advantages
from denizen.rl._metrics import joined, rollout_metrics
from denizen.rl._policy import ActorCritic, check_learns
from denizen.rl._rows import rows_of
from denizen.rl._settings import LearningRate, Schedule, by_name, numbers, rates, switches, value_at, ways, wholes
from denizen.rl._training import PRECISIONS, Training
from denizen.rl._worlds import Worlds
from denizen.rng import MAX_SEED

LOSSES = ("grpo", "dapo", "bnpo", "dr_grpo")
ESTIMATORS = ("k3_iw", "k3", "exact")
SUMS = (
    "policy_loss",
    "entropy",
    "kl_old",
    "clip_low",
    "clip_high",
    "kl_reference",
    "kl_k1",
    "kl_k2",
)


class Terms(NamedTuple):
    """Of a part of the batch, each float32 `[]`: `total` is what to differentiate; the rest are metrics.

    Attributes:
        total: weighted sum; the parts of a batch add up to its loss.
        sums: float32 `[len(SUMS)]`, parts of which add up as well.
        ratio_low: smallest ratio.
        ratio_high: largest ratio.
    """

    total: Tensor
    sums: Tensor
    ratio_low: Tensor
    ratio_high: Tensor


class Settings(NamedTuple):
    """Of the loss.

    Attributes:
        clip_low: ratios below 1 - clip_low are clipped.
        clip_high: those above 1 + clip_high.
        beta: weight of the KL to the reference.
        estimator: one of `ESTIMATORS`.
        entropy: float32 `[]`: weight of the entropy.
        sequence_ratio: one ratio for a sequence, exp(mean over its steps of log rho) (GSPO).
    """

    clip_low: float
    clip_high: float
    beta: float
    estimator: str
    entropy: Tensor
    sequence_ratio: bool


_WORDS = {
    "advantage": ADVANTAGES,
    "scale": SCALES,
    "loss": LOSSES,
    "kl": ESTIMATORS,
    "precision": tuple(PRECISIONS),
}


@by_name
@dataclasses.dataclass(frozen=True, kw_only=True)
class GRPO:
    """Group-relative policy optimisation (Shao et al., 2024); `recipes/grpo.py` is the same algorithm in one page.

    Each rollout is one life of at most `max_steps` in `groups * group_size` worlds. The replicas of a group share start
    state and world's random numbers, and differ in what the policy draws. A life that ends earlier is masked from there
    on; one that does not has its score after `max_steps`, which are part of the task: nothing is bootstrapped.

    Attributes:
        groups: different starts in a rollout.
        group_size: replicas of each, at least 2.
        max_steps: steps of a rollout.
        update_epochs: passes over a rollout.
        num_minibatches: optimiser steps in a pass, each over an equal share of every group; must divide `group_size`.
        micro_batches: parts in which the gradient of an optimiser step is summed up; changes memory, not results.
        gamma: discount of rewards to go.
        advantage: ``"reward_to_go"``, ``"outcome"``, ``"process"`` or ``"original"``; see `group_advantages`.
        scale: ``"group"``, ``"none"``, ``"batch"`` or ``"group_time"``: what centred values are divided by.
        std_eps: added to the standard deviation.
        sample_std: with n - 1 in place of n.
        drop_flat_groups: leave groups in which nothing differed out of the policy's term, its denominator included;
            False: they add 0 and count.
        clip_coef: ratios below 1 - clip_coef are clipped, and above 1 + clip_coef where `clip_high` is None.
        clip_high: ratios above 1 + clip_high are clipped (DAPO: 0.28).
        sequence_ratio: one ratio for each life, the geometric mean of its steps' (GSPO).
        beta: weight of the KL to a reference policy; 0: no reference is kept.
        kl: ``"k3_iw"``: importance-weighted k3, whose expected gradient is that of KL(policy, reference); ``"k3"``: as
            published, whose expected gradient is that of KL(reference, policy); ``"exact"``: the KL of the two
            distributions in the visited states.
        refresh_reference: updates after which the reference becomes the present policy, again and again; None: never.
        loss: ``"dr_grpo"``, ``"grpo"``, ``"dapo"`` or ``"bnpo"``: the denominator; see `weights`.
        mask_truncated: leave lives that did not terminate out of the loss, for tasks where `max_steps` is no rule.
        ent_coef: weight of the entropy; a number or a `Linear`.
        learning_rate: of Adam; a number, a `Linear` over the run, or an `AdaptiveKL`.
        max_grad_norm: of the gradient; None: no clipping.
        adam_eps: of Adam.
        precision: ``"float32"``, ``"bfloat16"`` or ``"float16"``: in which the policy runs, in rollout and update.
        shared_stream: replicas share the world's random numbers; False: their start state only.
    """

    groups: int = 17
    group_size: int = 32
    max_steps: int = 100
    update_epochs: int = 2
    num_minibatches: int = 1
    micro_batches: int = 1
    gamma: float = 0.99
    advantage: str = "reward_to_go"
    scale: str = "group"
    std_eps: float = 1e-6
    sample_std: bool = False
    drop_flat_groups: bool = False
    clip_coef: float = 0.2
    clip_high: float | None = None
    sequence_ratio: bool = False
    beta: float = 0.0
    kl: str = "k3_iw"
    refresh_reference: int | None = None
    loss: str = "dr_grpo"
    mask_truncated: bool = False
    ent_coef: Schedule = 0.01
    learning_rate: LearningRate = 1e-4
    max_grad_norm: float | None = 1.0
    adam_eps: float = 1e-8
    precision: str = "float32"
    shared_stream: bool = True

    def __post_init__(self) -> None:
        wholes(self, "groups", "max_steps", "update_epochs", "num_minibatches", "micro_batches")
        wholes(self, "group_size", low=2)  # a lone replica has nothing to be compared with
        for name, valid in _WORDS.items():
            one_of("GRPO", name, getattr(self, name), valid)
        self._check_numbers()
        size, parts = self.group_size, self.num_minibatches
        if size % parts:
            near = ways(
                num_minibatches=(parts, lambda other: size % other == 0),
                group_size=(size, lambda other: other > 1 and other % parts == 0),
            )
            raise InputError(
                f"GRPO: group_size={size} does not divide into num_minibatches={parts}; take {near}, since each "
                f"minibatch takes an equal share of every group"
            )

    def _check_numbers(self) -> None:
        rates(self)
        numbers(self, "ent_coef", low=0, schedule=True)
        numbers(self, "beta", low=0)
        numbers(self, "gamma", low=0, high=1)
        numbers(self, "clip_coef", "std_eps", "adam_eps", above=0)
        numbers(self, "clip_high", "max_grad_norm", above=0, none=True)
        switches(self)
        wholes(self, "refresh_reference", none=True)
        if self.refresh_reference is not None and not self.beta:
            raise InputError(
                f"GRPO: refresh_reference={self.refresh_reference}, but beta=0: there is no reference; give beta=0.04"
            )

    @classmethod
    def original(cls, **changes: Any) -> "GRPO":
        """The objective of the program that the fruit catcher comes from, as a baseline to compare with.

        One gradient step a rollout on -mean(A log pi) - 0.01 entropy, with one advantage for everything that keeps half
        the mean; see `group_advantages`. With one step, the gradient of the clipped ratio is the same.
        """
        settings: dict[str, Any] = {
            "advantage": "original",
            "scale": "none",
            "update_epochs": 1,
            "shared_stream": False,
        }
        settings["loss"] = "dapo"
        return cls(**{**settings, **changes})

    @property
    def num_envs(self) -> int:
        """Worlds."""
        return self.groups * self.group_size

    @property
    def num_steps(self) -> int:
        """Steps of a rollout."""
        return self.max_steps

    @property
    def samples(self) -> int:
        """Steps of worlds in one update, those after the end of a life included."""
        return self.num_envs * self.max_steps

    def init(
        self,
        env: Env,
        policy: ActorCritic,
        *,
        total_steps: int,
        seed: int = 0,
        device: torch.device | str | None = None,
        params: dict[str, Any] | None = None,
        reference: ActorCritic | None = None,
    ) -> "GroupTraining":
        """A training before its first update.

        Args:
            env: the environment.
            policy: is moved to the device and learns in place; its critic, if any, is left alone.
            total_steps: steps of worlds to come in all, which schedules go by; rounded up to whole updates.
            seed: of worlds, actions and shuffles; the policy's first weights are the policy's own.
            device: None: CUDA where there is a device that works, else the CPU.
            params: parameters that differ between groups, each with a leading axis of `groups`, or that change: a
                `Linear` or an `Earned`.
            reference: of the KL; None: the policy as it is now.

        Raises:
            InputError: an argument does not fit.
        """
        self._check(env, policy, reference)
        total_steps = whole("GRPO.init", "total_steps", total_steps, 1)
        seed = whole("GRPO.init", "seed", seed, 0, MAX_SEED)
        env = for_training(env, policy, seed)
        share, size = self.groups // processes.size(), self.group_size
        groups = range(processes.rank() * share, (processes.rank() + 1) * share)
        each = {}
        for name, value in first_values(env, params, self.groups).items():
            if value.dim() == 0 or value.shape[0] != self.groups:
                raise InputError(
                    f"GRPO.init: params[{name!r}] has shape {tuple(value.shape)}, expected ({self.groups}, …): one for "
                    f"each group, which its replicas share"
                )
            each[name] = value[groups.start : groups.stop].repeat_interleave(size, 0)

        def worlds_of(numbers: Sequence[int]) -> Worlds:
            return Worlds(env, share * size, seed=seed, device=device, max_resets=0, params=each, worlds=numbers)

        starts = worlds_of([group for group in groups for _ in range(size)])
        worlds = starts if self.shared_stream else worlds_of(range(groups.start * size, groups.stop * size))
        num_updates, curriculum = -(-total_steps // self.samples), Curriculum(params, worlds, starts)
        return GroupTraining(self, worlds, starts, policy, num_updates, seed, reference, groups, curriculum)

    def _check(self, env: Env, policy: Any, reference: Any) -> None:
        check_learns(policy, env, "GRPO.init")
        if self.groups % processes.size():
            parts = processes.size()
            near = ways(groups=(self.groups, lambda other: other % parts == 0))
            raise InputError(
                f"GRPO: groups={self.groups}: {self.groups} groups do not divide among {parts} processes; take {near}"
            )
        if env.time_limit is not None and env.time_limit < self.max_steps:
            raise InputError(
                f"GRPO: max_steps={self.max_steps}, but lives of {type(env).__name__} end after {env.time_limit} "
                f"steps; give max_steps={env.time_limit} or fewer"
            )
        if reference is not None and not self.beta:
            raise InputError("GRPO.init: a reference, but beta is 0; give GRPO(beta=0.04) or leave it out")

    def update(self, training: "GroupTraining") -> dict[str, Tensor]:
        """One iteration: a rollout of new lives, advantages, all epochs; no host read.

        Returns:
            Metrics, float32 `[]` each, on the device.
        """
        training.refresh(self.refresh_reference)
        return training.updated(self.learn)

    def learn(self, training: "GroupTraining") -> dict[str, Tensor]:
        """Learn from the rollout that the training holds."""
        fields = training.rollout.fields
        gained = group_advantages(
            training.grouped(fields["reward"]),
            training.grouped(fields["valid"]),
            advantage=self.advantage,
            scale=self.scale,
            gamma=self.gamma,
            std_eps=self.std_eps,
            sample_std=self.sample_std,
        )
        used = fields["valid"]
        if self.mask_truncated:
            used = used & fields["terminated"].any(0)
        judged = used
        if self.drop_flat_groups:
            judged = used & ~training.ungrouped(gained.flat[None, :, None].expand_as(gained.advantage))
        learned = {"advantage": training.ungrouped(gained.advantage), "used": used, "judged": judged}
        progress = training.progress
        metrics = self._epochs(training, learned, progress)
        training.updates.add_(1)
        whole = torch.where(used, learned["advantage"], 0.0).sum()
        sums = torch.stack([whole, used.sum(), gained.flat.sum(), torch.full_like(whole, gained.flat.numel())])
        whole, count, flat, groups = processes.total(sums).unbind()
        metrics["advantage_mean"], metrics["flat_groups"] = whole / count.clamp(min=1), flat / groups
        metrics["entropy_coefficient"] = value_at(self.ent_coef, progress)
        return joined(training.worlds.env, metrics, training.summary())

    def _epochs(self, training: "GroupTraining", learned: dict[str, Tensor], progress: Tensor) -> dict[str, Tensor]:
        rate, entropy = training.rate.at(progress), value_at(self.ent_coef, progress)
        high = self.clip_coef if self.clip_high is None else self.clip_high
        settings = Settings(self.clip_coef, high, self.beta, self.kl, entropy, self.sequence_ratio)
        never = torch.zeros((), dtype=torch.bool, device=progress.device)
        loss_of, rows, extremes = training.compiled(self._loss), [], []
        for epoch in range(self.update_epochs):
            for batch in self._batches(training, learned, epoch):
                sums, weighed = torch.zeros(len(SUMS), device=progress.device), []
                for number, part in enumerate(_micro_batches(batch, self)):
                    terms = loss_of(training, part, settings)
                    training.optimizer.backward(terms.total, add=number > 0)
                    sums = sums + terms.sums
                    weighed.append(part["weight"])
                    extremes.append(torch.stack([terms.ratio_low, terms.ratio_high]))
                if training.rate.follows is not None and rows:  # before the first step nothing has moved
                    weight = torch.cat(weighed, 1).sum()
                    kl, weight = processes.total(torch.stack([sums[SUMS.index("kl_old")], weight])).unbind()
                    rate = training.rate.after(kl / weight.clamp(min=1e-30), never)
                norm = training.optimizer.step(rate, never)
                rows.append(torch.cat([sums, norm[None]]))
        means, ratios = torch.stack(rows).mean(0), torch.stack(extremes)
        means[:-1] = processes.total(means[:-1])  # the norm is of the whole gradient already
        metrics = dict(zip((*SUMS, "gradient_norm"), means.unbind(), strict=True))
        metrics["learning_rate"] = rate
        metrics["clip_fraction"] = metrics["clip_low"] + metrics["clip_high"]
        metrics["ratio_min"] = processes.least(ratios[:, 0].min())
        metrics["ratio_max"] = processes.most(ratios[:, 1].max())
        return metrics

    def _loss(self, training: "GroupTraining", part: dict[str, Tensor], settings: Settings) -> Terms:
        """The loss of some lives under the present policy."""
        shape = part["log_prob"].shape
        flat = {name: field.flatten(0, 1) for name, field in part.items()}
        seen = (flat["observation"], flat["memory"], flat.get("action_mask"), None, flat["first"])
        with training.autocast():
            actions = training.policy(*seen, actor_only=True).actions
        reference_log_prob, exact = None, None
        if training.reference is not None:
            with torch.no_grad(), training.autocast():
                reference = training.reference(*seen, actor_only=True).actions
            reference_log_prob = reference.log_prob(flat["action"]).view(shape)
            if settings.estimator == "exact":
                exact = actions.kl(reference).view(shape)
        return grpo_loss(
            actions.log_prob(flat["action"]).view(shape),
            actions.entropy().view(shape),
            part["log_prob"],
            part["advantage"],
            part["policy_weight"],
            part["weight"],
            settings,
            reference_log_prob,
            exact,
        )

    def _batches(self, training: "GroupTraining", learned: dict[str, Tensor], epoch: int) -> list[dict[str, Tensor]]:
        """What each optimiser step learns from: whole lives in random order, all steps of each."""
        fields = {**training.rollout.fields, **learned}
        wanted = ("observation", "action", "log_prob", "first", "action_mask", *learned)
        fields = {name: fields[name] for name in wanted if name in fields}
        fields["memory"] = training.rollout.memory[None]
        if self.num_minibatches == 1:
            return [fields]
        shuffle, rows = training.updates * self.update_epochs + epoch, training.rollout.state.rows
        parts = training.minibatches.parts(shuffle, 1, rows)
        return [{name: field.index_select(1, index) for name, field in fields.items()} for index in parts]


class GroupTraining(Training):
    """A training with groups of replicas that begin alike; `GRPO.update` changes it in place.

    Rows are worlds times actors; the worlds of a group stand side by side.

    Attributes:
        groups: of worlds in this process.
        minibatches: whole lives in random order, an equal part of every group.
        reference: the policy that the KL is taken to; None where there is none.
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
        """As `Training`, with the worlds that lives begin in, the reference and the groups."""
        super().__init__(algorithm, worlds, policy, num_updates, seed, curriculum, learnt=_actor, values=False)
        self._starts, self.groups = starts, groups
        self.reference = None if not algorithm.beta else _frozen(reference or policy).to(worlds.device)
        self.minibatches = Minibatches(seed, worlds.device, groups, algorithm.num_minibatches)

    def heads(self) -> list[nn.Linear]:
        """The actor alone."""
        return [self.policy.actor]

    def begin(self) -> None:
        """A new life in every world: each group a start of its own that no rollout had before."""
        state = self.rollout.state
        run_state, observed = self._starts.begin(state.worlds.clock)
        run_state.faults = state.worlds.faults  # of the whole run
        seen = [part for part in rows_of(observed, self.worlds.env) if part is not None]
        state.take(
            [
                *run_state.tensors(),
                *seen,
                torch.zeros_like(state.memory),
                torch.ones_like(state.first),
                torch.zeros_like(state.returned),
                torch.zeros_like(state.length),
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

    def grouped(self, field: Tensor) -> Tensor:
        """`[steps, rows]` as `[steps, groups, replicas]`; each actor of several is a group of its own."""
        groups, actors = len(self.groups), self.worlds.env.num_actors or 1
        return field.unflatten(1, (groups, -1, actors)).transpose(2, 3).flatten(1, 2)

    def ungrouped(self, field: Tensor) -> Tensor:
        """`[steps, groups, replicas]` as `[steps, rows]`."""
        groups, actors = len(self.groups), self.worlds.env.num_actors or 1
        return field.unflatten(1, (groups, actors)).transpose(2, 3).flatten(1, 3)

    def summary(self) -> dict[str, Tensor]:
        """Of the last rollout: lives, flows, faults; of all processes."""
        fields = self.rollout.fields
        returns = fields["reward"].sum(0)
        faulty = (self.rollout.state.worlds.faults >= 0).any().to(torch.float32)
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
        return joined(self.worlds.env, summary, rollout_metrics(self.worlds.env, self.rollout))

    def shared_tensors(self) -> dict[str, Tensor]:
        """As of any training, with the reference."""
        reference = {} if self.reference is None else self.reference.state_dict()
        return {**super().shared_tensors(), **{f"reference.{name}": tensor for name, tensor in reference.items()}}


def weights(valid: Tensor, *, loss: str, num_steps: int) -> Tensor:
    """What each step counts in a loss that is a sum over the whole batch of an optimiser step, in all processes.

    - ``"grpo"``: 1 / (N n_i): the mean over sequences of each one's mean (DeepSeekMath).
    - ``"dapo"``: 1 / sum of n_i: the mean over steps (DAPO). ``"bnpo"``: the same within each micro-batch, whose means
      are averaged, so that it depends on their number (TRL); only to compare.
    - ``"dr_grpo"``: 1 / (N T), T constant: no bias by length (Dr. GRPO).

    N counts sequences with a valid step, n_i the valid steps of one.

    Args:
        valid: bool `[steps, sequences]`.
        loss: one of `LOSSES`.
        num_steps: T.

    Returns:
        float32 `[steps, sequences]`, 0 at masked steps.
    """
    mask = valid.to(torch.float32)
    lengths = mask.sum(0)
    sequences = processes.total((lengths > 0).sum()).clamp(min=1)
    if loss == "grpo":
        return mask / (sequences * lengths.clamp(min=1))
    if loss == "dr_grpo":
        return mask / (sequences * num_steps)
    return mask / processes.total(lengths.sum()).clamp(min=1)


def grpo_loss(
    log_prob: Tensor,
    entropy: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    policy_weight: Tensor,
    weight: Tensor,
    settings: Settings,
    reference_log_prob: Tensor | None = None,
    exact_kl: Tensor | None = None,
) -> Terms:
    """Sum of w_p (-min(rho A, clip(rho) A)) + w (beta kl - c_H entropy); every tensor is `[steps, sequences]`.

    With u = pi_ref / pi, k3 = u - log u - 1 is an unbiased value of KL(pi, pi_ref), but its gradient is that of
    KL(pi_ref, pi). ``"k3_iw"`` is rho k3 with the gradient through rho as well, whose expected gradient is right.

    Args:
        log_prob: of the stored actions under the present policy.
        entropy: of the present policy.
        old_log_prob: under the policy that acted.
        advantage: of the stored actions.
        policy_weight: what a step counts in the policy's term.
        weight: what it counts in the other terms; 0 masks it.
        settings: of the loss.
        reference_log_prob: of the stored actions under the reference; None: no KL.
        exact_kl: KL(pi, pi_ref) in the visited states, for ``"exact"``.
    """
    used = weight > 0  # what is masked may hold anything, also what overflows
    change = torch.where(used, log_prob - old_log_prob, 0.0)
    step_ratio = change.exp()
    if settings.sequence_ratio:
        change = (change.sum(0) / used.sum(0).clamp(min=1)).expand_as(change)
    ratio = change.exp()
    gain = torch.where(used, advantage, 0.0)
    bounded = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    with torch.no_grad():
        old = (ratio - 1 - change) * weight
        low = ((ratio < 1 - settings.clip_low) & (gain < 0)) * weight
        high = ((ratio > 1 + settings.clip_high) & (gain > 0)) * weight
        least, most = torch.where(used, ratio, torch.inf).min(), torch.where(used, ratio, -torch.inf).max()
    policy = -torch.minimum(ratio * gain, bounded * gain) * policy_weight
    terms = [policy, torch.where(used, entropy, 0.0) * weight, old, low, high]  # in the order of SUMS
    if reference_log_prob is not None:
        log_u = torch.where(used, reference_log_prob - log_prob, 0.0)
        k3 = log_u.expm1() - log_u
        kl = step_ratio * k3 if settings.estimator == "k3_iw" else k3
        if settings.estimator == "exact":
            assert exact_kl is not None
            kl = torch.where(used, exact_kl, 0.0)
        terms += [kl * weight, -log_u.detach() * weight, 0.5 * log_u.detach().square() * weight]
    sums = torch.stack(terms).flatten(1).sum(1)  # one sum of all, which compiled is one reduction
    total = sums[0] - settings.entropy * sums[1]
    if reference_log_prob is not None:
        total = total + settings.beta * sums[5]
    return Terms(total, torch.nn.functional.pad(sums.detach(), (0, len(SUMS) - len(terms))), least, most)


def _micro_batches(batch: dict[str, Tensor], algorithm: GRPO) -> list[dict[str, Tensor]]:
    """Parts of a batch with what each step counts in the sum over all of them."""
    count = min(algorithm.micro_batches, batch["used"].shape[1])

    def counted(part: dict[str, Tensor]) -> dict[str, Tensor]:
        loss, steps = algorithm.loss, algorithm.num_steps
        weight = weights(part["used"], loss=loss, num_steps=steps)
        return {**part, "weight": weight, "policy_weight": weights(part["judged"], loss=loss, num_steps=steps)}

    def split(fields: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        parts = {name: field.tensor_split(count, dim=1) for name, field in fields.items()}
        return [{name: part[k] for name, part in parts.items()} for k in range(count)]

    if algorithm.loss != "bnpo":
        return split(counted(batch))
    parts = [counted(part) for part in split(batch)]  # each counts alike, whatever it holds
    return [{**p, "weight": p["weight"] / count, "policy_weight": p["policy_weight"] / count} for p in parts]


def _frozen(policy: ActorCritic) -> ActorCritic:
    """A copy that does not learn; the environment is shared."""
    return copy.deepcopy(policy, {id(policy.env): policy.env}).eval().requires_grad_(False)


def _actor(policy: ActorCritic) -> list[list[nn.Parameter]]:
    """Parameters that actions depend on, as one group."""
    parts = (policy.critic_body, policy.critic, policy.head)
    critic = {id(p) for part in parts if part is not None for p in part.parameters()}
    return [[p for p in policy.parameters() if p.requires_grad and id(p) not in critic]]
