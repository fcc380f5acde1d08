"""A policy: an actor and a critic over an environment's observations, feed-forward or recurrent; and where it fits."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from denizen import _spaces as trees
from denizen import _tree, ops
from denizen.errors import InputError, expect_function
from denizen.model import Box, Env, RoleView, whole_env
from denizen.nn import kernels
from denizen.rl._distributions import Distribution, Gaussian
from denizen.rl._from_gymnasium import Foreign
from denizen.rl._heads import check_distribution, check_drawn, distribution_of, draws_of, numbers_of, stds_of
from denizen.rl._layers import ConvEncoder, Critic, Tower, as_it_is, side_by_side, spreads
from denizen.rl._memory import Memory, memory_of
from denizen.rl._normaliser import Normaliser
from denizen.rl._rows import rows_of, seen_by
from denizen.rl._value import ValueHead, check_head
from denizen.rl._worlds import Worlds, check_env, check_no_roles, named, prove

FIRST_LOG_STD = 0.0
FEW_ROWS = 1024  # of more, keeping features takes memory (0.1 GiB for 512 features and 128 steps)
_KNOWN = ("torch.nn.modules.", "denizen.")  # modules whose layers are used as layers only


def launches(tensor: Tensor) -> bool:
    """Whether a layer of few rows costs what its launch costs."""
    return tensor.is_cuda


class Judged(NamedTuple):
    """What a policy makes of observations.

    Attributes:
        actions: the distribution over actions, of `rows`.
        features: `[rows, …]`, what the value head takes; of width 0 where it is not asked for.
        memory: `[rows, width]` after these observations; width 0 without memory.
    """

    actions: Distribution
    features: Tensor
    memory: Tensor


class Policy(nn.Module):
    """What acts: base of all policies. By itself it has no memory, and nothing to prepare.

    Attributes:
        env: whose observations and actions it is for.
        memory_size: width of the memory; 0 without one.
        draws: uniform numbers that a draw of one action takes.
    """

    env: Env
    memory_size: int = 0
    draws: int = 1
    normaliser: Normaliser | None  # of inputs
    privileged_normaliser: Normaliser | None  # of what the critic may see beside them

    def __init__(self, env: Env) -> None:
        """Args:
        env: whose observations and actions it is for.
        """
        super().__init__()
        check_no_roles(env, "policy")
        self.env, self.normaliser, self.privileged_normaliser = env, None, None
        self._plain = type(env._looks).network_input is Env.network_input
        self._acts, self._sees = env.action_space, env.observation_space  # asked for once: in a step they are traced

    def forward(
        self,
        observation: Tensor,
        memory: Tensor,
        action_mask: Tensor | None = None,
        privileged: Tensor | None = None,
        first: Tensor | None = None,
        *,
        actor_only: bool = False,
        given: Tensor | None = None,
    ) -> Judged:
        """What it makes of observations; see `ActorCritic.forward`."""
        raise NotImplementedError

    def first_memory(self, rows: int, device: torch.device) -> Tensor:
        """Memory at the start of a life: zeros float32 `[rows, memory_size]`."""
        return torch.zeros(rows, self.memory_size, device=device)

    def prepared(self, dtype: torch.dtype) -> contextlib.AbstractContextManager[None]:
        """While this lasts the parameters do not change."""
        return contextlib.nullcontext()

    def inputs(self, observation: Any) -> Any:
        """What the environment makes of observations, stored or not, for a network; of a tree, layers on flat inputs
        get all numbers side by side.
        """
        if self._plain:
            given = trees.network_inputs(self._sees, observation)
        else:
            given = self.env.network_input(self.looked(observation))
        apart = isinstance(given, Tensor) or not isinstance(self._modules.get("body"), Tower)
        return given if apart else side_by_side(given)

    def looked(self, observation: Tensor) -> Any:
        """Stored observations as the environment gave them, of which trees are stored as rows of bytes."""
        return trees.unpacked(self._sees, observation)

    def normalised(self, given: Any) -> Tensor:
        """Inputs as the bodies take them."""
        return given if self.normaliser is None else self.normaliser(given)

    def checked(self, normaliser: Any) -> Normaliser | None:
        """A normaliser that fits the inputs; raises `InputError` for anything else."""
        if normaliser is not None:
            what = type(self).__name__
            if not isinstance(normaliser, Normaliser):
                raise InputError(
                    f"{what}: normaliser is {named(normaliser)}, expected a dz.rl.Normaliser(shape), or None"
                )
            normaliser.check(self.inputs(self._example()))
        return normaliser

    def _example(self) -> Tensor:
        """A stored observation of zeros, for one row."""
        return torch.zeros(1, *self._sees.shape, dtype=self._sees.dtype)

    def heads(self) -> list[nn.Linear]:
        """Of actor and critic that are one operation with small bodies; here none."""
        return []

    def precompile(self, heads: list[nn.Linear], acting: int, learning: int, dtype: torch.dtype) -> None:
        """Have own kernels compiled; here there are none."""


class ActorCritic(Policy):
    """An actor and a critic.

    The body turns inputs into features; the actor is one linear layer on them. The critic sees the same features, or
    those of a body of its own, and what is privileged beside them. A memory, if any, comes after the body.

    Attributes:
        head: the value head.
        memory_size: numbers that the memory of a row is; 0 without one.
        draws: uniform numbers that a draw of one action takes.
        distribution: over the numbers of a box of actions.
    """

    def __init__(
        self,
        env: Env,
        body: nn.Module,
        *,
        critic_body: nn.Module | None = None,
        critic: nn.Module | None = None,
        head: Callable[[int], ValueHead] = ValueHead,
        memory_size: int = 0,
        memory: Memory | None = None,
        normaliser: Normaliser | None = None,
        distribution: type[Any] = Gaussian,
    ) -> None:
        """Args:
        env: whose observations and actions the policy is for.
        body: from `env.network_input` (`[rows, …]` float32) to features `[rows, width]`.
        critic_body: the same for the critic alone; None: shared, and the critic's gradient flows into the body.
        critic: from features and what is privileged, side by side, to the features of the value head; None: as is.
        head: makes the value head from the width of its features.
        memory_size: width of a GRU cell between the body and the heads; 0: none. The critic then shares the body.
        memory: another memory in its place: `LSTM`, `Attention`, or an object whose `make` gives such a module.
        normaliser: of the inputs that bodies take; None: they take them as they are. What is privileged then has one
            like it.
        distribution: over the numbers of a box of actions: `Gaussian`, `SquashedGaussian` or `Beta`.

        Raises:
            InputError: the body does not take the environment's observations, or gives no `[rows, width]`.
        """
        check_env(env, "ActorCritic")
        check_drawn(env)
        super().__init__(env)
        check_makes("head", head, "dz.rl.PopArt", "width")
        if memory is not None or memory_size:
            memory = memory_of(memory, memory_size)
        self.body, self.critic_body = body, critic_body
        self.normaliser = self.checked(normaliser)
        if critic_body is not None and memory is not None:
            raise InputError("ActorCritic: memory_size goes with a shared body; leave critic_body out")
        width = self._width(body, "body")
        self.cell = None if memory is None else memory.make(width)
        self.memory_size, shown = (0, width) if self.cell is None else (self.cell.size, self.cell.width)
        space = self._acts
        check_distribution(distribution, space, "ActorCritic")
        self.distribution, self.draws = distribution, draws_of(space, distribution)
        self.actor = nn.Linear(shown, numbers_of(space, distribution))
        nn.init.orthogonal_(self.actor.weight, 0.01)
        nn.init.zeros_(self.actor.bias)
        extra = self._privileged()
        if normaliser is not None and extra:
            self.privileged_normaliser = normaliser.like((extra,))
        seen = (self._width(critic_body, "critic_body") if critic_body is not None else shown) + extra
        stds = stds_of(space, distribution)
        self.log_std = nn.Parameter(torch.full((stds,), FIRST_LOG_STD)) if stds else None
        self.critic = critic
        if critic is not None:
            seen = int(critic(torch.zeros(1, seen)).shape[-1])
        self.head = head(seen)
        check_head(self.head, seen)

    @contextlib.contextmanager
    def prepared(self, dtype: torch.dtype) -> Iterator[None]:
        """While this lasts the parameters do not change, so they are brought into the form of their use once.

        Linear layers hold weights in `dtype`, to which autocast would round them at each use, unless they are within a
        module that somebody wrote, which may use them otherwise.
        """
        with contextlib.ExitStack() as held:
            for part in (self.body, self.critic_body, self.critic, self.actor):
                if isinstance(part, ConvEncoder) and spreads(next(part.parameters())):
                    held.enter_context(part.prepared(dtype))
                if part is not None and all(type(m).__module__.startswith(_KNOWN) for m in part.modules()):
                    for layer in part.modules():
                        if isinstance(layer, nn.Linear) and "weight" in layer._parameters:  # not made by weight_norm …
                            held.callback(layer._parameters.update, dict(layer._parameters))
                            _round(layer, dtype)
                    if isinstance(part, Critic):
                        part.widen()
            yield

    def _width(self, body: nn.Module, name: str) -> int:
        given = self.normalised(self.inputs(self._example()))
        try:
            with torch.no_grad():
                out = body(given)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:  # the second of BatchNorm, for one row
            raise InputError(
                f"ActorCritic: {name} does not take inputs of shape {shapes_of(given)}, which "
                f"{self.env._called} gives: {str(error).splitlines()[0]}"
            ) from error
        if out.dim() != 2 or out.shape[0] != 1:
            raise InputError(f"ActorCritic: {name} gives {tuple(out.shape)} for one row, expected (1, width)")
        return out.shape[1]

    def _privileged(self) -> int:
        """Width of what is privileged, by a first look at the environment."""
        env = whole_env(self.env)
        if all(getattr(type(env), name) is getattr(Env, name) for name in ("privileged", "privileged_input")):
            return 0
        worlds = Worlds(env.to("cpu"), 1, device="cpu")
        with ops.reference_only():  # one look is over before numba is loaded, or a function recorded
            prove(worlds.env, worlds.keys, {})
            observed = worlds._start(worlds.keys, {}, worlds.keys.new_zeros(()))[1]
            observed = rows_of(seen_by(self.env, observed) if isinstance(self.env, RoleView) else observed, self.env)
        given = self.env.privileged_input(self.looked(observed.observation), observed.privileged)
        return 0 if given is None else given.shape[-1]

    def forward(
        self,
        observation: Tensor,
        memory: Tensor,
        action_mask: Tensor | None = None,
        privileged: Tensor | None = None,
        first: Tensor | None = None,
        *,
        actor_only: bool = False,
        given: Tensor | None = None,
    ) -> Judged:
        """Judge observations of one moment, or of several in a row.

        Args:
            observation: as stored: `[rows, …]`, or `[steps, rows, …]` flattened to `[steps * rows, …]`, where `memory`
                tells the number of rows.
            memory: float32 `[rows, memory_size]` before the first of the observations.
            action_mask: bool, which choices are open.
            privileged: what the critic may see beside the observation.
            first: bool, like the rows of `observation`: a life begins here, so the memory starts anew.
            actor_only: leave the critic out, and with it `features`.
            given: inputs of the network in place of what the environment makes of `observation`, to look into it.
        """
        if actor_only:
            numbers = self._at_once(observation, [self.actor], given)
            if numbers is not None:
                return Judged(self._actions(numbers, action_mask), numbers[:, :0], memory)
        given = self.normalised(self.inputs(observation) if given is None else given)
        judged = self.act(given, memory, action_mask, first)
        if actor_only:
            return judged._replace(features=judged.features[:, :0])
        seen = judged.features if self.critic_body is None else self.critic_body(given)
        return judged._replace(features=self.judge(seen, observation, privileged))

    def act(self, given: Tensor, memory: Tensor, action_mask: Tensor | None, first: Tensor | None) -> Judged:
        """`forward` without the critic, of inputs of the network; features are those of the body."""
        both = (
            self.body.with_top(given, self.actor) if isinstance(self.body, ConvEncoder) and self.cell is None else None
        )
        if both is not None:
            return Judged(self._actions(both[1], action_mask), both[0], memory)
        shown = self.body(given)
        if self.cell is not None:
            rows = memory.shape[0]
            begins = None if first is None else first.reshape(-1, rows)
            shown, memory = self.cell.over(shown.reshape(-1, rows, shown.shape[-1]), memory, begins)
        return Judged(self._actions(self.actor(shown), action_mask), shown, memory)

    def judge(self, seen: Tensor, observation: Tensor, privileged: Tensor | None) -> Tensor:
        """What the value head takes, from the features of a body."""
        extra = self.env.privileged_input(self.looked(observation), privileged)
        if extra is not None:
            extra = extra if self.privileged_normaliser is None else self.privileged_normaliser(extra)
            if isinstance(self.critic, Critic):
                extra = F.pad(extra, (0, self.critic.missing(seen)))
            seen = torch.cat([seen, extra.to(seen.dtype)], dim=-1)
        return seen if self.critic is None else self.critic(seen)

    def judges_late(self, rows: int) -> bool:
        """Whether to `judge` what `act` made of many steps together: on CUDA, of few rows, critics are launches."""
        late = rows <= FEW_ROWS and launches(self.actor.weight) and self.critic is not None and self.critic_body is None
        return late and type(self).forward is ActorCritic.forward and as_it_is(self)

    def with_value(
        self,
        observation: Tensor,
        memory: Tensor,
        action_mask: Tensor | None = None,
        privileged: Tensor | None = None,
        first: Tensor | None = None,
        *,
        learnt: bool = False,
    ) -> tuple[Judged, Tensor]:
        """`forward`, and values of the head: float32 `[rows]`, `learnt` in the units in which they are learnt.

        Small networks of two layers are one operation on CUDA, heads included; there are no features then.
        """
        head, found = self.head, self._at_once(observation, self.heads())
        if found is None:
            judged = self(observation, memory, action_mask, privileged, first)
            return judged, (head.training_value if learnt else head.value)(judged.features)
        numbers, values = found.split([self.actor.out_features, 1], 1)
        judged, values = Judged(self._actions(numbers, action_mask), found[:, :0], memory), values.squeeze(-1)
        return judged, values if learnt else head.in_rewards(values)

    def _actions(self, numbers: Tensor, action_mask: Tensor | None) -> Distribution:
        return distribution_of(self._acts, self.distribution, numbers, action_mask, self.log_std)

    def heads(self) -> list[nn.Linear]:
        """Of actor and critic, where values are what one linear layer makes of a body's features; else none."""
        own = ("training_value", "value")
        plain = self.critic is None and all(getattr(type(self.head), m) is getattr(ValueHead, m) for m in own)
        return [self.actor, self.head.linear] if plain else []

    def _seen(self, observation: Tensor) -> Tensor:
        """Inputs of the network; bytes as they are where the environment makes floats of them and no more."""
        plain = self.normaliser is None and self._plain and isinstance(self._sees, Box)
        plain = plain and observation.dtype == torch.uint8
        return observation if plain else self.normalised(self.inputs(observation))

    def _at_once(self, observation: Tensor, heads: list[nn.Linear], given: Tensor | None = None) -> Tensor | None:
        """What the heads of actor and critic give, side by side, as one operation; None where it does not fit."""
        first = observation if isinstance(observation, Tensor) else _tree.tensors(observation)[0]
        found = None if torch.is_autocast_enabled(first.device.type) else self.towers(heads)
        if found is None:
            return None
        given = self._seen(observation) if given is None else self.normalised(given)
        if (
            given.requires_grad or given.dtype not in kernels.MLP_INPUTS
        ):  # to look into the network, layers go one by one
            return None
        return kernels.mlp(given.flatten(1), *found)[0]

    def towers(self, heads: list[nn.Linear]) -> tuple[list[Tensor], str] | None:
        """(weights of bodies with heads on top, activation) for `kernels.mlp`; None where they do not fit."""
        if self.cell is not None or type(self).forward is not ActorCritic.forward or not as_it_is(self):
            return None
        weights: list[Tensor] = []
        activations: set[str] = set()
        for body, head in zip((self.body, self.critic_body or self.body), heads, strict=False):
            layers = body.two_layers() if isinstance(body, Tower) else None
            if layers is None or not isinstance(head, nn.Linear) or head.in_features != layers[1].out_features:
                return None
            three = (*layers[:2], head)
            if any(layer.bias is None for layer in three):
                return None
            weights += [tensor for layer in three for tensor in (layer.weight, layer.bias)]
            activations.add(layers[2])
        return (weights, activations.pop()) if len(activations) == 1 and kernels.mlp_fits(weights) else None

    def precompile(self, heads: list[nn.Linear], acting: int, learning: int, dtype: torch.dtype) -> None:
        """Have own kernels compiled, in threads within `kernels.precompiling`; on CUDA.

        Args:
            heads: of actor and critic that are learnt.
            acting: rows that act at once.
            learning: rows of a minibatch.
            dtype: in which the policy runs.
        """
        if isinstance(self.body, ConvEncoder):
            self.body.precompile(acting, learning, dtype, self.actor)
            return
        found = self.towers(heads) if dtype == torch.float32 else None
        if found is None:
            return
        weights, activation = found
        seen = self._seen(self._example().to(self.actor.weight.device)).flatten(1).to("meta")
        if seen.dtype in kernels.MLP_INPUTS:
            few, many = (seen.new_empty(rows, seen.shape[1]) for rows in (acting, learning))
            shaped = [torch.empty(weight.shape, device="meta") for weight in weights]
            kernels.precompile_mlp(few, many, shaped, activation)


