"""Policies of learners that reuse old steps: values of choices, and actors with twin critics of actions."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from denizen import _tree
from denizen._arguments import switch, whole
from denizen.errors import InputError
from denizen.model import Box, Discrete, Env
from denizen.rl._distributions import Certain, Distribution, Greedy, SquashedGaussian
from denizen.rl._layers import Tower
from denizen.rl._normaliser import Normaliser
from denizen.rl._policy import Judged, Policy, shapes_of
from denizen.rl._ready_policies import _check_widths, _flat_width, _layers, _normaliser, _seeded, conv_body
from denizen.rl._worlds import check_env

LOG_STD = (-20.0, 2.0)  # limits of Haarnoja et al. (2018)


class QNetwork(Policy):
    """Values of choices; acts by the best of them. For `DQN`.

    Attributes:
        body: from the environment's `network_input` to features.
        duelling: whether values are those of a state plus what each choice adds (Wang et al., 2016).
    """

    def __init__(
        self, env: Env, body: nn.Module, *, duelling: bool = False, normaliser: Normaliser | None = None
    ) -> None:
        """Args:
        env: whose observations and actions it is for; its actions are a `Discrete`.
        body: from inputs `[rows, …]` float32 to features `[rows, width]`.
        duelling: value of the state and advantages apart, the advantages centred at their mean.
        normaliser: of the inputs that the body takes; None: it takes them as they are.

        Raises:
            InputError: actions that are no `Discrete`, or a body that does not fit.
        """
        check_env(env, "QNetwork")
        super().__init__(env)
        self.body, self.duelling = body, switch("QNetwork", "duelling", duelling)
        self.normaliser = self.checked(normaliser)
        choices, width = check_discrete(env, "QNetwork"), _width(self, body)
        self.q = nn.Linear(width, choices)
        self.state_value = nn.Linear(width, 1) if duelling else None

    def values(self, observation: Any) -> Tensor:
        """Value of each choice: float32 `[rows, choices]`, from looks as they are stored."""
        return self._values(self.normalised(self.inputs(observation)))

    def _values(self, given: Tensor) -> Tensor:
        features = self.body(given)
        values = self.q(features)
        if self.state_value is not None:
            values = self.state_value(features) + values - values.mean(-1, keepdim=True)
        return values.to(torch.float32)

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
        given = self.normalised(self.inputs(observation) if given is None else given)
        values = self._values(given)
        return Judged(Greedy.of(values, action_mask), values[:, :0], memory)


class TwinCritics(Policy):
    """An actor of bounded numbers, and critics that judge its actions: base of both kinds.

    Critics see actions scaled to -1 … 1 by component. They are one module on `(inputs, actions)`, which gives
    `[critics, rows]`; the least of them counts where a value is aimed at.
    """

    low: Tensor
    high: Tensor
    middle: Tensor
    reach: Tensor

    def __init__(
        self, env: Env, body: nn.Module, critics: nn.Module, *, numbers: int, normaliser: Normaliser | None = None
    ) -> None:
        """Args:
        env: whose observations and actions it is for; its actions are a bounded `Box` of floats.
        body: from inputs `[rows, …]` float32 to features `[rows, width]` of the actor.
        critics: from inputs and scaled actions `[rows, size]` to values `[critics, rows]`.
        numbers: of the actor's head, for each number of an action.
        normaliser: of the inputs that body and critics take; None: they take them as they are.

        Raises:
            InputError: actions that are no bounded `Box`, or a body or critics that do not fit.
        """
        name = type(self).__name__
        check_env(env, name)
        super().__init__(env)
        self.body, self.critics = body, critics
        self.normaliser = self.checked(normaliser)
        low, high = check_bounded(env, name)
        self._shape, self._size = env.action_space.shape, low.numel()
        self.draws = self._size
        for name_of, value in (("low", low), ("high", high), ("middle", (low + high) / 2), ("reach", (high - low) / 2)):
            self.register_buffer(name_of, value, persistent=False)
        self.actor = nn.Linear(_width(self, body), numbers * self._size)
        _check_critics(self, self._size)

    def scaled(self, action: Tensor) -> Tensor:
        """Actions of the world as critics see them: `[rows, size]` from -1 to 1."""
        return ((action.reshape(-1, self._size) - self.middle) / self.reach).to(torch.float32)

    def unscaled(self, share: Tensor) -> Tensor:
        """Actions of the world from numbers `[rows, size]` from -1 to 1."""
        return (self.middle + self.reach * share).reshape(-1, *self._shape)

    def judge(self, observation: Any, action: Tensor, critics: nn.Module | None = None) -> Tensor:
        """Values of actions of the world: float32 `[critics, rows]`, by these critics or others of their kind."""
        given = self.normalised(self.inputs(observation))
        return (self.critics if critics is None else critics)(given, self.scaled(action)).to(torch.float32)

    def act(self, observation: Any) -> Any:
        """The actor's distribution over actions of the world."""
        return self._actions(self.normalised(self.inputs(observation)))

    def _actions(self, given: Tensor) -> Distribution:
        raise NotImplementedError

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
        given = self.normalised(self.inputs(observation) if given is None else given)
        nothing = _tree.tensors(given)[0].flatten(1)[:, :0].to(torch.float32)
        return Judged(self._actions(given), nothing, memory)


