"""Gymnasium's environments as worlds on the host."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import denizen.model as model
from denizen._arguments import whole
from denizen.errors import InputError, expect_function, need
from denizen.model import Box, Discrete, Env, Observed, Space
from denizen.rl._gymnasium_spaces import from_space
from denizen.rl._worlds import Step, check_kind
from denizen.rng import MAX_SEED, Rng
from denizen.run import choose_device


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
