"""`denizen equivalent`: whether one model computes and learns what another does."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen._printing import give, say
from denizen.app._settings import whole
from denizen.errors import ConfigError

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.perf import Verdict


@dataclasses.dataclass(frozen=True)
class Equivalent:
    """`denizen equivalent`."""

    about: ClassVar[
        str
    ] = """Compare two torch modules: whether B computes and learns what A does, and where they first differ.

A and B are FILE.py:NAME or package.module:NAME: a module's class, or a function that returns one.

exit code:
  0  the same: bit-equal or within tolerance
  1  different, or only statistically equal
  2  wrong usage, or an error of the code

examples:
  denizen equivalent model.py:Net faster.py:Net --shape 32,3,64,64
  denizen equivalent model.py:Net faster.py:Net --inputs model.py:batch --weights faster.py:from_net
  denizen equivalent model.py:Net faster.py:Net --shape 8,50,25 --steps 10 --json"""

    a: Annotated[Positional[str], arg(metavar="A")]
    """The reference module."""
    b: Annotated[Positional[str], arg(metavar="B")]
    """The module to compare with it."""
    inputs: Annotated[str | None, arg(metavar="TARGET", help_behavior_hint="")] = None
    """Function that returns a batch: a tensor, a tuple of arguments, a mapping, or a list of batches."""
    shape: Annotated[str | None, arg(metavar="N,N,…", help_behavior_hint="")] = None
    """Shape of a batch of normal random numbers, in place of --inputs."""
    weights: Annotated[str | None, arg(metavar="TARGET", help_behavior_hint="(default: by name or order)")] = None
    """Function that turns the state dict of A into that of B."""
    steps: Annotated[int, arg(metavar="N")] = 3
    """Number of training steps."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the weights, inputs and random draws."""
    seeds: Annotated[int, arg(metavar="N")] = 0
    """Where tensors differ, compare their distributions over N seeds, at least 20."""
    json: FlagCreatePairsOff[bool] = False
    """Print only JSON."""

    def __call__(self, console: "Console") -> int:
        """Compare, and print."""
        from denizen.app._exit import DONE, FOUND
        from denizen.app._failures import their_code

        with their_code():
            verdict = self._verdict()
        if self.json:
            give(verdict.to_json())
        else:
            say(console, verdict)
        return DONE if verdict.passed else FOUND

    def _verdict(self) -> "Verdict":
        import torch

        from denizen import perf
        from denizen.app._target import function, is_either
        from denizen.zoo import entry

        if (self.inputs is None) == (self.shape is None):
            raise ConfigError("denizen equivalent needs a batch: --inputs model.py:batch, or --shape 8,50,25")
        weights = None if self.weights is None else function(self.weights, "weights")
        made: list[Any] = []
        for word in (self.a, self.b):
            torch.manual_seed(self.seed)
            found: Any = entry(word) or function(word)
            if is_either(found):
                raise ConfigError(f"{word} is a model or world; denizen equivalent compares torch modules")
            made.append(found())
        torch.manual_seed(self.seed)
        batch = torch.randn(_shape(self.shape)) if self.shape is not None else function(self.inputs or "", "batch")()
        return perf.equivalent(
            made[0], made[1], batch, weights=weights, steps=self.steps, seed=self.seed, seeds=self.seeds
        )


def _shape(text: str) -> list[int]:
    try:
        sizes = [whole(word.strip()) for word in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--shape {text}: expected numbers joined by commas, such as 8,50,25") from error
    if min(sizes) < 0:
        raise ConfigError(f"--shape {text}: expected numbers that are 0 or more, such as 8,50,25")
    return sizes