@torch.no_grad()
def _round(layer: nn.Linear, dtype: torch.dtype) -> None:
    """New parameters in another precision in place of a layer's own."""
    for name, value in layer._parameters.items():
        if value is not None and value.dtype != dtype:
            layer._parameters[name] = nn.Parameter(value.to(dtype), requires_grad=False)


def check_makes(name: str, makes: Any, example: str, *given: str) -> None:
    """Raise `InputError` where this is a name or a module, in place of what makes modules of what it is given."""
    if isinstance(makes, nn.Module) or not callable(makes):
        raise InputError(f"policy: {name} is {makes!r}, expected a class or function that makes it, such as {example}")
    expect_function(f"policy: {name}", makes, *given)


def first_inputs(env: Env) -> Any:
    """Inputs of a network for one row of zeros."""
    space = env.observation_space
    return env.network_input(trees.unpacked(space, torch.zeros(1, *space.shape, dtype=space.dtype)))


def shapes_of(given: Any) -> Any:
    """Shapes of inputs of a network, for messages."""
    return _tree.map_tensors(lambda part: ("rows", *part.shape[1:]), given)


# --- whether one fits an environment ----------------------------------------------------------------------------------


def check_fits(policy: Policy, env: Any, what: str, *, hosted: bool = False) -> None:
    """Raise `InputError` where this is no environment, or one with other observations or actions than a policy's.

    Args:
        policy: the policy.
        env: what was given as the environment.
        what: who asks, for messages.
        hosted: it may be that of a `FromGymnasium`.
    """
    from denizen.rl._roles import Policies  # which asks here whether they fit

    check_env(env, what)
    check_no_roles(env, what)
    if isinstance(policy, Mapping | Policies):
        raise InputError(
            f"{what}: policy is {'a dict' if isinstance(policy, Mapping) else 'Policies'}, and {env._called} has "
            f"no roles; give one policy, such as dz.rl.mlp(env)"
        )
    if not isinstance(policy, Policy):
        raise InputError(f"{what}: policy is {named(policy)}, expected a dz.rl.ActorCritic, such as dz.rl.mlp(env)")
    check_float32(policy, what)
    if isinstance(env, Foreign) and not hosted:
        raise InputError(
            f"{what}: env is that of a FromGymnasium, whose worlds are on the host and are stepped by it alone; give "
            f"dz.train the FromGymnasium itself, or write a dz.Env for worlds on the device"
        )
    for name in ("observation_space", "action_space"):
        mine, its = getattr(policy.env, name), getattr(env, name)
        if trees.form(mine) != trees.form(its):
            raise InputError(
                f"{what}: policy was made for {policy.env._called} with {name} {mine}, and "
                f"{env._called} has {its}; make one for this environment, such as dz.rl.mlp(env)"
            )
    _check_bounds(policy, env, what)


