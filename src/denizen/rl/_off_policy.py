"""What learners that reuse old steps share: exploring, the replay, targets that follow, and when learning begins."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from denizen import _processes as processes
from denizen import _tree
from denizen._arguments import whole
from denizen.errors import InputError
from denizen.model import Box, Env
from denizen.rl._curriculum import Curriculum, first_values
from denizen.rl._draws import Draws
from denizen.rl._from_gymnasium import FromGymnasium
from denizen.rl._optimizer import FlatAdam
from denizen.rl._policy import Judged, Policy, check_fits
from denizen.rl._replay import Batch, Priorities, Replay, most_cuts, num_bytes
from denizen.rl._rollout import Rollout, can_cut
from denizen.rl._rows import rows_of
from denizen.rl._settings import numbers, switches, wholes
from denizen.rl._training import Training
from denizen.rl._worlds import Step, Worlds, named
from denizen.rng import MAX_SEED
from denizen.run import one_graph, own_code


def check_settings(settings: Any) -> None:
    """Have settings that all these algorithms share be what they may be."""
    name = type(settings).__name__
    wholes(
        settings, "num_envs", "num_steps", "gradient_steps", "batch_size", "buffer_size", "learning_starts", "n_steps"
    )
    numbers(settings, "learning_rate", low=0, schedule=True)
    numbers(settings, "gamma", low=0, high=1)
    numbers(settings, "adam_eps", low=0)
    numbers(settings, "max_grad_norm", above=0, none=True)
    switches(settings)
    if settings.max_resets is not None:
        wholes(settings, "max_resets")
    if settings.learning_starts < settings.batch_size:
        raise InputError(
            f"{name}: learning_starts={settings.learning_starts} steps, expected at least batch_size="
            f"{settings.batch_size}, so that there is a minibatch to learn from"
        )
    if settings.buffer_size < settings.batch_size:
        raise InputError(
            f"{name}: buffer_size={settings.buffer_size}, expected at least batch_size={settings.batch_size}"
        )


class Exploring(Rollout):
    """A rollout in which an algorithm says how to explore, and last looks of lives that were cut off are kept."""

    def __init__(
        self, worlds: Worlds, policy: Policy, steps: int, seed: int, autocast: Any, explore: Any, hold: int = 1
    ) -> None:
        """Args:
        worlds: on their device.
        policy: on the same.
        steps: of a rollout.
        seed: of actions.
        autocast: makes the context in which the policy runs.
        explore: from (the policy's distribution, uniform numbers `[rows, draws]`, the clock) to actions.
        hold: steps in a row for which the uniform numbers stay the same.
        """
        self._explore, self._hold = explore, hold
        super().__init__(worlds, policy, steps, seed, autocast, values=False, finals=True)

    def sample(self, judged: Judged, clock: Tensor) -> Tensor:
        """Actions of every row, explored."""
        space = self._worlds.env.action_space
        held = clock if self._hold == 1 else clock // self._hold
        action = self._explore(judged.actions, self._draws.uniform("action", held, self._policy.draws), clock)
        if isinstance(space, Box):  # what is stored is what the world got
            action = space.nearest(action.to(space.dtype))
        return action.to(space.dtype)

    def _last_looks(self, step: Step, memory: Tensor) -> dict[str, Tensor]:
        final, rows = rows_of(step.final, self._worlds.env), self._rows(step.final_index)
        seen = {"rows": rows, "observation": final.observation}
        return seen if final.action_mask is None else {**seen, "action_mask": final.action_mask}


class Follower:
    """Copies of networks whose parameters follow theirs: target networks.

    Attributes:
        module: the copy, which learns nothing by itself.
    """

    def __init__(self, module: nn.Module) -> None:
        """Args:
        module: which is followed.
        """
        self.module: Any = copy.deepcopy(module).requires_grad_(False)
        own, its = list(self.module.parameters()), list(module.parameters())
        self._flat = torch.cat([p.detach().flatten() for p in own])
        self._leader, begin = its, 0
        for p in own:
            p.data = self._flat[begin : begin + p.numel()].view_as(p)
            begin += p.numel()

    @torch.no_grad()
    def follow(self, share: Tensor) -> None:
        """Go so far of the way (float32 `[]`, 0 to 1)."""
        now = torch.cat([p.detach().flatten() for p in self._leader])
        self._flat.lerp_(now, share)

    @property
    def flat(self) -> Tensor:
        """All parameters in a row."""
        return self._flat


class OffPolicyTraining(Training):
    """A training that learns from a replay.

    Attributes:
        replay: what happened lately.
        priorities: by which its steps are drawn; None: all alike.
        followers: target networks by name.
        optimizers: beside `optimizer`, by name.
        learnt: int64 `[]`: gradient steps done.
    """

    def __init__(
        self,
        algorithm: Any,
        worlds: Worlds | FromGymnasium,
        policy: Policy,
        num_updates: int,
        seed: int,
        curriculum: Curriculum,
    ) -> None:
        """As `Training`."""
        super().__init__(
            algorithm, worlds, policy, num_updates, seed, curriculum, learnt=algorithm._learnt, values=False
        )
        state = self.rollout.state
        steps = algorithm.buffer_size // state.rows
        try:
            self.replay = Replay(
                steps,
                state.observed.observation,
                self.rollout.fields["action"][0],
                gamma=algorithm.gamma,
                n_steps=algorithm.n_steps,
                action_mask=state.observed.action_mask,
                most_cuts=_most_cuts(worlds, steps),
                gaps=isinstance(worlds, FromGymnasium)
                or worlds.max_resets < worlds.num_envs
                or state.observed.acting is not None,
            )
        except RuntimeError as error:  # torch's, on every device
            size = num_bytes(_tree.tensors(state.observed.observation)) * steps
            raise InputError(
                f"{type(algorithm).__name__}.init: buffer_size={algorithm.buffer_size} does not fit into the memory of "
                f"{worlds.device}: its looks alone are {size / 1e9:,.1f} GB; take a smaller one"
            ) from error
        self.priorities: Priorities | None = None
        self.learnt = torch.zeros((), dtype=torch.int64, device=worlds.device)
        self.draws = Draws(seed, torch.arange(algorithm.batch_size, device=worlds.device))
        self.followers: dict[str, Follower] = {}
        self.optimizers: dict[str, FlatAdam] = {}
        self._forms: dict[str, Callable[..., Any]] = {}

    def _acting(self, seed: int, values: bool) -> Rollout:
        explore = lambda actions, uniform, clock: self.algorithm._explored(self, actions, uniform, clock)  # noqa: E731
        hold = getattr(self.algorithm, "noise_steps", 1)
        return Exploring(self.worlds, self.policy, self.algorithm.num_steps, seed, self.autocast, explore, hold)

    def progress_at(self, clock: Tensor) -> Tensor:
        """Share of the training's steps that are done at a step of the worlds: float32 `[]`."""
        return clock.to(torch.float32) / (self.num_updates * self.algorithm.num_steps)

    def warming(self, clock: Tensor) -> Tensor:
        """Bool `[]`: whether at this step of the worlds actions are still drawn by chance alone."""
        return clock * self.worlds.num_envs < self.algorithm.learning_starts

    def compile(self, backend: str | None = "inductor", loss: bool = True) -> None:
        """As `Training`."""
        super().compile(backend, loss)
        self._forms = {}

    def compiled(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """As `Training`, each function by itself."""
        if self._backend is None:
            return loss
        name = loss.__qualname__
        if name not in self._forms:
            self._forms[name] = one_graph(own_code(loss), self._backend)
        return self._forms[name]

    def store(self) -> Tensor:
        """Put the last rollout into the replay; bool `[]`: whether there is enough to learn from.

        What it holds is raw: looks and rewards are normalised when they are drawn, all by the statistics of the moment,
        so that old steps and new ones are told in the same units (as Stable-Baselines3's VecNormalize has it).
        """
        observed, fields = self.rollout.state.observed, self.rollout.fields
        if self.reward_scale is not None:
            self.rewards()
        slots = self.replay.add(fields, observed.observation, observed.action_mask, self.rollout.finals)
        if self.priorities is not None:
            self.priorities.store(slots, fields["valid"])
        algorithm, replay = self.algorithm, self.replay
        begun = replay.written * self.worlds.num_envs >= algorithm.learning_starts
        return begun & (replay.stored() >= algorithm.batch_size)

    def batches(self) -> list[Batch]:
        """Minibatches of an update, drawn with replacement."""
        steps = self.algorithm.gradient_steps
        words = self.draws.words("replay", self.updates, steps)
        drawn = self.compiled(_drawn)(self.replay, words, self.reward_unit().get("reward_scale"))
        return [_part(drawn, number, steps) for number in range(steps)]

    def begin_anew(self) -> None:
        """As `Training`; what the replay holds of lives that were lost ends with their last looks."""
        slots = self.replay.interrupt()
        if self.priorities is not None:
            self.priorities.store(slots, torch.zeros_like(self.rollout.fields["valid"][:1]))
        super().begin_anew()

    def shared_tensors(self) -> dict[str, Tensor]:
        """As `Training`, with target networks and further optimizers."""
        held = super().shared_tensors()
        held.update({f"target.{name}": follower.flat for name, follower in self.followers.items()})
        for name, optimizer in self.optimizers.items():
            held.update({f"{name}.{key}": tensor for key, tensor in optimizer.tensors().items()})
        return {**held, "learnt": self.learnt}

    def replay_tensors(self) -> dict[str, Tensor]:
        """What the replay holds, by name."""
        held = {} if self.priorities is None else self.priorities.tensors()
        return {f"replay.{name}": tensor for name, tensor in {**self.replay.tensors(), **held}.items()}

    def own_tensors(self) -> dict[str, Tensor]:
        """As `Training`, with the replay where the algorithm saves it."""
        return {**super().own_tensors(), **(self.replay_tensors() if self.algorithm.save_replay else {})}

    def lacking(self) -> str:
        """As `Training`."""
        told = super().lacking()
        if self.algorithm.save_replay:
            return told
        return (told and f"{told}; ") + (
            f"its replay was not saved (save_replay=False), so it begins anew with an empty one: nothing is learnt "
            f"before it holds {self.algorithm.learning_starts:,} steps again, and results differ from those of a "
            f"training that never stopped"
        )

    def tensors(self) -> dict[str, Tensor]:
        """As `Training`, always with the replay."""
        return {**super().tensors(), **self.replay_tensors()}


@torch.no_grad()
def _drawn(replay: Replay, words: Tensor, deviation: Tensor | None) -> Batch:
    """All minibatches of an update, one after the other."""
    return replay.batch(*replay.draw(words.T.flatten()), deviation)


def _most_cuts(worlds: Worlds | FromGymnasium, steps: int) -> int:
    """How many last looks of a row there may be beside the others, within so many steps."""
    env = worlds.env
    if isinstance(worlds, FromGymnasium) and worlds.autoreset == "next_step":
        return 0  # the look of the step in which nobody acts is the last one
    at_will = type(env).truncated is not Env.truncated
    return most_cuts(steps, env.time_limit, at_will) if can_cut(env) else 0


def by_step(drawn: Tensor, size: int) -> list[Tensor]:
    """Numbers `[rows, steps * size]` as one tensor `[rows, size]` for each step, in one piece of memory."""
    return list(drawn.unflatten(1, (-1, size)).transpose(0, 1).contiguous().unbind())


def _part(batch: Batch, number: int, parts: int) -> Batch:
    """One of as many equal parts."""

    def cut(tensor: Tensor) -> Tensor:
        size = tensor.shape[0] // parts
        return tensor[number * size : (number + 1) * size]

    return _tree.map_tensors(cut, batch)


def started(
    algorithm: Any,
    make: Callable[..., Any],
    env: Env | FromGymnasium,
    policy: Policy,
    kind: type[Policy],
    example: str,
    total_steps: int,
    seed: int,
    device: Any,
    params: dict[str, Any] | None,
) -> Any:
    """A training before its first update.

    Raises:
        InputError: an argument does not fit.
    """
    name = type(algorithm).__name__
    what = f"{name}.init"
    spaces, hosted = (env.env, True) if isinstance(env, FromGymnasium) else (env, False)
    check_fits(policy, spaces, what, hosted=hosted)
    if not isinstance(policy, kind):
        raise InputError(
            f"{what}: policy is {named(policy)}, expected a dz.rl.{kind.__name__}, such as dz.rl.{example}(env)"
        )
    _check_layers(policy, what)
    _check_apart(policy, what)
    if processes.size() > 1:
        raise InputError(f"{what}: there are {processes.size()} processes, expected one; take dz.PPO for several")
    total_steps = whole(what, "total_steps", total_steps, 1)
    seed = whole(what, "seed", seed, 0, MAX_SEED)
    if total_steps <= algorithm.learning_starts:
        raise InputError(
            f"{what}: total_steps={total_steps}, expected more than learning_starts={algorithm.learning_starts}, or "
            f"nothing would be learnt; train for longer, or lower learning_starts (at least batch_size="
            f"{algorithm.batch_size})"
        )
    rows = algorithm.num_envs * (spaces.num_actors or 1)
    least = max(algorithm.num_steps, -(-algorithm.batch_size // rows)) * rows
    if algorithm.buffer_size < least:
        raise InputError(
            f"{what}: buffer_size={algorithm.buffer_size}, expected at least {least}: a rollout of num_steps="
            f"{algorithm.num_steps} steps of {rows} rows, and a minibatch of {algorithm.batch_size}"
        )
    num_updates = -(-total_steps // algorithm.samples)
    if isinstance(env, FromGymnasium):
        host = env.for_training(algorithm, seed, device, params)
        return make(algorithm, host, policy, num_updates, seed, Curriculum(None, host))
    values = first_values(env, params, algorithm.num_envs)
    worlds = Worlds(env, algorithm.num_envs, seed=seed, device=device, max_resets=algorithm.max_resets, params=values)
    return make(algorithm, worlds, policy, num_updates, seed, Curriculum(params, worlds))


def _check_layers(policy: Policy, what: str) -> None:
    """Raise `InputError` where layers draw numbers of torch's own, or judge a row by others of its minibatch."""
    drawing = nn.modules.dropout._DropoutNd
    for module in policy.modules():
        if (isinstance(module, drawing) and module.p > 0) or isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise InputError(
                f"{what}: the policy has {type(module).__name__}, whose values differ from batch to batch, so no "
                f"training could be repeated; set its p to 0, or use torch.nn.LayerNorm"
            )


def _check_apart(policy: Policy, what: str) -> None:
    """Raise `InputError` where actor and critics share parameters: each would learn them by an optimizer of its own."""
    critics = getattr(policy, "critics", None)
    if not isinstance(critics, nn.Module):
        return
    own = {id(parameter) for parameter in critics.parameters() if parameter.requires_grad}
    shared = [
        f"{part}.{name}"
        for part in ("body", "actor")
        for name, parameter in getattr(policy, part).named_parameters()
        if id(parameter) in own
    ]
    if shared:
        raise InputError(
            f"{what}: actor and critics of the policy share {shared[0]}, expected networks of their own, since each "
            f"learns by its own loss; give the critics a copy (copy.deepcopy)"
        )
