"""Columns of foreign files and arrays before anything is known of them, and what they have to be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from denizen.errors import DataError
from denizen.space._edges import INT32_MAX

MAX_AGENTS = 3_037_000_499  # the square still fits an int64: pairs of agents are handled as single integers


@dataclass(frozen=True, eq=False)
class Columns:
    """Raw columns of contacts and where they came from.

    Attributes:
        source: `[edges]`, anything array-like.
        target: `[edges]`, anything array-like.
        weight: `[edges]` or None.
        size: number of agents where the format knows it.
        origin: name of the file or argument, for messages.
        report: what the format had to take for granted.
        line: row to line of a text file; None where rows are counted from 0.
    """

    source: Any
    target: Any
    weight: Any = None
    size: int | None = None
    origin: str = "edges"
    report: tuple[str, ...] = ()
    line: Callable[[int], int] | None = None

    def place(self, row: int) -> str:
        """Where a row stands."""
        return f"row {row}" if self.line is None else f"line {self.line(row)}"

    def error(self, name: str, wrong: np.ndarray, values: np.ndarray, expected: str) -> DataError:
        """The error for the first of the rows `wrong`."""
        row = int(wrong[0])
        count = "" if wrong.size == 1 else f" ({wrong.size} such rows)"
        return DataError(f"{self.origin}, {self.place(row)}: {name}={values[row]!s}: {expected}{count}")


def whole_numbers(where: Columns, name: str, values: Any, report: list[str]) -> np.ndarray:
    """The ids as an integer array of one dimension."""
    array = _numeric(where, name, values, "iuf")
    if array.dtype.kind == "f":
        wrong = np.flatnonzero(~np.isfinite(array) | (array != np.floor(array)) | (np.abs(array) > 2**53))
        if wrong.size:
            raise where.error(name, wrong, array, "ids are whole numbers; remove or complete these rows")
        report.append(f"{where.origin}: {name} came as {array.dtype} and was read as whole numbers.")
        array = array.astype(np.int64)
    elif array.dtype == np.uint64:
        wrong = np.flatnonzero(array > INT32_MAX * 2**32)
        if wrong.size:
            raise where.error(name, wrong, array, f"ids are below {MAX_AGENTS}; number the agents from 0")
        array = array.astype(np.int64)
    return array


def _numeric(where: Columns, name: str, values: Any, kinds: str) -> np.ndarray:
    """A one-dimensional array of one of the numpy kinds."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise DataError(f"{where.origin}: {name} is not an array of numbers: {error}") from error
    if array.size == 0 and array.ndim == 1:
        return array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in kinds:
        expected = "whole numbers" if kinds == "iuf" else "numbers"
        first = f", first {array.flat[0]!r}" if array.size else ""
        raise DataError(
            f"{where.origin}: {name} holds {array.dtype} values of shape {array.shape}{first}; expected a flat "
            f"array of {expected}"
        )
    return array


def read_weights(where: Columns, values: Any) -> np.ndarray:
    """The weights as float32."""
    array = _numeric(where, "weight", values, "biuf")
    with np.errstate(over="ignore"):  # what overflows is infinite and refused below
        narrow = array.astype(np.float32)
    wrong = np.flatnonzero(~(np.isfinite(narrow) & (narrow >= 0)))
    if wrong.size:
        raise where.error("weight", wrong, array, "weights are finite float32 numbers of at least 0")
    return narrow


def check_range(where: Columns, name: str, ids: np.ndarray, num_agents: int) -> None:
    """Refuse ids outside 0 … num_agents - 1."""
    if ids.size == 0 or (ids.min() >= 0 and ids.max() < num_agents):
        return
    wrong = np.flatnonzero((ids < 0) | (ids >= num_agents))
    one_based = ids.min() >= 1 and ids.max() == num_agents
    hint = "the ids seem to start at 1: subtract 1" if one_based else "fix the ids or the number of agents"
    raise where.error(name, wrong, ids, f"ids go from 0 to {num_agents - 1} for {num_agents} agents; {hint}")
