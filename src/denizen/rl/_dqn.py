"""DQN as a frozen object: values of choices, learnt from a replay by a target network."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from denizen.model import Env
from denizen.rl._curriculum import Curriculum
from denizen.rl._distributions import Greedy
from denizen.rl._from_gymnasium import FromGymnasium
from denizen.rl._metrics import joined
from denizen.rl._off_policies import QNetwork
from denizen.rl._off_policy import Follower, OffPolicyTraining, check_settings, started
from denizen.rl._replay import Batch, Priorities
from denizen.rl._settings import Linear, Schedule, by_name, numbers, value_at, wholes
from denizen.rl._worlds import Worlds

_FALLING, _RISING = Linear(1.0, 0.05, 0.0, 0.25), Linear(0.4, 1.0)


@by_name
@dataclasses.dataclass(frozen=True, kw_only=True)
class DQN:
    """Deep Q-network (Mnih et al., 2015) with double estimates (van Hasselt et al., 2016); `recipes/dqn.py` is the
    same in one page.

    An update is `num_steps` steps of all worlds and `gradient_steps` minibatches out of the replay.

    Attributes:
        num_envs: worlds.
        num_steps: steps of all worlds in an update.
        gradient_steps: minibatches in an update.
        batch_size: steps in a minibatch.
        buffer_size: steps of worlds that the replay holds.
        learning_starts: steps of worlds with uniform choices, before anything is learnt.
        n_steps: over which rewards are summed up before the network judges the rest.
        gamma: discount.
        normalise_rewards: divide rewards by the running deviation of discounted returns, and clip them to -10 … 10,
            when they are drawn from the replay; metrics of returns stay as they are.
        learning_rate: of Adam; a number or a `Linear` over the run.
        double: the network chooses what is best later and the target network judges it; False: the latter does both.
        target_every: gradient steps after which the target network follows.
        tau: share of the way that it then goes; 1: it is copied.
        epsilon: probability of a choice by chance; a number or a `Linear` over the run.
        priority: alpha: steps are drawn in proportion to (|error| + 1e-6) to this power (Schaul et al., 2016, take
            0.6); 0: all alike.
        importance: beta: errors count by (N P)^-beta, which makes up for that, over the largest of the minibatch; a
            number or a `Linear` over the run.
        huber: errors beyond this count by their size in place of their square; None: all by their square.
        max_grad_norm: of the gradient; None: no clipping.
        adam_eps: of Adam.
        max_resets: worlds reset in a step at most; None: as `Worlds` has it.
        save_replay: keep the replay in checkpoints; without it a resumed training begins with an empty one.
    """

    num_envs: int = 8
    num_steps: int = 4
    gradient_steps: int = 8
    batch_size: int = 128
    buffer_size: int = 1_000_000
    learning_starts: int = 1_000
    n_steps: int = 1
    gamma: float = 0.99
    normalise_rewards: bool = dataclasses.field(default=False, metadata={"unless": False})
    learning_rate: Schedule = 5e-4
    double: bool = True
    target_every: int = 250
    tau: float = 1.0
    epsilon: Schedule = _FALLING
    priority: float = 0.0
    importance: Schedule = _RISING
    huber: float | None = 1.0
    max_grad_norm: float | None = 10.0
    adam_eps: float = 1e-8
    max_resets: int | None = None
    save_replay: bool = True

    precision = "float32"
    num_minibatches = 1

    def __post_init__(self) -> None:
        check_settings(self)
        wholes(self, "target_every")
        numbers(self, "tau", low=0, high=1)
        numbers(self, "epsilon", "importance", low=0, high=1, schedule=True)
        numbers(self, "priority", low=0)
        numbers(self, "huber", above=0, none=True)

    @property
    def samples(self) -> int:
        """Steps of worlds in one update."""
        return self.num_envs * self.num_steps

    def init(
        self,
        env: Env | FromGymnasium,
        policy: QNetwork,
        *,
        total_steps: int,
        seed: int = 0,
        device: torch.device | str | None = None,
        params: dict[str, Any] | None = None,
    ) -> "DQNTraining":
        """A training before its first update.

        Args:
            env: the environment, or environments of Gymnasium; its actions are a `Discrete`.
            policy: is moved to the device and learns in place.
            total_steps: steps of worlds to come in all, which schedules go by; rounded up to whole updates.
            seed: of worlds, actions and minibatches; the policy's first weights are the policy's own.
            device: None: CUDA where there is a device that works, else the CPU.
            params: parameters that differ between worlds, as `Worlds` takes them, or change: a `Linear` or an `Earned`.

        Raises:
            InputError: an argument does not fit.
        """
        return started(self, DQNTraining, env, policy, QNetwork, "q_mlp", total_steps, seed, device, params)

    def update(self, training: "DQNTraining") -> dict[str, Tensor]:
        """One iteration: steps of all worlds, then gradient steps; no host read.

        Returns:
            Metrics, float32 `[]` each, on the device.
        """
        return training.updated(self.learn)

    def learn(self, training: "DQNTraining") -> dict[str, Tensor]:
        """Learn from the replay, with the rollout that the training holds."""
        ready = training.store()
        rate = value_at(self.learning_rate, training.progress)
        loss_of, priorities = training.compiled(self._loss), training.priorities
        seen = []
        for batch, weight, leaf in self._batches(training):
            loss, value, error = loss_of(training, batch, weight)
            training.optimizer.backward(loss)
            norm = training.optimizer.step(rate, ~ready)
            training.learnt.add_(ready)
            if priorities is not None:
                priorities.learn(leaf, error, ready)
            turn = ready & (training.learnt % self.target_every == 0)
            training.followers["q"].follow(self.tau * turn.to(torch.float32))
            seen += [loss.detach(), value, norm]
        training.updates.add_(1)
        names = ("q_loss", "q_mean", "gradient_norm")
        metrics = dict(zip(names, torch.stack(seen).view(-1, len(names)).mean(0).unbind(), strict=True))
        clock = training.rollout.state.worlds.clock
        metrics.update(learning_rate=rate, epsilon=self._epsilon(training, clock), **training.reward_unit())
        return joined(training.worlds.env, metrics, training.summary())

    def _batches(self, training: "DQNTraining") -> Iterator[tuple[Batch, Tensor | None, Any]]:
        """(minibatch, weights of its errors, leaves of its steps); by priority each is drawn when it is its turn."""
        if training.priorities is None:
            for batch in training.batches():
                yield batch, None, None
            return
        importance = value_at(self.importance, training.progress)
        by_priority, deviation = training.compiled(_by_priority), training.reward_unit().get("reward_scale")
        for words in training.draws.words("replay", training.updates, self.gradient_steps).T.contiguous():
            yield by_priority(training, words, importance, deviation)

    def _learnt(self, policy: QNetwork) -> list[list[nn.Parameter]]:
        return [[p for p in policy.parameters() if p.requires_grad]]

    def _epsilon(self, training: "DQNTraining", clock: Tensor) -> Tensor:
        """Probability of a choice by chance at a step of the worlds: float32 `[]`."""
        return torch.where(training.warming(clock), 1.0, value_at(self.epsilon, training.progress_at(clock)))

    def _explored(self, training: "DQNTraining", actions: Greedy, uniform: Tensor, clock: Tensor) -> Tensor:
        return actions.explored(self._epsilon(training, clock)).sample(uniform)

    def _loss(
        self, training: "DQNTraining", batch: Batch, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(mean loss, mean value of the choices made, errors)."""
        policy = training.policy
        with torch.no_grad():
            later = training.followers["q"].module.values(batch.following)
            judge = policy.values(batch.following) if self.double else later
            best = Greedy.of(judge, batch.following_mask).mode()
            target = batch.reward + batch.discount * later.gather(1, best[:, None])[:, 0]
        value = policy.values(batch.observation).gather(1, batch.action[:, None])[:, 0]
        error = value - target
        costs = _errors(error, self.huber)
        costs = costs if weight is None else weight * costs
        return costs.mean(), value.detach().mean(), error.detach()


