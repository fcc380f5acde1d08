"""What an agent attention network is made of: sizes and switches, checked once."""

import dataclasses
import math

import torch
from torch import Tensor

from denizen._arguments import number, share, switch, whole
from denizen.errors import InputError
from denizen.nn._social import SmallWorld
from denizen.space import Graph

WIDER = 1.5  # the MLP that takes the place of the social attention where agents do not talk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Isolated:
    """No messages: the social attention gives way to an MLP of each agent's own, 1.5 times as wide (an ablation)."""


Social = SmallWorld | Graph | Isolated | None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DotGATConfig:
    """Sizes and switches of an agent attention network.

    Attributes:
        num_agents: agents A, at least 1; each has weights of its own.
        num_features: columns M of the series that the agents look at.
        hidden: width H of an agent's state, a multiple of `num_heads`.
        num_heads: heads of both attentions.
        num_outputs: values y that each agent puts out at each time.
        message_steps: how often memory, talk and MLP are gone through, each time with the same weights; 0 for never.
        memory: whether agents attend to their own past.
        shared_v: whether the value projections are one matrix for all agents.
        social: who may talk to whom: a `SmallWorld` with learnable biases, a `denizen.Graph` (only along its edges,
            for thousands of agents), `Isolated()`, or None for everyone with everyone and no bias.
        dropout: rate at which what a sublayer adds is dropped in training.
        eps: added to the mean square in every norm.
    """

    num_agents: int
    num_features: int
    hidden: int = 128
    num_heads: int = 4
    num_outputs: int = 1
    message_steps: int = 5
    memory: bool = True
    shared_v: bool = True
    social: Social = dataclasses.field(default_factory=SmallWorld)
    dropout: float = 0.1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        lowest = {"num_agents": 1, "num_features": 1, "hidden": 1, "num_heads": 1, "num_outputs": 1, "message_steps": 0}
        for name, low in lowest.items():
            whole("DotGATConfig", name, getattr(self, name), low)
        if self.hidden % self.num_heads:
            raise InputError(
                f"DotGATConfig: hidden={self.hidden}, num_heads={self.num_heads}; hidden has to be a multiple of "
                "num_heads, for each head takes an equal part"
            )
        for name in ("memory", "shared_v"):
            object.__setattr__(self, name, switch("DotGATConfig", name, getattr(self, name)))
        if share("DotGATConfig", "dropout", self.dropout, hint=", below 1") == 1:
            raise InputError(f"DotGATConfig: dropout={self.dropout!r}, expected a number from 0 to below 1")
        number("DotGATConfig", "eps", self.eps, above=0, hint=", such as 1e-6")
        if self.social is not None and not isinstance(self.social, SmallWorld | Graph | Isolated):
            raise InputError(
                f"DotGATConfig: social={self.social!r}, expected SmallWorld(…), a denizen.Graph, Isolated() or None"
            )
        if isinstance(self.social, Graph):
            self._check_graph(self.social)
        if isinstance(self.social, SmallWorld) and self.num_agents > 1:
            self.social.check(self.num_agents)

    def _check_graph(self, graph: Graph) -> None:
        if graph.num_agents != self.num_agents:
            raise InputError(
                f"DotGATConfig: num_agents={self.num_agents}, but the graph in social= has {graph.num_agents} agents; "
                "expected the same number"
            )
        if graph.weight is not None:
            raise InputError(
                "DotGATConfig: the graph has weights; here each edge learns its own bias from 0, so pass "
                "the graph without weights: Graph.from_edges(*graph.edges(), num_agents=…)"
            )

        sender, receiver = graph.edges()  # by receiver, then sender: repeated edges are beside each other
        if bool(((sender[1:] == sender[:-1]) & (receiver[1:] == receiver[:-1])).any()):
            raise InputError(
                "DotGATConfig: the graph has repeated edges, of which each would learn a bias; make it "
                'with Graph.from_edges(…, duplicates="drop")'
            )

    @property
    def talks(self) -> bool:
        """Whether there is a social attention: more than one agent, and they are not isolated."""
        return self.num_agents > 1 and not isinstance(self.social, Isolated)

    @property
    def isolated_width(self) -> int:
        """Inner width of the MLP in place of the social attention; 0 where there is none."""
        return math.ceil(WIDER * self.hidden) if isinstance(self.social, Isolated) else 0


def check_sensing(sensing: Tensor, config: DotGATConfig) -> None:
    """Refuse a mask that is not `[agents, features]` of zeros and ones."""
    expected = (config.num_agents, config.num_features)
    if not isinstance(sensing, Tensor) or tuple(sensing.shape) != expected:
        got = tuple(sensing.shape) if isinstance(sensing, Tensor) else type(sensing).__name__
        raise InputError(f"sensing is {got}: expected a tensor {expected}, 1 where agent a sees column m")
    if not bool(((sensing == 0) | (sensing == 1)).all()):
        raise InputError("sensing has values other than 0 and 1")


def check_entries(entries: Tensor | None, views: Tensor | None, config: DotGATConfig) -> None:
    """Refuse inputs of a static network whose layout is not what their name says."""
    agents, features = config.num_agents, config.num_features
    name, given = ("entries", entries) if views is None else ("views", views)
    if (entries is None) == (views is None) or not isinstance(given, Tensor):
        raise InputError(f"expected either entries [batch, {features}] or views= [batch, {agents} agents, {features}]")
    inner = (features,) if views is None else (agents, features)
    if given.ndim != 1 + len(inner) or given.shape[1:] != inner:
        expected = ", ".join(map(str, ("batch", *inner)))
        raise InputError(f"{name} has shape {tuple(given.shape)}: expected [{expected}]")


def check_input(series: Tensor | None, views: Tensor | None, config: DotGATConfig, weight: Tensor) -> None:
    """Refuse inputs whose layout is not what their name says, or that do not go with a weight of the network."""
    if (series is None) == (views is None):
        raise InputError("expected either series [batch, time, features] or views= [batch, agents, time, features]")
    given = series if series is not None else views
    if not isinstance(given, Tensor) or not given.is_floating_point():
        got = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise InputError(f"expected a tensor of floating-point numbers, such as x.float(), not {got}")
    if given.device != weight.device:
        raise InputError(f"the input is on {given.device}, the network on {weight.device}: move one of them")
    if given.dtype != weight.dtype:  # devices without autocast, such as meta, are not asked for it
        narrow = torch.float64 not in (given.dtype, weight.dtype)
        if not (narrow and torch.is_autocast_enabled(weight.device.type)):
            raise InputError(f"the input is {given.dtype}, the network {weight.dtype}: convert one of them")
    agents, features = config.num_agents, config.num_features
    if series is not None and (series.ndim not in (2, 3) or series.shape[-1] != features or series.shape[-2] < 1):
        hint = "; a tensor with an axis of agents goes in as views=" if series.ndim == 4 else ""
        raise InputError(
            f"series has shape {tuple(series.shape)}: expected [batch, time, {features}] or [time, {features}], with "
            f"at least one time{hint}"
        )
    if views is None:
        return
    wrong = views.ndim != 4 or (views.shape[1], views.shape[3]) != (agents, features) or views.shape[2] < 1
    if wrong:
        raise InputError(
            f"views has shape {tuple(views.shape)}: expected [batch, {agents} agents, time, {features} features]"
        )
