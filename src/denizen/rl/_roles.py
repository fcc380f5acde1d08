"""Policies by role, and what each of them sees of worlds that several play in.

Roles with the same policy are one party: their actors are rows side by side, which it learns from together.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from denizen import ops
from denizen._roles import Roles, of_all, places
from denizen.errors import InputError, nearest
from denizen.model import Env, Observed, RoleView
from denizen.rl._distributions import Gaussian
from denizen.rl._policy import Policy, check_fits
from denizen.rl._rows import by_actors, in_world, seen_by, side_by_side
from denizen.rl._worlds import Step, Worlds, WorldsState, named


@dataclasses.dataclass(frozen=True)
class Party:
    """Roles that one policy plays.

    Attributes:
        name: of the roles, with ``+`` between.
        roles: their names.
        policy: of all their actors.
        view: the world as these actors see it.
    """

    name: str
    roles: tuple[str, ...]
    policy: Policy
    view: RoleView


class Policies(nn.Module):
    """A policy for each role, as trainings with roles give them back: ``result.policy["prey"]``."""

    def __init__(self, given: Mapping[str, Policy]) -> None:
        """Args:
        given: policies by role, of which one may play several.

        Raises:
            InputError: it is no such dict.
        """
        super().__init__()
        example = "{'prey': dz.rl.mlp(env.role('prey'))}"
        if not isinstance(given, Mapping):
            raise InputError(f"Policies: given is {named(given)}, expected a policy for each role, such as {example}")
        for name, policy in given.items():
            if not isinstance(policy, Policy):
                raise InputError(f"Policies: given[{name!r}] is {named(policy)}, expected a policy, as in {example}")
        for name, policy in given.items():
            self.add_module(name, policy)

    def __getitem__(self, role: str) -> Policy:
        if role not in self._modules:
            raise InputError(f"no policy for a role {role!r}; {nearest(role, self._modules)}")
        return self._modules[role]  # type: ignore[return-value]  # pyrefly: ignore

    def items(self) -> Iterator[tuple[str, Policy]]:
        """(role, policy) of each role."""
        yield from self._modules.items()  # type: ignore[misc]  # pyrefly: ignore

    @property
    def distribution(self) -> type[Any]:
        """What all have, or the first that is another one than usual; shapes of weights do not tell it."""
        kinds: list[type[Any]] = [vars(policy).get("distribution", Gaussian) for _, policy in self.items()]
        return next((kind for kind in kinds if kind is not Gaussian), Gaussian)


def policies_of(given: Any, env: Any, what: str) -> Policies:
    """Policies for the roles of an environment.

    Raises:
        InputError: it has no roles, one lacks a policy, a policy is of no role or does not fit, or two share weights or
            a normaliser.
    """
    if isinstance(given, Policies):
        given = dict(given.items())
    name = type(env).__name__
    if not isinstance(given, Mapping):
        raise InputError(
            f"{what}: policy is {named(given)}, and {name} has roles; give a policy for each: {_each(env)}"
        )
    roles: Roles = env.roles
    for role in given:
        if role not in roles:
            raise InputError(f"{what}: policy has {role!r}, and {name} has no such role; {nearest(str(role), roles)}")
    lacking = [role for role in roles if role not in given]
    if lacking:
        raise InputError(
            f"{what}: policy lacks the role {lacking[0]!r} of {name}; give a policy for each: {_each(env)}"
        )
    for role in roles:
        check_fits(given[role], env.role(role), f"{what}: policy[{role!r}]")
    made = Policies({role: given[role] for role in roles})
    _check_apart(parties(env, made), what)
    return made


def _each(env: Env) -> str:
    return "{" + ", ".join(f"{role!r}: dz.rl.mlp(env.role({role!r}))" for role in env.roles or ()) + "}"


def _check_apart(found: list[Party], what: str) -> None:
    """Raise `InputError` where two policies have weights or statistics in common: each would change them by its own
    rows.
    """
    owner: dict[int, Party] = {}
    for party in found:
        for weight in (*party.policy.parameters(), *party.policy.buffers()):
            other = owner.setdefault(id(weight), party)
            if other is not party:
                raise InputError(
                    f"{what}: the policies of {other.name} and {party.name} share weights or a normaliser; give both "
                    f"roles the same policy, made by env.role({', '.join(map(repr, other.roles + party.roles))}), or "
                    f"some of their own"
                )


def parties(env: Env, policies: Policies) -> list[Party]:
    """Roles by the policies that play them, in the order of the roles."""
    played: dict[int, list[str]] = {}
    for role, policy in policies.items():
        played.setdefault(id(policy), []).append(role)
    return [
        Party("+".join(roles), tuple(roles), policies[roles[0]], env.role(*roles))  # type: ignore[arg-type]  # pyrefly: ignore
        for roles in played.values()
    ]


# --- what a party sees and does ---------------------------------------------------------------------------------------


def step_of(party: Party, step: Step) -> Step:
    """What a step gave to the actors of a party."""
    assert party.view.env.roles is not None
    where = places(party.view.env.roles)
    reward = side_by_side([step.reward[:, where[name]] for name in party.roles])
    observed, final = seen_by(party.view, step.observed), seen_by(party.view, step.final)
    return step._replace(observed=observed, reward=reward, final=final, flows={})


def actions_of(env: Env, chosen: list[tuple[Party, Tensor]]) -> dict[str, Any]:
    """Actions of each party's rows as worlds take them."""
    assert env.roles is not None
    found: dict[str, Any] = {}
    for party, action in chosen:
        given = by_actors(ops.rounded(action, party.view.action_space.dtype), party.view)
        begin = 0
        for name in party.roles:
            role = env.roles[name]
            part = in_world(given[:, begin : begin + role.count], role.action_space)  # each within its own bounds
            found[name] = of_all(role.count, role.action_space, part)
            begin += role.count
    return {name: found[name] for name in env.roles}


class Seats:
    """Worlds as a `Rollout` of one party takes them, which steps nothing itself.

    Attributes:
        env: the world as the party's actors see it.
        num_envs: number of worlds.
        device: of the worlds.
        modules: none of its own.
        world_params: likewise.
        in_place: likewise.
    """

    modules: tuple[nn.Module, ...] = ()
    in_place = False

    def __init__(self, party: Party, worlds: Worlds, begun: tuple[WorldsState, Observed]) -> None:
        """Args:
        party: whose actors sit here.
        worlds: all of them.
        begun: their first states and looks.
        """
        self.env, self.num_envs, self.device = party.view, worlds.num_envs, worlds.device
        self.world_params = nn.Module()
        self._begun = begun[0], seen_by(party.view, begun[1])

    def begin(self) -> tuple[WorldsState, Observed]:
        """The first states, and what is seen here."""
        return self._begun
