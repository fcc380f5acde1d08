"""SAC as a frozen object: an actor that is paid for randomness, twin critics, and a temperature that is learnt."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor, nn

from denizen.model import Env
from denizen.rl._curriculum import Curriculum
from denizen.rl._distributions import SquashedGaussian
from denizen.rl._from_gymnasium import FromGymnasium
from denizen.rl._metrics import joined
from denizen.rl._off_policies import SoftActorCritic
from denizen.rl._off_policy import Follower, OffPolicyTraining, by_step, check_settings, started
from denizen.rl._optimizer import FlatAdam
from denizen.rl._replay import Batch
from denizen.rl._settings import Schedule, by_name, numbers, value_at, wholes
from denizen.rl._worlds import Worlds


@by_name
@dataclasses.dataclass(frozen=True, kw_only=True)
class SAC:
    """Soft actor-critic (Haarnoja et al., 2018, "Algorithms and Applications"); `recipes/sac.py` is the same in one
    page.

    An update is `num_steps` steps of all worlds and `gradient_steps` minibatches out of the replay. Densities are those
    of actions scaled to -1 … 1, so that the entropy that is aimed at does not depend on the bounds.

    Attributes:
        num_envs: worlds.
        num_steps: steps of all worlds in an update.
        gradient_steps: minibatches in an update.
        batch_size: steps in a minibatch.
        buffer_size: steps of worlds that the replay holds.
        learning_starts: steps of worlds with uniform actions, before anything is learnt.
        n_steps: over which rewards are summed up before a critic judges the rest.
        gamma: discount.
        normalise_rewards: divide rewards by the running deviation of discounted returns, and clip them to -10 … 10,
            when they are drawn from the replay; metrics of returns stay as they are.
        learning_rate: of Adam, of actor, critics and temperature; a number or a `Linear` over the run.
        tau: share of the way that target critics go in each gradient step.
        temperature: weight of the entropy, or its first value where it is learnt.
        learn_temperature: so that the entropy is `target_entropy` on average.
        target_entropy: in nats; None: minus the number of components of an action.
        noise_steps: steps in a row in which a world explores by the same random numbers, so that pushes add up (as the
            coloured noise of Eberhard et al., 2023, does); 1: each step by its own.
        max_grad_norm: of actor and critics, each apart; None: no clipping.
        adam_eps: of Adam.
        max_resets: worlds reset in a step at most; None: as `Worlds` has it.
        save_replay: keep the replay in checkpoints; without it a resumed training begins with an empty one.
    """

    num_envs: int = 8
    num_steps: int = 4
    gradient_steps: int = 32
    batch_size: int = 256
    buffer_size: int = 1_000_000
    learning_starts: int = 1_000
    n_steps: int = 1
    gamma: float = 0.99
    normalise_rewards: bool = dataclasses.field(default=False, metadata={"unless": False})
    learning_rate: Schedule = 3e-4
    tau: float = 0.005
    temperature: float = 1.0
    learn_temperature: bool = True
    target_entropy: float | None = None
    noise_steps: int = dataclasses.field(default=1, metadata={"unless": 1})
    max_grad_norm: float | None = None
    adam_eps: float = 1e-8
    max_resets: int | None = None
    save_replay: bool = True

    precision = "float32"
    num_minibatches = 1

    def __post_init__(self) -> None:
        check_settings(self)
        numbers(self, "tau", low=0, high=1)
        numbers(self, "temperature", above=0)
        numbers(self, "target_entropy", none=True)
        wholes(self, "noise_steps")

    @property
    def samples(self) -> int:
        """Steps of worlds in one update."""
        return self.num_envs * self.num_steps

    def init(
        self,
        env: Env | FromGymnasium,
        policy: SoftActorCritic,
        *,
        total_steps: int,
        seed: int = 0,
        device: torch.device | str | None = None,
        params: dict[str, Any] | None = None,
    ) -> "SACTraining":
        """A training before its first update.

        Args:
            env: the environment, or environments of Gymnasium; its actions are a bounded `Box`.
            policy: is moved to the device and learns in place.
            total_steps: steps of worlds to come in all, which schedules go by; rounded up to whole updates.
            seed: of worlds, actions and minibatches; the policy's first weights are the policy's own.
            device: None: CUDA where there is a device that works, else the CPU.
            params: parameters that differ between worlds, as `Worlds` takes them, or change: a `Linear` or an `Earned`.

        Raises:
            InputError: an argument does not fit.
        """
        return started(self, SACTraining, env, policy, SoftActorCritic, "soft_mlp", total_steps, seed, device, params)

    def update(self, training: "SACTraining") -> dict[str, Tensor]:
        """One iteration: steps of all worlds, then gradient steps; no host read.

        Returns:
            Metrics, float32 `[]` each, on the device.
        """
        return training.updated(self.learn)

    def learn(self, training: "SACTraining") -> dict[str, Tensor]:
        """Learn from the replay, with the rollout that the training holds."""
        ready = training.store()
        rate = value_at(self.learning_rate, training.progress)
        critic_loss, actor_loss = training.compiled(self._critic_loss), training.compiled(self._actor_loss)
        critics, temperature = training.optimizers["critics"], training.optimizers["temperature"]
        seen = []
        for batch, (ahead, now) in zip(training.batches(), training.noise(), strict=True):
            loss, value = critic_loss(training, batch, ahead)
            critics.backward(loss)
            critics.step(rate, ~ready)
            actor, log_prob = actor_loss(training, batch.observation, now)
            training.optimizer.backward(actor)
            norm = training.optimizer.step(rate, ~ready)
            if self.learn_temperature:
                temperature.backward(temperature_loss(training.log_temperature, log_prob, self._aim(training)))
                temperature.step(rate, ~ready)
            training.learnt.add_(ready)
            training.followers["critics"].follow(self.tau * ready.to(torch.float32))
            seen += [loss.detach(), actor.detach(), value, -log_prob, norm]
        training.updates.add_(1)
        names = ("critic_loss", "policy_loss", "q_mean", "entropy", "gradient_norm")
        means = torch.stack(seen).view(-1, len(names)).mean(0)
        metrics = dict(zip(names, means.unbind(), strict=True))
        metrics.update(
            temperature=training.log_temperature.detach().exp().clone(), learning_rate=rate, **training.reward_unit()
        )
        return joined(training.worlds.env, metrics, training.summary())

    def _aim(self, training: "SACTraining") -> float:
        size = training.policy.reach.numel()
        return -float(size) if self.target_entropy is None else self.target_entropy

    def _learnt(self, policy: SoftActorCritic) -> list[list[nn.Parameter]]:
        parts = (policy.body, policy.actor)
        return [[p for part in parts for p in part.parameters() if p.requires_grad]]

    def _explored(self, training: "SACTraining", actions: SquashedGaussian, uniform: Tensor, clock: Tensor) -> Tensor:
        """Uniform actions at first, then those of the actor."""
        by_chance = training.policy.unscaled(2 * uniform - 1)
        return torch.where(training.warming(clock), by_chance, actions.sample(uniform))

    def _critic_loss(self, training: "SACTraining", batch: Batch, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """(sum over critics of their mean squared errors, mean value)."""
        policy, weight = training.policy, training.log_temperature.detach().exp()
        with torch.no_grad():
            action, log_prob = policy.act(batch.following).drawn(uniform)
            later = policy.judge(batch.following, action, training.followers["critics"].module).amin(0)
            later = later - weight * (log_prob + training.log_volume)
            target = batch.reward + batch.discount * later
        value = policy.judge(batch.observation, batch.action)
        return (value - target).square().mean(1).sum(), value.detach().mean()

    def _actor_loss(self, training: "SACTraining", observation: Any, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """(mean of temperature * log-density - value, mean log-density of scaled actions)."""
        policy, weight = training.policy, training.log_temperature.detach().exp()
        action, log_prob = policy.act(observation).drawn(uniform)
        log_prob = log_prob + training.log_volume
        value = policy.judge(observation, action).amin(0)
        return (weight * log_prob - value).mean(), log_prob.detach().mean()


class SACTraining(OffPolicyTraining):
    """A training with SAC.

    Attributes:
        log_temperature: float32 `[]`: logarithm of the weight of the entropy.
        log_volume: float32 `[]`: by which the log-density of a scaled action exceeds that of the action itself.
    """

    def __init__(
        self,
        algorithm: SAC,
        worlds: Worlds | FromGymnasium,
        policy: SoftActorCritic,
        num_updates: int,
        seed: int,
        curriculum: Curriculum,
    ) -> None:
        """As `Training`."""
        super().__init__(algorithm, worlds, policy, num_updates, seed, curriculum)
        self.log_temperature = nn.Parameter(torch.full((), math.log(algorithm.temperature), device=worlds.device))
        self.log_volume = policy.reach.log().sum()
        self.followers["critics"] = Follower(policy.critics)
        critics = [p for p in policy.critics.parameters() if p.requires_grad]
        self.optimizers["critics"] = FlatAdam([critics], max_norm=algorithm.max_grad_norm, eps=algorithm.adam_eps)
        self.optimizers["temperature"] = FlatAdam([[self.log_temperature]], max_norm=None, eps=algorithm.adam_eps)

    def noise(self) -> list[tuple[Tensor, Tensor]]:
        """Uniform numbers `[batch, size]` for the actions of each gradient step of an update: (ahead, now)."""
        steps, size = self.algorithm.gradient_steps, self.policy.reach.numel()
        drawn = by_step(self.draws.uniform("replayed", self.updates, 2 * steps * size), size)
        return list(zip(drawn[::2], drawn[1::2], strict=True))

    def shared_tensors(self) -> dict[str, Tensor]:
        """As `Training`, with the temperature."""
        return {**super().shared_tensors(), "log_temperature": self.log_temperature.detach()}


def temperature_loss(log_temperature: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """Alpha (-log pi - H): its slope by log alpha is alpha (entropy - H), so alpha rises while the entropy is too low.

    Haarnoja et al. (2018, "Algorithms and Applications"), equation 18.

    Args:
        log_temperature: float32 `[]`: log alpha.
        log_prob: mean log-density of actions: float32 `[]`.
        target_entropy: H, in nats.
    """
    return log_temperature.exp() * (-log_prob - target_entropy)
