"""Worlds of several actors for PettingZoo's users."""

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import _spaces as trees
from denizen import _tree
from denizen._roles import by_actor, of_all
from denizen.errors import InputError, nearest, need
from denizen.model import Box, Env, Observed, can_draw, picture
from denizen.rl._gymnasium_spaces import array, checked_parts, to_space
from denizen.rl._worlds import Worlds


def to_pettingzoo(env: Env, *, seed: int = 0, device: torch.device | str | None = None) -> Any:
    """One world as a PettingZoo `ParallelEnv`, with its actors as ``"agent_0"``, ``"agent_1"``, ….

    Those of an environment with roles are called by these: ``"predator_0"``, ``"predator_1"``, ``"prey_0"``.

    Args:
        env: the environment; one without actors of its own has one agent.
        seed: of the random numbers.
        device: None: CUDA where there is a device that works, else the CPU.

    Returns:
        A `pettingzoo.ParallelEnv`. `agents` are those that act; one that drops out is terminated. Action masks are in
        the infos.

    Raises:
        InputError: an argument does not fit.
        MissingExtra: pettingzoo is not installed.

    Examples:
        >>> import denizen as dz
        >>> from denizen.zoo.probes import Padded
        >>> world = dz.rl.to_pettingzoo(Padded(actors=2))
        >>> observations, infos = world.reset(seed=1)
        >>> sorted(observations)
        ['agent_0', 'agent_1']
    """
    need("pettingzoo", "gym", "make a PettingZoo environment")
    return _derived()(Worlds(env, 1, seed=seed, device=device, max_resets=0))


@functools.cache
def _derived() -> type:
    """The class as one of PettingZoo's environments, which is imported no sooner."""
    from pettingzoo import ParallelEnv

    return type("PettingZooWorld", (_PettingZooWorld, ParallelEnv), {"__doc__": _PettingZooWorld.__doc__})


