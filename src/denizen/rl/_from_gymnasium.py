"""Gymnasium's environments as worlds on the host."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from denizen import _processes as processes
from denizen import _spaces as trees
from denizen._arguments import one_of, whole
from denizen.errors import InputError, ModelError, expect_function, need
from denizen.model import Env, Observed, Space
from denizen.rl._gymnasium_spaces import check_inside, from_space, leaves_of, to_dtype
from denizen.rl._worlds import Step, WorldsState, check_kind
from denizen.rng import MAX_SEED, Rng
from denizen.run import choose_device

AUTORESET = ("same_step", "next_step")


class Foreign(Env):
    """Spaces of an environment that is stepped elsewhere; enough to build a policy for it.

    Attributes:
        name: of the environment.
        acts: action space.
        sees: observation space.
    """

    name: str
    acts: Space
    sees: Space

    @property
    def _called(self) -> str:
        return self.name

    @property
    def action_space(self) -> Space:
        """As given."""
        return self.acts

    @property
    def observation_space(self) -> Space:
        """As given."""
        return self.sees

    def init(self, rng: Rng) -> Any:
        """Raise `ModelError`: there are no such worlds here."""
        raise ModelError(
            f"{self.name} is stepped on the host by its FromGymnasium alone; give that to dz.train, wrapped before by "
            f"what gymnasium.wrappers has, or write a dz.Env for worlds on the device"
        )

    def truncated(self, now: Any) -> Tensor | None:
        """Nobody knows when, so trainers ask at every step."""
        return None


class FromGymnasium:
    """Environments of Gymnasium behind the interface of `Worlds`: `reset`, `step`, `check`; `dz.train` takes it too.

    They live on the host, so every step waits for them, and nothing of a rollout is captured.

    Attributes:
        env: spaces, to make a policy with: ``dz.rl.mlp(worlds.env)``.
        num_envs: number of environments.
        device: on which looks and rewards are given.
        vector: Gymnasium's vector environment.
        autoreset: when a life that ended begins anew: in the ``"same_step"`` or in the ``"next_step"``, in which the
            environment does not act: `Step.valid` is False there.
        steps: taken so far.
        copies: of tensors between the host and the device, so far.
        waits: for the device, so far.
        seconds: that Gymnasium's steps took, so far.
    """

    in_place = False  # what follows is what a `Rollout` asks of `Worlds`
    modules: tuple[nn.Module, ...] = ()

    def __init__(
        self,
        make: Any,
        num_envs: int | None = None,
        *,
        seed: int = 0,
        device: torch.device | str | None = None,
        processes: bool = True,
        autoreset: str | None = None,
        **options: Any,
    ) -> None:
        """Args:
        make: an id that Gymnasium knows, such as ``"CartPole-v1"``, a function that makes one environment, or a
            `gymnasium.vector.VectorEnv`.
        num_envs: how many; None: as many as a vector environment has.
        seed: of the first reset; `dz.train` gives its own.
        device: of what is given; None: CUDA where there is a device that works, else the CPU.
        processes: run each environment in a process of its own; False: one after another, in this one.
        autoreset: ``"same_step"`` or ``"next_step"``; None: the first, or what a vector environment does.
        **options: for `gymnasium.make`, where an id is given.

        Raises:
            InputError: an argument does not fit, or a space that there is not here.
            MissingExtra: gymnasium is not installed.
        """
        need("gymnasium", "gym", "step Gymnasium environments")
        from gymnasium.vector import VectorEnv

        seed = whole("FromGymnasium", "seed", seed, 0, MAX_SEED)
        self.seed, self.device = seed, choose_device(device, "FromGymnasium")[0]
        if isinstance(make, VectorEnv):
            name = _check_vector(make, num_envs, autoreset, options)
            self.vector: Any = make
        else:
            name = make if isinstance(make, str) else getattr(make, "__name__", type(make).__name__)
            self.vector = _vector(make, num_envs, processes, autoreset or "same_step", options)
        self.num_envs = int(self.vector.num_envs)
        self.autoreset: str = self.vector.metadata["autoreset_mode"].name.lower()
        try:
            self._acts, self._sees = self.vector.single_action_space, self.vector.single_observation_space
            acts, sees = from_space(self._acts, "the action space"), from_space(self._sees, "the observation space")
        except InputError:
            if not isinstance(make, VectorEnv):
                self.close()
            raise
        self.env = Foreign(name, acts, sees).to(self.device)
        self.world_params, self.values = nn.Module(), {}
        self.steps = self.copies = self.waits = 0
        self.seconds = 0.0
        self._pinned: dict[str, Tensor] = {}
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        self._begun = False

    # --- use ----------------------------------------------------------------------------------------------------------

    def reset(self) -> Observed:
        """Begin every environment anew, from the seed; the same each time."""
        seen, _ = self.vector.reset(seed=self.seed)
        self._begun = True
        self._over[:] = False
        return self._observed(seen, "look")

    def step(self, action: Any) -> Step:
        """One step of every environment.

        Args:
            action: `[environments, …]`, of any integer dtype for choices; of a `Dict` or `Tuple` space a dict or tuple
                of such.

        Raises:
            InputError: an action has another shape or dtype, or lies outside its space.
            ModelError: a reward or observation that is not finite.
        """
        if not self._begun:
            raise InputError("FromGymnasium.step: the environments have not begun; call reset() first")
        given = self._checked(action)
        began = time.perf_counter()
        seen, reward, terminated, truncated, infos = self.vector.step(given)
        self.seconds += time.perf_counter() - began
        self.steps += 1
        valid, reward = ~self._over, np.asarray(reward, dtype=np.float64)
        ended = (terminated | truncated) & valid
        _check_finite("a reward", reward)
        told = self._up("told", np.stack([reward, terminated & valid, truncated & valid, valid]).astype(np.float32))
        now = last = self._observed(seen, "look")
        if self.autoreset == "next_step":
            self._over = ended
        elif ended.any():
            space = self.env.observation_space
            kept = trees.mapped(space, lambda part, _: np.array(part), seen)
            for row in ended.nonzero()[0]:
                final = trees.values(space, infos["final_obs"][row])
                for part, value in zip(trees.values(space, kept), final, strict=True):
                    part[row] = value
            last = self._observed(kept, "last")
        dead, cut, acted = (told[1:] > 0).unbind()
        return Step(now, told[0], dead, cut, acted, {}, last, torch.arange(self.num_envs, device=self.device))

    def _checked(self, action: Any) -> Any:
        space = self.env.action_space
        try:
            parts = trees.values(space, action)
        except InputError as error:
            raise InputError(f"action {error}") from error
        leaves = trees.leaves(space)
        for part, (path, leaf) in zip(parts, leaves, strict=True):
            wanted = (self.num_envs, *leaf.shape)
            if not isinstance(part, Tensor) or tuple(part.shape) != wanted:
                found = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
                raise InputError(f"action{path} is {found}, expected a tensor of shape {wanted}")
            check_kind(part, leaf, f"action{path}")
        given = zip(self._down(parts), leaves, leaves_of(self._acts), strict=True)
        return trees.built(space, [check_inside(part, leaf, its, f"action{path}") for part, (path, leaf), its in given])

    def _observed(self, seen: Any, name: str) -> Observed:
        space = self.env.observation_space
        ups = []
        for part, (path, leaf) in zip(trees.values(space, seen), trees.leaves(space), strict=True):
            _check_finite(f"an observation{trees.at(path)}", part)
            ups.append(self._up(f"{name}{path}", to_dtype(part, leaf)))
        return Observed(trees.built(space, ups), None, None, None)

    def check(self, run_state: WorldsState | None = None) -> None:
        """Nothing to do: what is wrong is told at once."""

    def close(self) -> None:
        """End the processes."""
        self.vector.close()

    def __enter__(self) -> "FromGymnasium":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- between the host and the device ------------------------------------------------------------------------------

    def _up(self, name: str, values: np.ndarray) -> Tensor:
        """A copy on the device; on CUDA by way of pinned memory, without a wait."""
        self.copies += 1
        given = torch.from_numpy(np.ascontiguousarray(values))
        if self.device.type != "cuda":
            return given.clone()  # Gymnasium reuses its memory
        # Written again after `_down` has waited for all that the device was to do before, this copy included.
        return self._staging(name, given).copy_(given).to(self.device, non_blocking=True)

    def _down(self, parts: list[Tensor]) -> list[Tensor]:
        """Copies on the host, once the device has computed them."""
        self.copies += len(parts)
        if parts[0].device.type != "cuda":
            return [part.detach().cpu() for part in parts]
        held = [self._staging(f"action {k}", part).copy_(part, non_blocking=True) for k, part in enumerate(parts)]
        torch.cuda.current_stream(parts[0].device).synchronize()
        self.waits += 1
        return held

    def _staging(self, name: str, like: Tensor) -> Tensor:
        held = self._pinned.get(name)
        if held is None or held.shape != like.shape or held.dtype != like.dtype:
            held = torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
            self._pinned[name] = held
        return held

    def cost(self, seconds: float) -> str:
        """What stepping on the host took of a training of so many seconds, in words."""
        steps = max(self.steps, 1)
        waits = "no wait" if not self.waits else f"{self.waits / steps:.3g} wait"
        share = 100 * self.seconds / max(seconds, 1e-9)
        return (
            f"{self.env.name} was stepped on the host, {share:.0f} % of the time: {self.copies / steps:.3g} copies and "
            f"{waits} for the device a step"
        )

    # --- for trainers -------------------------------------------------------------------------------------------------

    def for_training(
        self, algorithm: Any, seed: int, device: torch.device | str | None, params: Mapping[str, Any] | None
    ) -> "FromGymnasium":
        """This, from its beginning on, with another seed and on another device.

        Args:
            algorithm: which it is for.
            seed: of the first reset.
            device: of what is given.
            params: of worlds, of which there are none here.

        Raises:
            InputError: worlds on the host could not do what the algorithm is asked for.
        """
        name, num_envs = type(algorithm).__name__, algorithm.num_envs
        if params:
            raise InputError(f"{name}: params={params!r} of a FromGymnasium; give options to it, such as gravity=5.0")
        if processes.size() > 1:
            raise InputError(f"{name}: a FromGymnasium trains in one process; make more environments in that")
        if num_envs != self.num_envs:
            raise InputError(
                f"{name}: num_envs={num_envs}, and the FromGymnasium has {self.num_envs} environments; take "
                f"num_envs={self.num_envs}"
            )
        self.seed, self.device = seed, choose_device(device, "train")[0]
        self.env = self.env.to(self.device)
        self.steps = self.copies = self.waits = 0
        self.seconds = 0.0
        return self

    def begin(self, clock: Tensor | None = None) -> tuple[WorldsState, Observed]:
        """First looks, and books that every run state has."""
        counts = torch.zeros(2, self.num_envs, dtype=torch.int64, device=self.device)
        waiting, faults = torch.zeros_like(counts[0], dtype=torch.bool), torch.full_like(counts[0], -1)
        clock = torch.zeros((), dtype=torch.int64, device=self.device) if clock is None else clock
        return WorldsState([], counts[0], waiting, clock, faults, counts[1]), self._stored(self.reset())

    def _stored(self, observed: Observed) -> Observed:
        """What is seen as trainers keep it: a tree as rows of bytes."""
        return observed._replace(observation=trees.packed(self.env.observation_space, observed.observation))

    def next_in_place(self, tensors: list[Tensor], action: Any) -> tuple[list[Tensor], Step]:
        """A step, of whose run state only the books change."""
        age, waiting, clock, faults, waited = tensors
        step = self.step(action)
        step = step._replace(observed=self._stored(step.observed), final=self._stored(step.final))
        age = torch.where(step.ended, 0, age + step.valid)
        return [age, waiting, clock + 1, faults, waited + ~step.valid], step


def _check_vector(make: Any, num_envs: Any, autoreset: Any, options: dict[str, Any]) -> str:
    """The name of a vector environment; raises `InputError` where it does not fit."""
    mode = make.metadata.get("autoreset_mode")
    name = str(getattr(getattr(make, "spec", None), "id", None) or type(make.unwrapped).__name__)
    if getattr(mode, "name", "").lower() not in AUTORESET:
        raise InputError(
            f"FromGymnasium: {name} has metadata['autoreset_mode']={mode!r}, expected SAME_STEP or NEXT_STEP"
        )
    if num_envs is not None and num_envs != make.num_envs:
        raise InputError(f"FromGymnasium: num_envs={num_envs!r}, and the vector environment has {make.num_envs}")
    has = mode.name.lower()
    if autoreset is not None and autoreset != has:
        raise InputError(f"FromGymnasium: autoreset={autoreset!r}, and the vector environment has {has!r}")
    if options:
        raise InputError(f"FromGymnasium: options {sorted(options)} go with an id, not with a vector environment")
    return name


def _vector(make: Any, num_envs: Any, processes: bool, autoreset: str, options: dict[str, Any]) -> Any:
    import gymnasium
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

    if not callable(make) and not isinstance(make, str):
        raise InputError(
            f"FromGymnasium: make={make!r}, expected an id such as 'CartPole-v1', a function, or a VectorEnv"
        )
    count = whole("FromGymnasium", "num_envs", num_envs, 1)
    one_of("FromGymnasium", "autoreset", autoreset, AUTORESET)
    if callable(make) and options:
        raise InputError(f"FromGymnasium: options {sorted(options)} go with an id, not with a function")
    if callable(make):
        expect_function("FromGymnasium: make", make)
    function: Callable[[], Any] = make if callable(make) else lambda: gymnasium.make(make, **options)
    kind = AsyncVectorEnv if processes else SyncVectorEnv
    try:
        return kind([function] * count, autoreset_mode=AutoresetMode[autoreset.upper()])
    except gymnasium.error.Error as error:
        told = str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f"FromGymnasium: make={make!r}: {told}; gymnasium.registry lists the ids, and a package that brings its "
            f"own is imported first, or named before a colon: 'package:Id-v0'"
        ) from error


def _check_finite(what: str, values: Any) -> None:
    """Raise `ModelError` where numbers of an environment are not finite."""
    numbers = np.asarray(values)
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        row = int(np.argwhere(~np.isfinite(numbers))[0][0])
        raise ModelError(f"FromGymnasium: {what} of environment {row} is {numbers[row]}, which is not finite")


def later_seed(seed: int, updates: int) -> int:
    """The seed of a training that goes on after so many updates: another one, so that no life is lived twice."""
    return int(np.random.SeedSequence([seed, updates]).generate_state(1)[0])
