"""Finds probabilities that are gated: made 0 for whoever is not in a state, instead of drawn for everybody.

In a relaxed run a mask holds shares, and who has none of a state might have had some. A probability that `sign`, a
comparison or `where=` of a neighbour sum makes 0 there takes this out of the gradient: who might have been infected
never recovers, and goes on infecting in the derivative, more the longer the run (docs/guides/gradients.md).
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from denizen import rng
from denizen.model._source_lines import Line, author_frame, line_of_frame

_STEPS = {"sign", "sgn", "ceil", "floor", "round", "trunc", "heaviside"}  # floats, and still hard functions
_SUMS = {"sum_counts", "sum_fixed", "sum_real"}  # over neighbours: values, then who receives


@dataclasses.dataclass(frozen=True)
class Gate:
    """A hard function of shares.

    Attributes:
        by: the function, in the author's words.
        line: the author's.
    """

    by: str
    line: Line | None


class Gates(TorchFunctionMode):
    """Follows shares through a step, as `relax=` of the same run: draws give the probability itself.

    Attributes:
        found: (line of a draw, what gates its probability).
    """

    def __init__(self, num: int) -> None:
        """Watch for gates.

        Args:
            num: number of agents; what has another first axis is no mask of them.
        """
        super().__init__()
        self.found: list[tuple[Line, Gate]] = []
        self._num = num
        # By identity, with the tensors themselves: their numbers would be given to others once they are gone.
        self._shares: dict[int, Tensor] = {}
        self._gates: dict[int, tuple[Tensor, Gate]] = {}

    def begin(self, shares: list[Tensor]) -> None:
        """A step that starts from these shares."""
        self._shares, self._gates = {id(share): share for share in shares}, {}

    def draw(self, prob: Tensor, hard: rng.Hard) -> Tensor:
        """The probability itself, after a look at where it comes from."""
        frame = author_frame(through_denizen=True)
        if id(prob) in self._gates and frame is not None:
            self.found.append((line_of_frame(frame), self._gates[id(prob)][1]))
        with torch._C.DisableTorchFunction():
            out = prob.view_as(prob)  # what happened gates nothing
        self._shares[id(out)] = out
        return out

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not isinstance(out, Tensor) or self._num not in out.shape[:2]:
            return out
        name = getattr(func, "__name__", "").split(".")[0]
        given = [args[1]] if name in _SUMS else [*args, *kwargs.values()]
        inputs = list(_tensors(given))
        gate = next((self._gates[id(t)][1] for t in inputs if id(t) in self._gates), None)
        shares = [t for t in inputs if id(t) in self._shares]
        hard = name in _STEPS or not out.dtype.is_floating_point
        if gate is not None and name in _SUMS:
            gate = Gate("where= of a sum over neighbours", gate.line)
        elif gate is None and hard and any(share.requires_grad for share in shares):
            frame = author_frame(through_denizen=True)
            gate = Gate(_word(name), None if frame is None else line_of_frame(frame))
        if gate is not None:
            self._gates[id(out)] = (out, gate)
        elif shares and name not in _SUMS:
            self._shares[id(out)] = out
        return out


def _word(name: str) -> str:
    plain = name.strip("_")
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
    return f"the comparison {signs[plain]}" if plain in signs else f"{plain}()"


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