def __getattr__(name: str) -> Any:
    if name == "PettingZooWorld":  # pickle looks a class up by its name
        return _derived()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _PettingZooWorld:
    """One world behind PettingZoo's parallel interface; see `to_pettingzoo`.

    Attributes:
        worlds: the world, in a batch of one.
        possible_agents: names of all actors.
        agents: names of those that act now; none once a life is over.
    """

    def __init__(self, worlds: Worlds) -> None:
        env = worlds.env
        roles = env.roles
        self.worlds, self._alone, self._roles = worlds, env.num_actors is None and roles is None, roles
        # Of each agent its name, its role and its place in it; without roles all are of one.
        kinds = {"agent": env.num_actors or 1} if roles is None else {name: r.count for name, r in roles.items()}
        self._seats = {f"{kind}_{k}": (kind, k) for kind, count in kinds.items() for k in range(count)}
        self.possible_agents = list(self._seats)
        self.agents: list[str] = []
        self._spaces = {
            kind: (env.observation_space, env.action_space)
            if roles is None
            else (roles[kind].observation_space, roles[kind].action_space)
            for kind in kinds
        }
        self._sees, self._acts = (
            {name: to_space(self._spaces[kind][place]) for name, (kind, _) in self._seats.items()} for place in (0, 1)
        )
        self.metadata = {"name": type(env).__name__, "render_modes": ["rgb_array", "ansi"], "is_parallelizable": True}
        self.render_mode = "rgb_array" if can_draw(env) else None

    def observation_space(self, agent: str) -> Any:
        """Of an agent."""
        return self._sees[agent]

    def action_space(self, agent: str) -> Any:
        """Of an agent."""
        return self._acts[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """(observations, infos) at the start of a life; without a seed, of another one than before.

        Raises:
            InputError: a seed that is no whole number from 0 to 2**32 - 1.
        """
        worlds = self.worlds
        if seed is not None:
            worlds.seeded(seed)
        again = None if seed is not None or worlds.run_state is None else worlds.run_state.clock + 1
        worlds.run_state, observed = worlds.begin(again)
        observed = worlds.looked(observed)
        self.agents = self._inside(observed)
        return self._observed(observed, self.agents), self._infos(observed, self.agents)

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """(observations, rewards, terminations, truncations, infos) of the agents that acted.

        An agent that is out after the step is terminated, and no longer among `agents`.

        Raises:
            InputError: an action is missing, or of no agent that acts.
            ModelError: an action outside the space, or a reward or observation that is not finite.
        """
        acted = list(self.agents)
        for name in actions:
            if name not in acted:
                raise InputError(f"step: actions has {name!r}, which does not act; {nearest(name, acted)}")
        missing = [name for name in acted if name not in actions]
        if missing:
            raise InputError(f"step: actions lacks {missing[0]!r}, which acts")
        step = self.worlds.step(self._action(actions))
        self.worlds.check()
        over, cut = bool(step.terminated), bool(step.truncated)
        paid = np.atleast_1d(array(step.reward[0]))
        inside = [] if over or cut else self._inside(step.observed)
        self.agents = [name for name in acted if name in inside]
        rewards = {name: float(paid[self.possible_agents.index(name)]) for name in acted}
        dead = {name: over or (not cut and name not in self.agents) for name in acted}
        looks, infos = self._observed(step.observed, acted), self._infos(step.observed, acted)
        return looks, rewards, dead, dict.fromkeys(acted, cut), infos

    def _action(self, actions: dict[str, Any]) -> Any:
        kinds = {kind: self._of_kind(kind, actions) for kind in self._spaces}
        if self._roles is not None:
            return {n: of_all(role.count, role.action_space, kinds[n]) for n, role in self._roles.items()}
        return kinds["agent"]

    def _of_kind(self, kind: str, actions: dict[str, Any]) -> Any:
        """What the agents of a kind do, in a batch of one."""
        space = self._spaces[kind][1]
        nothing = trees.idle(space, (), torch.device("cpu"))  # who does not act does nothing wrong
        names = [name for name, (of, _) in self._seats.items() if of == kind]
        for name in names:
            if name in actions:
                checked_parts(space, actions[name], f"step: the action of {name!r}")
        each = [trees.values(space, actions.get(name, nothing)) for name in names]
        columns = []
        for (_, leaf), parts in zip(trees.leaves(space), zip(*each, strict=True), strict=True):
            given = np.stack([np.asarray(part) for part in parts])
            if not isinstance(leaf, Box) and given.dtype == np.bool_:
                given = given.astype(np.int64)
            batch = torch.as_tensor(given)[None]
            columns.append(batch[:, 0] if self._alone else batch)
        return trees.built(space, columns)

    def _inside(self, observed: Observed) -> list[str]:
        if observed.acting is None:
            return list(self.possible_agents)
        return [name for name, acts in zip(self.possible_agents, observed.acting[0].tolist(), strict=True) if acts]

    def _rows(self, part: Tensor) -> np.ndarray:
        return array(part if self._alone else part[0])

    def _observed(self, observed: Observed, names: list[str]) -> dict[str, Any]:
        seen = {}
        for kind, (space, _) in self._spaces.items():
            looks = observed.observation
            if self._roles is not None:
                looks = by_actor(self._roles[kind].count, space, looks[kind])
            seen[kind] = _tree.map_tensors(self._rows, looks)
        found = {}
        for name in names:
            kind, row = self._seats[name]
            found[name] = trees.mapped(self._spaces[kind][0], lambda part, _, row=row: part[row], seen[kind])
        return found

    def _infos(self, observed: Observed, names: list[str]) -> dict[str, Any]:
        if observed.action_mask is None:
            return {name: {} for name in names}
        if self._roles is None:
            rows = list(self._rows(observed.action_mask))
        else:
            sizes = [sum(self._spaces[kind][1].factors) for kind, _ in self._seats.values()]
            rows = [array(part) for part in observed.action_mask[0].split(sizes)]
        # int8, as Discrete.sample takes it
        return {name: {"action_mask": rows[self.possible_agents.index(name)].astype(np.int8)} for name in names}

    def render(self) -> Any:
        """A picture of the world: uint8 `[height, width, 3]`, or text; None where there is none."""
        if self.render_mode is None:
            return None
        drawn = picture(self.worlds.env, self.worlds.state(0))
        return array(drawn) if isinstance(drawn, Tensor) else "\n".join(drawn)

    def close(self) -> None:
        """Nothing to do."""