def _check_bounds(policy: Policy, env: Env, what: str) -> None:
    """Raise `InputError` where a policy's actions fill other bounds than a world's, which would clip them."""
    if getattr(policy, "distribution", Gaussian) is Gaussian and not hasattr(policy, "reach"):
        return  # a Gaussian has none: it is clipped by every world
    mine, its = policy.env.action_space, env.action_space
    if mine is not its and any(
        isinstance(own, Box) and isinstance(other, Box) and (own.low, own.high) != (other.low, other.high)
        for (_, own), (_, other) in zip(trees.leaves(mine), trees.leaves(its), strict=True)
    ):
        raise InputError(
            f"{what}: the policy's actions fill {mine}, and {env._called} has {its}, which would clip them; "
            f"evaluate it in a world of the same bounds, or train another one"
        )


def check_learns(policy: Any, env: Any, what: str, *, hosted: bool = False) -> ActorCritic:
    """`check_fits`, and raise `InputError` where ratios would not begin at 1; the policy."""
    check_fits(policy, env, what, hosted=hosted)
    if not isinstance(policy, ActorCritic):
        raise InputError(f"{what}: policy is {named(policy)}, expected a dz.rl.ActorCritic, such as dz.rl.mlp(env)")
    if any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in policy.modules()):
        raise InputError(f"{what}: the policy has dropout, so its ratios would not begin at 1; set its p to 0")
    for module in policy.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise InputError(
                f"{what}: the policy has {type(module).__name__}, which gives other values in each batch, so its "
                f"ratios would not begin at 1; use torch.nn.LayerNorm"
            )
    return policy


def check_float32(policy: Policy, what: str) -> None:
    """Raise `InputError` where what a policy learns, or acts by, is no float32."""
    for name, parameter in policy.named_parameters():
        used = parameter.requires_grad or parameter is getattr(getattr(policy, "actor", None), "weight", None)
        if used and parameter.dtype != torch.float32:
            raise InputError(
                f"{what}: the policy's {name} is {parameter.dtype}, expected torch.float32, since observations are; "
                f"call policy.float(), and set the algorithm's precision for a smaller one"
            )
