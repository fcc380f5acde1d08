"""Lines of a native step as one function that numba compiles, which finds its arrays by address.

What it calls is compiled on its own and called by its symbol: numba's own calls would take a callee's code in and
compile it again, 12 s for SEIR and 30 s for partnerships.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numba
import numpy as np

from denizen.run._native_loops import OWN
from denizen.run._native_parts import Line

_CALL = re.compile(r"(\w+)\((.*)\)$")
_REFUSED = re.compile(r"refuse\((\w+)\((.*)\)\)$")


def segment(groups: Sequence[tuple[bool, list[str]]], arrays: Mapping[str, str], moves: bool) -> str:
    """The code of `segment(addresses, moves, buffers, counter, steps, gate, part, parts)`, which runs lines so often.

    Args:
        groups: calls, and whether each of `parts` threads makes them for its part.
        arrays: code of each array that they name.
        moves: whether addresses move on after each time, as `moved` does it.
    """
    shared = [line for all_threads, lines in groups for line in lines if all_threads and isinstance(line, Line)]
    clears = [line.clears for line in shared if line.clears]
    groups = [*([(False, clears)] if clears else []), *groups]
    words = [word for _, lines in groups for line in lines for word in re.findall(r"\w+", line)]
    body = [f"{name} = {arrays[name]}" for name in dict.fromkeys(words) if name in arrays]
    ends = {line.ends: (line.entries, line.align) for line in shared}
    for number, (all_threads, lines) in enumerate(groups):
        if number and (all_threads or groups[number - 1][0]):
            body.append(_MEET)
        if all_threads:
            body += [_call(line.cut) for line in lines if isinstance(line, Line)]
        else:
            body += ["if part == 0:", *(f"    {_call(line)}" for line in lines)]
    if moves:
        if groups and groups[-1][0]:
            body.append(_MEET)
        body += ["if part == 0:", "    invoke(moved, (addresses, moves, buffers, counter, number))", _MEET]
    head = ["def segment(addresses, moves, buffers, counter, steps, gate, part, parts):"]
    for (first, last), (entries, align) in ends.items():
        head.append(f"    chunk = -(-{entries} // (parts * {align})) * {align}")
        head.append(f"    {first} = min(part * chunk, {entries})")
        head.append(f"    {last} = min({first} + chunk, {entries})")
    head += ["    for number in range(steps):", *(f"        {line}" for line in body or ["pass"])]
    return "\n".join(head) + "\n"


_MEET = "invoke(meet, (gate, parts))"


def _call(line: str) -> str:
    refused = _REFUSED.match(line)
    if refused:
        return f"if {_invoked(*refused.groups())}: raise IndexError('a place is out of range')"
    found = _CALL.match(line)
    assert found is not None, line
    return _invoked(*found.groups())


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
