"""Worlds as Gymnasium's VectorEnv; imports gymnasium, so it is imported late itself."""

from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from denizen.errors import InputError
from denizen.model import Env
from denizen.rl._gymnasium_spaces import array, to_space
from denizen.rl._worlds import Step, Worlds


class GymnasiumWorlds(VectorEnv):
    """Worlds behind Gymnasium's interface, reset in the step in which a life ends; see `to_gymnasium`.

    Attributes:
        worlds: what is stepped.
        tensors: whether tensors on the device are given in place of NumPy arrays.
    """

    def __init__(self, worlds: Worlds, tensors: bool) -> None:
        self.worlds, self.tensors, self.num_envs = worlds, tensors, worlds.num_envs
        self.single_observation_space = to_space(worlds.env.observation_space)
        self.single_action_space = to_space(worlds.env.action_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        mode = None
        if type(worlds.env).draw is not Env.draw:
            carry, _ = worlds.begin()
            mode = "rgb_array" if isinstance(worlds.env.draw(worlds.state_of(carry, 0)), Tensor) else "ansi"
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
        again = None if seed is not None or worlds.carry is None else worlds.carry.clock + 1
        worlds.carry, look = worlds.begin(again)
        return self._given(look.observation), self._more(look.action_mask)

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
        infos = self._more(step.look.action_mask) | {name: self._given(flow) for name, flow in step.flows.items()}
        infos |= {f"_{name}": self._given(step.valid) for name in step.flows}
        infos |= self._final(step)
        reward = step.reward if self.tensors else array(step.reward).astype(np.float64)
        flags = self._given(step.terminated), self._given(step.truncated)
        return self._given(step.look.observation), reward, *flags, infos

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
        drawn = [self.worlds.env.draw(self.worlds.state(world)) for world in range(self.num_envs)]
        return tuple(array(one) if isinstance(one, Tensor) else "\n".join(one) for one in drawn)