class SoftActorCritic(TwinCritics):
    """An actor that draws from a squashed Gaussian, and twin critics. For `SAC`."""

    def __init__(self, env: Env, body: nn.Module, critics: nn.Module, *, normaliser: Normaliser | None = None) -> None:
        """As `TwinCritics`; the head gives mean and logarithm of the standard deviation."""
        super().__init__(env, body, critics, numbers=2, normaliser=normaliser)

    def _actions(self, given: Tensor) -> SquashedGaussian:
        mean, log_std = self.actor(self.body(given)).to(torch.float32).chunk(2, -1)
        return SquashedGaussian(mean, log_std.clamp(*LOG_STD), self.low, self.high, self._shape)


class DeterministicActorCritic(TwinCritics):
    """An actor that gives one action, and twin critics. For `TD3`."""

    def __init__(self, env: Env, body: nn.Module, critics: nn.Module, *, normaliser: Normaliser | None = None) -> None:
        """As `TwinCritics`; the head gives numbers that tanh squashes."""
        super().__init__(env, body, critics, numbers=1, normaliser=normaliser)

    def _actions(self, given: Tensor) -> Certain:
        return Certain(self.unscaled(torch.tanh(self.actor(self.body(given)).to(torch.float32))))


class MlpCritics(nn.Module):
    """Critics of linear layers with ReLU, all of them in one batched product a layer.

    Attributes:
        num: critics.
    """

    def __init__(self, width: int, hidden: Sequence[int], num: int = 2) -> None:
        """Args:
        width: numbers of an input and an action together.
        hidden: widths of the hidden layers.
        num: critics.
        """
        super().__init__()
        self.num = num
        widths = (width, *hidden, 1)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, outputs in itertools.pairwise(widths):
            layers = [nn.Linear(inputs, outputs) for _ in range(num)]  # each begins as torch has it
            self.weights.append(nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers])))
            self.biases.append(nn.Parameter(torch.stack([layer.bias.detach()[None] for layer in layers])))

    def forward(self, given: Tensor, action: Tensor) -> Tensor:
        """Values `[critics, rows]`."""
        shown = torch.cat([given.flatten(1), action.to(given.dtype)], -1).expand(self.num, -1, -1)
        last = len(self.weights) - 1
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            shown = torch.baddbmm(bias, shown, weight)
            shown = shown if place == last else torch.relu(shown)
        return shown.squeeze(-1)


def q_mlp(
    env: Env,
    hidden: Sequence[int] = (128, 128),
    *,
    duelling: bool = False,
    normalise: bool = False,
    seed: int = 0,
) -> QNetwork:
    """A `QNetwork` of linear layers with ReLU.

    Args:
        env: whose observations it takes, flattened; its actions are a `Discrete`.
        hidden: widths of the hidden layers.
        duelling: as `QNetwork` has it.
        normalise: give the layers inputs with mean 0 and deviation 1, by a `Normaliser`.
        seed: of the first weights.

    Raises:
        InputError: a width that is no whole number above 0, or actions that are no `Discrete`.
    """
    check_env(env, "q_mlp")
    check_discrete(env, "q_mlp")
    _check_widths("hidden", hidden)
    normaliser = _normaliser(env, normalise)
    return _seeded(seed, lambda: QNetwork(env, _body(env, hidden), duelling=duelling, normaliser=normaliser))


def q_conv(
    env: Env,
    channels: Sequence[int] = (16,),
    hidden: int = 128,
    *,
    duelling: bool = False,
    normalise: bool = False,
    seed: int = 0,
) -> QNetwork:
    """A `QNetwork` of 3 x 3 convolutions over planes `[channels, height, width]`, and one linear layer.

    Args:
        env: whose `network_input` gives planes; its actions are a `Discrete`.
        channels: of the convolutions, each with padding 1 and ReLU.
        hidden: width of the linear layer.
        duelling: as `QNetwork` has it.
        normalise: give the network inputs with mean 0 and deviation 1, by a `Normaliser`.
        seed: of the first weights.

    Raises:
        InputError: a width that is no whole number above 0, inputs that are no planes, or actions that are no
            `Discrete`.
    """
    check_env(env, "q_conv")
    check_discrete(env, "q_conv")
    hidden = whole("policy", "hidden", hidden, 1)
    _check_widths("channels", channels)
    normaliser = _normaliser(env, normalise)
    build = lambda: QNetwork(  # noqa: E731
        env, conv_body(env, channels, hidden, "q_conv"), duelling=duelling, normaliser=normaliser
    )
    return _seeded(seed, build)


