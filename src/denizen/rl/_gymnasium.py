"""Worlds for Gymnasium's users, and Gymnasium's environments as worlds."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import denizen.model as model
from denizen._arguments import whole
from denizen.errors import InputError, expect_function, need
from denizen.model import Box, Discrete, Env, MultiBinary, MultiDiscrete, Observed, Space
from denizen.model._env import can_draw, picture
from denizen.rl._worlds import Step, Worlds, check_kind
from denizen.rng import MAX_SEED, Rng
from denizen.run import choose_device


def to_gymnasium(worlds: Worlds, *, tensors: bool = False) -> Any:
    """Worlds as a Gymnasium `VectorEnv`, with autoreset in the same step.

    Args:
        worlds: of an environment with one actor; all of them must be able to reset in one step.
        tensors: give tensors on the device and wait for nothing, in place of NumPy arrays.

    Returns:
        A `gymnasium.vector.VectorEnv`; `infos["final_obs"]` holds the last observations of lives that ended.

    Raises:
        InputError: the worlds do not fit.
        MissingExtra: gymnasium is not installed.

    Examples:
        >>> import denizen as dz
        >>> from denizen.zoo.cartpole import CartPole
        >>> vector = dz.rl.to_gymnasium(dz.rl.Worlds(CartPole(), 16))
        >>> observations, infos = vector.reset(seed=1)
        >>> observations.shape
        (16, 4)
    """
    need("gymnasium", "gym", "make a Gymnasium VectorEnv")
    if not isinstance(worlds, Worlds):
        raise InputError(f"to_gymnasium: worlds is {type(worlds).__name__}, expected a dz.rl.Worlds")
    if worlds.env.num_actors is not None:
        raise InputError(
            f"to_gymnasium: {type(worlds.env).__name__} has {worlds.env.num_actors} actors in a world, and Gymnasium "
            f"knows one; use dz.rl.to_pettingzoo"
        )
    if worlds.max_resets < worlds.num_envs:
        raise InputError(
            f"to_gymnasium: worlds reset at most {worlds.max_resets} of {worlds.num_envs} lives in a step, and "
            f"Gymnasium knows no world that waits; make them with max_resets={worlds.num_envs}"
        )
    return _derived()(worlds, tensors)


@functools.cache
def _derived() -> type:
    """The class as one of Gymnasium's vector environments, which is imported no sooner."""
    from gymnasium.vector import VectorEnv

    return type("GymnasiumWorlds", (_GymnasiumWorlds, VectorEnv), {"__doc__": _GymnasiumWorlds.__doc__})


