"""Worlds: a batch of an environment's worlds on one device, with episode limits and auto-reset, free of host reads."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from denizen import _spaces as trees
from denizen._arguments import whole
from denizen._device import make_current
from denizen._spaces import closed
from denizen.errors import InputError, ModelError, nearest
from denizen.model import (
    Box,
    Discrete,
    Env,
    FlatEnv,
    InPlace,
    MultiBinary,
    MultiDiscrete,
    Observed,
    Space,
    check_spaces,
    guard,
    ids_of,
)
from denizen.nn import kernels
from denizen.rl._recorded import Recorded
from denizen.rng import MAX_SEED
from denizen.run import Bounds, choose_device, held


class WorldParams(nn.Module):
    """Parameters of worlds as buffers: functions that are recorded take them as inputs, so that they may change."""

    def __init__(self, env: Env, num_envs: int, params: Mapping[str, Any], device: torch.device) -> None:
        """Args:
        env: whose parameters.
        num_envs: number of worlds.
        params: values by name, each with a leading axis of `num_envs`.
        device: of the worlds.

        Raises:
            InputError: an unknown name, another shape, or a value out of bounds.
        """
        super().__init__()
        for name, value in params.items():
            spec = env.params.get(name)
            if spec is None:
                known = nearest(name, env.params)
                raise InputError(f"Worlds: params has {name!r}, which {type(env).__name__} has not; {known}")
            tensor = param_numbers(name, value).to(device)
            if tensor.shape != (num_envs, *spec.shape):
                raise InputError(
                    f"Worlds: params[{name!r}] has shape {tuple(tensor.shape)}, expected {(num_envs, *spec.shape)}: "
                    f"one for each world"
                )
            spec.check(tensor, f"Worlds: params[{name!r}]")
            self.register_buffer(f"value_{name}", tensor, persistent=False)  # a plain name may be one of nn.Module's

    def values(self) -> dict[str, Tensor]:
        """By name."""
        return {name.removeprefix("value_"): value for name, value in self._buffers.items() if value is not None}


def param_numbers(name: str, value: Any) -> Tensor:
    """Values of a parameter as float32; raises `InputError` where they are none."""
    try:
        return torch.as_tensor(value, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"params[{name!r}] = {value!r}: expected numbers, one for each world; a schedule is for dz.train"
        ) from error


LEAST_RESETS = 64  # below that many rows a gather saves nothing
LEAST_NUMBERS = 2**15  # likewise for so many numbers of state in all rows
FEW_ROWS, FEW_NUMBERS = 256, 2**18  # likewise: to find out which lives end takes longer than to begin all anew
TINY = 8  # likewise for any number of rows of so few numbers


@dataclasses.dataclass
class WorldsState:
    """What goes from step to step.

    Attributes:
        leaves: state tensors, each `[worlds, …]`.
        age: int64 `[worlds]`: steps of the present life.
        waiting: bool `[worlds]`: life over, not reset yet.
        clock: int64 `[]`: steps of the run.
        faults: int64 `[worlds]`: when a check first failed, as step * checks + number of the check; -1: never.
        waited: int64 `[worlds]`: steps spent waiting, in all.
    """

    leaves: list[Tensor]
    age: Tensor
    waiting: Tensor
    clock: Tensor
    faults: Tensor
    waited: Tensor

    def tensors(self) -> list[Tensor]:
        """Everything, in a fixed order."""
        return [*self.leaves, self.age, self.waiting, self.clock, self.faults, self.waited]

    def copy_(self, other: "WorldsState") -> None:
        """Take another one's values into these tensors."""
        for mine, new in zip(self.tensors(), other.tensors(), strict=True):
            mine.copy_(new)

    def clone(self) -> "WorldsState":
        """A copy that shares no memory."""
        leaves = [leaf.clone() for leaf in self.leaves]
        return WorldsState(leaves, *[tensor.clone() for tensor in self.tensors()[len(leaves) :]])


class Step(NamedTuple):
    """What a step of all worlds gave.

    Attributes:
        observed: what is seen now; of a world whose life ended, the first of its next life.
        reward: float32 `[worlds]` or `[worlds, actors]`, those of roles in their order; 0 where a world waited.
        terminated: bool `[worlds]`: this step ended the life for good.
        truncated: bool `[worlds]`: this step cut the life off; both may hold.
        valid: bool `[worlds]`: the world acted; False where it waited for its reset.
        flows: for each of the environment's series that is a flow: float32 `[worlds]`, 0 where a world waited.
        final: what was seen last of lives that ended, one row for each of `final_index`.
        final_index: int64 `[rows]`: the worlds of `final`; which of them ended, their flags tell.
    """

    observed: Observed
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    flows: dict[str, Tensor]
    final: Observed
    final_index: Tensor

    @property
    def ended(self) -> Tensor:
        """Bool `[worlds]`: this step ended a life, one way or the other."""
        return self.terminated | self.truncated


