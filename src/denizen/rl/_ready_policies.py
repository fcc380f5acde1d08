"""Ready policies, of linear layers and of convolutions; any other modules go into an `ActorCritic` by themselves."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from denizen import _tree
from denizen._arguments import switch, whole
from denizen.errors import InputError
from denizen.model import Env
from denizen.rl._distributions import Gaussian
from denizen.rl._layers import ConvEncoder, Critic, Tower, TreeEncoder, side_by_side
from denizen.rl._memory import Memory
from denizen.rl._normaliser import Normaliser
from denizen.rl._policy import ActorCritic, check_makes, first_inputs
from denizen.rl._value import ValueHead
from denizen.rl._worlds import check_env
from denizen.rng import MAX_SEED

_SQRT2 = math.sqrt(2)


def mlp(
    env: Env,
    hidden: Sequence[int] = (64, 64),
    *,
    activation: type[nn.Module] = nn.Tanh,
    shared: bool = False,
    head: Callable[[int], ValueHead] = ValueHead,
    memory_size: int = 0,
    memory: Memory | None = None,
    normalise: bool = False,
    distribution: type[Any] = Gaussian,
    seed: int = 0,
) -> ActorCritic:
    """A policy of linear layers.

    Args:
        env: whose observations it takes, flattened; of several parts, those of all side by side.
        hidden: widths of the hidden layers.
        activation: after each of them.
        shared: one body for actor and critic, in place of one for each; always so with a memory.
        head: makes the value head.
        memory_size: width of a GRU cell; 0: none.
        memory: another memory in its place, such as `LSTM(64)` or `Attention(64)`.
        normalise: give the layers inputs with mean 0 and deviation 1, by a `Normaliser`.
        distribution: over the numbers of a box of actions: `Gaussian`, `SquashedGaussian` or `Beta`.
        seed: of the first weights.

    Raises:
        InputError: a width that is no whole number above 0.
    """
    check_env(env, "mlp")
    _check_widths("hidden", hidden)
    memory_size = whole("policy", "memory_size", memory_size, 0)
    check_makes("activation", activation, "torch.nn.ReLU")
    normaliser = _normaliser(env, normalise)
    return _seeded(
        seed,
        lambda: ActorCritic(
            env,
            orthogonal(Tower(nn.Flatten(), *_layers(_flat_width(env), hidden, activation))),
            critic_body=None
            if shared or memory_size or memory is not None
            else orthogonal(Tower(nn.Flatten(), *_layers(_flat_width(env), hidden, activation))),
            head=head,
            memory_size=memory_size,
            memory=memory,
            normaliser=normaliser,
            distribution=distribution,
        ),
    )


def conv(
    env: Env,
    channels: Sequence[int] = (32, 64, 64),
    hidden: int = 512,
    *,
    critic_hidden: Sequence[int] = (512,),
    head: Callable[[int], ValueHead] = ValueHead,
    memory_size: int = 0,
    memory: Memory | None = None,
    normalise: bool = False,
    distribution: type[Any] = Gaussian,
    seed: int = 0,
) -> ActorCritic:
    """A policy of 3 x 3 convolutions over planes `[channels, height, width]`, one linear layer, and a critic on top.

    Args:
        env: whose `network_input` gives planes, or a tree that has some: then convolutions run over each of them, and
            one more linear layer over their features and all other numbers.
        channels: of the convolutions, each with padding 1 and ReLU.
        hidden: width of the features that actor and critic share.
        critic_hidden: hidden layers of the critic, which take features and what is privileged.
        head: makes the value head.
        memory_size: width of a GRU cell after the linear layer; 0: none.
        memory: another memory in its place, such as `LSTM(64)` or `Attention(64)`.
        normalise: give the network inputs with mean 0 and deviation 1, by a `Normaliser`.
        distribution: over the numbers of a box of actions: `Gaussian`, `SquashedGaussian` or `Beta`.
        seed: of the first weights.

    Raises:
        InputError: a width that is no whole number above 0, or inputs that are no planes.
    """
    check_env(env, "conv")
    hidden, memory_size = whole("policy", "hidden", hidden, 1), whole("policy", "memory_size", memory_size, 0)
    for name, sizes in (("channels", channels), ("critic_hidden", critic_hidden)):
        _check_widths(name, sizes)
    normaliser = _normaliser(env, normalise)

    def build() -> ActorCritic:
        body = orthogonal(conv_body(env, channels, hidden, "conv"))
        critic = None
        if critic_hidden:
            critic = Critic(
                nn.LazyLinear(critic_hidden[0]), nn.ReLU(), *_layers(critic_hidden[0], critic_hidden[1:], nn.ReLU)
            )
        kept = {"memory_size": memory_size, "memory": memory, "normaliser": normaliser, "distribution": distribution}
        policy = ActorCritic(env, body, critic=critic, head=head, **kept)
        if critic is not None:
            orthogonal(critic)
        return policy

    return _seeded(seed, build)


def conv_body(env: Env, channels: Sequence[int], hidden: int, what: str) -> nn.Module:
    """Convolutions over planes, or over those of a tree with the rest beside them; `InputError` without any."""
    given = first_inputs(env)
    shapes = [tuple(leaf.shape[1:]) for leaf in _tree.tensors(given)]
    if not any(len(shape) == 3 for shape in shapes):
        told = ", ".join(map(str, shapes))
        raise InputError(
            f"{what}: {env._called} gives inputs {told}, expected (channels, height, width); for rows of numbers take "
            f"linear layers, such as dz.rl.{what.replace('conv', 'mlp')}(env)"
        )
    alone = isinstance(given, Tensor)
    return ConvEncoder(shapes[0], channels, hidden) if alone else TreeEncoder(shapes, channels, hidden)


def orthogonal(module: nn.Module, gain: float = _SQRT2) -> nn.Module:
    """Orthogonal weights and zero biases for every linear and convolution layer within; returns the module."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(layer.weight, gain)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return module


def _layers(width: int, hidden: Sequence[int], activation: type[nn.Module]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), activation()]
        width = size
    return layers


def _check_widths(name: str, sizes: Sequence[int]) -> None:
    """Raise `InputError` unless every size is a whole number of at least 1."""
    if not isinstance(sizes, Sequence):
        raise InputError(f"policy: {name}={sizes!r}, expected widths, one for each layer, such as (64, 64)")
    for place, size in enumerate(sizes):
        whole("policy", f"{name}[{place}]", size, 1)


def _normaliser(env: Env, normalise: bool) -> Normaliser | None:
    """Of an environment's inputs, where asked for."""
    if not switch("policy", "normalise", normalise):
        return None
    given = first_inputs(env)
    return Normaliser(given.shape[1:] if isinstance(given, Tensor) else side_by_side(given).shape[1:])


def _flat_width(env: Env) -> int:
    given = first_inputs(env)
    if not isinstance(given, Tensor):
        return side_by_side(given).shape[1]
    if given.dim() < 2:
        raise InputError(
            f"mlp: {env._called} gives inputs of shape ('rows',), expected an axis of numbers; declare its "
            f"observation_space with shape (1,)"
        )
    return given.flatten(1).shape[1]


def _seeded(seed: int, build: Callable[[], Any]) -> Any:
    """Build with torch's generator seeded, and leave the generator as it was."""
    seed = whole("policy", "seed", seed, 0, MAX_SEED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()
