"""A world as the actors of some of its roles see it: what a policy is made for."""

from typing import Any

from denizen.errors import ModelError
from denizen.model._env import Env
from denizen.model._roles import Role
from denizen.model._space_trees import Space
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

    def init(self, rng: Rng) -> Any:
        """Raise `ModelError`: other roles act too."""
        raise ModelError(
            f"{self._called} is for making a policy; worlds are those of the environment itself, with a policy "
            f"for each role"
        )


def whole_env(env: Any) -> Any:
    """The environment whose worlds these actors are in."""
    return env.env if isinstance(env, RoleView) else env
