"""One world of an environment over flat tensors, and the step of many in place that an environment may offer.

The first is the form that is batched and stored.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from denizen import _roles as by_role
from denizen import _spaces as trees
from denizen.errors import InputError, ModelError
from denizen.model._env import Env
from denizen.model._flat_world import FlatWorld, Setting, known_axes
from denizen.model._model import kind, value
from denizen.model._state import Time, form, own
from denizen.rng import Rng


class Observed(NamedTuple):
    """What is seen of one world, or of a batch with a leading axis.

    Attributes:
        observation: of the observation space's dtypes: a tensor, or a tree of them; trainers have trees as rows of
            bytes, which `policy.looked` takes apart.
        action_mask: bool; None: all choices are open.
        privileged: float32; None: nothing. Of a world with roles a dict of those that have some.
        acting: bool `[actors]`; None: all.
    """

    observation: Any
    action_mask: Tensor | None
    privileged: Any
    acting: Tensor | None


class Happened(NamedTuple):
    """What one step gave.

    Attributes:
        leaves: state tensors.
        reward: float32.
        terminated: bool `[]`.
        truncated: bool `[]`.
        flows: for each series that is a flow, in the order of `Env.all_series`: float32 `[]`, summed over its axes.
        bad: int8 `[checks]`, 1 where a check failed.
    """

    leaves: list[Tensor]
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    flows: dict[str, Tensor]
    bad: Tensor


class FlatEnv(FlatWorld):
    """Init, step, reset and looks of one world as functions of tensors.

    Attributes:
        acts: the action space.
        sees: the observation space.
        step_checks: labels of what `Happened.bad` tells.
    """

    def __init__(self, env: Env, ids: Tensor) -> None:
        super().__init__(env, Setting(), ids)
        limit = env.time_limit
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise ModelError(
                f"{type(env).__name__}.time_limit={limit!r}, expected a whole number of steps, at least 1, or None"
            )
        self.env = env
        self.acts, self.sees = env.action_space, env.observation_space  # asked for once: in a step they are traced
        self.roles = env.roles
        self.step_checks: list[str] = []

    def begin(self, key: Tensor, values: dict[str, Tensor], clock: Tensor) -> list[Tensor]:
        """Leaves of the first state of a world. `clock` is 0 there; it is what tells draws of resets apart."""
        env = self._bound(values)
        drawn, sizes = env.init(self._rng(key, clock, "init")), {"agents": self.ids.numel()}
        state = form(drawn, None, sizes, None, False, key.device)
        self._learn(own(state, Time(clock, 1.0, env.time_unit), self.ids))
        return self.leaves(state)

    def restart(
        self, leaves: list[Tensor], age: Tensor, key: Tensor, values: dict[str, Tensor], clock: Tensor
    ) -> list[Tensor]:
        """Leaves of the state in which the next life begins, from those in which the last one ended."""
        env, ended = self._bound(values), self.state(leaves, age)
        return self.leaves(form(env.reset(ended, self._rng(key, clock, "init")), ended, {}, type(ended), False))

    def act(
        self, leaves: list[Tensor], age: Tensor, key: Tensor, values: dict[str, Tensor], action: Any, clock: Tensor
    ) -> Happened:
        """One step with an action.

        Args:
            leaves: state tensors.
            age: int64 `[]`: steps of this life so far.
            key: int64 `[2]`.
            values: parameters.
            action: of the action space's shapes and dtypes.
            clock: int64 `[]`: steps of the run so far, which random numbers depend on.
        """
        env, before = self._bound(values), self.state(leaves, age)
        rng = self._rng(key, clock, "step")
        if before._living:
            rng._axes.update(known_axes(before))
        done = action if self.roles is None else self._by_actor(action)
        new = form(env.step(before, done, rng), before, {}, type(before), False)
        new = own(new, Time(age + 1, 1.0, env.time_unit), self.ids)
        reward = self._number("reward", env.reward(before, done, new)).to(torch.float32)
        terminated = self._flag("terminated", env.terminated(new))
        truncated = env.truncated(new)
        cut = torch.zeros_like(terminated) if truncated is None else self._flag("truncated", truncated)
        if env.time_limit is not None:
            cut = cut | (age + 1 >= env.time_limit)
        given = zip(trees.leaves(self.acts), trees.values(self.acts, action), strict=True)
        checks = [
            (f"an action outside the action space{trees.at(path)}", leaf.fault(part).any().to(torch.int8))
            for (path, leaf), part in given
        ]
        checks += [("a reward that is not finite", (~torch.isfinite(reward)).any().to(torch.int8)), *rng._bad]
        self.step_checks = [label for label, _ in checks]
        flows = {
            name: value(name, getattr(env, name), given, before, new, rng.events).sum().to(torch.float32)
            for name, given in env._series_takes.items()
            if kind(given) == "flow"
        }
        return Happened(self.leaves(new), reward, terminated, cut, flows, torch.stack([flag for _, flag in checks]))

    def observe(self, leaves: list[Tensor], age: Tensor, values: dict[str, Tensor]) -> Observed:
        """What is seen of a state."""
        env, now = self._bound(values), self.state(leaves, age)
        observation = env.observe(now)
        if self.roles is not None:
            return self._observed_by_role(observation, env.action_mask(now), env.privileged(now), env.acting(now))
        lead = () if env.num_actors is None else (env.num_actors,)
        seen = self._looked(observation, lead)
        mask, privileged, acting = env.action_mask(now), env.privileged(now), env.acting(now)
        choices = sum(self.acts.factors)
        if mask is not None and (not choices or getattr(mask, "shape", None) != (*lead, choices)):
            wanted = (*lead, choices or "an action_space of choices")
            raise ModelError(f"{self._name}.action_mask gave {_shown(mask)}; expected {wanted}")
        if acting is not None and (env.num_actors is None or getattr(acting, "shape", None) != lead):
            raise ModelError(f"{self._name}.acting gave {_shown(acting)}; expected one flag for each of num_actors")
        return Observed(
            seen,
            None if mask is None else self._bools("action_mask", mask),
            None if privileged is None else self._extra(privileged, lead),
            None if acting is None else self._bools("acting", acting),
        )

    def _looked(self, observation: Any, lead: tuple[int, ...]) -> Any:
        """What `observe` gave, checked, in the dtypes of its space."""
        try:
            parts = trees.values(self.sees, observation)
        except InputError as error:
            raise ModelError(f"{self._name}.observe gave what {error}") from error
        kept = []
        for part, (path, leaf) in zip(parts, trees.leaves(self.sees), strict=True):
            wanted = (*lead, *leaf.shape)
            if not isinstance(part, Tensor) or part.shape != wanted:
                found = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
                where = trees.at(path)
                raise ModelError(f"{self._name}.observe gave {found}{where}, its observation_space has {wanted}")
            kept.append(part.to(leaf.dtype))
        return trees.built(self.sees, kept)

    def _by_actor(self, action: Any) -> dict[str, Any]:
        """Actions of a world with roles as its author takes them."""
        assert self.roles is not None
        return {n: by_role.by_actor(role.count, role.action_space, action[n]) for n, role in self.roles.items()}

    def _observed_by_role(self, observation: Any, mask: Any, extra: Any, acting: Any) -> Observed:
        """What is seen of a world with roles: masks of all actors in a row, flags of all actors, the rest by role."""
        roles = self.roles
        assert roles is not None
        given = by_role.checked(roles, observation, f"{self._name}.observe")
        seen = {name: self._looked_by(role, given[name], name) for name, role in roles.items()}
        flags = None if acting is None else self._joined("acting", acting, dict.fromkeys(roles, ()))
        if extra is not None:
            given = by_role.checked(roles, extra, f"{self._name}.privileged", some=True)
            extra = {name: self._extra(part, (roles[name].count,), f" of {name!r}") for name, part in given.items()}
        if mask is None:
            return Observed(seen, None, extra, flags)
        choices: dict[str, tuple[int, ...]] = {n: (sum(role.action_space.factors),) for n, role in roles.items()}
        opened = self._joined("action_mask", mask, choices)
        if flags is not None:  # who does not act has nothing to choose, and so nothing that is closed
            sizes = [choices[name][0] for name, role in roles.items() for _ in range(role.count)]
            opened = opened | torch.cat([~flag.expand(size) for flag, size in zip(flags.unbind(), sizes, strict=True)])
        return Observed(seen, opened, extra, flags)

    def _looked_by(self, role: by_role.Role, given: Any, name: str) -> Any:
        """What the actors of a role see, checked, in the form of the engine."""
        space, what = role.observation_space, f"{self._name}.observe"
        try:
            parts = trees.values(space, given)
        except InputError as error:
            raise ModelError(f"{what} gave of {name!r} what {error}") from error
        kept = [
            by_role.of_actors(part, role.count, f"{what} of {name!r}{trees.at(path)}", leaf.shape).to(leaf.dtype)
            for part, (path, leaf) in zip(parts, trees.leaves(space), strict=True)
        ]
        return by_role.of_all(role.count, space, trees.built(space, kept))

    def _joined(self, what: str, value: Any, more: dict[str, tuple[int, ...]]) -> Tensor:
        """Flags of all actors in a row; those of roles that were left out are True."""
        assert self.roles is not None
        what = f"{self._name}.{what}"
        given = by_role.checked(self.roles, value, what, some=True)
        parts = []
        for name, role in self.roles.items():
            if name in given:
                part = by_role.of_actors(given[name], role.count, f"{what} of {name!r}", more[name])
                parts.append(by_role.flags(part, what).flatten())
            else:
                parts.append(self.ids.new_ones(role.count * sum(more[name] or (1,)), dtype=torch.bool))
        return torch.cat(parts)

    @property
    def _name(self) -> str:
        return type(self.env).__name__

    def _bound(self, values: dict[str, Tensor]) -> Any:
        return self.env.with_values(values) if values else self.env

    def _rng(self, key: Tensor, clock: Tensor, phase: str) -> Rng:
        return Rng(key, clock, num=self.ids.numel(), phase=phase)

    def _number(self, what: str, value: Any) -> Tensor:
        if self.roles is not None:
            given = by_role.checked(self.roles, value, f"{self._name}.{what}")
            told = ((name, role.count, f"{self._name}.{what} of {name!r}") for name, role in self.roles.items())
            return torch.cat([by_role.of_actors(given[name], count, words) for name, count, words in told])
        wanted = () if self.env.num_actors is None else (self.env.num_actors,)
        if not isinstance(value, Tensor) or value.shape != wanted:
            raise ModelError(f"{self._name}.{what} gave {_shown(value)}; expected a tensor of shape {wanted}")
        return value

    def _extra(self, value: Any, lead: tuple[int, ...], whose: str = "") -> Tensor:
        """What is privileged as float32; of any shape beyond the actors' axis where the author makes inputs of it."""
        free = type(self.env).privileged_input is not Env.privileged_input
        shaped = isinstance(value, Tensor) and value.shape[: len(lead)] == lead
        if not shaped or not (free or value.dim() == len(lead) + 1):
            wanted = f"({', '.join(map(str, [*lead, 'k']))})" if lead else "(k,)"
            found = _shown(value)
            raise ModelError(f"{self._name}.privileged{whose} gave {found}; expected a tensor of shape {wanted}")
        return value.to(torch.float32)

    def _flag(self, what: str, value: Any) -> Tensor:
        if not isinstance(value, Tensor) or value.shape != ():
            raise ModelError(
                f"{self._name}.{what} gave {_shown(value)}; expected one flag for the world, a tensor of shape ()"
            )
        return self._bools(what, value)

    def _bools(self, what: str, value: Tensor) -> Tensor:
        if value.is_floating_point() or value.is_complex():
            raise ModelError(f"{self._name}.{what} gave {value.dtype}; expected bool, such as a comparison gives")
        return value.to(torch.bool)


