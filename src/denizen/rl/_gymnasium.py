"""Worlds for Gymnasium's users: one as an `Env`, many as a `VectorEnv`."""

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import _spaces as trees
from denizen import _tree
from denizen._arguments import one_of
from denizen.errors import InputError, need
from denizen.model import Discrete, Env, Observed, Space, can_draw, picture
from denizen.rl._gymnasium_spaces import array, arrays, checked_parts, tensors_of, to_space
from denizen.rl._worlds import Step, Worlds, WorldsState, check_env, named

AUTORESET = ("same_step", "next_step", "disabled")
FRAMES = 30  # a second, of films that Gymnasium's wrappers make


def to_gymnasium(
    env: Env | Worlds,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    render_mode: str | None = None,
    tensors: bool = False,
    autoreset: str = "same_step",
) -> Any:
    """An environment as a Gymnasium `Env`, or worlds of it as a `VectorEnv`.

    Args:
        env: an environment, of which one world becomes a `gymnasium.Env`; or a `Worlds`, all of which must be able to
            reset in one step. With one actor.
        seed: of the random numbers of a single world; a `Worlds` has its own.
        device: of a single world; None: CUDA where there is a device that works, else the CPU.
        render_mode: of a single world: None, or what it draws: ``"rgb_array"`` or ``"ansi"``.
        tensors: of a `Worlds`: give tensors on the device and wait for nothing, in place of NumPy arrays.
        autoreset: of a `Worlds`: a life that ended begins anew in the ``"same_step"``, in the ``"next_step"``, whose
            action is not used, or where ``"disabled"`` by `reset(options={"reset_mask": …})`.

    Returns:
        A `gymnasium.Env` or a `gymnasium.vector.VectorEnv`. Autoreset in the same step gives the last observations of
        lives that ended as `infos["final_obs"]`.

    Raises:
        InputError: an argument does not fit.
        MissingExtra: gymnasium is not installed.

    Examples:
        >>> import denizen as dz
        >>> from denizen.zoo.cartpole import CartPole
        >>> world = dz.rl.to_gymnasium(CartPole())
        >>> observation, info = world.reset(seed=1)
        >>> vector = dz.rl.to_gymnasium(dz.rl.Worlds(CartPole(), 16))
        >>> observations, infos = vector.reset(seed=1)
        >>> observation.shape, observations.shape
        ((4,), (16, 4))
    """
    need("gymnasium", "gym", "make an environment of Gymnasium")
    if not isinstance(env, Env | Worlds):
        raise InputError(f"to_gymnasium: env is {named(env)}, expected a dz.Env, such as CartPole(), or a dz.rl.Worlds")
    check_one_actor(env.env if isinstance(env, Worlds) else env, "to_gymnasium", "Gymnasium")
    one_of("to_gymnasium", "autoreset", autoreset, AUTORESET)
    if isinstance(env, Env):
        if tensors or autoreset != "same_step":
            raise InputError(
                "to_gymnasium: tensors= and autoreset= are of a dz.rl.Worlds; give one in place of the env"
            )
        return derived("GymnasiumWorld")(env, seed, device, render_mode)
    if seed or device is not None or render_mode is not None:
        raise InputError(
            "to_gymnasium: seed=, device= and render_mode= are of a single world; a dz.rl.Worlds has its own"
        )
    if env.max_resets < env.num_envs:
        raise InputError(
            f"to_gymnasium: worlds reset at most {env.max_resets} of {env.num_envs} lives in a step, and "
            f"Gymnasium knows no world that waits; make them with max_resets={env.num_envs}"
        )
    if tensors and autoreset == "disabled":
        raise InputError(
            "to_gymnasium: tensors=True with autoreset='disabled', which looks at every step at whose life is over; "
            "take 'same_step' or 'next_step'"
        )
    return derived("GymnasiumWorlds")(env, tensors, autoreset)


def check_one_actor(env: Env, what: str, whose: str) -> None:
    """Raise `InputError` where several actors share a world, or this is no environment."""
    check_env(env, what)
    actors = env.num_actors if env.roles is None else env.num_agents
    if actors is not None:
        raise InputError(
            f"{what}: {type(env).__name__} has {actors} actors in a world, and {whose} "
            f"knows one; use dz.rl.to_pettingzoo"
        )


@functools.cache
def derived(name: str) -> type:
    """A class of this module as one of Gymnasium's, which is imported no sooner."""
    import gymnasium

    mine = {"GymnasiumWorld": _GymnasiumWorld, "GymnasiumWorlds": _GymnasiumWorlds}[name]
    base = gymnasium.Env if mine is _GymnasiumWorld else gymnasium.vector.VectorEnv
    return type(name, (mine, base), {"__doc__": mine.__doc__, "__module__": __name__})


