"""Python loops that launch small operations one by one."""

import ast
import collections
import functools
import linecache

from denizen._watch._observe import SIMULATED
from denizen._watch._places import Place
from denizen.perf._doctor_diagnosis import Diagnosis, at, period_of
from denizen.perf._doctor_ops import Op

OFTEN = 16  # times that a line does the same operation in one step
LAUNCH = 5e-6  # seconds of the host for an operation, about
BYTES, FLOPS = 2e12, 3e13  # per second, of a large GPU: an operation below LAUNCH by these leaves it waiting
# Where libraries are made of parts that a GPU has one kernel for.
_PARTS = ("torch/_decomp/", "torch/nn/modules/rnn.py", "_watch/_backend.py")
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)


def loops(ops: list[Op], steps: list[int], device: str) -> list[Diagnosis]:
    """Lines in loops whose operations are so small and so many that launching them is what takes the time."""
    lines: dict[tuple[str, int], list[Op]] = {}
    for op in ops:
        if not op.part and not any(part in file for file, _, _ in op.place.libraries for part in _PARTS):
            lines.setdefault(op.line, []).append(op)
    found: dict[tuple[str, int], list[tuple[Place, int, list[Op]]]] = {}
    for (file, line), there in lines.items():
        times = collections.Counter((op.step, op.name) for op in there)
        often = max(times.values())
        head = loop_of(file, line)
        if often >= OFTEN and head and not _layers(there, often) and _small(there):
            found.setdefault((file, head), []).append((there[0].place, often, there))
    return [_told(head, group, steps, device) for (_, head), group in found.items()]


def _layers(there: list[Op], often: int) -> bool:
    """Whether each pass of the loop takes parameters of its own, as a loop over the layers of a network does."""
    last = there[-1].step
    weights = {op.weight for op in there if op.step == last and op.weight}
    return len(weights) >= often // 2


def _small(there: list[Op]) -> bool:
    mean = sum(max(op.bytes / BYTES, op.flops / FLOPS) for op in there) / len(there)
    return mean < LAUNCH


def _told(head: int, group: list[tuple[Place, int, list[Op]]], steps: list[int], device: str) -> Diagnosis:
    place, often, there = max(group, key=lambda entry: (len(entry[2]), -entry[0].line))
    came = {op.step for op in there}
    last = max(came)
    total = sum(op.step == last for _, _, ops in group for op in ops)
    largest = max(op.numel for op in there)
    evidence = [f"the loop of line {head} launches {total} operations a step, {often} of a kind at this line"]
    evidence += [f"the largest has {largest:,} elements: its work is less than its launch"]
    if device != SIMULATED:
        evidence += [f"about {1e3 * LAUNCH * total:.2g} ms of launching at {1e6 * LAUNCH:.0f} µs each (estimate)"]
    return at("launch-bound", place, total, period_of(came, steps), evidence, op=there[0].name, confidence="medium")


@functools.cache
def _tree(file: str) -> ast.AST | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def loop_of(file: str, line: int) -> int:
    """First line of the innermost loop around a line, within its function; 0 where there is none."""
    tree = _tree(file)
    if tree is None:
        return 0
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    around = [f for f in functions if f.lineno <= line <= (f.end_lineno or 0)]
    scope = max(around, key=lambda f: f.lineno) if around else tree
    heads = [
        node.lineno
        for node in ast.walk(scope)
        if isinstance(node, _LOOPS)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]  # fmt: skip
    return max(heads, default=0)