def __getattr__(name: str) -> Any:
    if name == "GymnasiumWorlds":  # pickle looks a class up by its name
        return _derived()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _GymnasiumWorlds:
    """Worlds behind Gymnasium's interface, reset in the step in which a life ends; see `to_gymnasium`.

    Attributes:
        worlds: what is stepped.
        tensors: whether tensors on the device are given in place of NumPy arrays.
    """

    def __init__(self, worlds: Worlds, tensors: bool) -> None:
        from gymnasium.vector import AutoresetMode
        from gymnasium.vector.utils import batch_space

        self.worlds, self.tensors, self.num_envs = worlds, tensors, worlds.num_envs
        self.single_observation_space = to_space(worlds.env.observation_space)
        self.single_action_space = to_space(worlds.env.action_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        mode = None
        if can_draw(worlds.env):
            run_state, _ = worlds.begin()
            mode = "rgb_array" if isinstance(picture(worlds.env, worlds.state_of(run_state, 0)), Tensor) else "ansi"
        self.render_mode = mode
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": [mode] if mode else []}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin every world anew.

        Args:
            seed: of the random numbers; None: at the first call those of the worlds, then other starts each time.
            options: none are known.

        Raises:
            InputError: an option is given, or a seed that is no whole number from 0 to 2**32 - 1.
        """
        if options:
            raise InputError(f"reset: options={options!r}, expected none: give parameters to Worlds(…, params=…)")
        worlds = self.worlds
        if seed is not None:
            worlds.seeded(seed)
        again = None if seed is not None or worlds.run_state is None else worlds.run_state.clock + 1
        worlds.run_state, observed = worlds.begin(again)
        return self._given(observed.observation), self._more(observed.action_mask)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """(observations, rewards, terminations, truncations, infos) of one step of every world.

        Of lives that ended, observations are the first of the next life; `infos["final_obs"]` holds the last of the
        old one, `infos["_final_obs"]` tells where. Each series of the environment is an entry of infos.

        Raises:
            InputError: actions of a wrong shape or dtype.
            ModelError: an action outside the space, or a reward or observation that is not finite (NumPy only; with
                tensors, which wait for nothing, call `worlds.check()` now and then).
        """
        step = self.worlds.step(torch.as_tensor(actions))
        if not self.tensors:
            self.worlds.check()
        infos = self._more(step.observed.action_mask) | {name: self._given(flow) for name, flow in step.flows.items()}
        infos |= {f"_{name}": self._given(step.valid) for name in step.flows}
        infos |= self._final(step)
        reward = step.reward if self.tensors else array(step.reward).astype(np.float64)
        flags = self._given(step.terminated), self._given(step.truncated)
        return self._given(step.observed.observation), reward, *flags, infos

    def _final(self, step: Step) -> dict[str, Any]:
        if self.tensors:  # rows of all worlds, in their order: as many are reset in a step
            return {"final_obs": step.final.observation, "_final_obs": step.ended}
        ended = array(step.ended)
        if not ended.any():
            return {}
        seen, last = array(step.final.observation), np.full(self.num_envs, None, dtype=object)
        for world in np.flatnonzero(ended):
            last[world] = seen[world]
        return {"final_obs": last, "_final_obs": ended, "final_info": {}, "_final_info": ended}

    def _more(self, mask: Tensor | None) -> dict[str, Any]:
        if mask is None:
            return {}
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=mask.device)
        return {"action_mask": self._given(mask), "_action_mask": self._given(everywhere)}

    def _given(self, tensor: Tensor) -> Any:
        return tensor if self.tensors else array(tensor)

    def render(self) -> tuple[Any, ...] | None:
        """A picture of each world: uint8 `[height, width, 3]`, or text."""
        if self.render_mode is None:
            return None
        drawn = [picture(self.worlds.env, self.worlds.state(world)) for world in range(self.num_envs)]
        return tuple(array(one) if isinstance(one, Tensor) else "\n".join(one) for one in drawn)


class Nothing(model.State):
    """Stands for the state of an environment that is not denizen's."""

    zero: Tensor = model.real()


class Foreign(Env):
    """Spaces of an environment that is stepped elsewhere; enough to build a policy for it.

    Attributes:
        acts: action space.
        sees: observation space.
    """

    acts: Space
    sees: Space

    @property
    def action_space(self) -> Space:
        """As given."""
        return self.acts

    @property
    def observation_space(self) -> Space:
        """As given."""
        return self.sees

    def init(self, rng: Rng) -> Nothing:
        """Nothing."""
        return Nothing(zero=torch.zeros(()))

    def step(self, now: Nothing, action: Tensor, rng: Rng) -> Nothing:
        """Nothing."""
        return now

    def observe(self, now: Nothing) -> Tensor:
        """Zeros."""
        return torch.zeros(self.sees.shape, dtype=self.sees.dtype, device=now.zero.device)

    def reward(self, before: Nothing, action: Tensor, now: Nothing) -> Tensor:
        """0."""
        return now.zero

    def terminated(self, now: Nothing) -> Tensor:
        """Never."""
        return now.zero > 0


class FromGymnasium:
    """Gymnasium environments, one process each, behind the interface of `Worlds`: `reset`, `step`, `check`.

    They live on the host, so every step waits for them: nothing here is captured, and `train` takes `Worlds` only. Use
    it to evaluate a policy elsewhere, or to drive a loop of your own.

    Attributes:
        env: spaces, to make a policy with: ``dz.rl.mlp(worlds.env)``.
        num_envs: number of environments.
        device: on which looks and rewards are given.
        vector: Gymnasium's vector environment.
    """

    def __init__(
        self,
        make: str | Callable[[], Any],
        num_envs: int,
        *,
        seed: int = 0,
        device: torch.device | str | None = None,
        processes: bool = True,
        **options: Any,
    ) -> None:
        """Args:
        make: an id that Gymnasium knows, such as ``"CartPole-v1"``, or a function that makes one environment.
        num_envs: how many.
        seed: of the first reset.
        device: of what is given; None: CUDA where there is a device that works, else the CPU.
        processes: run each environment in a process of its own; False: one after another, in this one.
        **options: for `gymnasium.make`, where an id is given.

        Raises:
            InputError: an argument does not fit, or a space is neither Discrete nor Box.
            MissingExtra: gymnasium is not installed.
        """
        gymnasium = need("gymnasium", "gym", "step Gymnasium environments")
        from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

        num_envs = whole("FromGymnasium", "num_envs", num_envs, 1)
        seed = whole("FromGymnasium", "seed", seed, 0, MAX_SEED)
        if not callable(make) and not isinstance(make, str):
            raise InputError(f"FromGymnasium: make={make!r}, expected an id such as 'CartPole-v1', or a function")
        if callable(make) and options:
            raise InputError(f"FromGymnasium: options {sorted(options)} go with an id, not with a function")
        if callable(make):
            expect_function("FromGymnasium: make", make)
        function = make if callable(make) else lambda: gymnasium.make(make, **options)
        kind = AsyncVectorEnv if processes else SyncVectorEnv
        self.num_envs, self.seed = num_envs, seed
        self.device, _ = choose_device(device, "FromGymnasium")
        try:
            self.vector = kind([function] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        except gymnasium.error.Error as error:
            raise InputError(f"FromGymnasium: make={make!r}: {error}") from error
        try:
            actions = self.vector.single_action_space
            observations = self.vector.single_observation_space
            seen = from_space(observations, "the observation space")
            acts = from_space(actions, "the action space")
            self._acts: Any = actions
            self._first = int(getattr(actions, "start", 0)) if isinstance(acts, Discrete) else 0
            self.env = Foreign(acts, self._box(seen, observations))
        except InputError:
            self.close()
            raise
        self._begun = False

    @staticmethod
    def _box(seen: Space, given: Any) -> Space:
        """What is observed as a Box; of a `Discrete` its numbers as Gymnasium has them, which may start anywhere."""
        if not isinstance(seen, Discrete):
            return seen
        first = int(given.start)
        return Box(first, first + seen.n - 1, (1,), torch.int64)

    def reset(self) -> Observed:
        """Begin every environment anew, from the seed; the same each time."""
        seen, _ = self.vector.reset(seed=self.seed)
        self._begun = True
        return self._observed(seen)

    def step(self, action: Tensor) -> Step:
        """One step of every environment.

        Args:
            action: `[environments]` for a `Discrete` space (any integer dtype), else `[environments, …]`.

        Raises:
            InputError: an action has another shape or dtype, or lies outside its space.
        """
        if not self._begun:
            raise InputError("FromGymnasium.step: the environments have not begun; call reset() first")
        seen, reward, terminated, truncated, infos = self.vector.step(self._checked(action))
        ended = terminated | truncated
        last = seen.copy()
        for row in ended.nonzero()[0]:
            last[row] = infos["final_obs"][row]
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        numbers = torch.arange(self.num_envs, device=self.device)
        paid = torch.as_tensor(reward, dtype=torch.float32, device=self.device)
        dead, cut = (torch.as_tensor(flag, device=self.device) for flag in (terminated, truncated))
        return Step(self._observed(seen), paid, dead, cut, everywhere, {}, self._observed(last), numbers)

    def _checked(self, action: Any) -> Any:
        space = self.env.action_space
        wanted = (self.num_envs, *space.shape)
        if not isinstance(action, Tensor) or tuple(action.shape) != wanted:
            found = tuple(action.shape) if isinstance(action, Tensor) else type(action).__name__
            raise InputError(f"action is {found}, expected a tensor of shape {wanted}")
        check_kind(action, space)
        action = action if action.is_floating_point() else action.to(torch.int64)  # of some dtypes torch compares none
        outside = space.fault(action).flatten(1).any(1) if action.dim() > 1 else space.fault(action)
        if bool(outside.any()):
            row = int(outside.nonzero()[0])
            raise InputError(f"action {action[row].tolist()} of environment {row} lies outside {space}")
        given = action.cpu().numpy()
        if isinstance(space, Discrete):
            given = given.astype(np.int64) + self._first
        elif hasattr(self._acts, "low"):  # in its own precision a bound may lie a little within what it is here
            given = given.clip(self._acts.low, self._acts.high)
        return given.astype(self._acts.dtype)

    def _observed(self, seen: Any) -> Observed:
        space = self.env.observation_space
        observation = torch.as_tensor(seen, device=self.device).to(
            space.dtype, copy=True
        )  # Gymnasium reuses its memory
        return Observed(observation.reshape(self.num_envs, *space.shape), None, None, None)

    def check(self) -> None:
        """Nothing to do: what is wrong is told at once."""

    def close(self) -> None:
        """End the processes."""
        self.vector.close()

    def __enter__(self) -> "FromGymnasium":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# In which values of a Box are kept: float64 in less, what torch hardly computes in, in more.
_DTYPES = {
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float32,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "uint16": torch.int32,
    "uint32": torch.int64,
    "bool": torch.bool,
}


def to_space(space: Space) -> Any:
    """A space of Gymnasium's from one of denizen's."""
    from gymnasium import spaces

    if isinstance(space, Discrete):
        return spaces.Discrete(space.n, start=space.start)
    if isinstance(space, MultiDiscrete):
        return spaces.MultiDiscrete(list(space.nvec))
    if isinstance(space, MultiBinary):
        return spaces.MultiBinary(space.n)
    if space.dtype == torch.bool:
        return spaces.MultiBinary(space.shape)
    dtype = array(torch.zeros((), dtype=space.dtype)).dtype
    low, high = _entries(space.low, dtype, math.ceil), _entries(space.high, dtype, math.floor)
    return spaces.Box(low, high, space.shape, dtype=dtype.type)  # type: ignore[arg-type]


def _entries(bound: Any, dtype: np.dtype, whole: Callable[[float], int]) -> Any:
    """A bound as numbers that a dtype holds: one, or an array of it."""
    if isinstance(bound, tuple):
        entries = [_entries(entry, dtype, whole) for entry in bound]
        return np.array(entries, dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return float(dtype.type(bound))
    limits = np.iinfo(dtype)
    if math.isinf(bound):
        return int(limits.min if bound < 0 else limits.max)
    return min(max(whole(bound), int(limits.min)), int(limits.max))


def from_space(space: Any, name: str) -> Space:
    """A space of denizen's from one of Gymnasium's.

    Raises:
        InputError: there is none like it.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiBinary):
        return Box(0, 1, tuple(space.shape), torch.int8)
    if isinstance(space, spaces.Box) and space.dtype.name in _DTYPES:
        return Box(space.low, space.high, tuple(space.shape), _DTYPES[space.dtype.name])
    found = f"Box of {space.dtype}" if isinstance(space, spaces.Box) else type(space).__name__
    instead = "FlattenObservation" if "observation" in name else "TransformAction"
    raise InputError(
        f"FromGymnasium: {name} is {space}, expected a Discrete, a MultiBinary or a Box; there is no {found} here: "
        f"wrap the environment, for example with gymnasium.wrappers.{instead}"
    )


def array(tensor: Tensor) -> np.ndarray:
    """A NumPy copy; of bfloat16, which NumPy lacks, in float32."""
    tensor = tensor.to(torch.float32) if tensor.dtype == torch.bfloat16 else tensor
    return tensor.detach().cpu().numpy().copy()
