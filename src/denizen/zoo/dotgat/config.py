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
    """Form of the network: reference, fast, compiled, or captured (the whole step as a CUDA graph)."""
    agents: int = 20
    """Number of agents."""
    times: int = 32
    """Number of rows (time steps) of a series."""
    features: int = 16
    """Number of columns of a series."""
    rank: int = 3
    """Number of hidden factors that a series is made of."""
    kernel: Literal["matern", "cauchy", "whitenoise"] = "matern"
    """How a factor is correlated over time: matern, cauchy (both fade with the lag), or whitenoise (not at all)."""
    mixing: Literal["random", "block"] = "random"
    """How columns mix factors: all alike (random), or groups that one factor leads (block)."""
    processes: int = 600
    """Number of processes that series are drawn from. Each is in one split (train, validation or test) only."""
    realisations: int = 2
    """Number of series of each process."""
    share: float = 0.2
    """Share of the columns that an agent sees, 0 to 1. For lrmc it is a share of the known entries."""
    density: float = 0.5
    """For lrmc: share of the entries that are known, 0 to 1."""
    hidden: int = 64
    """Width of an agent's state. It must divide by --heads."""
    heads: int = 4
    """Number of attention heads."""
    message_steps: int = 2
    """How many times agents remember and talk before they answer."""
    memory: bool = True
    """Whether agents attend to what they saw before. Not for lrmc."""
    neighbours: int = 4
    """Number of contacts of an agent in the small world. -1: everyone with everyone; 0: nobody talks."""
    rewire_prob: float = 0.1
    """Probability, 0 to 1, that an edge of the small world leads elsewhere."""
    freeze: float = 1.0
    """Share, 0 to 1, of the pairs without an edge that can never talk."""
    dropout: float = 0.1
    """Rate of residual dropout, 0 to 1."""
    checkpoint_steps: bool = False
    """Recompute message steps in the backward pass. This takes less memory and more time."""
    epochs: int = 30
    """Number of passes over the training series."""
    batch: int = 64
    """Number of series in a batch."""
    accumulate: int = 1
    """Number of batches to a step of the optimizer."""
    learning_rate: float = 1e-3
    """Learning rate at its highest. It falls along a cosine to 1e-6."""
    weight_decay: float = 0.01
    """Weight decay of AdamW."""
    max_norm: float = 1.0
    """Norm that gradients are clipped to."""
    precision: Precision = "auto"
    """Precision. auto takes bfloat16 where the hardware has it, else float16 on CUDA and float32 on a CPU."""
    validate_every: int = 1
    """Number of epochs between validations."""
    patience: int = 8
    """Number of validations without a better one after which the training ends. 0: never."""
    transport: bool = False
    """For lrmc: add the transport term of the original loss."""
    seed: int = 0
    """Seed of the data, masks, weights, order and dropout."""

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