class Worlds:
    """A batch of worlds of an environment.

    ```python
    worlds = dz.rl.Worlds(env, 4096)
    look = worlds.reset()
    step = worlds.step(actions)  # int64 [4096]
    ```

    Attributes:
        env: the environment, on its device.
        num_envs: number of worlds.
        max_resets: worlds that can be reset in one step; others wait, masked, and are reset first come by position.
        run_state: the present states; None before `reset`.
        world_params: holds the parameters that differ between worlds.
        modules: that the environment has, such as opponents.
    """

    def __init__(
        self,
        env: Env,
        num_envs: int,
        *,
        seed: int = 0,
        device: torch.device | str | None = None,
        max_resets: int | None = None,
        params: Mapping[str, Any] | None = None,
        worlds: Sequence[int] | None = None,
    ) -> None:
        """Args:
        env: the environment.
        num_envs: number of worlds.
        seed: of the random numbers.
        device: None: CUDA where there is a device that works, else the CPU. One of several GPUs, ``"cuda:1"``, becomes
            the current one of the process.
        max_resets: resets in one step at most; None: all worlds where each has at most 8 numbers of state, else an
            eighth of them, and at least 64 or as many as have 32,768 numbers of state, or up to 256 with 262,144. Only
            that many fresh worlds are computed in a step. 0: one life in each world, which waits from its end on.
        params: parameters that differ between worlds, each with a leading axis of `num_envs`.
        worlds: numbers of the worlds, which with the seed fix their random numbers; None: 0, 1, … Worlds of one number
            that get the same actions are the same.

        Raises:
            InputError: an argument does not fit.
        """
        check_env(env, "Worlds")
        num_envs = whole("Worlds", "num_envs", num_envs, 1, 2**31)
        seed = whole("Worlds", "seed", seed, 0, MAX_SEED)
        if max_resets is not None:
            max_resets = whole("Worlds", "max_resets", max_resets, 0, 2**31)
        self._bounds = Bounds(env)
        self._bounds.check(held(env))
        target, _ = choose_device(device, "Worlds")
        make_current(target)
        self.env: Env = env.to(target)
        self.num_envs, self.device, self.seed = num_envs, target, seed
        numbers = list(range(num_envs)) if worlds is None else check_numbers(worlds, num_envs)
        self.keys = torch.tensor([[seed, number] for number in numbers], device=target)
        self.world_params = WorldParams(self.env, num_envs, params or {}, target)
        self._bounds.vouch({**held(self.env), **self.values})
        self._flat = FlatEnv(self.env, ids_of(self.env, target))
        self.max_resets = min(num_envs, self._usual_resets() if max_resets is None else max_resets)
        self._everywhere = torch.arange(num_envs, device=target)
        self.modules = [value for value in self.env._held().values() if isinstance(value, nn.Module)]
        self._begin, self._advance = Recorded(self._start, *self.modules), Recorded(self._next, *self.modules)
        self._fast: InPlace | None = None
        if not self.values:
            self._fast = self.env.in_place(target, self.max_resets)
        if self._fast is not None:
            self._flat.step_checks = list(self._fast.checks)
        self.run_state: WorldsState | None = None
        self._proved = False

    @property
    def values(self) -> dict[str, Tensor]:
        """Parameters that differ between worlds, each `[worlds, …]`."""
        return self.world_params.values()

    def _usual_resets(self) -> int:
        """An eighth of the worlds, or more where fresh worlds cost less than finding out which of them are needed."""
        usual = max(LEAST_RESETS, -(-self.num_envs // 8))
        if usual >= self.num_envs:
            return usual
        values = {name: value[0] for name, value in self.values.items()}
        leaves = self._flat.begin(self.keys[0], values, self.keys.new_zeros(()))
        numbers = max(1, sum(leaf.numel() for leaf in leaves))
        if numbers <= TINY:
            return self.num_envs
        return max(usual, LEAST_NUMBERS // numbers, min(FEW_ROWS, FEW_NUMBERS // numbers))

    # --- use ----------------------------------------------------------------------------------------------------------

    def reset(self) -> Observed:
        """Begin every world anew and look at it; the same each time."""
        self.run_state, observed = self.begin()
        return self.looked(observed)

    def step(self, action: Any) -> Step:
        """One step of all worlds.

        Args:
            action: `[worlds]` for a `Discrete` space (any integer dtype), else `[worlds, …]`; `[worlds, actors, …]` for
                several actors. Of a `Dict` space a dict of such, of a `Tuple` space a tuple.

        Raises:
            InputError: the action has another shape or dtype. Values are looked at by `check`.
        """
        if self.run_state is None:
            raise InputError("Worlds.step: the worlds have not begun; call reset() first")
        before, space = self.run_state, self._flat.acts
        within, wrong = [], {}
        given = zip(trees.leaves(space), trees.values(space, self.checked(action)), strict=True)
        for number, ((_, leaf), part) in enumerate(given):
            if isinstance(leaf, Box) and (leaf.dtype.is_floating_point or part.dtype == leaf.dtype):
                within.append(part.to(leaf.dtype))
                continue
            # As an author's index, a number that is no choice would raise on a CPU, and stop a GPU for good. In a
            # smaller dtype a number outside may become one within.
            within.append(leaf.nearest(part).to(leaf.dtype))
            wrong[number] = leaf.fault(part)
        self.run_state, step = self.advance(before, trees.built(space, within))
        for number, faults in reversed(wrong.items()):
            faulty = (faults if faults.dim() == 1 else faults.flatten(1).any(1)) & step.valid & (before.faults < 0)
            code = before.clock * len(self._labels) + number
            self.run_state.faults = torch.where(faulty, code, self.run_state.faults)
        return step._replace(observed=self.looked(step.observed), final=self.looked(step.final))

    def looked(self, observed: Observed) -> Observed:
        """What trainers have as rows of bytes as trees; what is a tensor anyway stays as it is."""
        return observed._replace(observation=trees.unpacked(self._flat.sees, observed.observation))

    def check(self, run_state: WorldsState | None = None) -> None:
        """Raise where a check on the device has failed, naming the first world and step (reads the device).

        Args:
            run_state: of the worlds; None: the present one.

        Raises:
            InputError: a parameter that changed in place is not finite or out of its bounds.
            ModelError: an action outside its space, a reward or observation that is not finite, a bad probability.
        """
        self._bounds.check({**held(self.env), **self.values})
        run_state = run_state or self.run_state
        if run_state is None or not bool((run_state.faults >= 0).any()):
            return
        failed = run_state.faults >= 0
        at = torch.where(failed, run_state.faults, 2**62)
        labels = self._labels
        world = int(at.argmin())
        step, check = divmod(int(at[world]), len(labels))
        raise ModelError(
            f"{type(self.env).__name__}: {labels[check]}, in world {world} at step {step} "
            f"(first of {int(failed.sum())} worlds)"
        )

    @property
    def _labels(self) -> list[str]:
        """What each check looks for; actions are the first."""
        masked = type(self.env).action_mask is not Env.action_mask
        more = [
            f"an observation {'that is not finite' if isinstance(leaf, Box) else 'outside its space'}{trees.at(path)}"
            for path, leaf in trees.leaves(self._flat.sees)
        ]
        more += ["no action that is open"] if masked else []
        return [*self._flat.step_checks, *more]

    def checked(self, action: Any) -> Any:
        """The action on the device; raises `InputError` for a wrong shape or dtype."""
        space, actors = self._flat.acts, self.env.num_actors
        lead = (self.num_envs, *(() if actors is None else (actors,)))
        try:
            parts = trees.values(space, action)
        except InputError as error:
            raise InputError(f"action {error}") from error
        kept = []
        for part, (path, leaf) in zip(parts, trees.leaves(space), strict=True):
            wanted = (*lead, *leaf.shape)
            if not isinstance(part, Tensor) or tuple(part.shape) != wanted:
                found = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
                raise InputError(f"action{path} is {found}, expected a tensor of shape {wanted}")
            check_kind(part, leaf, f"action{path}")
            part = part.to(self.device)
            # Numbers of a small dtype compare as if they went round.
            kept.append(part if isinstance(leaf, Box) else part.to(torch.int64))
        return trees.built(space, kept)

    def state(self, world: int | None = None) -> Any:
        """The author's state of one world, or of all with a leading axis."""
        if self.run_state is None:
            raise InputError("Worlds.state: the worlds have not begun; call reset() first")
        return self.state_of(self.run_state, world)

    def state_of(self, run_state: WorldsState, world: int | None = None) -> Any:
        """The author's state of one world of a run state, or of all with a leading axis."""
        if world is None:
            return self._flat.state(run_state.leaves, run_state.age)
        world = whole("Worlds.state", "world", world, 0, self.num_envs - 1, hint=", or None for all")
        return self._flat.state([leaf[world] for leaf in run_state.leaves], run_state.age[world])

    def seeded(self, seed: int) -> None:
        """Take another seed, from the next `reset` on."""
        seed = whole("Worlds", "seed", seed, 0, MAX_SEED)
        self.keys, self.seed = torch.stack([torch.full_like(self.keys[:, 0], seed), self.keys[:, 1]], 1), seed

    # --- pure functions, for trainers ---------------------------------------------------------------------------------

    def begin(self, clock: Tensor | None = None) -> tuple[WorldsState, Observed]:
        """The first states and looks.

        Args:
            clock: int64 `[]`: steps of the run so far, where worlds begin anew: other starts, and no random number
                twice; None: 0.
        """
        device, count = self.device, self.num_envs
        if not self._proved:
            prove(self.env, self.keys[:1], {name: value[:1] for name, value in self.values.items()})
            self._proved = True
        zero = torch.zeros((), dtype=torch.int64, device=device)
        clock = zero if clock is None else clock
        leaves, observed = self._begin(self.keys, self.values, clock)
        if self._fast is not None:  # it wants rows one after the other, and gives them
            leaves = [leaf.contiguous() for leaf in leaves]
            observed = Observed(*[None if part is None else part.contiguous() for part in observed])  # type: ignore[arg-type]
        counts = torch.zeros(2, count, dtype=torch.int64, device=device)
        waiting, faults = torch.zeros(count, dtype=torch.bool, device=device), torch.full_like(counts[0], -1)
        return WorldsState(leaves, counts[0], waiting, clock, faults, counts[1]), observed

    def advance(self, run_state: WorldsState, action: Any) -> tuple[WorldsState, Step]:
        """The next states and what happened; a pure function of its arguments."""
        tensors, step = self._advance(run_state.tensors(), self.keys, self.values, action)
        return self.run_state_of(tensors), step

    def next(self, tensors: list[Tensor], action: Any) -> tuple[list[Tensor], Step]:
        """`advance` over the run state's tensors, as part of a larger function that is recorded."""
        return self._next(tensors, self.keys, self.values, action)

    @property
    def in_place(self) -> bool:
        """Whether `next_in_place` writes into what it is given."""
        return self._fast is not None

    def next_in_place(self, tensors: list[Tensor], action: Any) -> tuple[list[Tensor], Step]:
        """`next`, which may write into the given tensors: by the environment's own fast form where it has one."""
        if self._fast is None:
            return self.next(tensors, action)
        *leaves, age, waiting, clock, faults, waited = tensors
        got = self._fast.advance(leaves, [age, waiting, faults, waited], clock, self.keys, action)
        step = Step(
            got.observed, got.reward, got.terminated, got.truncated, got.valid, got.flows, got.final, got.final_index
        )
        return [*leaves, age, waiting, got.clock, faults, waited], step

    def run_state_of(self, tensors: list[Tensor]) -> WorldsState:
        """The run state whose tensors these are, in the order of `WorldsState.tensors`."""
        return WorldsState(tensors[:-5], *tensors[-5:])

    def _start(self, keys: Tensor, values: dict[str, Tensor], clock: Tensor) -> tuple[list[Tensor], Observed]:
        age = torch.zeros(self.num_envs, dtype=torch.int64, device=keys.device)
        leaves = torch.vmap(self._flat.begin, in_dims=(0, 0, None))(keys, values, clock)
        return leaves, self._see(leaves, age, values)

    def _see(self, leaves: list[Tensor], age: Tensor, values: dict[str, Tensor]) -> Observed:
        def one(*args: Any) -> dict[str, Tensor]:  # vmap takes no None
            return {name: value for name, value in self._flat.observe(*args)._asdict().items() if value is not None}

        seen = torch.vmap(one)(leaves, age, values)
        observation = seen["observation"]
        return Observed(
            observation if self._flat.roles is not None else trees.packed(self._flat.sees, observation),
            seen.get("action_mask"),
            seen.get("privileged"),
            seen.get("acting"),
        )

    def _act(self, *args: Any) -> Any:
        return torch.vmap(self._flat.act, in_dims=(0, 0, 0, 0, 0, None))(*args)

    def _next(self, tensors: list[Tensor], keys: Tensor, values: dict[str, Tensor], action: Any) -> Any:
        run_state = self.run_state_of(tensors)
        valid = ~run_state.waiting
        happened = self._act(run_state.leaves, run_state.age, keys, values, action, run_state.clock)
        leaves = [
            torch.where(_like(valid, new), new, old) for new, old in zip(happened.leaves, run_state.leaves, strict=True)
        ]
        age = torch.where(valid, run_state.age + 1, run_state.age)
        terminated, truncated = happened.terminated & valid, happened.truncated & valid
        over = terminated | truncated | run_state.waiting
        clock = run_state.clock + 1

        if self.max_resets == self.num_envs:
            leaves, age, final = self._all_renewed(leaves, age, over, keys, values, clock)
            # Nobody waits, also of those who did in a state that was saved when fewer began anew at once.
            waiting, where, observed = run_state.waiting & ~over, self._everywhere, self._see(leaves, age, values)
        elif self.max_resets:
            leaves, age, waiting, final, where = self._renewed(leaves, age, over, keys, values, clock)
            observed = self._see(leaves, age, values)
        else:
            waiting, observed = over, self._see(leaves, age, values)
            final, where = observed, self._everywhere
        faults = self._faults(run_state, happened.bad, observed, valid)
        waited = run_state.waited + run_state.waiting
        reward = torch.where(_like(valid, happened.reward), happened.reward, 0.0)
        flows = {name: torch.where(valid, flow, 0.0) for name, flow in happened.flows.items()}
        step = Step(observed, reward, terminated, truncated, valid, flows, final, where)
        return [*leaves, age, waiting, clock, faults, waited], step

    def _restart(self, *args: Any) -> Any:
        return torch.vmap(self._flat.restart, in_dims=(0, 0, 0, 0, None))(*args)

    def _all_renewed(
        self, leaves: list[Tensor], age: Tensor, over: Tensor, keys: Tensor, values: dict[str, Tensor], clock: Tensor
    ) -> tuple[list[Tensor], Tensor, Observed]:
        """(leaves, ages, final looks) after every life that is over began anew."""
        fresh = self._restart(leaves, age, keys, values, clock)
        renewed = [torch.where(_like(over, new), new, old) for new, old in zip(fresh, leaves, strict=True)]
        return renewed, torch.where(over, 0, age), self._see(leaves, age, values)

    def _renewed(
        self, leaves: list[Tensor], age: Tensor, over: Tensor, keys: Tensor, values: dict[str, Tensor], clock: Tensor
    ) -> tuple[list[Tensor], Tensor, Tensor, Observed, Tensor]:
        """(leaves, ages, waiting, final looks, their worlds) after lives that are over began anew, as many as may."""
        index, slot = kernels.first_flagged(over, self.max_resets)
        rows, row_values = [leaf[index] for leaf in leaves], {name: value[index] for name, value in values.items()}
        final = self._see(rows, age[index], row_values)
        fresh = self._restart(rows, age[index], keys[index], row_values, clock)
        # Each world looks its fresh state up: one pass over all, where copying rows in would take one a leaf.
        chosen, where = slot >= 0, slot.clamp(min=0)
        leaves = [torch.where(_like(chosen, old), new[where], old) for new, old in zip(fresh, leaves, strict=True)]
        return leaves, torch.where(chosen, 0, age), over & ~chosen, final, index

    def _faults(self, run_state: WorldsState, bad: Tensor, observed: Observed, valid: Tensor) -> Tensor:
        checks = [*(flag & valid for flag in (bad != 0).unbind(1)), *self._blind(observed.observation, valid)]
        if observed.action_mask is not None:
            stuck = closed(observed.action_mask, self._flat.acts.factors)
            if observed.acting is not None and self._flat.roles is None:
                stuck = stuck & observed.acting
            checks.append(stuck if stuck.dim() == 1 else stuck.any(1))
        code = torch.full_like(run_state.faults, -1)
        for number in range(len(checks) - 1, -1, -1):
            code = torch.where(checks[number], run_state.clock * len(checks) + number, code)
        return torch.where(run_state.faults < 0, code, run_state.faults)

    def _blind(self, observation: Any, valid: Tensor) -> list[Tensor]:
        """For each leaf of looks, bool `[worlds]`: a number of it is not finite, or a choice is none."""
        sees, found = self._flat.sees, []
        parts = trees.values(sees, trees.unpacked(sees, observation))
        for (_, leaf), part in zip(trees.leaves(sees), parts, strict=True):
            if isinstance(leaf, Box) and not part.is_floating_point():
                found.append(torch.zeros_like(valid))
                continue
            wrong = ~torch.isfinite(part) if isinstance(leaf, Box) else leaf.fault(part)
            found.append(wrong.reshape(len(valid), -1).any(1))
        return found


def _like(flags: Tensor, other: Tensor) -> Tensor:
    """Flags `[worlds]` with further axes of size 1, to go with another tensor."""
    return flags.reshape(-1, *[1] * (other.dim() - 1))


def check_env(env: Any, what: str) -> None:
    """Raise `InputError` where this is no environment, such as a class in place of an object of it.

    Raises `ModelError` where it declares no spaces.
    """
    if not isinstance(env, Env):
        raise InputError(f"{what}: env is {named(env)}, expected a dz.Env, such as CartPole()")
    check_spaces(env)


def check_no_roles(env: Env, what: str) -> None:
    """Raise `InputError` where an environment has roles and one policy, or another algorithm, cannot do for it."""
    if env.roles is not None:
        first = next(iter(env.roles))
        raise InputError(
            f"{what}: {type(env).__name__} has the roles {', '.join(env.roles)}; make a policy for each, such as "
            f"dz.rl.mlp(env.role({first!r})), and train a dict of them with dz.PPO"
        )


def named(value: Any) -> str:
    """What something is that was given in place of something else, for messages."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def check_numbers(worlds: Any, num_envs: int) -> list[int]:
    """Numbers of worlds as a list; raises `InputError` where they are none, or too few or too many."""
    if not isinstance(worlds, Iterable):
        raise InputError(f"Worlds: worlds={worlds!r}, expected a list of {num_envs} whole numbers")
    numbers = [whole("Worlds", f"worlds[{place}]", one, 0, MAX_SEED) for place, one in enumerate(worlds)]
    if len(numbers) != num_envs:
        raise InputError(f"Worlds: worlds has {len(numbers)} numbers, expected {num_envs}, one for each world")
    return numbers


def check_kind(action: Tensor, space: Space, what: str = "action") -> None:
    """Raise `InputError` where actions are floats and a space holds whole numbers: fractions would be lost."""
    real = action.is_floating_point() or action.is_complex()
    boolean = action.dtype == torch.bool and not isinstance(space, MultiBinary)
    if not isinstance(space, Box) and (real or boolean):
        raise InputError(f"{what} has dtype {action.dtype}, expected {numbers_in(space)}")
    if isinstance(space, Box) and real and not space.dtype.is_floating_point:
        raise InputError(f"{what} has dtype {action.dtype}, expected whole numbers, since {space} holds them")


def numbers_in(space: Space) -> str:
    """What actions of choices are, in words."""
    match space:
        case Discrete(n, start):
            return f"whole numbers from {start} to {start + n - 1}"
        case MultiDiscrete(nvec):
            return f"whole numbers from 0, below {nvec}"
        case MultiBinary():
            return "zeros and ones"
    return "numbers"


def prove(env: Env, keys: Tensor, values: dict[str, Tensor]) -> None:
    """Begin, step and renew one world under the guard, so that what breaks the author's rule is told with its line.

    Args:
        env: the environment, on its device.
        keys: int64 `[1, 2]`: seed and number of the world.
        values: its parameters, each `[1, …]`.

    Raises:
        ModelError: draws from torch's own generator, a write in place, a value read on the host.
    """
    flat = FlatEnv(env, ids_of(env, keys.device))
    clock, space = keys.new_zeros(()), env.action_space
    action = trees.idle(space, (1, *(() if env.num_actors is None else (env.num_actors,))), keys.device)

    def seen(*args: Any) -> Any:
        return flat.observe(*args).observation

    with guard(env, "init"):
        leaves = torch.vmap(flat.begin, in_dims=(0, 0, None))(keys, values, clock)
    with guard(env):
        torch.vmap(seen)(leaves, clock[None], values)
        torch.vmap(flat.act, in_dims=(0, 0, 0, 0, 0, None))(leaves, clock[None], keys, values, action, clock)
        torch.vmap(flat.restart, in_dims=(0, 0, 0, 0, None))(leaves, clock[None], keys, values, clock)