class DQNTraining(OffPolicyTraining):
    """A training with DQN."""

    def __init__(
        self,
        algorithm: DQN,
        worlds: Worlds | FromGymnasium,
        policy: QNetwork,
        num_updates: int,
        seed: int,
        curriculum: Curriculum,
    ) -> None:
        """As `Training`."""
        super().__init__(algorithm, worlds, policy, num_updates, seed, curriculum)
        self.followers["q"] = Follower(policy)
        self.followers["q"].module.normaliser = policy.normaliser  # inputs are told in one unit to both
        if algorithm.priority:
            self.priorities = Priorities(self.replay, algorithm.priority)


@torch.no_grad()
def _by_priority(
    training: DQNTraining, words: Tensor, importance: Tensor, deviation: Tensor | None
) -> tuple[Batch, Tensor, Tensor]:
    """A minibatch by priority, weights of its errors, and the leaves of its steps."""
    priorities = training.priorities
    assert priorities is not None
    leaf = priorities.draw(words)
    return training.replay.batch(*priorities.steps(leaf), deviation), priorities.corrections(leaf, importance), leaf


def _errors(error: Tensor, huber: float | None) -> Tensor:
    """What errors cost: half their square; beyond `huber` a line that goes on from there."""
    if huber is None:
        return 0.5 * error.square()
    return F.huber_loss(error, torch.zeros_like(error), reduction="none", delta=huber)
