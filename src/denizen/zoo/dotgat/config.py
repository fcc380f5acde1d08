"""Settings of a training of agent attention networks: everything that fixes its numbers."""

import dataclasses
from typing import Literal, get_args

from denizen.errors import InputError
from denizen.model import number, one_of, whole
from denizen.nn import TASKS, Cauchy, Matern, WhiteNoise

Variant = Literal["reference", "fast", "compiled", "captured"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
KERNELS: dict[str, Matern | Cauchy | WhiteNoise] = {"matern": Matern(), "cauchy": Cauchy(), "whitenoise": WhiteNoise()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that fixes a training. The flags of the command line have these names."""

    task: str = "nextrow"
    """What to predict: argmax, lastrow, nextrow, argmax_next, nonlin_function or lrmc."""
    variant: Variant = "fast"
    """Which form of the network: reference, fast, compiled, or captured (the whole step as a CUDA graph)."""
    agents: int = 20
    """Agents."""
    times: int = 32
    """Rows of a series."""
    features: int = 16
    """Columns of a series."""
    rank: int = 3
    """Hidden factors of a series."""
    kernel: Literal["matern", "cauchy", "whitenoise"] = "matern"
    """How factors move."""
    mixing: Literal["random", "block"] = "random"
    """How columns mix factors."""
    processes: int = 600
    """Processes; each is in one split only."""
    realisations: int = 2
    """Series of each process."""
    share: float = 0.2
    """What each agent sees: share of the columns (of the known set for lrmc)."""
    density: float = 0.5
    """Share of known entries, for lrmc."""
    hidden: int = 64
    """Width of an agent's state."""
    heads: int = 4
    """Attention heads."""
    message_steps: int = 2
    """How often agents remember and talk before they answer."""
    memory: bool = True
    """Whether agents attend to their past (not for lrmc)."""
    neighbours: int = 4
    """Contacts of each agent in the small world; -1 for everyone with everyone, 0 for agents that do not talk."""
    rewire_prob: float = 0.1
    """Probability of each edge of the small world to be rewired."""
    freeze: float = 1.0
    """Share of absent pairs that can never talk."""
    dropout: float = 0.1
    """Rate of residual dropout."""
    checkpoint_steps: bool = False
    """Recompute message steps in the backward: less memory, more time."""
    epochs: int = 30
    """Passes over the training series."""
    batch: int = 64
    """Series in a batch."""
    accumulate: int = 1
    """Batches to a step of the optimizer."""
    learning_rate: float = 1e-3
    """Highest learning rate; falls along a cosine to 1e-6."""
    weight_decay: float = 0.01
    """Of AdamW."""
    max_norm: float = 1.0
    """Gradients are clipped to this norm."""
    precision: Precision = "auto"
    """auto takes bfloat16 where the hardware has it."""
    validate_every: int = 1
    """Epochs between validations."""
    patience: int = 8
    """Validations without a better one after which the training ends; 0 for never."""
    transport: bool = False
    """For lrmc: add the transport term of the original loss."""
    seed: int = 0
    """Of data, masks, weights, order and dropout."""

    def check(self) -> None:
        """Refuse what cannot be trained.

        Raises:
            InputError: names the setting, its value and what was expected.
        """
        lowest = {
            "agents": 1,
            "times": 2,
            "features": 1,
            "rank": 1,
            "processes": 3,
            "realisations": 1,
            "hidden": 1,
            "heads": 1,
            "message_steps": 0,
            "neighbours": -1,
            "epochs": 1,
            "batch": 1,
            "accumulate": 1,
            "validate_every": 1,
            "patience": 0,
            "seed": 0,
        }
        for name, low in lowest.items():
            whole("dotgat", name, getattr(self, name), low)
        for name in ("learning_rate", "max_norm"):
            number("dotgat", name, getattr(self, name), above=0)
        number("dotgat", "weight_decay", self.weight_decay, 0)
        words = {"task": tuple(TASKS), "variant": get_args(Variant), "precision": get_args(Precision)}
        words |= {"kernel": tuple(KERNELS), "mixing": ("random", "block")}
        for name, valid in words.items():
            one_of("dotgat", name, getattr(self, name), valid)
        if self.checkpoint_steps and self.variant == "reference":
            raise InputError("checkpoint_steps: the reference keeps everything; take --variant fast")
        if self.checkpoint_steps and self.variant == "captured" and self.dropout:
            raise InputError(
                "checkpoint_steps: recomputing dropout asks the host for the generator, which no graph can record; "
                "take --variant compiled, or dropout 0"
            )