def soft_mlp(
    env: Env, hidden: Sequence[int] = (256, 256), *, normalise: bool = False, seed: int = 0
) -> SoftActorCritic:
    """A `SoftActorCritic` of linear layers with ReLU.

    Args:
        env: whose observations it takes, flattened; its actions are a bounded `Box`.
        hidden: widths of the hidden layers, of actor and critics alike.
        normalise: give the layers inputs with mean 0 and deviation 1, by a `Normaliser`.
        seed: of the first weights.

    Raises:
        InputError: a width that is no whole number above 0, or actions that are no bounded `Box`.
    """
    return _twin_mlp(SoftActorCritic, "soft_mlp", env, hidden, normalise, seed)


def deterministic_mlp(
    env: Env, hidden: Sequence[int] = (256, 256), *, normalise: bool = False, seed: int = 0
) -> DeterministicActorCritic:
    """A `DeterministicActorCritic` of linear layers with ReLU; arguments as `soft_mlp` takes them."""
    return _twin_mlp(DeterministicActorCritic, "deterministic_mlp", env, hidden, normalise, seed)


def _twin_mlp(cls: Any, name: str, env: Env, hidden: Sequence[int], normalise: bool, seed: int) -> Any:
    check_env(env, name)
    check_bounded(env, name)
    _check_widths("hidden", hidden)
    width = _flat_width(env) + math.prod(env.action_space.shape)
    normaliser = _normaliser(env, normalise)
    return _seeded(seed, lambda: cls(env, _body(env, hidden), MlpCritics(width, hidden), normaliser=normaliser))


def _body(env: Env, hidden: Sequence[int]) -> nn.Module:
    return Tower(nn.Flatten(), *_layers(_flat_width(env), hidden, nn.ReLU))


# --- what does not fit ------------------------------------------------------------------------------------------------


def check_discrete(env: Env, what: str) -> int:
    """How many choices there are; raises `InputError` where actions are no choices."""
    space = env.action_space
    if not isinstance(space, Discrete):
        raise InputError(
            f"{what}: {env._called} has action_space {space}, expected a dz.rl.Discrete; for a Box take "
            f"dz.rl.SAC or dz.rl.TD3"
        )
    return space.n


def check_bounded(env: Env, what: str) -> tuple[Tensor, Tensor]:
    """Bounds of actions, float32 `[size]` each; raises `InputError` where they are no bounded numbers."""
    space, name = env.action_space, env._called
    if not isinstance(space, Box):
        raise InputError(
            f"{what}: {name} has action_space {space}, expected a dz.rl.Box; for choices take dz.rl.DQN or dz.PPO"
        )
    if not space.dtype.is_floating_point:
        raise InputError(f"{what}: {name} has action_space {space} of whole numbers, expected a float32 Box")
    if not space.bounded:
        raise InputError(
            f"{what}: {name} has action_space {space}, expected finite bounds, to which tanh is scaled; declare them, "
            f"or take dz.PPO"
        )
    low, high = space.spans(torch.device("cpu"))
    if not bool((high > low).all()):
        raise InputError(f"{what}: {name} has action_space {space}, expected low below high in every component")
    if not bool(torch.isfinite(high - low).all()):
        raise InputError(
            f"{what}: {name} has action_space {space}, whose width is beyond float32; declare the bounds that matter"
        )
    return low, high


def _example(policy: Policy) -> Tensor:
    """Inputs of a network for one row."""
    space = policy.env.observation_space
    return policy.inputs(torch.zeros(1, *space.shape, dtype=space.dtype))


def _width(policy: Policy, body: nn.Module) -> int:
    """Width of a body's features; raises `InputError` where it does not take what it is given."""
    given, what = _example(policy), type(policy).__name__
    try:
        with torch.no_grad():
            out = body(given)
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"{what}: body does not take inputs of shape {shapes_of(given)}, which "
            f"{policy.env._called} gives: {str(error).splitlines()[0]}"
        ) from error
    if out.dim() != 2 or out.shape[0] != 1:
        raise InputError(f"{what}: body gives {tuple(out.shape)} for one row, expected (1, width)")
    return out.shape[1]


def _check_critics(policy: "TwinCritics", size: int) -> None:
    given, what = _example(policy), type(policy).__name__
    try:
        with torch.no_grad():
            out = policy.critics(given, torch.zeros(1, size))
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(
            f"{what}: critics do not take inputs of shape {shapes_of(given)} and actions ('rows', {size}): "
            f"{str(error).splitlines()[0]}"
        ) from error
    if out.dim() != 2 or out.shape[1] != 1:
        raise InputError(f"{what}: critics give {tuple(out.shape)} for one row, expected (critics, 1)")
