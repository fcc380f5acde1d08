"""From the weights of one implementation to those of another."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from denizen.errors import InputError, expect_function

Named = dict[str, Tensor]
Weights = Mapping[str, str | Sequence[str]] | Callable[[Named], Mapping[str, Tensor]] | None
SHOWN = 6  # names in a message


class Mapped:
    """Rearranges tensors named and shaped as the reference's into those of the candidate.

    Attributes:
        about: how, in words.
    """

    def __init__(self, a: nn.Module, b: nn.Module, weights: Weights) -> None:
        """Raises:
        InputError: there is no way from one to the other.
        """
        self._shapes = {name: tensor.shape for name, tensor in b.state_dict().items()}
        mine = a.state_dict()
        self._rearrange, self.about = _way(mine, self._shapes, weights)
        self(mine)

    def __call__(self, tensors: Named) -> Named:
        """The candidate's tensors, out of all the reference's.

        Raises:
            InputError: what comes out has not the candidate's names and shapes.
        """
        out = dict(self._rearrange(tensors))
        missing = [name for name in self._shapes if name not in out]
        extra = [name for name in out if name not in self._shapes]
        if missing or extra:
            raise InputError(f"weights=: what comes out of it lacks {_list(missing)} and has besides {_list(extra)}")
        for name, tensor in out.items():
            if tensor.shape != self._shapes[name]:
                raise InputError(
                    f"weights=: {name} is {[*self._shapes[name]]} in b, and what would be put there {[*tensor.shape]}"
                )
        return out


def _way(mine: Named, shapes: Mapping[str, torch.Size], weights: Weights) -> tuple[Callable[[Named], Any], str]:
    if weights is None:
        return _by_itself(mine, shapes)
    if isinstance(weights, Mapping):
        return _by_names(mine, shapes, weights)
    if callable(weights):
        expect_function("weights", weights, "state_dict")
        return weights, f"by {getattr(weights, '__name__', 'a function')}"
    raise InputError(
        f"weights={weights!r}: expected a mapping from names in b to names in a (several are joined along the first "
        "axis), or a function from the state dict of a to that of b"
    )


def _by_itself(mine: Named, shapes: Mapping[str, torch.Size]) -> tuple[Callable[[Named], Any], str]:
    """By name, else by order."""
    same = all(name in mine and mine[name].shape == shape for name, shape in shapes.items())
    if same and len(mine) == len(shapes):
        return (lambda tensors: tensors), f"by name, {len(shapes)} tensors"
    if [tensor.shape for tensor in mine.values()] == list(shapes.values()):
        pairs = list(zip(shapes, mine, strict=True))
        return (lambda tensors: {b: tensors[a] for b, a in pairs}), f"by order, {len(pairs)} tensors of equal shapes"
    only_a = [f"{name} {[*tensor.shape]}" for name, tensor in mine.items() if shapes.get(name) != tensor.shape]
    only_b = [f"{name} {[*shape]}" for name, shape in shapes.items() if name not in mine or mine[name].shape != shape]
    raise InputError(
        f"a and b have other weights: only a has {_list(only_a)}; only b has {_list(only_b)}. Say where these "
        "come from: weights={'qkv.weight': ['q.weight', 'k.weight', 'v.weight']}, or a function from "
        "the state dict of a to that of b"
    )


def _by_names(
    mine: Named, shapes: Mapping[str, torch.Size], weights: Mapping[str, str | Sequence[str]]
) -> tuple[Callable[[Named], Any], str]:
    """As the mapping says; what it leaves out goes by its name."""
    sources = {name: weights.get(name, name) for name in shapes}
    unknown = [name for name in weights if name not in shapes]
    if unknown:
        raise InputError(f"weights=: b has no {_list(unknown)}; it has {_list(list(shapes))}")
    groups = {name: [source] if isinstance(source, str) else list(source) for name, source in sources.items()}
    lost = [source for group in groups.values() for source in group if source not in mine]
    if lost:
        raise InputError(f"weights=: a has no {_list(lost)}; it has {_list(list(mine))}")

    def rearrange(tensors: Named) -> Named:
        return {b: tensors[g[0]] if len(g) == 1 else torch.cat([tensors[n] for n in g]) for b, g in groups.items()}

    unused = [name for name in mine if not any(name in group for group in groups.values())]
    rest = f", nothing of b takes {_list(unused)}" if unused else ""
    return rearrange, f"by a mapping of {len(weights)} names, the rest by name{rest}"


def _list(names: Sequence[str]) -> str:
    text = ", ".join(names[:SHOWN])
    return f"{text} and {len(names) - SHOWN} more" if len(names) > SHOWN else text or "nothing"
