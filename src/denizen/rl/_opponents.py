"""Opponents: weights of several policies of one form, stacked on the device, of which each world plays one."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from denizen import ops
from denizen.errors import InputError
from denizen.rl._layers import ConvEncoder
from denizen.rl._policy import ActorCritic, check_fits
from denizen.rng import stream_number


class Actor(nn.Module):
    """What a policy acts by: from observations to numbers of its choices, without critic."""

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        self.body, self.actor, self.normaliser = copy.deepcopy((policy.body, policy.actor, policy.normaliser))
        self._inputs = policy.inputs
        self.eval()  # an opponent acts as in an evaluation: no dropout, no statistics of a batch

    def forward(self, observation: Tensor) -> Tensor:
        """`[rows, …]` to `[rows, choices]`."""
        # denizen's own kernels cannot be batched over weights, so convolutions run as torch has them.
        body, given = self.body, self._inputs(observation)
        given = given if self.normaliser is None else self.normaliser(given)
        return self.actor(nn.Sequential.forward(body, given) if isinstance(body, ConvEncoder) else body(given))


class _Numbers(torch.autograd.Function):
    """Numbers of the member that each row plays: `[rows, choices]`.

    Batched over worlds, all rows go through each member's layers together. torch's own rule would give each world a
    copy of all weights.
    """

    @staticmethod
    def forward(net: Actor, names: tuple[str, ...], observation: Tensor, member: Tensor, *weights: Tensor) -> Tensor:
        def one(*held: Tensor) -> Tensor:
            return torch.func.functional_call(net, dict(zip(names, held, strict=True)), (observation,))

        numbers = torch.vmap(one)(*weights)  # [members, rows, choices]
        return numbers.gather(0, member[None, :, None].expand(1, -1, numbers.shape[-1]))[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Tensor, int]:
        net, names, observation, member, *weights = args
        if any(dim is not None for dim in in_dims[4:]):
            raise NotImplementedError("opponents whose weights differ between worlds")
        worlds = info.batch_size
        seen, whom = (
            tensor.movedim(dim, 0) if dim is not None else tensor.expand(worlds, *tensor.shape)
            for tensor, dim in zip((observation, member), in_dims[2:4], strict=True)
        )
        found = _Numbers.apply(net, names, seen.flatten(0, 1), whom.flatten(), *weights)
        return found.unflatten(0, (worlds, -1)), 0


class Opponents(nn.Module):
    """Weights of several policies of one form.

    All of them judge what each world shows, and the one that a world plays counts: members are few and small. What is
    kept are buffers, so that weights change without anything being compiled anew.

    Attributes:
        members: int64 `[]`: how many places hold a policy, from the first on.
        num_places: for policies.
    """

    members: Tensor

    def __init__(self, policies: Sequence[ActorCritic], *, places: int | None = None, kept: bool = True) -> None:
        """Args:
        policies: of one form; they are copied.
        places: for policies, of which those beyond the given ones hold the first one until they are filled; None: as
            many as policies.
        kept: weights are part of the state dict, and so of fingerprints.
        """
        super().__init__()
        first = policies[0]
        actors = [dict(Actor(policy).state_dict()) for policy in policies]
        self.num_places = len(policies) if places is None else places
        self._names = list(actors[0])
        self._actor = (Actor(first).requires_grad_(False),)  # in a tuple: its own weights are never used
        for k, name in enumerate(self._names):
            weights = [actor[name] for actor in actors]
            weights += [weights[0]] * (self.num_places - len(weights))
            self.register_buffer(f"weight_{k}", torch.stack(weights).detach().clone(), persistent=kept)
        members = torch.tensor(len(policies), device=first.actor.weight.device)
        self.register_buffer("members", members, persistent=kept)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._actor[0]._apply(fn, recurse)
        return super()._apply(fn, recurse)

    @property
    def weights(self) -> dict[str, Tensor]:
        """Stacked weights `[places, …]` by the names that policies have for them."""
        return {name: getattr(self, f"weight_{k}") for k, name in enumerate(self._names)}

    def forward(self, observation: Tensor, member: Tensor) -> Tensor:
        """Numbers of the choices of one world: `[choices]`.

        Args:
            observation: what the world shows: `[1, …]`.
            member: int64 `[]`: whom the world plays.
        """
        weights, net = self.weights, self._actor[0]
        if torch.compiler.is_dynamo_compiling():  # `dz.check` traces environments so, and dynamo takes no such Function
            found = torch.vmap(lambda held: torch.func.functional_call(net, held, (observation,))[0])(weights)
            return torch.index_select(found, 0, member.reshape(1))[0]
        return _Numbers.apply(net, tuple(weights), observation, member.reshape(1), *weights.values())[0]

    @torch.no_grad()
    def follow(self, policy: ActorCritic, updates: Tensor, every: int, seed: int) -> None:
        """Take a policy's weights to the first place, and every so many updates to one of the others as well.

        Once all others are filled, the n-th policy takes a place with probability (others / n), each alike, so that
        they are a uniform sample of all policies so far (reservoir sampling: Vitter, 1985). No host read.

        Args:
            policy: that learns.
            updates: int64 `[]`: done so far.
            every: updates between two that are kept; the one before the first update is the first.
            seed: of the draws.
        """
        number, others = updates // every, self.num_places - 1
        key = torch.stack([torch.full_like(updates, seed), torch.zeros_like(updates)])[None]
        words = ops.draw_words(updates.new_empty(0), 1, key, number, stream_number("learn/reservoir"))
        drawn = (words[0, 0].to(torch.int64) * (number + 1)) >> 32  # uniform on 0 … number
        place = torch.where(number < others, number, drawn)
        due = (updates % every == 0) & (place < others)
        place = 1 + torch.where(due, place, 0)
        mine = {**dict(policy.named_parameters()), **dict(policy.named_buffers())}
        for name, held in self.weights.items():
            new = mine[name].detach()[None]
            held[:1].copy_(new)
            index = place.reshape(1)
            held.index_copy_(0, index, torch.where(due, new, held.index_select(0, index)))
        self.members.copy_(torch.where(due, torch.maximum(self.members, 1 + place), self.members))


def check_opponents(policies: Any, game: Any, what: str) -> None:
    """Raise `InputError` where these are no policies of one form for a game."""
    if isinstance(policies, ActorCritic) or not isinstance(policies, Sequence):
        raise InputError(f"{what}: opponents is {type(policies).__name__}, expected a list of policies, or None")
    if not policies:
        raise InputError(f"{what}: opponents is empty; give at least one policy, or None for one that plays at random")
    for number, policy in enumerate(policies):
        check_fits(policy, game, f"{what}: opponents[{number}]")
        check_plays(policy, f"{what}: opponents[{number}]")
        if not all(bool(torch.isfinite(weight).all()) for weight in Actor(policy).state_dict().values()):
            raise InputError(f"{what}: opponents[{number}] has weights that are not finite")
        mine, first = _form(policy), _form(policies[0])
        if mine != first:
            raise InputError(
                f"{what}: opponents[{number}] has another form than opponents[0] ({_first_difference(first, mine)}); "
                f"policies that stand in for one another have one form"
            )


def check_plays(policy: ActorCritic, what: str) -> None:
    """Raise `InputError` where a policy cannot be copied to act inside a step."""
    if policy.memory_size:
        raise InputError(f"{what} has a memory, which nobody keeps for an opponent; take memory_size=0")
    if type(policy).forward is not ActorCritic.forward or type(policy).act is not ActorCritic.act:
        raise InputError(f"{what} is {type(policy).__name__} with its own forward; opponents act by body and actor")


def _form(policy: ActorCritic) -> dict[str, str]:
    """Of each weight and of each module, by name: all go through the modules of the first policy."""
    actor = Actor(policy)
    form = {name: f"{tensor.dtype}{list(tensor.shape)}" for name, tensor in actor.state_dict().items()}
    return form | {name: f"{type(one).__name__}({one.extra_repr()})" for name, one in actor.named_modules()}


def _first_difference(first: dict[str, str], other: dict[str, str]) -> str:
    name = next(n for n in [*first, *other] if first.get(n) != other.get(n))
    return f"{name}: {other.get(name, 'none')}, and {first.get(name, 'none')} there"
