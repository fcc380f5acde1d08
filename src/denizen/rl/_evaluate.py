"""Evaluation: returns of first lives in worlds of their own, without a host read between steps; also while training."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from denizen import _tree
from denizen._arguments import switch, whole
from denizen._notebook import InNotebook
from denizen.errors import InputError, nearest
from denizen.model import Env, Observed
from denizen.model._env import picture
from denizen.rl._distributions import Distribution, Greedy
from denizen.rl._draws import Draws
from denizen.rl._from_gymnasium import Foreign
from denizen.rl._heads import Joint
from denizen.rl._policy import Policy, check_fits, for_worlds, rows_of
from denizen.rl._recorded import Recorded
from denizen.rl._worlds import Worlds
from denizen.run import choose_device
from denizen.run._compare import student
from denizen.run._fingerprint import differences, fingerprint

BUDGET = 10_000  # steps of a life where the environment sets no limit
CHECK_EVERY = 64  # steps between checks of whether all lives are over
EVALUATION_SEED = 2**31  # added to seeds, so that evaluation shares no world with training


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation(InNotebook):
    """Returns of the first life in each world; one for each actor that acted where several share a world.

    Attributes:
        returns: float32 `[lives]`.
        lengths: int64 `[lives]`.
        finished: bool `[lives]`: the life ended within the budget; the others are counted as far as they came.
        world: int64 `[lives]`: in which it was.
        steps: the budget.
        greedy: whether the likeliest actions were taken.
    """

    returns: Tensor
    lengths: Tensor
    finished: Tensor
    world: Tensor
    steps: int
    greedy: bool

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the mean over worlds of this one policy (Student's t); NaN for one world.

        It says how well this policy is known, not how well another training would do.
        """
        half = student(0.975, max(self._worlds - 1, 1)) * self.error
        return (self.mean - half, self.mean + half)

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN for one world.

        Worlds are independent, lives in one world are not: residuals are added up in each first (Liang and Zeger,
        1986). With one life in each world this is the usual one.
        """
        worlds = self._worlds
        if worlds < 2:
            return math.nan
        apart = (self.returns - self.returns.mean()).double()
        together = apart.new_zeros(int(self.world.max()) + 1).index_add_(0, self.world, apart)
        return math.sqrt(float(together.square().sum()) * worlds / (worlds - 1)) / self.returns.numel()

    @property
    def _worlds(self) -> int:
        """In how many worlds somebody lived."""
        return self.world.unique().numel()

    def __repr__(self) -> str:
        low, high = self.interval
        kind = "greedy" if self.greedy else "sampled"
        unfinished = int((~self.finished).sum())
        more = f"; {unfinished} unfinished after {self.steps:,} steps" if unfinished else ""
        lives, worlds = self.returns.numel(), self._worlds
        where = f"{lives} lives" if lives == worlds else f"{lives} lives in {worlds} worlds"
        return f"return {self.mean:.2f} (95 % {low:.2f} to {high:.2f}, {where}, {kind}{more})"


def evaluate(
    env: Env,
    policy: Policy,
    *,
    num_envs: int = 64,
    max_steps: int | None = None,
    greedy: bool = False,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Evaluation:
    """Let a policy live one life in each of some worlds.

    Args:
        env: the environment.
        policy: is not changed.
        num_envs: worlds.
        max_steps: budget of a life; None: the environment's time limit, or 10,000 steps where it has none.
        greedy: take the likeliest action, in place of a draw.
        seed: of worlds and draws; shares none with trainings of any seed below 2**31.
        device: None: that of the policy.

    Raises:
        InputError: an argument does not fit.
    """
    check_evaluation(env, policy, num_envs=num_envs, max_steps=max_steps, greedy=greedy, seed=seed)
    steps = max_steps if max_steps is not None else env.time_limit or BUDGET
    target = choose_device(device or next(policy.parameters()).device, "evaluate")[0]
    worlds = Worlds(env, num_envs, seed=seed + EVALUATION_SEED, device=target, max_resets=num_envs)
    was_training = policy.training
    policy.eval()
    try:
        with torch.no_grad():
            return _live(worlds, policy, steps, greedy, seed)
    finally:
        policy.train(was_training)


def check_evaluation(
    env: Any, policy: Policy, *, num_envs: Any = 64, max_steps: Any = None, greedy: Any = False, seed: Any = 0
) -> dict[str, Any]:
    """Arguments of `evaluate` by name, as plain values; raises `InputError` where one does not fit."""
    check_fits(policy, env, "evaluate")
    return {
        "num_envs": whole("evaluate", "num_envs", num_envs, 1, 2**31),
        "max_steps": None if max_steps is None else whole("evaluate", "max_steps", max_steps, 1, hint=", or None"),
        "greedy": switch("evaluate", "greedy", greedy),
        "seed": whole("evaluate", "seed", seed, 0, EVALUATION_SEED - 1),
    }


def _live(worlds: Worlds, policy: Policy, steps: int, greedy: bool, seed: int) -> Evaluation:
    env = worlds.env
    run_state, observed = worlds.begin()
    observed = rows_of(observed, env)
    rows = observed.observation.shape[0]
    draws = Draws(seed + EVALUATION_SEED, torch.arange(rows, device=worlds.device))
    actors = env.num_actors or 1
    step_of = Recorded(
        _stepper(worlds, policy, draws, greedy, actors), policy, *worlds.modules, in_place=worlds.in_place
    )
    life: dict[str, Any] = {
        "worlds": run_state.clone().tensors(),
        "observed": observed,
        "memory": policy.first_memory(rows, worlds.device),
        "total": torch.zeros(rows, device=worlds.device),
        "length": torch.zeros(rows, dtype=torch.int64, device=worlds.device),
        "over": torch.zeros(rows, dtype=torch.bool, device=worlds.device),
        "first": torch.ones(rows, dtype=torch.bool, device=worlds.device),
    }
    for step in range(steps):
        life = step_of(life)
        if step % CHECK_EVERY == CHECK_EVERY - 1 and bool(life["over"].all()):
            break
    worlds.check(worlds.run_state_of(life["worlds"]))
    total, length, over = (life[name].cpu() for name in ("total", "length", "over"))
    lived, world = length > 0, torch.arange(rows) // actors  # who never acted has no return
    return Evaluation(total[lived], length[lived], over[lived], world[lived], steps, greedy)


def _stepper(worlds: Worlds, policy: Policy, draws: Draws, greedy: bool, actors: int) -> Any:
    """One step of lives."""
    env = worlds.env

    def step_of(life: dict[str, Any]) -> dict[str, Any]:
        observed, over = life["observed"], life["over"]
        judged = policy(observed.observation, life["memory"], observed.action_mask, observed.privileged, life["first"])
        clock = life["worlds"][-3]
        action = (
            judged.actions.mode() if greedy else judged.actions.sample(draws.uniform("action", clock, policy.draws))
        )
        tensors, step = worlds.next_in_place(life["worlds"], for_worlds(action, env))
        acting = ~over if observed.acting is None else ~over & observed.acting
        ended = step.ended if actors == 1 else step.ended[:, None].expand(-1, actors).flatten()
        seen = rows_of(step.observed, env)
        if seen.acting is not None:  # who goes out has lived, as in training
            ended = ended | (acting & ~seen.acting)
        return {
            "worlds": tensors,
            "observed": seen,
            "memory": judged.memory,
            "total": life["total"] + torch.where(acting, step.reward.flatten(), 0.0),
            "length": life["length"] + acting,
            "over": over | ended,
            "first": ~acting,  # who was out comes back without a memory, as in training
        }

    return step_of


def saliency(policy: Policy, observed: Observed, memory: Tensor) -> tuple[Any, Any]:
    """What a policy's network sees, and how much each entry moves the log-probability of its likeliest choice, the
    value of the best one, or the sum of its likeliest numbers; of actions of several parts, the sum of these.

    Args:
        policy: is not changed.
        observed: of rows.
        memory: of the policy before it.

    Returns:
        (inputs, absolute gradients), float32 of the network's input shape `[rows, …]`; trees where inputs are.
    """
    given = _tree.map_tensors(lambda part: part.detach().requires_grad_(), policy.inputs(observed.observation))
    with torch.enable_grad():
        judged = policy(
            observed.observation, memory, observed.action_mask, observed.privileged, actor_only=True, given=given
        )
        parts = judged.actions.parts if isinstance(judged.actions, Joint) else (judged.actions,)
        chosen = torch.stack([_moving(part) for part in parts]).sum()
    inputs, structure = _tree.flatten(given)
    found = torch.autograd.grad(chosen, inputs, allow_unused=True, materialize_grads=True)
    moved = _tree.unflatten([gradient.abs() for gradient in found], structure)
    return _tree.map_tensors(Tensor.detach, given), moved


def _moving(actions: Distribution) -> Tensor:
    """What is looked at of a distribution: `[]`."""
    if isinstance(actions, Greedy):  # which has no probability that moves, but a value
        return actions.values.amax(-1).sum()
    likeliest = actions.mode()
    # Of numbers the density is highest at the mode, where nothing moves it: what moves is the mode itself.
    return (likeliest if likeliest.is_floating_point() else actions.log_prob(likeliest.detach())).sum()


def play(
    env: Env, policy: Policy, steps: int, *, greedy: bool = False, seed: int = 0, brain: bool = False
) -> Iterator[tuple[Any, str]]:
    """Pictures of one world in which a policy acts, each with a caption; begins anew where a life ends.

    Args:
        env: an environment with `draw`.
        policy: is not changed.
        steps: to show.
        greedy: take the likeliest action.
        seed: of the world.
        brain: pictures are then pairs: the world, and (inputs, saliency) of the first actor's network.
    """
    worlds = Worlds(env.to("cpu"), 1, seed=seed + EVALUATION_SEED, device="cpu")
    observed = worlds.reset()
    rows = env.num_actors or 1
    draws = Draws(seed + EVALUATION_SEED, torch.arange(rows))
    memory, total = policy.first_memory(rows, torch.device("cpu")), 0.0

    def shown() -> Any:
        drawn = picture(env, worlds.state(0))
        if not brain:
            return drawn
        inputs, moved = saliency(policy, rows_of(observed, env), memory)
        return drawn, _tree.map_tensors(lambda part: part[0], (inputs, moved))

    yield shown(), "start"
    for number in range(steps):
        seen = rows_of(observed, env)
        with torch.no_grad():
            judged = policy(seen.observation, memory, seen.action_mask, seen.privileged)
            uniform = draws.uniform("action", torch.tensor(number), policy.draws)
            action = judged.actions.mode() if greedy else judged.actions.sample(uniform)
        step = worlds.step(for_worlds(action, env))
        total += float(step.reward.sum())
        ended, observed = bool(step.ended.any()), step.observed
        # Who was out comes back without a memory, as in training.
        kept = torch.full((rows,), not ended) if seen.acting is None else seen.acting & (not ended)
        memory = torch.where(kept[:, None], judged.memory, 0.0)
        yield shown(), f"step {number + 1}, return {total:.2f}" + (", a new life" if ended else "")
        total = 0.0 if ended else total


OPTIONS = ("env", "num_envs", "max_steps", "greedy", "seed")  # what it may give `evaluate`


class Validation:
    """When a training is evaluated, and how.

    Attributes:
        every: updates between evaluations; None: there are none.
    """

    def __init__(self, every: int | None, given: Mapping[str, Any] | None, env: Env, policy: Policy) -> None:
        """Args:
        every: updates between evaluations; None: there are none.
        given: arguments of `evaluate`.
        env: of the training, which it is without another one.
        policy: that trains.

        Raises:
            InputError: an argument does not fit.
        """
        if every is not None:
            every = whole("train", "validate_every", every, 1, hint=", or None for no validation")
        if given is not None and not isinstance(given, Mapping):
            raise InputError(f"train: validation={given!r}, expected arguments of evaluate, such as {{'num_envs': 64}}")
        for name in given or {}:
            if name not in OPTIONS:
                raise InputError(f"train: validation has {name!r}; {nearest(name, OPTIONS)}")
        if given and every is None:
            raise InputError(f"train: validation={dict(given)} without validate_every; say every how many updates")
        self.every, self._given = every, dict(given or {})
        if isinstance(env, Foreign) and "env" not in self._given:
            if every is not None:
                raise InputError(
                    f"train: validate_every={every}: a FromGymnasium trains and cannot be evaluated meanwhile; give "
                    f"validation={{'env': …}}, a dz.Env of the same spaces, or leave it out"
                )
            return
        plain = check_evaluation(policy=policy, **{"env": env, **self._given})
        self._given.update({name: plain[name] for name in self._given if name in plain})
        self._options: dict[str, Any] = {"env": env, **self._given}

    def due(self, done: int, last: int) -> bool:
        """Whether to evaluate after so many updates of all."""
        return self.every is not None and (done % self.every == 0 or done == last)

    def __call__(self, policy: Policy) -> Evaluation:
        """An evaluation."""
        return evaluate(policy=policy, **self._options)

    def facts(self) -> dict[str, Any]:
        """For a manifest."""
        env = {"env": fingerprint(self._given["env"])} if "env" in self._given else {}
        return {**self._given, **env}

    @classmethod
    def again(cls, known: Mapping[str, Any], given: Env | None, env: Env, policy: Policy) -> "Validation":
        """That of a manifest.

        Args:
            known: the manifest.
            given: the environment of the validation, where it had one of its own.
            env: of the training.
            policy: that trains.

        Raises:
            InputError: it is another environment.
        """
        was, options = known["validation"].get("env"), dict(known["validation"])
        alike = given is was is None
        if given is not None and was is not None:
            alike = not differences(was, fingerprint(given))
        if not alike:
            raise InputError(
                "resume: validation_env differs from the env of the training's validation; give the one that it had, "
                "or None if it had none"
            )
        return cls(known["validate_every"], options if given is None else {**options, "env": given}, env, policy)
