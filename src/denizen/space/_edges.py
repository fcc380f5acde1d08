"""Edge arrays on the host: what generators and readers hand over, and how edges are grouped by one end.

Numpy only. `Graph` turns an `EdgeList` into device tensors; nothing here knows of torch.
"""

from dataclasses import dataclass

import numpy as np

from denizen.errors import InputError

INT32_MAX = 2**31 - 1


def index_dtype(count: int) -> np.dtype:
    """The narrowest of int32 and int64 that holds indices and counts up to `count`."""
    return np.dtype(np.int32 if count <= INT32_MAX else np.int64)


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Contacts between agents as flat arrays.

    Attributes:
        num_agents: ids are 0 … num_agents - 1.
        source: `[edges]` int32 (int64 only where `num_agents` exceeds int32), the agent that acts.
        target: `[edges]`, same dtype, the agent that is acted upon.
        weight: `[edges]` float32, or None for weight one everywhere.
        directed: False where each contact is written once and holds in both directions.
        report: what was changed or is worth knowing about foreign data, in sentences.

    Raises:
        InputError: for arrays of different lengths, of another dtype than stated, or not one-dimensional. The ids
            themselves are not looked at: `denizen.space.from_arrays` does that for foreign data.
    """

    num_agents: int
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray | None = None
    directed: bool = True
    report: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        expected = index_dtype(self.num_agents)
        columns = {"source": (self.source, expected), "target": (self.target, expected)}
        if self.weight is not None:
            columns["weight"] = (self.weight, np.dtype(np.float32))
        for name, (array, dtype) in columns.items():
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != (self.source.size,):
                found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                raise InputError(
                    f"EdgeList.{name} is {found}, expected a numpy array {dtype} ({np.size(self.source)},); "
                    f"build the list with denizen.space.from_arrays, which converts and checks"
                )

    @property
    def num_edges(self) -> int:
        """Rows of the list: directed edges, or contacts where `directed` is False."""
        return self.source.size

    def __repr__(self) -> str:
        kind = "directed edges" if self.directed else "contacts"
        return f"EdgeList({self.num_agents} agents, {self.num_edges} {kind}{', weighted' * (self.weight is not None)})"


def csr(keys: np.ndarray, num_keys: int, *values: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Group edges by a key, keeping their order within each group.

    Key and position are packed in one int64 and sorted by numpy's vectorised sort, which is unstable by itself but
    has no ties here: quicker than a stable argsort, a radix sort or scipy's counting sort. Peak memory beyond the
    result: 8 bytes an edge.

    Args:
        keys: `[edges]` integers in 0 … num_keys - 1, for example the target of each edge.
        num_keys: number of groups.
        *values: `[edges, …]` arrays to bring into the same order.

    Returns:
        `indptr` `[num_keys + 1]` int64: group k is `indptr[k]:indptr[k + 1]`; `order` `[edges]` int32 (int64 beyond
        2^31 - 1 edges): the former position of each grouped edge; and `values` permuted by `order`.
    """
    indptr = np.zeros(num_keys + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=num_keys), out=indptr[1:])
    dtype, bits = index_dtype(keys.size), max(keys.size - 1, 0).bit_length()
    if bits + max(num_keys - 1, 0).bit_length() > 63:  # above 2^31 of both: no test machine holds such a graph
        order = np.argsort(keys, kind="stable")
    else:
        packed = keys.astype(np.int64)
        packed <<= bits
        packed |= np.arange(keys.size, dtype=dtype)
        packed.sort()
        packed &= (1 << bits) - 1
        order = packed.astype(dtype)
        del packed
    return indptr, order, [value[order] for value in values]