def _shown(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else f"{type(value).__name__} {value!r}"


class Advanced(NamedTuple):
    """What a step of many worlds gave; the tensors that it was given hold the states after resets.

    Attributes:
        clock: int64 `[]`: steps of the run.
        observed: `[worlds, …]`: of the states after resets.
        reward: float32 `[worlds]`; 0 where a world waited.
        terminated: bool `[worlds]`.
        truncated: bool `[worlds]`.
        valid: bool `[worlds]`: the world acted.
        flows: for each series that is a flow, in the order of `Env.all_series`: float32 `[worlds]`.
        final: what was seen before resets, of the worlds of `final_index`.
        final_index: int64 `[rows]`: those whose lives begin anew first, by position, then others, up to the most that
            may begin anew in a step; all worlds in their order where all may.
    """

    clock: Tensor
    observed: Observed
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    flows: dict[str, Tensor]
    final: Observed
    final_index: Tensor


@dataclasses.dataclass(frozen=True)
class InPlace:
    """A step of many worlds in place, which gives the bits of the environment's own methods.

    Attributes:
        advance: of (leaves, [age, waiting, faults, waited], clock, keys, action). What it writes, it writes by
            operations of denizen whose schema says so, so that graphs of it can be recorded, compiled and captured.
        checks: labels of the checks on actions, rewards and draws, in the order in which faults number them; a check on
            observations comes after them.
    """

    advance: Callable[[list[Tensor], list[Tensor], Tensor, Tensor, Tensor], Advanced]
    checks: tuple[str, ...]
