"""Env: a model that takes actions, observes and rewards; written for one world, batched by the engine."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from denizen._roles import Role, Roles, together
from denizen._spaces import Space, form, network_inputs
from denizen.errors import InputError, ModelError, nearest
from denizen.model._model import Model
from denizen.model._state import State
from denizen.rng import Rng

if TYPE_CHECKING:
    from denizen.model._flat_env import InPlace


class Env(Model):
    """Base of environments. Subclasses write the methods below for one world, by the rule for every model.

    `init(rng)` and `step(now, action, rng)` give states; `observe(now)`, `reward(before, action, now)` and
    `terminated(now)` look at them. `now.time.step` counts the steps of the present life. A life ends where
    `terminated` says so, and is cut off (truncated) after `time_limit` steps or where `truncated` says so.

    Several agents may share a world: give `num_actors`, and let actions, observations and rewards have a leading axis
    of that size; `acting` then masks those that are out. Where actors are of several kinds, give `roles`: actions,
    observations and rewards are then dicts by role.
    """

    @property
    def num_agents(self) -> int:
        """Size of the axis ``"agents"`` and of what `rng` draws: that of a graph if there is one, else all actors."""
        try:
            return super().num_agents
        except ModelError:
            return self.num_actors or sum(role.count for role in (self.roles or {}).values()) or 1

    @property
    def _looks(self) -> "Env":
        """Which environment makes these observations: this one, or one that it wraps."""
        return self

    @property
    def _called(self) -> str:
        """What people call it in messages."""
        return type(self).__name__

    @property
    def num_actors(self) -> int | None:
        """How many agents act in one world; None: one, without an axis of its own."""
        return None

    @property
    def roles(self) -> Roles | None:
        """Kinds of actors by name, each with spaces of its own; None: all actors are alike.

        `step` then gets a dict of actions by role, `[count, …]` each, `observe` and `reward` return such dicts, and
        `action_mask`, `acting` and `privileged` may, of roles where not all is open, not all act, or a critic sees
        more. `network_input` and `privileged_input` get dicts with the role that is asked for, and return such, without
        it where the usual is meant. `action_space` and `observation_space` are not given: they are those of all actors
        together.
        """
        return None

    def role(self, *names: str) -> "Env":
        """The actors of a role, or of several with the same spaces, to make a policy for: ``mlp(env.role("prey"))``.

        Raises:
            InputError: there is no such role, it is named twice, or spaces differ in more than the bounds of boxes.
        """
        roles, this = self.roles or {}, type(self).__name__
        for place, name in enumerate(names or ("",)):
            if name not in roles:
                known = nearest(name, roles) if roles else "it has none"
                raise InputError(f"{this} has no role {name!r}; {known}")
            if name in names[:place]:
                raise InputError(f"{this}.role: {name!r} is named twice; name each role once")
            for attribute in ("observation_space", "action_space"):
                mine, first = getattr(roles[name], attribute), getattr(roles[names[0]], attribute)
                if form(mine) != form(first):
                    raise InputError(
                        f"{this}.role: {name!r} has {attribute} {mine}, and {names[0]!r} has {first}; one policy plays "
                        f"roles of the same spaces, so make one for each"
                    )
        return RoleView(self, names)

    @property
    def time_limit(self) -> int | None:
        """Steps after which a life is cut off; None: never."""
        return None

    @property
    def action_space(self) -> Space:
        """Of one agent's action."""
        if self.roles is not None:
            return together(self.roles, "action_space")
        raise ModelError(f"{type(self).__name__} has no action_space; return a dz.rl.Discrete or dz.rl.Box")

    @property
    def observation_space(self) -> Space:
        """Of one agent's observation, as `observe` returns it."""
        if self.roles is not None:
            return together(self.roles, "observation_space")
        raise ModelError(f"{type(self).__name__} has no observation_space; return a dz.rl.Box")

    def step(self, now: Any, action: Any, rng: Rng) -> State:  # type: ignore[override]  # pyrefly: ignore
        """The state one step on.

        Args:
            now: the state.
            action: int64 `[]` for a `Discrete` space, else of the space's shape and dtype; `[actors, …]` for several.
                Of a `Dict` space a dict of them, of a `Tuple` space a tuple.
            rng: random numbers of this step.
        """
        raise ModelError(f"{type(self).__name__} has no step(self, now, action, rng)")

    def observe(self, now: Any) -> Any:
        """What an agent sees, in the form that is stored: of the observation space's shape and dtype.

        Of a `Dict` space a dict of tensors, of a `Tuple` space a tuple.
        """
        raise ModelError(f"{type(self).__name__} has no observe(self, now)")

    def reward(self, before: Any, action: Any, now: Any) -> Any:
        """Reward of the step from `before` to `now`: float32 `[]`, or `[actors]`; a dict of these by role."""
        raise ModelError(f"{type(self).__name__} has no reward(self, before, action, now)")

    def terminated(self, now: Any) -> Tensor:
        """Whether the life is over for good: bool or int8 `[]`."""
        raise ModelError(f"{type(self).__name__} has no terminated(self, now)")

    def truncated(self, now: Any) -> Tensor | None:
        """Whether the life is cut off for another reason than the time limit: bool or int8 `[]`; None: never."""
        return None

    def reset(self, ended: Any, rng: Rng) -> State:
        """The state in which the next life begins; `ended` is the one in which the last life ended."""
        return self.init(rng)

    def action_mask(self, now: Any) -> Any:
        """Which choices are open: bool `[n]` (`[actors, n]`), at least one of them; None: all.

        Of a `MultiDiscrete` space those of all factors side by side, `[sum of nvec]`; of a `MultiBinary` one for each
        factor whether 0 is open and whether 1 is: `[2 n]`; of a space of several parts those of its leaves in order. A
        mask closes choices of a factor whatever others choose.
        """
        return None

    def acting(self, now: Any) -> Any:
        """Which agents of several act: bool or int8 `[actors]`, or a dict of these by role; None: all."""
        return None

    def privileged(self, now: Any) -> Any:
        """What a critic may see beside the observation: float32 `[k]` (`[actors, k]`); None: nothing."""
        return None

    def network_input(self, observation: Any) -> Any:
        """Stored observations `[batch, …]` as floats for a network; for packed observations, unpack them here.

        Choices become ones and zeros: one of `n` for each factor. Of a space of several parts `observation` is a tree,
        and so is what comes back.
        """
        return network_inputs(self.observation_space, observation)

    def privileged_input(self, observation: Any, privileged: Any) -> Any:
        """What the critic gets beside the features: `[batch, k]`, from what was stored; None: nothing."""
        return privileged

    def measures(self, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Further metrics of an update of a training, such as the ratio of two series.

        Args:
            sums: over all steps of all worlds in it: of each series that is a flow, of `reward`, and `steps`: float32
                `[]` each, on the device.

        Returns:
            Float32 `[]` by name.
        """
        return {}

    def check_changing(self, names: Collection[str]) -> None:
        """Raise `InputError` where worlds would not follow parameters that change with a training."""

    def in_place(self, device: torch.device, max_resets: int) -> "InPlace | None":
        """A faster form of a step of many worlds, which changes their tensors; None: there is none.

        Trainers use it; `Worlds.step` does not. It must give the bits of the methods above.

        Args:
            device: of the worlds.
            max_resets: lives that begin anew in a step at most; 0: none, each world waits from its end on.
        """
        return None

    def draw(self, now: Any) -> Sequence[str] | Tensor:
        """A picture of one world for people: lines of text, or uint8 `[height, width, 3]`."""
        raise ModelError(
            f"{type(self).__name__} has no draw(self, now), so its worlds cannot be shown; write one that returns "
            f"a list of lines of text, or pixels: uint8 [height, width, 3]"
        )


def check_spaces(env: Any) -> None:
    """Raise `ModelError` where an environment declares something else than spaces, or roles that are none."""
    _check_roles(env)
    name = type(env).__name__
    for attribute in ("action_space", "observation_space"):
        space = getattr(env, attribute)
        if not isinstance(space, Space):
            raise ModelError(
                f"{name} has {attribute} {space!r}; expected dz.rl.Discrete(n) or dz.rl.Box(low, high, shape), or "
                f"another space of dz.rl"
            )


def _check_roles(env: Any) -> None:
    """Raise `ModelError` where an environment's roles are none, or it has hooks that worlds with roles have not."""
    name, roles = type(env).__name__, env.roles
    if roles is None:
        return
    if not isinstance(roles, Mapping) or not roles or not all(isinstance(role, Role) for role in roles.values()):
        raise ModelError(f"{name}.roles is {roles!r:.80}; expected a dz.rl.Role by name, such as {{'prey': Role(…)}}")
    for word in roles:
        if not isinstance(word, str) or not word.isidentifier() or hasattr(nn.ModuleDict, word):
            raise ModelError(f"{name}.roles has the name {word!r}; expected a word that is no method of a torch module")
    if env.num_actors is not None:
        raise ModelError(f"{name} has roles and num_actors; the roles say how many actors there are")
    for hook in ("action_space", "observation_space", "in_place"):
        if getattr(type(env), hook) is not getattr(Env, hook):
            raise ModelError(f"{name} has roles and {hook}, which is of worlds without; leave one of the two out")


def can_draw(env: Env) -> bool:
    """Whether an environment has pictures of its own."""
    return type(env).draw is not Env.draw


def is_picture(drawn: Any) -> bool:
    """Whether `Env.draw` may return this: lines of text, or uint8 `[height, width, 3]`."""
    if isinstance(drawn, Tensor):
        return drawn.dtype == torch.uint8 and drawn.dim() == 3 and drawn.shape[-1] == 3
    return isinstance(drawn, Sequence) and not isinstance(drawn, str) and all(isinstance(line, str) for line in drawn)


def picture(env: Env, now: Any) -> Sequence[str] | Tensor:
    """What `draw` gives of a state.

    Raises:
        ModelError: it has none, or returns something else than a picture.
    """
    drawn = env.draw(now)
    if not is_picture(drawn):
        code = getattr(type(env).draw, "__code__", None)
        at = "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"
        got = f"{drawn.dtype} {list(drawn.shape)}" if isinstance(drawn, Tensor) else f"{drawn!r:.60}"
        way = "; .splitlines() makes lines of a text" if isinstance(drawn, str) else ""
        raise ModelError(
            f"{type(env).__name__}.draw{at} returned {type(drawn).__name__} {got}, expected a list of lines of text, "
            f"or pixels: uint8 [height, width, 3]{way}"
        )
    return drawn


# --- as the actors of some roles see it -------------------------------------------------------------------------------


class RoleView(Env):
    """Actors of some roles of a world, for policies and for what learns from their rows; it has no worlds of its own.

    Attributes:
        env: the environment.
        names: of the roles, which have the same spaces.
    """

    env: Env
    names: tuple[str, ...]

    @property
    def _called(self) -> str:
        """As an author writes it."""
        return f"{self.env._called}.role({', '.join(map(repr, self.names))})"

    @property
    def _looks(self) -> Env:
        """That of the environment."""
        return self.env._looks

    @property
    def _role(self) -> Role:
        assert self.env.roles is not None
        return self.env.roles[self.names[0]]

    @property
    def num_actors(self) -> int:
        """Of all these roles."""
        assert self.env.roles is not None
        return sum(self.env.roles[name].count for name in self.names)

    @property
    def time_limit(self) -> int | None:
        """That of the environment."""
        return self.env.time_limit

    @property
    def observation_space(self) -> Space:
        """Of one actor."""
        return self._role.observation_space

    @property
    def action_space(self) -> Space:
        """Of one actor."""
        return self._role.action_space

    def network_input(self, observation: Any) -> Any:
        """What the environment makes of looks of this role, or the first of these; the usual where it makes nothing."""
        if type(self.env).network_input is not Env.network_input:
            given = self._made("network_input", {self.names[0]: observation})
            if given is not None:
                return given
        return network_inputs(self.observation_space, observation)

    def privileged_input(self, observation: Any, privileged: Tensor | None) -> Tensor | None:
        """Likewise."""
        if type(self.env).privileged_input is Env.privileged_input:
            return privileged
        name = self.names[0]
        held = {} if privileged is None else {name: privileged}
        return self._made("privileged_input", {name: observation}, held)

    def _made(self, what: str, *args: Any) -> Any:
        """What a hook of the environment makes of this role; None: nothing."""
        try:
            given = getattr(self.env, what)(*args)
        except KeyError as error:
            if error.args[0] not in (self.env.roles or {}):
                raise
            raise ModelError(
                f"{self.env._called}.{what} looked for {error.args[0]!r} where {self.names[0]!r} is asked for; it gets "
                f"one role at a time: for name, given in observation.items(): …"
            ) from error
        if not isinstance(given, Mapping):
            raise ModelError(f"{self.env._called}.{what} gave {type(given).__name__}, expected a dict by role")
        return given.get(self.names[0])

    def init(self, rng: Rng) -> Any:
        """Raise `ModelError`: other roles act too."""
        raise ModelError(
            f"{self._called} is for making a policy; worlds are those of the environment itself, with a policy "
            f"for each role"
        )


def whole_env(env: Any) -> Any:
    """The environment whose worlds these actors are in."""
    return env.env if isinstance(env, RoleView) else env
