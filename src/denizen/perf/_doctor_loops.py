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
PARAMETERS = 8  # times, where each takes another parameter
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
    updates = _updates(ops)
    for (file, line), there in lines.items():
        heads = loops_around(file, line)
        rounds = max((updates.get((file, head), 1) for head in heads), default=1)
        often = max(collections.Counter((op.step, op.name) for op in there).values()) // rounds
        own, plain = _own(there), all(op.pointwise for op in there if op.weight)
        enough = often >= (PARAMETERS if own and plain else OFTEN) and (plain or not own)
        if heads and enough and _small(there):
            found.setdefault((file, heads[-1]), []).append((there[0].place, often, there))
    return [_told(head, group, steps, device) for (_, head), group in found.items()]


def _updates(ops: list[Op]) -> dict[tuple[str, int], int]:
    """Backward passes of a step within each loop: its rounds are steps of training, not a loop that could be one."""
    passes: dict[tuple[str, int], set[tuple[int, int]]] = {}
    last, before = ops[-1].step if ops else -1, ""
    number = 0
    for op in ops:
        number += op.part == "backward" and before != "backward"
        before = op.part
        if op.part == "backward" and op.step == last:
            for head in loops_around(*op.line):
                passes.setdefault((op.place.file, head), set()).add((op.step, number))
    return {loop: len(numbers) for loop, numbers in passes.items()}


def _own(there: list[Op]) -> bool:
    """Whether each round of the loop takes a parameter of its own, as a loop over the layers of a network does."""
    last = there[-1].step
    often = max(collections.Counter(op.name for op in there if op.step == last).values())
    return len({op.weight for op in there if op.step == last and op.weight}) >= often // 2


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


@functools.lru_cache(64)
def _tree(file: str) -> ast.AST | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


@functools.lru_cache(4096)
def loops_around(file: str, line: int) -> tuple[int, ...]:
    """First lines of the loops around a line, within its function, the innermost last."""
    tree = _tree(file)
    if tree is None:
        return ()
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    around = [f for f in functions if f.lineno <= line <= (f.end_lineno or 0)]
    scope = max(around, key=lambda f: f.lineno) if around else tree
    heads = {
        node.lineno
        for node in ast.walk(scope)
        if isinstance(node, _LOOPS) and node.lineno <= line <= (node.end_lineno or node.lineno)
    }
    return tuple(sorted(heads))
