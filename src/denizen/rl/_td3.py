"""TD3 as a frozen object: twin critics, a smoothed target, and an actor without chance that learns less often."""

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from denizen.model import Env
from denizen.rl._curriculum import Curriculum
from denizen.rl._distributions import Certain, normal
from denizen.rl._from_gymnasium import FromGymnasium
from denizen.rl._metrics import joined
from denizen.rl._off_policies import DeterministicActorCritic
from denizen.rl._off_policy import Follower, OffPolicyTraining, by_step, check_settings, started
from denizen.rl._optimizer import FlatAdam
from denizen.rl._replay import Batch
from denizen.rl._settings import Schedule, by_name, numbers, value_at, wholes
from denizen.rl._worlds import Worlds


@by_name
@dataclasses.dataclass(frozen=True, kw_only=True)
class TD3:
    """Twin delayed deterministic policy gradient (Fujimoto et al., 2018); `recipes/td3.py` is the same in one page.

    An update is `num_steps` steps of all worlds and `gradient_steps` minibatches out of the replay.

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
        learning_rate: of Adam, of actor and critics; a number or a `Linear` over the run.
        tau: share of the way that target networks go each time the actor learns.
        policy_delay: gradient steps of the critics for each of the actor.
        exploration_noise: standard deviation of what is added to actions in training, for a range of -1 … 1.
        target_noise: standard deviation of what is added to the target's actions, for that range.
        noise_clip: that noise is kept within plus and minus this.
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
    policy_delay: int = 2
    exploration_noise: Schedule = 0.1
    target_noise: float = 0.2
    noise_clip: float = 0.5
    noise_steps: int = dataclasses.field(default=1, metadata={"unless": 1})
    max_grad_norm: float | None = None
    adam_eps: float = 1e-8
    max_resets: int | None = None
    save_replay: bool = True

    precision = "float32"
    num_minibatches = 1

    def __post_init__(self) -> None:
        check_settings(self)
        wholes(self, "policy_delay", "noise_steps")
        numbers(self, "tau", low=0, high=1)
        numbers(self, "exploration_noise", low=0, schedule=True)
        numbers(self, "target_noise", "noise_clip", low=0)

    @property
    def samples(self) -> int:
        """Steps of worlds in one update."""
        return self.num_envs * self.num_steps

    def init(
        self,
        env: Env | FromGymnasium,
        policy: DeterministicActorCritic,
        *,
        total_steps: int,
        seed: int = 0,
        device: torch.device | str | None = None,
        params: dict[str, Any] | None = None,
    ) -> "TD3Training":
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
        kind = DeterministicActorCritic
        return started(self, TD3Training, env, policy, kind, "deterministic_mlp", total_steps, seed, device, params)

    def update(self, training: "TD3Training") -> dict[str, Tensor]:
        """One iteration: steps of all worlds, then gradient steps; no host read.

        Returns:
            Metrics, float32 `[]` each, on the device.
        """
        return training.updated(self.learn)

    def learn(self, training: "TD3Training") -> dict[str, Tensor]:
        """Learn from the replay, with the rollout that the training holds."""
        ready = training.store()
        rate = value_at(self.learning_rate, training.progress)
        critic_loss, actor_loss = training.compiled(self._critic_loss), training.compiled(self._actor_loss)
        critics, even = training.optimizers["critics"], self.gradient_steps % self.policy_delay == 0
        seen, acted = [], []
        for number, (batch, noise) in enumerate(zip(training.batches(), training.noise(), strict=True)):
            loss, value = critic_loss(training, batch, noise)
            critics.backward(loss)
            norm = critics.step(rate, ~ready)
            training.learnt.add_(ready)
            seen += [loss.detach(), value, norm]
            # Where a whole number of turns fits into an update, it is known beforehand when the actor learns.
            if even and (number + 1) % self.policy_delay:
                continue
            turn = ready & (training.learnt % self.policy_delay == 0)
            actor = actor_loss(training, batch.observation)
            training.optimizer.backward(actor)
            training.optimizer.step(rate, ~turn)
            for follower in training.followers.values():
                follower.follow(self.tau * turn.to(torch.float32))
            acted.append(actor.detach())
        training.updates.add_(1)
        names = ("critic_loss", "q_mean", "gradient_norm")
        metrics = dict(zip(names, torch.stack(seen).view(-1, len(names)).mean(0).unbind(), strict=True))
        metrics["policy_loss"] = torch.stack(acted).mean()
        metrics.update(learning_rate=rate, **training.reward_unit())
        return joined(training.worlds.env, metrics, training.summary())

    def _learnt(self, policy: DeterministicActorCritic) -> list[list[nn.Parameter]]:
        parts = (policy.body, policy.actor)
        return [[p for part in parts for p in part.parameters() if p.requires_grad]]

    def _explored(self, training: "TD3Training", actions: Certain, uniform: Tensor, clock: Tensor) -> Tensor:
        """Uniform actions at first, then those of the actor with noise, within their bounds."""
        policy = training.policy
        size = value_at(self.exploration_noise, training.progress_at(clock))
        noisy = (policy.scaled(actions.action) + size * normal(uniform)).clamp(-1, 1)
        return policy.unscaled(torch.where(training.warming(clock), 2 * uniform - 1, noisy))

    def _critic_loss(self, training: "TD3Training", batch: Batch, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """(sum over critics of their mean squared errors, mean value)."""
        policy = training.policy
        with torch.no_grad():
            noise = (self.target_noise * normal(uniform)).clamp(-self.noise_clip, self.noise_clip)
            given = policy.normalised(policy.inputs(batch.following))
            share = (training.target_share(given) + noise).clamp(-1, 1)
            later = training.followers["critics"].module(given, share).to(torch.float32).amin(0)
            target = batch.reward + batch.discount * later
        value = policy.judge(batch.observation, batch.action)
        return (value - target).square().mean(1).sum(), value.detach().mean()

    def _actor_loss(self, training: "TD3Training", observation: Any) -> Tensor:
        """Minus the mean value of the actor's actions, as the first critic has it."""
        policy = training.policy
        return -policy.judge(observation, policy.act(observation).action)[0].mean()


class TD3Training(OffPolicyTraining):
    """A training with TD3."""

    def __init__(
        self,
        algorithm: TD3,
        worlds: Worlds | FromGymnasium,
        policy: DeterministicActorCritic,
        num_updates: int,
        seed: int,
        curriculum: Curriculum,
    ) -> None:
        """As `Training`."""
        super().__init__(algorithm, worlds, policy, num_updates, seed, curriculum)
        self.followers["critics"] = Follower(policy.critics)
        self.followers["actor"] = Follower(nn.Sequential(policy.body, policy.actor))
        critics = [p for p in policy.critics.parameters() if p.requires_grad]
        self.optimizers["critics"] = FlatAdam([critics], max_norm=algorithm.max_grad_norm, eps=algorithm.adam_eps)

    def target_share(self, given: Tensor) -> Tensor:
        """Scaled actions of the target actor: `[rows, size]`."""
        return torch.tanh(self.followers["actor"].module(given).to(torch.float32))

    def noise(self) -> list[Tensor]:
        """Uniform numbers `[batch, size]` for the target's actions of each gradient step of an update."""
        steps, size = self.algorithm.gradient_steps, self.policy.reach.numel()
        return by_step(self.draws.uniform("replayed", self.updates, steps * size), size)
