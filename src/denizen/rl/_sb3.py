"""Worlds for users of Stable-Baselines3."""

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import _spaces as trees
from denizen._arguments import whole
from denizen.errors import InputError, need
from denizen.model import Box, Dict, Discrete, Env, MultiDiscrete, Space, Tuple
from denizen.rl._gymnasium import begun, check_one_actor, check_options, drawn, draws, finals
from denizen.rl._gymnasium_spaces import array, arrays, tensors_of, to_space
from denizen.rl._worlds import Step, Worlds


def to_sb3(
    env: Env,
    num_envs: int,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Any:
    """Worlds of an environment as a `VecEnv` of Stable-Baselines3.

    ```python
    vector = dz.rl.to_sb3(CartPole(), 64)
    learner = stable_baselines3.PPO("MlpPolicy", VecMonitor(vector)).learn(500_000)
    ```

    Every step waits for the device and copies to NumPy, as that library works on the host; `dz.train` does not.

    Args:
        env: with one actor.
        num_envs: number of worlds.
        seed: of the random numbers; `seed(…)` of the result takes another one at its next reset.
        device: of the worlds; None: CUDA where there is a device that works, else the CPU.
        params: parameters that differ between worlds, each with a leading axis of `num_envs`.

    Returns:
        A `stable_baselines3.common.vec_env.VecEnv`. Of a life that ended, the last observation is
        `infos[world]["terminal_observation"]`, and `infos[world]["TimeLimit.truncated"]` says that it was only cut off.
        Series of the environment are in the infos; masks are what sb3-contrib's `MaskablePPO` asks for. That library
        knows no `Dict` or `Tuple` of actions: one of choices is a `MultiDiscrete` there, a factor for each choice, and
        one of float boxes a single `Box`, their numbers side by side, each in the order of the parts.

    Raises:
        InputError: an argument does not fit, or Stable-Baselines3 has no such space.
        MissingExtra: stable_baselines3 is not installed.
    """
    need("stable_baselines3", "sb3", "make a VecEnv of Stable-Baselines3")
    check_one_actor(env, "to_sb3", "Stable-Baselines3")
    num_envs = whole("to_sb3", "num_envs", num_envs, 1, 2**31)
    _check_spaces(env)
    return _derived()(Worlds(env, num_envs, seed=seed, device=device, max_resets=num_envs, params=params))


def _check_spaces(env: Env) -> None:
    """Raise `InputError` where Stable-Baselines3 learns from no such space."""
    name = type(env).__name__
    acts, sees = env.action_space, env.observation_space
    boxes = {isinstance(leaf, Box) for _, leaf in trees.leaves(acts)}
    if len(boxes) > 1:
        raise InputError(
            f"to_sb3: {name} has action_space {acts}, and Stable-Baselines3 acts by choices or by numbers, not by "
            f"both; take dz.PPO, or make the numbers choices"
        )
    nested = isinstance(sees, Dict) and any(isinstance(part, trees.Tree) for _, part in sees.items())
    if isinstance(sees, Tuple) or nested:
        raise InputError(f"to_sb3: {name} has observation_space {sees}, and Stable-Baselines3 knows a flat Dict only")
    for what in ("action_space", "observation_space"):
        for path, space in trees.leaves(getattr(env, what)):
            _check_leaf(name, what + path, space)


def _check_leaf(name: str, what: str, space: Space) -> None:
    if isinstance(space, Discrete) and space.start and not what.startswith("action_space["):
        raise InputError(
            f"to_sb3: {name} has {what} {space}, and Stable-Baselines3 counts from 0; declare Discrete({space.n}), "
            f"and add {space.start} where it is used"
        )
    if what.startswith("action_space") and isinstance(space, Box) and not space.dtype.is_floating_point:
        raise InputError(
            f"to_sb3: {name} has action_space {space}, and Stable-Baselines3 draws real numbers for a Box; declare "
            f"a MultiDiscrete or MultiBinary for whole ones"
        )


def _flat(acts: Space) -> Space:
    """A space of actions as that library knows it; `_parts` has its values back."""
    leaves = [leaf for _, leaf in trees.leaves(acts)]
    if not isinstance(acts, trees.Tree):
        return acts
    if not isinstance(leaves[0], Box):
        return MultiDiscrete(acts.factors)
    low, high = zip(*(leaf.spans(torch.device("cpu")) for leaf in leaves if isinstance(leaf, Box)), strict=True)
    bounds = torch.cat(low), torch.cat(high)
    return Box(bounds[0].numpy(), bounds[1].numpy(), tuple(bounds[0].shape))


def _parts(acts: Space, action: Tensor) -> Any:
    """Actions of the space itself from those of its `_flat` one, `[worlds, …]`."""
    if not isinstance(acts, trees.Tree):
        return action
    leaves = [leaf for _, leaf in trees.leaves(acts)]
    columns = action.split([math.prod(leaf.shape) for leaf in leaves], -1)
    parts = [column.reshape(-1, *leaf.shape) for column, leaf in zip(columns, leaves, strict=True)]
    return trees.built(acts, [part + getattr(leaf, "start", 0) for part, leaf in zip(parts, leaves, strict=True)])


@functools.cache
def _derived() -> type:
    """The class as one of Stable-Baselines3's, which is imported no sooner."""
    from stable_baselines3.common.vec_env import VecEnv

    return type("SB3Worlds", (_SB3Worlds, VecEnv), {"__doc__": _SB3Worlds.__doc__, "__module__": __name__})


def __getattr__(name: str) -> Any:
    if name == "SB3Worlds":  # pickle looks a class up by its name
        return _derived()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _SB3Worlds:
    """Worlds behind the interface of Stable-Baselines3's vector environments; see `to_sb3`.

    Attributes:
        worlds: what is stepped.
    """

    num_envs: int
    _seeds: list[int | None]
    _options: list[dict[str, Any]]

    def __init__(self, worlds: Worlds) -> None:
        self.worlds, self._mode = worlds, draws(worlds)
        self._mask: Tensor | None = None
        self._stepped: Step | None = None
        self._acts = _flat(worlds.env.action_space)
        sees, acts = to_space(worlds.env.observation_space), to_space(self._acts)
        super().__init__(worlds.num_envs, sees, acts)  # type: ignore[call-arg]

    def reset(self) -> Any:
        """First observations; of the seed that was set, else of other starts each time."""
        for options in self._options:
            check_options(options)
        seed = self._seeds[0]
        if seed is not None:
            self.worlds.seeded(seed)
        self.worlds.run_state, observed = begun(self.worlds, seed)
        self._mask = observed.action_mask
        self.reset_infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self._reset_seeds()  # type: ignore[attr-defined]
        self._reset_options()  # type: ignore[attr-defined]
        return arrays(observed.observation)

    def step_async(self, actions: np.ndarray) -> None:
        """Begin a step; a GPU computes it while the host goes on."""
        action = tensors_of(self._acts, actions)
        self._stepped = self.worlds.step(_parts(self.worlds.env.action_space, action))

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """(observations, rewards, dones, infos) of the step that was begun.

        Raises:
            InputError: none was.
            ModelError: an action outside the space, or a reward or observation that is not finite.
        """
        step, self._stepped = self._stepped, None
        if step is None:
            raise InputError("step_wait: no step was begun; call step_async(actions) first")
        self.worlds.check()
        self._mask = step.observed.action_mask
        ended, cut = array(step.ended), array(step.truncated & ~step.terminated)
        series = [(name, array(flow).tolist()) for name, flow in step.flows.items()]
        infos: list[dict[str, Any]] = [
            {"TimeLimit.truncated": bool(cut[world]), **{name: values[world] for name, values in series}}
            for world in range(self.num_envs)
        ]
        if ended.any():
            last = finals(step, ended)
            for world in np.flatnonzero(ended):
                infos[world]["terminal_observation"] = last[world]
        return arrays(step.observed.observation), array(step.reward), ended, infos

    def close(self) -> None:
        """Nothing to do."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Of each world: a parameter, or another attribute of the environment, which all worlds share."""
        rows, env = self._rows(indices), self.worlds.env
        if attr_name == "render_mode":
            return [self._mode for _ in rows]
        if attr_name == "action_masks" and type(env).action_mask is not Env.action_mask:
            return [functools.partial(self._masks, row) for row in rows]
        if attr_name in self.worlds.values:
            value = array(self.worlds.values[attr_name])
            return [value[row] for row in rows]
        return [getattr(env, attr_name) for _ in rows]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Nothing can be set.

        Raises:
            InputError: always.
        """
        raise InputError(
            f"set_attr: {attr_name!r} cannot be set, since all worlds share one environment; make them with "
            f"to_sb3(…, params={{{attr_name!r}: …}})"
        )

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """`action_masks` or `render` of each world.

        Raises:
            InputError: another method.
        """
        rows = self._rows(indices)
        if method_name == "action_masks" and self._mask is not None:
            return [self._masks(row) for row in rows]
        if method_name == "render" and self._mode is not None:
            return [drawn(self.worlds, row) for row in rows]
        raise InputError(
            f"env_method: {type(self.worlds.env).__name__} has no method {method_name!r} of a single world"
        )

    def _masks(self, world: int) -> np.ndarray:
        if self._mask is None:
            raise InputError("action_masks: the worlds have not begun; call reset() first")
        return array(self._mask[world])

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Never."""
        return [False for _ in self._rows(indices)]

    def get_images(self) -> list[np.ndarray | None]:
        """A picture of each world; None where the environment draws none, or text."""
        if self._mode != "rgb_array":
            return [None for _ in range(self.num_envs)]
        return [drawn(self.worlds, world) for world in range(self.num_envs)]

    def _rows(self, indices: Any) -> Iterable[int]:
        if indices is None:
            return range(self.num_envs)
        return [indices] if isinstance(indices, int) else list(indices)
