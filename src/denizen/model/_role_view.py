"""A world as the actors of some of its roles see it: what a policy is made for."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from denizen._roles import Role
from denizen._spaces import Space, network_inputs
from denizen.errors import ModelError
from denizen.model._env import Env
from denizen.rng import Rng


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
