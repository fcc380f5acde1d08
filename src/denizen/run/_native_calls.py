"""Lines of a native step as one function that numba compiles, which finds its arrays by address.

What it calls is compiled on its own and called by its symbol: numba's own calls would take a callee's code in and
compile it again, 12 s for SEIR and 30 s for partnerships.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numba
import numpy as np

from denizen.run._native_loops import OWN

_CALL = re.compile(r"(\w+)\((.*)\)$")
_REFUSED = re.compile(r"refuse\((\w+)\((.*)\)\)$")


def segment(lines: Iterable[str], arrays: Mapping[str, str], moves: bool) -> str:
    """The code of a function of (addresses, moves, buffers, counter, steps) that runs lines so many times.

    Args:
        lines: calls.
        arrays: code of each array that they name.
        moves: whether addresses move on after each time, as `moved` does it.
    """
    lines = list(lines)
    named = dict.fromkeys(word for line in lines for word in re.findall(r"\w+", line) if word in arrays)
    body = [f"{name} = {arrays[name]}" for name in named]
    for line in lines:
        refused = _REFUSED.match(line)
        if refused:
            body += [f"if {_invoked(*refused.groups())}:", "    raise IndexError('a place is out of range')"]
        else:
            found = _CALL.match(line)
            assert found is not None, line
            body.append(_invoked(*found.groups()))
    if moves:
        body.append("invoke(moved, (addresses, moves, buffers, counter, number))")
    head = "def segment(addresses, moves, buffers, counter, steps):\n    for number in range(steps):\n        "
    return head + "\n        ".join(body or ["pass"]) + "\n"


def _invoked(name: str, given: str) -> str:
    return f"invoke({name}, ({given},))"


@functools.lru_cache(maxsize=256)
def compiled(code: str, loops: tuple[tuple[str, str], ...], make: Callable[[str, str], Any]) -> Any:
    """A segment with the loops that are written beside it, which further runs of a model find compiled.

    Args:
        code: of `segment`.
        loops: code of each by name.
        make: compiles one.
    """
    known: dict[str, Any] = {"np": np, **OWN}
    known.update({name: make(name, text) for name, text in loops if re.search(rf"\b{name}\b", code)})
    exec(code, known)  # noqa: S102 - written above, from operations and numbers of the graph
    return numba.njit(nogil=True, error_model="numpy")(known["segment"])