def __getattr__(name: str) -> Any:
    if name in ("GymnasiumWorld", "GymnasiumWorlds"):  # pickle looks a class up by its name
        return derived(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def draws(worlds: Worlds) -> str | None:
    """In which of Gymnasium's modes an environment draws; None: it does not."""
    if not can_draw(worlds.env):
        return None
    run_state, _ = worlds.begin()
    return "rgb_array" if isinstance(picture(worlds.env, worlds.state_of(run_state, 0)), Tensor) else "ansi"


def drawn(worlds: Worlds, world: int) -> Any:
    """A picture of a world as Gymnasium has it: uint8 `[height, width, 3]`, or text."""
    seen = picture(worlds.env, worlds.state(world))
    return array(seen) if isinstance(seen, Tensor) else "\n".join(seen)


class _GymnasiumWorld:
    """One world behind Gymnasium's interface; see `to_gymnasium`.

    A life that ended stays as it is until `reset`, which begins the next one as `Worlds` does.

    Attributes:
        worlds: the world, in a batch of one.
        render_mode: as given.
    """

    def __init__(self, env: Env, seed: int, device: torch.device | str | None, render_mode: str | None) -> None:
        self.worlds = Worlds(env, 1, seed=seed, device=device, max_resets=0)
        self._renewing = Worlds(env, 1, seed=seed, device=device, max_resets=1)
        env = self.worlds.env
        self.observation_space, self.action_space = to_space(env.observation_space), to_space(env.action_space)
        mode = draws(self.worlds)
        if render_mode is not None and render_mode != mode:
            there = f"None or {mode!r}" if mode else f"None, since {type(env).__name__} has no draw"
            raise InputError(f"to_gymnasium: render_mode={render_mode!r}, expected {there}")
        self.render_mode = render_mode
        self.metadata = {"render_modes": [mode] if mode else [], "render_fps": FRAMES}
        self._given = seed, device
        self._spec: Any = None
        self._mask: np.ndarray | None = None
        self._over = False
        if type(env).action_mask is not Env.action_mask:
            self.action_masks = self._masks

    @property
    def spec(self) -> Any:
        """How Gymnasium makes another one."""
        if self._spec is None:
            from gymnasium.envs.registration import EnvSpec

            (seed, device), env = self._given, self.worlds.env

            def again(render_mode: str | None = None) -> Any:  # copies of a spec share a function, and what it holds
                return to_gymnasium(env, seed=seed, device=device, render_mode=render_mode)

            return EnvSpec(f"{type(env).__name__}-v0", entry_point=again)  # type: ignore[arg-type]  # pyrefly: ignore
        return self._spec

    @spec.setter
    def spec(self, spec: Any) -> None:
        self._spec = spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """(observation, info) at the start of a life; without a seed, of another one than before.

        Raises:
            InputError: an option is given, or a seed that is no whole number from 0 to 2**32 - 1.
        """
        check_options(options)
        worlds = self.worlds
        if seed is not None:
            worlds.seeded(seed)
            self._renewing.seeded(seed)
        super().reset(seed=seed)  # type: ignore[misc]
        if seed is None and self._over:
            observed = self._renewed()
        else:
            worlds.run_state, observed = begun(worlds, seed)
        self._over = False
        return self._look(observed), self._info(observed)

    def _renewed(self) -> Observed:
        """Begin the life that follows the one that ended, with the draws that it has in `Worlds`."""
        ended = self.worlds.run_state
        assert ended is not None
        if self._renewing.run_state is None:
            self._renewing.reset()  # which learns what a state is
        tensors = ended.clone()
        tensors.clock = ended.clock - 1
        action = trees.idle(self.worlds.env.action_space, (1,), self.worlds.device)
        self.worlds.run_state, step = self._renewing.advance(tensors, action)
        return self.worlds.looked(step.observed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """(observation, reward, terminated, truncated, info) of one step; series of the environment are in info.

        Raises:
            InputError: an action of a wrong shape or dtype, or the life is over.
            ModelError: an action outside the space, or a reward or observation that is not finite.
        """
        if self._over:
            raise InputError("step: the life is over; call reset() first")
        space = self.worlds.env.action_space
        batch = trees.mapped(
            space, lambda part, _: np.asarray(part)[None], checked_parts(space, action, "step: action")
        )
        step = self.worlds.step(tensors_of(space, batch))
        self.worlds.check()
        terminated, truncated = bool(step.terminated), bool(step.truncated)
        self._over = terminated or truncated
        info = {name: float(flow) for name, flow in step.flows.items()} | self._info(step.observed)
        return self._look(step.observed), float(step.reward), terminated, truncated, info

    def _look(self, observed: Observed) -> Any:
        def of(part: Tensor, leaf: Space) -> Any:
            return array(part[0])[()] if isinstance(leaf, Discrete) else array(part[0])  # a choice is a number

        return trees.mapped(self.worlds.env.observation_space, of, observed.observation)

    def _info(self, observed: Observed) -> dict[str, Any]:
        if observed.action_mask is None:
            return {}
        self._mask = array(observed.action_mask[0])
        return {"action_mask": self._mask.astype(np.int8)}  # as Discrete.sample takes it

    def _masks(self) -> np.ndarray:
        """Which choices are open now: bool `[n]`, as sb3-contrib asks for it."""
        if self._mask is None:
            raise InputError("action_masks: the world has not begun; call reset() first")
        return self._mask.copy()

    def render(self) -> Any:
        """A picture in the mode that was asked for."""
        return None if self.render_mode is None else drawn(self.worlds, 0)


def check_options(options: Any) -> None:
    """Raise `InputError` where there are options of a reset."""
    if options:
        raise InputError(f"reset: options={options!r}, expected none: give parameters to Worlds(…, params=…)")


def begun(worlds: Worlds, seed: int | None) -> tuple[WorldsState, Observed]:
    """First states and looks; without a seed, at the first call those of the worlds' own, then others each time."""
    again = None if seed is not None or worlds.run_state is None else worlds.run_state.clock + 1
    run_state, observed = worlds.begin(again)
    return run_state, worlds.looked(observed)


class _GymnasiumWorlds:
    """Worlds behind Gymnasium's interface; see `to_gymnasium`.

    Attributes:
        worlds: what is stepped.
        tensors: whether tensors on the device are given in place of NumPy arrays.
    """

    def __init__(self, worlds: Worlds, tensors: bool, autoreset: str) -> None:
        from gymnasium.vector import AutoresetMode
        from gymnasium.vector.utils import batch_space

        self.worlds, self.tensors, self.num_envs, self._autoreset = worlds, tensors, worlds.num_envs, autoreset
        self.single_observation_space = to_space(worlds.env.observation_space)
        self.single_action_space = to_space(worlds.env.action_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        mode = draws(worlds)
        self.render_mode = mode
        modes = [mode] if mode else []
        self.autoreset_mode = AutoresetMode[autoreset.upper()]  # as Gymnasium's own have it; TorchRL asks for it
        self.metadata = {
            "autoreset_mode": self.autoreset_mode,
            "render_modes": modes,
            "render_fps": FRAMES,
        }
        # Where lives do not begin anew in the same step: whose are over, and the first looks of their next ones.
        self._over = torch.zeros(self.num_envs, dtype=torch.bool, device=worlds.device)
        self._next: Observed | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin every world anew, or with autoreset ``"disabled"`` those of `options["reset_mask"]`, bool `[worlds]`.

        Args:
            seed: of the random numbers; None: at the first call those of the worlds, then other starts each time.
            options: ``"reset_mask"``, or none.

        Raises:
            InputError: an option that is not known, or a seed that is no whole number from 0 to 2**32 - 1.
        """
        options = dict(options or {})
        mask = options.pop("reset_mask", None) if self._autoreset == "disabled" else None
        check_options(options)
        worlds = self.worlds
        if mask is not None and worlds.run_state is not None:
            return self._partly_reset(self._checked(mask, seed))
        if seed is not None:
            worlds.seeded(seed)
        worlds.run_state, observed = begun(worlds, seed)
        self._next, self._over = observed, torch.zeros_like(self._over)
        return self._given(observed.observation), self._more(observed.action_mask)

    def _checked(self, mask: Any, seed: int | None) -> Tensor:
        given = np.asarray(mask)
        if given.shape != (self.num_envs,) or given.dtype != np.bool_ or not given.any():
            raise InputError(
                f"reset: reset_mask is {given.dtype} {given.shape}, expected bool ({self.num_envs},), not all False"
            )
        if seed is not None and not given.all():
            raise InputError(f"reset: seed={seed!r} with a reset_mask of some worlds; a seed is of all of them")
        if seed is not None:
            self.worlds.seeded(seed)
        return torch.as_tensor(given, device=self._over.device)

    def _partly_reset(self, mask: Tensor) -> tuple[Any, dict[str, Any]]:
        """Of lives that are over the next ones have begun; others among these are cut off and begin at a new clock."""
        worlds, now = self.worlds, self._next
        assert worlds.run_state is not None
        assert now is not None
        again = mask & ~self._over
        if bool(again.any()):
            fresh, observed = worlds.begin(worlds.run_state.clock + 1)
            worlds.run_state = _merged(again, fresh, worlds.run_state)
            now = chosen(again, worlds.looked(observed), now)
        self._next, self._over = now, self._over & ~mask
        return self._given(now.observation), self._more(now.action_mask)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """(observations, rewards, terminations, truncations, infos) of one step of every world.

        Each series of the environment is an entry of infos. With autoreset in the same step, of lives that ended
        observations are the first of the next life; `infos["final_obs"]` holds the last of the old one,
        `infos["_final_obs"]` tells where. In the next step, that one gives the first observation, and the reward 0.

        Raises:
            InputError: actions of a wrong shape or dtype, or a life that is over and was not reset.
            ModelError: an action outside the space, or a reward or observation that is not finite (NumPy only; with
                tensors, which wait for nothing, call `worlds.check()` now and then).
        """
        if self._autoreset == "disabled" and bool(self._over.any()):
            raise InputError(
                f"step: the life of world {int(self._over.nonzero()[0])} is over; call "
                f"reset(options={{'reset_mask': terminations | truncations}}) first"
            )
        before = self.worlds.run_state
        step = self.worlds.step(tensors_of(self.worlds.env.action_space, actions))
        if self._autoreset != "same_step":
            assert before is not None
            step = self._apart(before, step)
        if not self.tensors:
            self.worlds.check()
        infos = self._more(step.observed.action_mask) | {name: self._given(flow) for name, flow in step.flows.items()}
        infos |= {f"_{name}": self._given(step.valid) for name in step.flows}
        if self._autoreset == "same_step":
            infos |= self._final(step)
        reward = step.reward if self.tensors else array(step.reward).astype(np.float64)
        flags = self._given(step.terminated), self._given(step.truncated)
        return self._given(step.observed.observation), reward, *flags, infos

    def _apart(self, before: WorldsState, step: Step) -> Step:
        """A step in which lives that ended show their last looks, and those that ended before it their first ones.

        The latter have begun already: what they did in this step is taken back.
        """
        over, ended = self._over, step.ended & ~self._over
        after = self.worlds.run_state
        assert after is not None
        assert self._next is not None
        self.worlds.run_state = _merged(over, before, after)
        first = chosen(over, self._next, step.observed)
        self._next, self._over = first, ended
        return step._replace(
            observed=chosen(ended, step.final, first),
            reward=torch.where(over, 0.0, step.reward),
            terminated=step.terminated & ~over,
            truncated=step.truncated & ~over,
            valid=step.valid & ~over,
            flows={name: torch.where(over, 0.0, flow) for name, flow in step.flows.items()},
        )

    def _final(self, step: Step) -> dict[str, Any]:
        if self.tensors:  # rows of all worlds, in their order: as many are reset in a step
            return {"final_obs": step.final.observation, "_final_obs": step.ended}
        ended = array(step.ended)
        if not ended.any():
            return {}
        return {"final_obs": finals(step, ended), "_final_obs": ended, "final_info": {}, "_final_info": ended}

    def _more(self, mask: Tensor | None) -> dict[str, Any]:
        if mask is None:
            return {}
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=mask.device)
        return {"action_mask": self._given(mask), "_action_mask": self._given(everywhere)}

    def _given(self, tensors: Any) -> Any:
        return tensors if self.tensors else arrays(tensors)

    def render(self) -> tuple[Any, ...] | None:
        """A picture of each world: uint8 `[height, width, 3]`, or text."""
        if self.render_mode is None:
            return None
        return tuple(drawn(self.worlds, world) for world in range(self.num_envs))


def finals(step: Step, ended: np.ndarray) -> np.ndarray:
    """Last looks of lives that ended, as objects `[worlds]`; None elsewhere."""
    seen, last = arrays(step.final.observation), np.full(ended.shape, None, dtype=object)
    for world in np.flatnonzero(ended):
        last[world] = _tree.map_leaves(lambda part, row=world: part[row], seen)
    return last


def chosen(flags: Tensor, one: Observed, other: Observed) -> Observed:
    """What is seen of worlds: of some in one way, of the rest in another."""
    leaves, structure = _tree.flatten(tuple(one))
    others, _ = _tree.flatten(tuple(other))
    both = [_where(flags, a, b) if isinstance(a, Tensor) else a for a, b in zip(leaves, others, strict=True)]
    return Observed(*_tree.unflatten(both, structure))


def _merged(flags: Tensor, some: WorldsState, rest: WorldsState) -> WorldsState:
    """The state of some worlds, and of the rest another one, whose clock it has, or the later one."""
    leaves = [_where(flags, a, b) for a, b in zip(some.leaves, rest.leaves, strict=True)]
    names = ("age", "waiting", "faults", "waited")
    parts = {name: _where(flags, getattr(some, name), getattr(rest, name)) for name in names}
    return WorldsState(leaves, clock=torch.maximum(some.clock, rest.clock), **parts)


def _where(flags: Tensor, mine: Tensor, its: Tensor) -> Tensor:
    return torch.where(flags.reshape(-1, *[1] * (mine.dim() - 1)), mine, its)
