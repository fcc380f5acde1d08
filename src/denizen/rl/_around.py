"""Environments around an environment: stacked frames, repeated actions; as pure as any other.

Each class of environment gets a subclass of its own, which has the hooks, parameters and series that the environment
inside has and no others, since the engine looks at what a class declares. Likewise states: a subclass of the state
inside with further fields.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Self

import torch
from torch import Tensor

from denizen import _spaces as trees
from denizen import _tree
from denizen._arguments import whole
from denizen._roles import beside, by_actor, of_all
from denizen.errors import InputError, ModelError
from denizen.model import Discrete, Env, Kind, Model, Space, State
from denizen.model._model import kind, value
from denizen.model._state import OWNED, Time, form, make, own, values
from denizen.rl._worlds import check_env, check_no_roles
from denizen.rng import Rng

_FRAMES, _REWARD, _FLOWS, _STEPS = "stacked_frames", "repeated_reward", "repeated_flows", "repeated_steps"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsItIs(Kind):
    """A field of any dtype, which it keeps."""

    dtype: torch.dtype = torch.float32  # pyrefly: ignore

    name = "frames"

    def fault(self, value: Tensor) -> Tensor:
        """A number that is not finite."""
        return (~torch.isfinite(value)).any() if value.is_floating_point() else value.new_zeros((), dtype=torch.bool)


class Around(Env):
    """An environment around another one, with the hooks of that one.

    Attributes:
        env: the one inside.
    """

    env: Env

    def __new__(cls, env: Any, *args: Any, **more: Any) -> Self:
        """An object of the subclass for this class of environment."""
        made = _inside in vars(cls) or not isinstance(env, Env)
        return object.__new__(cls if made else _fitting(cls, type(env)))

    def __post_init__(self) -> None:
        check_env(self.env, _called(type(self)))
        check_no_roles(self.env, _called(type(self)))
        inner = self.env
        while isinstance(inner, Around):
            if _called(type(inner)) == _called(type(self)):
                raise InputError(f"{_called(type(self))}: env has one already; give the one inside another number")
            inner = inner.env

    @property
    def num_agents(self) -> int:
        """As inside."""
        return self.env.num_agents

    def inside(self, now: Any) -> Any:
        """A state as the environment inside made it."""
        cls = type(now)._inside
        return make(cls, {name: held for name, held in values(now).items() if name in (*cls.kinds, *OWNED)})

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """See `Model.with_values`."""
        own_values = {name: value for name, value in values.items() if name in self.field_names}
        theirs = {name: value for name, value in values.items() if name not in own_values}
        return super().with_values({"env": self.env.with_values(theirs) if theirs else self.env, **own_values})

    def replace(self, **changes: Any) -> Self:
        """With some fields changed, or parameters of the environment inside."""
        own_changes = {name: value for name, value in changes.items() if name in self.field_names}
        theirs = {name: value for name, value in changes.items() if name not in own_changes}
        return super().replace(**({"env": self.env.replace(**theirs)} if theirs else {}), **own_changes)

    def to(self, device: torch.device | str) -> Self:
        """With the environment inside on a device."""
        return self.with_values({"env": self.env.to(device)})

    def _begun(self, rng: Rng) -> Any:
        """The first state of a world in the form of the engine, as the environment inside may look at it."""
        device, count = rng._key.device, self.num_agents
        formed = form(self.env.init(rng), None, {"agents": count}, None, False, device)
        clock = Time(torch.zeros((), dtype=torch.int64, device=device), 1.0, self.time_unit)
        return own(formed, clock, torch.arange(count, device=device), {})

    def _anew(self, ended: Any, rng: Rng) -> Any:
        """The first state of its next life, likewise."""
        before = self.inside(ended)
        formed = form(self.env.reset(before, rng), before, {}, type(before), False)
        clock = Time(torch.zeros_like(before.time.step), before.time.dt, before.time.unit)
        return own(formed, clock, before.id, values(before).get("ids", {}))

    def _on(self, before: Any, returned: Any) -> Any:
        """The state one step on, likewise, from what a step returned."""
        formed = form(returned, before, {}, type(before), False)
        clock = Time(before.time.step + 1, before.time.dt, before.time.unit)
        return own(formed, clock, before.id, values(before).get("ids", {}))


class FrameStack(Around):
    """Observations are the last `frames` ones, the newest last: of shape `(frames, …)`.

    Of a space of several parts each part is stacked by itself; a `Discrete` becomes a `MultiDiscrete`, one factor for
    each frame, and so on. Where a life begins the first one stands in for those before it. Inputs of networks are
    frames side by side on their first axis, such as channels. What is privileged stays that of the newest.

    ```python
    env = dz.rl.FrameStack(Breakout(), 4)
    ```

    Attributes:
        frames: how many, the present one among them.
    """

    frames: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "frames", whole("FrameStack", "frames", self.frames, 1))
        for path, leaf in trees.leaves(self.env.observation_space):
            if isinstance(leaf, Discrete) and leaf.start:
                raise InputError(
                    f"FrameStack: env has observations {leaf}{trees.at(path)}; choices of frames are numbered from 0, "
                    f"so leave start out"
                )

    @property
    def observation_space(self) -> Space:
        """That of the environment inside, `frames` times."""
        return beside(self.env.observation_space, self.frames)

    def init(self, rng: Rng) -> State:
        """The first state inside, and its look."""
        return self._filled(self._begun(rng))

    def reset(self, ended: Any, rng: Rng) -> State:
        """The next one inside, and its look."""
        return self._filled(self._anew(ended, rng), type(ended))

    def step(self, now: Any, action: Any, rng: Rng) -> State:  # pyrefly: ignore
        """The state inside one step on; its look comes after the others."""
        before = self.inside(now)
        new = self._on(before, self.env.step(before, action, rng))
        frames = {}
        for name, look in zip(self._names, self._look(new), strict=True):
            kept = getattr(now, name).narrow(self._axis, 1, self.frames - 1)
            frames[name] = torch.cat([kept, look.unsqueeze(self._axis)], self._axis)
        return make(type(now), {**values(new), **frames})

    def observe(self, now: Any) -> Any:
        """The frames."""
        space = self.env.observation_space
        return of_all(self.frames, space, trees.built(space, [getattr(now, name) for name in self._names]))

    def network_input(self, observation: Any) -> Any:
        """Inputs of all frames, side by side on the first axis of one."""
        rows = _tree.map_tensors(lambda part: part.flatten(0, 1), self._by_frame(observation))
        return _tree.map_tensors(self._side_by_side, self.env.network_input(rows))

    def privileged_input(self, observation: Any, privileged: Tensor | None) -> Tensor | None:
        """Of the newest frame."""
        newest = _tree.map_tensors(lambda part: part[:, -1], self._by_frame(observation))
        return self.env.privileged_input(newest, privileged)

    def _by_frame(self, observation: Any) -> Any:
        """`[batch, frames, …]` at each leaf inside."""
        return by_actor(self.frames, self.env.observation_space, observation)

    def _side_by_side(self, given: Tensor) -> Tensor:
        given = given.unflatten(0, (-1, self.frames))
        return given.flatten(1, 2) if given.dim() > 2 else given

    @property
    def _names(self) -> list[str]:
        """Of the fields of a state that hold frames, one for each leaf."""
        space = self.env.observation_space
        if not isinstance(space, trees.Tree):
            return [_FRAMES]
        return [f"{_FRAMES}_{number}" for number in range(len(trees.leaves(space)))]

    @property
    def _axis(self) -> int:
        """Of the frames in a state."""
        return 0 if self.num_actors is None else 1

    def _look(self, now: Any) -> list[Tensor]:
        """What is seen, by leaf."""
        name, space = type(self.env).__name__, self.env.observation_space
        try:
            looks = trees.values(space, self.env.observe(now))
        except InputError as error:
            raise ModelError(f"what {name}.observe gave {error}") from error
        lead = () if self.num_actors is None else (self.num_actors,)
        kept = []
        for look, (path, leaf) in zip(looks, trees.leaves(space), strict=True):
            if not isinstance(look, Tensor) or look.shape != (*lead, *leaf.shape):
                found = tuple(look.shape) if isinstance(look, Tensor) else type(look).__name__
                wanted = (*lead, *leaf.shape)
                raise ModelError(f"{name}.observe gave {found}{trees.at(path)}, its observation_space has {wanted}")
            kept.append(look.to(leaf.dtype))
        return kept

    def _filled(self, begun: Any, cls: type[State] | None = None) -> Any:
        """The state around a first one; of a new class where there is none yet."""
        looks = dict(zip(self._names, self._look(begun), strict=True))
        if cls is None:
            kinds = {
                name: AsItIs(axes=tuple(f"{name}_{number}" for number in range(look.dim() + 1)), dtype=look.dtype)
                for name, look in looks.items()
            }
            cls = _state(type(begun), tuple(kinds.items()))
        frames = {name: torch.stack([look] * self.frames, self._axis) for name, look in looks.items()}
        return make(cls, {**values(begun), **frames})


class ActionRepeat(Around):
    """Each action is taken `times` times in a row; rewards and flows of these steps are summed up.

    Once a life has ended nothing more happens in the step: also where it ends, or is cut off by the time limit, in the
    midst of a row. Lengths and time limits count rows; a limit of 10 is one of 3 where actions are taken 4 times. What
    is open, `action_mask`, is asked at the beginning of a row. Series that are levels are left out.

    ```python
    env = dz.rl.ActionRepeat(Pendulum(), 2)
    ```

    Attributes:
        times: in a row.
    """

    times: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "times", whole("ActionRepeat", "times", self.times, 1))

    @property
    def time_limit(self) -> int | None:  # pyrefly: ignore
        """In rows, the last of which may be cut short."""
        return None if self.env.time_limit is None else math.ceil(self.env.time_limit / self.times)

    def inside(self, now: Any) -> Any:
        """A state as the environment inside made it, with its steps as the time."""
        steps = getattr(now, _STEPS).to(torch.int64)
        return own(super().inside(now), Time(steps, now.time.dt, now.time.unit), now.id)

    def init(self, rng: Rng) -> State:
        """The first state inside."""
        return self._counted(self._begun(rng))

    def reset(self, ended: Any, rng: Rng) -> State:
        """The next one inside."""
        return self._counted(self._anew(ended, rng), type(ended))

    def step(self, now: Any, action: Any, rng: Rng) -> State:  # pyrefly: ignore
        """A row of steps inside."""
        env, limit = self.env, self.env.time_limit
        state = self.inside(now)
        over = torch.zeros_like(state.time.step, dtype=torch.bool)
        reward, takes = torch.zeros_like(getattr(now, _REWARD)), _flows(type(env))
        flows = reward.new_zeros(len(takes))
        for number in range(self.times):
            within = rng["repeat", number] if number else rng  # once is as without
            first = len(rng._bad)
            new = self._on(state, env.step(state, action, within))
            gained = env.reward(state, action, new).to(torch.float32)
            reward = reward + torch.where(over, 0.0, gained)
            if takes:
                flowed = [
                    value(name, getattr(env, name), given, state, new, within.events).sum().to(torch.float32)
                    for name, given in takes.items()
                ]
                flows = flows + torch.where(over, 0.0, torch.stack(flowed))
            rng._count_only(first, ~over)
            ended, cut = env.terminated(new).to(torch.bool), env.truncated(new)
            ended = ended if cut is None else ended | cut.to(torch.bool)
            ended = ended if limit is None else ended | (new.time.step >= limit)
            state = _chosen(over, state, new)
            over = over | ended
        summed = {_REWARD: reward, _STEPS: state.time.step.to(torch.int32), **({_FLOWS: flows} if takes else {})}
        return make(type(now), {**values(state), **summed})

    def reward(self, before: Any, action: Any, now: Any) -> Tensor:
        """Of the row."""
        return getattr(now, _REWARD)

    def _counted(self, begun: Any, cls: type[State] | None = None) -> Any:
        """The state around a first one; of a new class where there is none yet."""
        zero, flows = begun.time.step, len(_flows(type(self.env)))
        if cls is None:
            reward = AsItIs(axes=() if self.num_actors is None else (f"{_REWARD}_0",))
            fields = ((_REWARD, reward), (_STEPS, AsItIs(axes=(), dtype=torch.int32)))
            cls = _state(type(begun), fields + (((_FLOWS, AsItIs(axes=(f"{_FLOWS}_0",))),) if flows else ()))
        summed = {_REWARD: torch.zeros(self.num_actors or (), device=zero.device), _STEPS: zero.to(torch.int32)}
        if flows:
            summed[_FLOWS] = torch.zeros(flows, device=zero.device)
        return make(cls, {**values(begun), **summed})


_inside = "_inside"  # of a class made here: the class inside


def _called(cls: type[Around]) -> str:
    """What people call a class of these."""
    return next(base.__name__ for base in cls.__mro__ if _inside not in vars(base))


def _chosen(over: Tensor, old: Any, new: Any) -> Any:
    """The old state where a life is over, else the new one."""
    before, structure = _tree.flatten(old)
    after, _ = _tree.flatten(new)
    return _tree.unflatten([torch.where(over, a, b) for a, b in zip(before, after, strict=True)], structure)


@functools.cache
def _state(cls: type[State], fields: tuple[tuple[str, Kind], ...]) -> type[State]:
    """A class of states with further fields."""
    declared = {name: dataclasses.field(metadata={"kind": kind}) for name, kind in fields}
    body = {"__annotations__": dict.fromkeys(declared, Tensor), "__module__": __name__, **declared}
    made = type(cls.__name__, (cls,), body)
    setattr(made, _inside, cls)
    return made


def _flows(cls: type[Env]) -> dict[str, tuple[str, ...]]:
    """Series of an environment that are flows, and what they take."""
    return {name: given for name, given in cls._series_takes.items() if kind(given) == "flow"}


@functools.cache
def _fitting(cls: type[Around], inner: type[Env]) -> type[Any]:
    """The subclass for a class of environments inside."""
    body: dict[str, Any] = {"__module__": cls.__module__, "__doc__": cls.__doc__, "time_unit": inner.time_unit}
    mine = {name for base in cls.__mro__[: cls.__mro__.index(Env)] for name in vars(base)}
    for name in dir(Env):
        own_way = getattr(inner, name, None) is not getattr(Env, name, None)
        if name.startswith("_") or name in mine or hasattr(Model, name) or name == "in_place" or not own_way:
            continue
        body[name] = _method(name) if isinstance(getattr(Env, name), FunctionType) else _property(name)
    body.update({name: _property(name) for name in inner.params})
    if issubclass(cls, ActionRepeat):
        takes = dict.fromkeys(_flows(inner), ("before", "now"))
        body.update({name: _summed(place) for place, name in enumerate(takes)})
    else:
        takes = dict(inner._series_takes)
        body.update({name: _method(name) for name in takes})
    made = type(cls.__name__, (cls,), {**body, _inside: inner})
    made.params = dict(inner.params)  # type: ignore[attr-defined]
    made._series_takes, made.all_series = takes, {name: kind(given) for name, given in takes.items()}  # type: ignore[attr-defined]
    return made


def _method(name: str) -> Callable[..., Any]:
    """A method of the environment inside, of states as it sees them."""

    def call(self: Any, *given: Any) -> Any:
        return getattr(self.env, name)(*[self.inside(one) if isinstance(one, State) else one for one in given])

    return call


def _property(name: str) -> property:
    return property(lambda self: getattr(self.env, name))


def _summed(place: int) -> Callable[..., Tensor]:
    def flow(self: Any, before: Any, now: Any) -> Tensor:
        return getattr(now, _FLOWS)[place]

    return flow
