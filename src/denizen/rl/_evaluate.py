"""Evaluation: returns of first lives in worlds of their own, without a host read between steps; also while training."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, overload

import torch
from torch import Tensor

from denizen import _tree
from denizen._arguments import switch, whole
from denizen._fingerprint import differences, fingerprint
from denizen._notebook import InNotebook
from denizen._results import student
from denizen._roles import places
from denizen.errors import InputError, nearest
from denizen.model import Env, Observed, picture
from denizen.rl._distributions import Distribution, Greedy
from denizen.rl._draws import Draws
from denizen.rl._from_gymnasium import Foreign
from denizen.rl._heads import Joint
from denizen.rl._policy import Judged, Policy, check_fits
from denizen.rl._recorded import Recorded
from denizen.rl._roles import Policies, actions_of, parties, policies_of
from denizen.rl._roles import step_of as step_by
from denizen.rl._rollout import CLOCK
from denizen.rl._rows import for_worlds, rows_of, seen_by
from denizen.rl._worlds import Step, Worlds, check_env
from denizen.rng import EVALUATION_SEED
from denizen.run import choose_device

BUDGET = 10_000  # steps of a life where the environment sets no limit
CHECK_EVERY = 64  # steps between checks of whether all lives are over


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


@overload
def evaluate(
    env: Env,
    policy: Policy,
    *,
    num_envs: int = 64,
    max_steps: int | None = None,
    greedy: bool = False,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Evaluation: ...
@overload
def evaluate(
    env: Env,
    policy: Policies | Mapping[str, Policy],
    *,
    num_envs: int = 64,
    max_steps: int | None = None,
    greedy: bool = False,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> dict[str, Evaluation]: ...
def evaluate(
    env: Env,
    policy: Any,
    *,
    num_envs: int = 64,
    max_steps: int | None = None,
    greedy: bool = False,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Evaluation | dict[str, Evaluation]:
    """Let a policy live one life in each of some worlds.

    Args:
        env: the environment.
        policy: is not changed; of an environment with roles one for each, by name.
        num_envs: worlds.
        max_steps: budget of a life; None: the environment's time limit, or 10,000 steps where it has none.
        greedy: take the likeliest action, in place of a draw.
        seed: of worlds and draws; shares none with trainings of any seed below 2**31.
        device: None: that of the policy.

    Returns:
        The lives; of an environment with roles those of each, by name.

    Raises:
        InputError: an argument does not fit.
    """
    check_evaluation(env, policy, num_envs=num_envs, max_steps=max_steps, greedy=greedy, seed=seed)
    policy = policy if env.roles is None else policies_of(policy, env, "evaluate")
    steps = max_steps if max_steps is not None else env.time_limit or BUDGET
    target = choose_device(device or next(policy.parameters()).device, "evaluate")[0]
    worlds = Worlds(env, num_envs, seed=seed + EVALUATION_SEED, device=target, max_resets=num_envs)
    was_training = {module: module.training for module in policy.modules()}
    policy.eval()
    try:
        with torch.no_grad():
            if isinstance(policy, Policies):
                return _live_by_role(worlds, policy, steps, greedy, seed)
            return _live(worlds, policy, steps, greedy, seed)
    finally:
        for module, training in was_training.items():
            module.training = training


def check_evaluation(
    env: Any, policy: Any, *, num_envs: Any = 64, max_steps: Any = None, greedy: Any = False, seed: Any = 0
) -> dict[str, Any]:
    """Arguments of `evaluate` by name, as plain values; raises `InputError` where one does not fit."""
    if getattr(env, "roles", None) is None:
        check_fits(policy, env, "evaluate")
    else:
        check_env(env, "evaluate")
        policies_of(policy, env, "evaluate")
    return {
        "num_envs": whole("evaluate", "num_envs", num_envs, 1, 2**31),
        "max_steps": None if max_steps is None else whole("evaluate", "max_steps", max_steps, 1, hint=", or None"),
        "greedy": switch("evaluate", "greedy", greedy),
        "seed": whole("evaluate", "seed", seed, 0, EVALUATION_SEED - 1),
    }


def _live(worlds: Worlds, policy: Policy, steps: int, greedy: bool, seed: int) -> Evaluation:
    env = worlds.env
    run_state, observed = worlds.begin()
    actor = _Actor(policy, env, worlds, greedy, seed)

    def step_of(life: dict[str, Any]) -> dict[str, Any]:
        judged, action = actor.act(life, life["worlds"][CLOCK])
        tensors, step = worlds.next_in_place(life["worlds"], for_worlds(action, env))
        return {"worlds": tensors, **actor.lived(life, judged, step)}

    recorded = Recorded(step_of, policy, *worlds.modules, in_place=worlds.in_place)
    life = {"worlds": run_state.clone().tensors(), **actor.first(observed)}
    life = _to_the_end(recorded, life, steps, worlds, lambda life: [life])
    total, length, over = (life[name].cpu() for name in ("total", "length", "over"))
    lived, world = length > 0, torch.arange(actor.rows) // actor.actors  # who never acted has no return
    return Evaluation(total[lived], length[lived], over[lived], world[lived], steps, greedy)


def _live_by_role(worlds: Worlds, policies: Policies, steps: int, greedy: bool, seed: int) -> dict[str, Evaluation]:
    """`_live` of worlds with roles."""
    env, found = worlds.env, parties(worlds.env, policies)
    run_state, observed = worlds.begin()
    actors: dict[str, _Actor] = {}
    first = 0
    for party in found:
        actors[party.name] = _Actor(party.policy, party.view, worlds, greedy, seed, first)
        first += actors[party.name].rows

    def step_of(life: dict[str, Any]) -> dict[str, Any]:
        acted = {name: actor.act(life[name], life["worlds"][CLOCK]) for name, actor in actors.items()}
        action = actions_of(env, [(party, acted[party.name][1]) for party in found])
        tensors, step = worlds.next_in_place(life["worlds"], action)
        lived = {p.name: actors[p.name].lived(life[p.name], acted[p.name][0], step_by(p, step)) for p in found}
        return {"worlds": tensors, **lived}

    recorded = Recorded(step_of, *[party.policy for party in found], *worlds.modules)
    life = {p.name: actors[p.name].first(seen_by(p.view, observed)) for p in found}
    life = {"worlds": run_state.clone().tensors(), **life}
    life = _to_the_end(recorded, life, steps, worlds, lambda life: [life[name] for name in actors])
    told: dict[str, Evaluation] = {}
    assert env.roles is not None
    for party in found:
        where = places({name: env.roles[name] for name in party.roles})
        columns = {n: life[party.name][n].cpu().view(worlds.num_envs, -1) for n in ("total", "length", "over")}
        for name in party.roles:
            total, length, over = (column[:, where[name]].flatten() for column in columns.values())
            lived, world = length > 0, torch.arange(len(total)) // env.roles[name].count
            told[name] = Evaluation(total[lived], length[lived], over[lived], world[lived], steps, greedy)
    return {name: told[name] for name in env.roles}


def _to_the_end(step_of: Any, life: dict[str, Any], steps: int, worlds: Worlds, parts: Any) -> dict[str, Any]:
    """Lives after their ends, or after so many steps; `parts` gives those of each policy."""
    for step in range(steps):
        life = step_of(life)
        if step % CHECK_EVERY == CHECK_EVERY - 1 and all(bool(part["over"].all()) for part in parts(life)):
            break
    worlds.check(worlds.run_state_of(life["worlds"]))
    return life


class _Actor:
    """A policy that lives in rows of worlds, once in each.

    Attributes:
        rows: number of them.
        actors: in a world.
    """

    def __init__(self, policy: Policy, env: Env, worlds: Worlds, greedy: bool, seed: int, first: int = 0) -> None:
        self._policy, self._env, self._greedy = policy, env, greedy
        self.actors = env.num_actors or 1
        self.rows, self._device = worlds.num_envs * self.actors, worlds.device
        self._draws = Draws(seed + EVALUATION_SEED, torch.arange(self.rows, device=worlds.device) + first)

    def first(self, observed: Observed) -> dict[str, Any]:
        """Lives at their beginning."""
        rows, device = self.rows, self._device
        return {
            "observed": rows_of(observed, self._env),
            "memory": self._policy.first_memory(rows, device),
            "total": torch.zeros(rows, device=device),
            "length": torch.zeros(rows, dtype=torch.int64, device=device),
            "over": torch.zeros(rows, dtype=torch.bool, device=device),
            "first": torch.ones(rows, dtype=torch.bool, device=device),
        }

    def act(self, life: dict[str, Any], clock: Tensor) -> tuple[Judged, Tensor]:
        """(what the policy makes of the looks, actions of rows)."""
        observed, policy = life["observed"], self._policy
        judged = policy(observed.observation, life["memory"], observed.action_mask, observed.privileged, life["first"])
        if self._greedy:
            return judged, judged.actions.mode()
        return judged, judged.actions.sample(self._draws.uniform("action", clock, policy.draws))

    def lived(self, life: dict[str, Any], judged: Judged, step: Step) -> dict[str, Any]:
        """Lives after a step."""
        observed, over, actors = life["observed"], life["over"], self.actors
        acting = ~over if observed.acting is None else ~over & observed.acting
        ended = step.ended if actors == 1 else step.ended[:, None].expand(-1, actors).flatten()
        seen = rows_of(step.observed, self._env)
        if seen.acting is not None:  # who goes out has lived, as in training
            ended = ended | (acting & ~seen.acting)
        return {
            "observed": seen,
            "memory": judged.memory,
            "total": life["total"] + torch.where(acting, step.reward.flatten(), 0.0),
            "length": life["length"] + acting,
            "over": over | ended,
            "first": ~acting,  # who was out comes back without a memory, as in training
        }


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
    env: Env, policy: Any, steps: int, *, greedy: bool = False, seed: int = 0, brain: bool = False
) -> Iterator[tuple[Any, str]]:
    """Pictures of one world in which a policy acts, each with a caption; begins anew where a life ends.

    Args:
        env: an environment with `draw`.
        policy: is not changed; of an environment with roles one for each, by name.
        steps: to show.
        greedy: take the likeliest action.
        seed: of the world.
        brain: pictures are then pairs: the world, and (inputs, saliency) of the first actor's network.

    Raises:
        InputError: policies that do not fit the environment's roles.
    """
    worlds = Worlds(env.to("cpu"), 1, seed=seed + EVALUATION_SEED, device="cpu")
    found = [] if env.roles is None else parties(env, policies_of(policy, env, "play"))
    players = [(party.policy, party.view) for party in found] or [(policy, env)]
    rows = [view.num_actors or 1 for _, view in players]
    draws = [Draws(seed + EVALUATION_SEED, sum(rows[:place]) + torch.arange(count)) for place, count in enumerate(rows)]
    memories = [one.first_memory(count, torch.device("cpu")) for (one, _), count in zip(players, rows, strict=True)]
    observed, total = worlds.reset(), 0.0

    def looks() -> list[Observed]:
        return [rows_of(seen_by(party.view, observed), party.view) for party in found] or [rows_of(observed, env)]

    def shown() -> Any:
        drawn = picture(env, worlds.state(0))
        if not brain:
            return drawn
        inputs, moved = saliency(players[0][0], looks()[0], memories[0])
        return drawn, _tree.map_tensors(lambda part: part[0], (inputs, moved))

    yield shown(), "start"
    for number in range(steps):
        clock, seen, judged, actions = torch.tensor(number), looks(), [], []
        with torch.no_grad():
            for (one, _), look, memory, drawn in zip(players, seen, memories, draws, strict=True):
                judged.append(one(look.observation, memory, look.action_mask, look.privileged))
                uniform = drawn.uniform("action", clock, one.draws)
                chosen = judged[-1].actions
                actions.append(chosen.mode() if greedy else chosen.sample(uniform))
        done = actions_of(env, list(zip(found, actions, strict=True))) if found else for_worlds(actions[0], env)
        step = worlds.step(done)
        total += float(step.reward.sum())
        ended, observed = bool(step.ended.any()), step.observed
        # Who was out comes back without a memory, as in training.
        for place, look in enumerate(seen):
            kept = torch.full((rows[place],), not ended) if look.acting is None else look.acting & (not ended)
            memories[place] = torch.where(kept[:, None], judged[place].memory, 0.0)
        yield shown(), f"step {number + 1}, return {total:.2f}" + (", a new life" if ended else "")
        total = 0.0 if ended else total


OPTIONS = ("env", "num_envs", "max_steps", "greedy", "seed")  # what it may give `evaluate`


class Validation:
    """When a training is evaluated, and how.

    Attributes:
        every: updates between evaluations; None: there are none.
    """

    def __init__(self, every: int | None, given: Mapping[str, Any] | None, env: Env, policy: Any) -> None:
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

    def __call__(self, policy: Any) -> Evaluation | dict[str, Evaluation]:
        """An evaluation."""
        return evaluate(policy=policy, **self._options)

    def facts(self) -> dict[str, Any]:
        """For a manifest."""
        env = {"env": fingerprint(self._given["env"])} if "env" in self._given else {}
        return {**self._given, **env}

    @classmethod
    def again(cls, known: Mapping[str, Any], given: Env | None, env: Env, policy: Any) -> "Validation":
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
