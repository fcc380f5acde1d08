"""Behaviour cloning: a policy learns to act as a teacher does, in the states that the teacher comes to."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from denizen import _spaces as trees
from denizen import ops
from denizen._arguments import number, whole
from denizen._progress import progress_bar
from denizen.errors import InputError, expect_function
from denizen.model import Box, Env, Observed, Space
from denizen.rl._draws import Draws
from denizen.rl._normaliser import take_in
from denizen.rl._optimizer import FlatAdam
from denizen.rl._policy import ActorCritic, check_fits
from denizen.rl._recorded import Recorded
from denizen.rl._rollout import CLOCK
from denizen.rl._rows import as_drawn, by_actors, rows_of
from denizen.rl._worlds import Worlds, named, numbers_in

Teacher = Callable[[Observed, Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class Imitation:
    """What a cloning came to.

    Attributes:
        loss: float32 `[updates]`: mean negative log-probability of the teacher's actions.
        agreement: float32 `[updates]`: share of states in which the likeliest action is the teacher's; NaN for
            actions that are no choices.
    """

    loss: Tensor
    agreement: Tensor


def imitate(
    env: Env,
    policy: ActorCritic,
    teacher: Teacher,
    *,
    updates: int = 200,
    num_envs: int = 64,
    num_steps: int = 16,
    learning_rate: float = 1e-3,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> Imitation:
    """Clone a teacher.

    Args:
        env: the environment.
        policy: without memory; learns in place. The critic does not.
        teacher: from what is seen `[rows, …]`, an `Observed`, and uniform numbers `[rows, 1]` to actions `[rows, …]`.
        updates: steps of Adam, each on `num_envs * num_steps` fresh states.
        num_envs: worlds.
        num_steps: steps between updates.
        learning_rate: of Adam.
        seed: of worlds and the teacher's draws.
        device: None: CUDA where there is a device that works, else the CPU.
        progress: show a bar.

    Raises:
        InputError: an argument does not fit, or the teacher took a choice that `action_mask` closes.
        ModelError: the teacher left the action space.
    """
    updates, num_envs, num_steps = (
        whole("imitate", name, value, 1)
        for name, value in (("updates", updates), ("num_envs", num_envs), ("num_steps", num_steps))
    )
    check_fits(policy, env, "imitate")
    if policy.memory_size:
        raise InputError("imitate: the policy has a memory, which cloning from single states would not train")
    if not callable(teacher):
        raise InputError(f"imitate: teacher is {named(teacher)}, expected a function of (observed, uniform) to actions")
    expect_function("imitate: teacher", teacher, "observed", "uniform")
    learning_rate = number("imitate", "learning_rate", learning_rate, above=0)
    worlds = Worlds(env, num_envs, seed=seed, device=device)
    policy = policy.to(worlds.device).train()
    run_state, observed = worlds.begin()
    rows = rows_of(observed, worlds.env).observation.shape[0]
    draws = Draws(seed, torch.arange(rows, device=worlds.device))
    step_of = Recorded(_lesson(worlds, teacher, draws), *worlds.modules, in_place=worlds.in_place)
    parts = (policy.body, policy.actor)
    learnable = [p for part in parts for p in part.parameters()]
    optimizer = FlatAdam([[*learnable, *([] if policy.log_std is None else [policy.log_std])]], max_norm=1.0)
    rate = torch.full((), learning_rate, device=worlds.device)
    never = torch.zeros((), dtype=torch.bool, device=worlds.device)
    losses, agreements, closed = [], [], []
    state: Any = (run_state.clone().tensors(), observed)
    with progress_bar(updates, progress, f"cloning for {env._called}", 1) as advance:
        for _ in range(updates):
            seen = []
            for _ in range(num_steps):
                with torch.no_grad():
                    state, lesson = step_of(state)
                seen.append(lesson)
            loss, agreement, shut = _learn(policy, optimizer, seen, rate, never)
            if policy.normaliser is not None:
                _take_in(policy, seen)
            losses.append(loss)
            agreements.append(agreement)
            closed.append(shut)
            advance(1)
    worlds.check(worlds.run_state_of(state[0]))
    if bool(torch.stack(closed).any()):
        first = int(torch.stack(closed).nonzero()[0])
        raise InputError(
            f"imitate: teacher took a choice that {env._called}.action_mask closes, first in update {first}, "
            f"which a policy never makes; choose by observed.action_mask"
        )
    return Imitation(torch.stack(losses).cpu(), torch.stack(agreements).cpu())


def _lesson(worlds: Worlds, teacher: Teacher, draws: Draws) -> Callable[[Any], Any]:
    """One step of the teacher: what goes on, and (observed, action)."""
    env = worlds.env

    def step_of(state: Any) -> Any:
        tensors, observed = state
        seen = rows_of(observed, env)
        action = teacher(worlds.looked(seen), draws.uniform("teacher", tensors[CLOCK], 1))
        _check_action(action, seen.observation.shape[0], env.action_space)
        action = trees.mapped(env.action_space, lambda part, leaf: ops.rounded(part, leaf.dtype), action)
        after, step = worlds.next_in_place(tensors, by_actors(action, env))
        known = trees.mapped(env.action_space, _known, action)  # what leaves the space is told at the end
        return (after, step.observed), (seen, as_drawn(known, env.action_space))

    return step_of


def _known(action: Tensor, leaf: trees.Leaf) -> Tensor:
    """Choices that a distribution can look up."""
    return action if isinstance(leaf, Box) else leaf.nearest(action)


def _check_action(action: Any, rows: int, space: Space) -> None:
    """Raise `InputError` where a teacher gave no actions."""
    try:
        parts = trees.values(space, action)
    except InputError as error:
        raise InputError(f"imitate: what teacher gave {error}") from error
    for part, (path, leaf) in zip(parts, trees.leaves(space), strict=True):
        _check_part(part, (rows, *leaf.shape), leaf, trees.at(path))


def _check_part(action: Any, wanted: tuple[int, ...], space: Space, where: str) -> None:
    choices = not isinstance(space, Box)
    form = f"expected a tensor of shape {wanted}" + (f" of {numbers_in(space)}" if choices else "")
    if not isinstance(action, Tensor) or tuple(action.shape) != wanted:
        found = tuple(action.shape) if isinstance(action, Tensor) else named(action)
        raise InputError(f"imitate: teacher gave {found}{where}, {form}")
    if choices and (action.is_floating_point() or action.dtype == torch.bool):
        raise InputError(f"imitate: teacher gave {action.dtype}{where}, {form}")


def _take_in(policy: ActorCritic, seen: list[Any]) -> None:
    """Have normalisers take what was learnt from in, so that a training that follows finds them settled."""
    looks = [observed for observed, _ in seen]
    fields = {name: [getattr(look, name) for look in looks] for name in ("observation", "privileged", "acting")}
    held = {name: torch.stack(parts) for name, parts in fields.items() if parts[0] is not None}
    valid = held.pop("acting", None)
    shape = held["observation"].shape[:2]
    take_in(
        policy, {**held, "valid": held["observation"].new_ones(shape, dtype=torch.bool) if valid is None else valid}
    )


def _learn(
    policy: ActorCritic, optimizer: FlatAdam, seen: list[Any], rate: Tensor, never: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of Adam: (loss, agreement, whether a closed choice was taken), of which nothing is learnt."""
    looks, actions = [observed for observed, _ in seen], torch.cat([action for _, action in seen])
    observation = torch.cat([observed.observation for observed in looks])
    masks = None if looks[0].action_mask is None else torch.cat([observed.action_mask for observed in looks])
    acting = None if looks[0].acting is None else torch.cat([observed.acting for observed in looks])
    weight = torch.ones(len(actions), device=observation.device) if acting is None else acting.to(torch.float32)
    judged = policy(observation, policy.first_memory(1, observation.device), masks, actor_only=True)
    log_prob = judged.actions.log_prob(actions)
    shut = (log_prob == -torch.inf) & (weight > 0)
    lost = torch.where((weight > 0) & ~shut, -log_prob, 0.0)
    loss = lost.sum() / weight.sum().clamp(min=1)
    optimizer.backward(loss)
    optimizer.step(rate, never)
    if any(isinstance(leaf, Box) for _, leaf in trees.leaves(policy.env.action_space)):
        return loss.detach(), torch.full_like(loss.detach(), torch.nan), shut.any()
    alike = judged.actions.mode() == actions
    same = (alike if alike.dim() == 1 else alike.all(1)).to(torch.float32) * weight
    return loss.detach(), same.sum() / weight.sum().clamp(min=1), shut.any()
