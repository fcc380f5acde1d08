"""Where values go: marks that tensors hand on from operation to operation."""

import weakref
from collections.abc import Hashable, Iterable
from typing import Any

import torch
from torch import Tensor

SAMPLES = 3  # times that a line asks a model the same in one step, from which it wants the spread of the answers
WHOLE = (torch.int64, torch.int32)
# Parts of names of operations that take whole numbers as places.
_PLACING = ("index", "gather", "scatter", "take", "embedding", "nll_loss", "put")
# Operations that give int64, whatever they are given.
_WIDE = ("argmax", "argmin", "argsort", "sort", "topk", "multinomial", "bucketize", "searchsorted", "nonzero", "cumsum")
BY_TORCH = "int64 by torch's choice"


def memory(tensor: Tensor) -> int:
    """Of the block that a tensor's values lie in."""
    block = getattr(tensor, "_block", None)
    if block is not None:
        return id(block)
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse
        return id(tensor)


def owner(tensor: Tensor) -> Any:
    """What lives as long as a tensor's memory."""
    return getattr(tensor, "_block", None) or tensor


class Flow:
    """Marks of tensors; views share those of their tensor.

    Attributes:
        into_graph: marks of what went into a graph, as a generator's samples do on the discriminator's turn.
        as_places: marks of whole numbers that said where to read or write.
        repeated: lines that asked a model the same several times in a step, as for samples of its dropout.
    """

    def __init__(self) -> None:
        self.into_graph: set[Hashable] = set()
        self.as_places: set[Hashable] = set()
        self._marks: dict[int, frozenset[Hashable]] = {}
        self._places: set[int] = set()
        self.repeated: set[tuple[str, int]] = set()
        self._asked: dict[tuple[tuple[str, int], int, int], tuple[Any, int]] = {}

    def clear(self) -> None:
        """A step begins: forget which tensor was marked with what."""
        self._marks.clear()
        self._places.clear()
        self._asked.clear()

    def asked(self, line: tuple[str, int], weight: int, given: list[Tensor]) -> None:
        """A line had a parameter meet tensors: whether the same ones as before."""
        for tensor in given:
            key = line, weight, memory(tensor)
            thing, times = self._asked.get(key, (None, 0))
            times = times + 1 if thing is not None and thing() is owner(tensor) else 1
            self._asked[key] = weakref.ref(owner(tensor)), times
            if times >= SAMPLES:
                self.repeated.add(line)

    def passes(self, schema: str, given: list[Tensor], results: list[Tensor], tracked: bool) -> None:
        """Hand marks on from arguments to results of their sort.

        Args:
            schema: name of the operation.
            given: its arguments.
            results: of it.
            tracked: whether it becomes part of a graph.
        """
        where = _where(schema, given)
        self.as_places |= self.of(where)
        self._places |= {memory(tensor) for tensor in where}
        real = [tensor for tensor in given if tensor.is_floating_point()]
        if tracked:
            self.into_graph |= self.of(real)
        kinds, before = {tensor.is_floating_point() for tensor in results}, {memory(tensor) for tensor in given}
        marks = self.of(tensor for tensor in given if tensor.is_floating_point() in kinds)
        marks |= {BY_TORCH} if any(word in schema for word in _WIDE) else set()
        self.made((tensor for tensor in results if memory(tensor) not in before), marks)
        self.add((tensor for tensor in results if memory(tensor) in before), marks)

    def whole(self, tensors: Iterable[Tensor], mark: Hashable) -> None:
        """Mark whole numbers; some may have been places already."""
        there = [tensor for tensor in tensors if tensor.dtype in WHOLE]
        self.add(there, [mark])
        if any(memory(tensor) in self._places for tensor in there):
            self.as_places.add(mark)

    def of(self, tensors: Iterable[Tensor]) -> set[Hashable]:
        """Marks of any of them."""
        return {mark for tensor in tensors for mark in self._marks.get(memory(tensor), ())}

    def made(self, tensors: Iterable[Tensor], marks: Iterable[Hashable] = ()) -> None:
        """New memory, which may have been another tensor's before."""
        for tensor in tensors:
            self._marks[memory(tensor)] = frozenset(marks)
            self._places.discard(memory(tensor))

    def add(self, tensors: Iterable[Tensor], marks: Iterable[Hashable]) -> None:
        """Mark tensors beside what they are marked with."""
        for tensor in tensors:
            self._marks[memory(tensor)] = self._marks.get(memory(tensor), frozenset()).union(marks)


def _where(schema: str, given: list[Tensor]) -> list[Tensor]:
    """The tensors of an operation that say where, as whole numbers, of which it takes no narrow ones."""
    if not any(part in schema for part in _PLACING):
        return []
    return [tensor for tensor in given[1:] if tensor.dtype in WHOLE]
