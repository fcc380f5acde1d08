"""Evaluation of foragers: many worlds run for a fixed number of steps and are counted on the device."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from denizen import _tree
from denizen.errors import InputError
from denizen.model import whole
from denizen.ops import fuse_draws
from denizen.rl import Draws, Worlds
from denizen.rl._recorded import Recorded
from denizen.rl._rollout import CLOCK
from denizen.rng import EVALUATION_SEED
from denizen.run import CapturedFunction, TorchSwitches
from denizen.studies.statistics import Estimate, Survival, ratio
from denizen.zoo.foraging.agents import Agent, Learnt, Seeker
from denizen.zoo.foraging.config import for_evaluation
from denizen.zoo.foraging.model import Foraging

Counts = NDArray[np.int64]
CHUNK = 32  # steps that are captured as one graph


@dataclasses.dataclass(frozen=True, eq=False)
class Foraged:
    """How an agent fared in worlds that all ran for the same number of steps.

    Attributes:
        food: int64 `[worlds]`: eaten.
        poison: int64 `[worlds]`: eaten.
        deaths: int64 `[worlds]`: lives that ended.
        steps: int64 `[worlds]`: of the agent.
        died: int64 `[budget + 1]`: ages at which lives ended.
        censored: int64 `[budget + 1]`: ages of the lives that were going on at the end.
        first_age: int64 `[worlds]`: age of the first life in each world, at its end or when last seen.
        first_died: bool `[worlds]`: whether it ended.
        shares: float64 `[worlds]`: sum over lives that ended after eating something of their share of food in what
            they ate.
        fed: int64 `[worlds]`: number of these lives.
        poison_share: of poison in the items of all worlds.
        move_cost: energy for every step.
        food_energy: energy of food.
        poison_energy: energy that poison takes.
    """

    food: Counts
    poison: Counts
    deaths: Counts
    steps: Counts
    died: Counts
    censored: Counts
    first_age: Counts
    first_died: NDArray[np.bool_]
    shares: NDArray[np.float64]
    fed: Counts
    poison_share: float
    move_cost: float
    food_energy: float
    poison_energy: float

    @property
    def budget(self) -> int:
        """Steps of each world."""
        return self.died.size - 1

    @property
    def lives(self) -> Survival:
        """Survival of all lives. Lives of one world depend on each other, so the errors are too small."""
        return Survival(self.died, self.censored)

    @property
    def first_lives(self) -> Survival:
        """Survival of the first life in each world. These lives are independent."""
        return self.first_lives_of(np.ones_like(self.first_age))

    def first_lives_of(self, often: Counts) -> Survival:
        """`first_lives` with each world counted a number of times."""
        ages, size = self.first_age, self.budget + 1
        died = np.bincount(ages, weights=often * self.first_died, minlength=size)
        censored = np.bincount(ages, weights=often * ~self.first_died, minlength=size)
        return Survival(died.astype(np.int64), censored.astype(np.int64))

    def per_thousand(self, name: str) -> Estimate:
        """Rate of `food`, `poison`, `deaths` or `energy` in 1,000 steps."""
        if name == "energy":
            got = self.food_energy * self.food - self.poison_energy * self.poison - self.move_cost * self.steps
        elif name in ("food", "poison", "deaths"):
            got = getattr(self, name)
        else:
            raise InputError(f"per_thousand({name!r}): expected 'food', 'poison', 'deaths' or 'energy'")
        return ratio(got, self.steps, 1000.0)

    @property
    def efficiency(self) -> Estimate:
        """Share of food in what was eaten."""
        return ratio(self.food, self.food + self.poison)

    @property
    def life_efficiency(self) -> Estimate:
        """Mean over lives that ended of their own share of food. It is biased down: compare it only with its null."""
        return ratio(self.shares, self.fed)

    @property
    def naive_age(self) -> float:
        """Mean age, with lives that go on counted as if they ended: always budget * worlds / (worlds + deaths)."""
        ages = np.arange(self.budget + 1)
        return float((ages * (self.died + self.censored)).sum() / (self.died + self.censored).sum())

    def save(self, path: Path | str) -> None:
        """Write everything to a numpy archive without pickles."""
        np.savez_compressed(path, **dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as held:
            values = {name: held[name] for name in held.files}
        for name in ("poison_share", "move_cost", "food_energy", "poison_energy"):
            values[name] = float(values[name])
        return cls(**values)


def joined(parts: Sequence[Foraged]) -> Foraged:
    """Evaluations of one agent in different worlds, as one. All must have run for the same number of steps."""
    first = parts[0]
    if any(part.budget != first.budget for part in parts):
        raise InputError(f"joined: budgets {[part.budget for part in parts]}, expected one")
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Foraged):
        held = [getattr(part, field.name) for part in parts]
        if field.name in ("died", "censored"):
            values[field.name] = np.sum(held, axis=0)
        elif field.name == "poison_share":
            values[field.name] = float(np.mean(held))
        else:
            values[field.name] = np.concatenate(held) if isinstance(held[0], np.ndarray) else held[0]
    return Foraged(**values)


@torch.no_grad()
def forage(
    env: Foraging,
    agent: Agent,
    *,
    num_envs: int = 8192,
    steps: int = 16_384,
    seed: int = 42,
    device: torch.device | str | None = None,
    compile: bool = False,
) -> Foraged:
    """Let an agent forage in worlds where only its death ends a life.

    Nothing is read by the host until the end. Worlds share no random number with trainings of any seed below 2^31.

    Args:
        env: the world; its time limit and frozen energy are lifted.
        agent: a `Learnt` policy, or one that was written.
        num_envs: worlds.
        steps: of each of them.
        seed: of worlds and draws.
        device: None: that of the agent's policy, else CUDA where there is a device, else the CPU.
        compile: compile the step, which pays for long evaluations. On CUDA steps are captured in any case.

    Raises:
        InputError: an argument does not fit.
    """
    if not isinstance(env, Foraging):
        raise InputError(f"forage: env is {type(env).__name__}, expected a Foraging")
    whole("forage", "steps", steps, 1)
    whole("forage", "seed", seed, 0, EVALUATION_SEED - 1)
    modules = [agent.policy] if isinstance(agent, Learnt) else []
    if device is None and modules:
        device = next(modules[0].parameters()).device
    # A world that persists is renewed for the price of a step, so none need wait; a fresh one is dear.
    resets = num_envs if env.grid_lifetime == "persist" else None
    worlds = Worlds(for_evaluation(env), num_envs, seed=seed + EVALUATION_SEED, device=device, max_resets=resets)
    training = [module.training for module in modules]
    for module in modules:
        module.eval()
    try:
        with TorchSwitches(grad=False).held():
            return _run(worlds, agent, modules, steps, seed, compile)
    finally:
        for module, was in zip(modules, training, strict=True):
            module.train(was)


def _run(worlds: Worlds, agent: Agent, modules: list[Any], steps: int, seed: int, compile: bool) -> Foraged:
    count, at = worlds.num_envs, worlds.device
    draws = Draws(seed + EVALUATION_SEED, torch.arange(count, device=at))
    run_state, observed = worlds.begin()
    if isinstance(agent, Seeker):
        agent.to(at)
    step_of = Recorded(lambda state: _step(worlds, agent, draws, state), *modules, in_place=worlds.in_place)
    if compile:
        fuse_draws()
        step_of.compile("inductor")
    names = ("food", "poison", "deaths", "steps", "age", "life_food", "life_poison", "first_age", "fed")
    state: dict[str, Any] = {name: torch.zeros(count, dtype=torch.int64, device=at) for name in names}
    state |= {
        "worlds": run_state.clone().tensors(),
        "observed": _tree.map_tensors(Tensor.clone, observed),
        "first_died": torch.zeros(count, dtype=torch.bool, device=at),
        "shares": torch.zeros(count, dtype=torch.float64, device=at),
        "died": torch.zeros(steps + 1, dtype=torch.int64, device=at),
    }
    _repeat(*step_of.bound(state), steps, at)
    worlds.run_state = worlds.run_state_of(state["worlds"])
    worlds.check()
    now = worlds.state()
    share = float(now.poisons.sum() / (now.foods.sum() + now.poisons.sum()).clamp(min=1))
    counts = {name: state[name].cpu().numpy() for name in (*names, "first_died", "shares", "died")}
    alive = ~counts["first_died"]
    counts["first_age"] = np.where(alive, counts["age"], counts["first_age"])
    censored = np.bincount(counts.pop("age"), minlength=steps + 1)
    del counts["life_food"], counts["life_poison"]
    env: Any = worlds.env
    costs = {"move_cost": env.move_cost, "food_energy": env.food_energy, "poison_energy": env.poison_energy}
    return Foraged(**counts, censored=censored, poison_share=share, **costs)


def _repeat(
    step: Callable[[list[Tensor]], list[Tensor]], buffers: list[Tensor], steps: int, device: torch.device
) -> None:
    """Take steps, each from what the last one gave; the buffers change in place. Captured in chunks on CUDA."""

    def go(count: int) -> None:
        tensors = buffers
        for _ in range(count):
            tensors = step(tensors)
        moved = [(own, new) for own, new in zip(buffers, tensors, strict=True) if own is not new]
        torch._foreach_copy_([own for own, _ in moved], [new for _, new in moved])

    if device.type != "cuda" or steps < 2 * CHUNK:
        go(steps)
        return
    chunk = CapturedFunction(lambda: go(CHUNK), "steps", backward=False)
    for _ in range(steps // CHUNK):
        chunk()
    if steps % CHUNK:
        go(steps % CHUNK)


def _step(worlds: Worlds, agent: Agent, draws: Draws, state: dict[str, Any]) -> dict[str, Any]:
    """One step of all worlds, and what is counted."""
    uniform = draws.uniform("action", state["worlds"][CLOCK], 1)
    tensors, step = worlds.next_in_place(state["worlds"], agent.act(state["observed"], uniform))
    food, poison = step.flows["food"].long(), step.flows["poison"].long()
    ended, age = step.terminated, state["age"] + step.valid
    life_food, life_poison = state["life_food"] + food, state["life_poison"] + poison
    eaten = life_food + life_poison
    fed = ended & (eaten > 0)
    share = life_food.double() / eaten.clamp(min=1)
    first = ended & ~state["first_died"]

    def going_on(value: Tensor) -> Tensor:
        return torch.where(ended, 0, value)

    new = {
        "worlds": tensors,
        "observed": step.observed,
        "food": state["food"] + food,
        "poison": state["poison"] + poison,
        "deaths": state["deaths"] + ended,
        "steps": state["steps"] + step.valid,
        "died": state["died"].scatter_add(0, age, ended.long()),
        "age": going_on(age),
        "life_food": going_on(life_food),
        "life_poison": going_on(life_poison),
        "first_age": torch.where(first, age, state["first_age"]),
        "first_died": state["first_died"] | ended,
        "shares": state["shares"] + torch.where(fed, share, 0.0),
        "fed": state["fed"] + fed,
    }
    return {name: new[name] for name in state}  # in one order, for what comes out goes in again
