"""From what was seen of a step to diagnoses: one rule for each kind of fault that counting alone does not tell."""

import collections
import dataclasses
import itertools
import linecache
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from denizen.perf._doctor.autograd import kept
from denizen.perf._doctor.diagnosis import NOTE, WARNING, Diagnosis, at, period_of
from denizen.perf._doctor.hooks import Drawn
from denizen.perf._doctor.operations import JOINS, PRODUCTS, SQUARE, Op
from denizen.perf._doctor.passes import Watched
from denizen.perf._doctor.source import clock_attributes, loops_around
from denizen.perf.watch._findings import EVERY
from denizen.perf.watch._operations import SIMULATED
from denizen.perf.watch._places import USER, Place, role
from denizen.perf.watch._tf32 import takes_tf32

LARGE_PRODUCT = 2 * 512**3  # operations of a matrix product that tensor cores make faster
FEW = 0.1  # share of values other than 0, below which a square matrix counts as sparse
DOUBLE = 0.02  # of a step's bytes, by which float64 makes them more: below that it costs nothing
SAVED = 64  # bytes kept for a backward pass that never comes, below which it is a note: a few numbers
OPTIMIZERS = 8  # that one line steps, from which they count as one
FREED = 64 << 10  # bytes that an in-place operation is worth a note for
_NARROWER = ((torch.int8, -128, 127), (torch.uint8, 0, 255), (torch.int16, -(2**15), 2**15 - 1))


def diagnose(seen: Watched) -> list[Diagnosis]:
    """Everything that operations, graphs and hooks show."""
    found: list[Diagnosis] = []
    for rule in RULES:
        found += rule(seen)
    return found


def by_line(ops: Iterable[Op]) -> Iterator[tuple[Place, list[Op]]]:
    """Operations of each line, in order, with the line."""
    lines: dict[tuple[str, int], list[Op]] = {}
    for op in ops:
        lines.setdefault(op.line, []).append(op)
    for there in lines.values():
        yield there[0].place, there


def a_step(there: Sequence[Any]) -> int:
    """How often something came in a step, at most."""
    return max(collections.Counter(thing.step for thing in there).values())


def _bytes(there: Sequence[Op]) -> int:
    last = there[-1].step
    return sum(op.bytes for op in there if op.step == last)


# --- memory -----------------------------------------------------------------------------------------------------------


def _cat(seen: Watched) -> list[Diagnosis]:
    found, steps = [], seen.operations.steps
    for place, there in by_line(op for op in seen.operations.ops if op.schema in JOINS and not op.part):
        joins = [op for op in there if op.step == there[-1].step]
        last = [op.new for op in joins]
        # Not what layers of a network join once: there nothing is copied again, or a graph needs it.
        again = all(op.again and not op.tracked for op in joins[1:])
        within = len(last) >= 4 and again and all(a < b for a, b in itertools.pairwise(last))
        firsts = [next(op.new for op in there if op.step == step) for step in dict.fromkeys(op.step for op in there)]
        across = len(firsts) >= 3 and all(a < b for a, b in itertools.pairwise(firsts))
        if within or across:
            grows = f"from {last[0]:,} to {last[-1]:,} bytes within a step" if within else "from step to step"
            name = there[0].schema.removeprefix("aten::")
            evidence = [f"{len(last)} {name} a step, each copies what was there before; the result grows {grows}"]
            spare = 2 * (sum(last) - last[-1] if within else firsts[-2])  # read and written again, though known already
            period = period_of({op.step for op in there}, steps)
            found.append(at("alloc-churn", place, len(last), period, evidence, needless=spare))
    return found


def _clones(seen: Watched) -> list[Diagnosis]:
    found, steps = [], seen.operations.steps
    copies = [copy for copy in seen.operations.copied if copy.op.step < steps[-1]] if len(steps) > 1 else []
    needed = {copy.op.line for copy in seen.operations.copied if copy.needed}
    for place, there in by_line(copy.op for copy in copies if copy.op.line not in needed):
        size = sum(op.new for op in there if op.step == there[-1].step)
        evidence = [f"{a_step(there)} clone a step, {size:,} bytes; neither it nor its source was written to meanwhile"]
        period = period_of({op.step for op in there}, steps[:-1])
        found.append(at("alloc-churn", place, a_step(there), period, evidence, op="aten::clone", confidence="medium"))
    return found


def _weights(seen: Watched) -> list[Diagnosis]:
    found, steps = [], seen.operations.steps
    copies = (op for op in seen.operations.ops if op.schema == "aten::clone" and op.weights and not op.part)
    for place, there in by_line(copies):
        size = sum(op.new for op in there if op.step == there[-1].step)
        evidence = [f"{a_step(there)} parameters copied a step, {size:,} bytes of new memory"]
        period = period_of({op.step for op in there}, steps)
        found.append(at("state-copy", place, a_step(there), period, evidence, op="aten::clone"))
    return found


def _inplace(seen: Watched) -> list[Diagnosis]:
    found = []
    for place, there in by_line(op for op in seen.operations.freed if op.new >= FREED):
        size = max(op.new for op in there)
        evidence = [f"takes {size:,} bytes for its result, and nobody needs its argument afterwards"]
        period = period_of({op.step for op in there}, seen.operations.steps)
        level, confidence = NOTE, "low"
        one = at("inplace-possible", place, a_step(there), period, evidence, level=level, confidence=confidence)
        found.append(dataclasses.replace(one, op=there[0].name))
    return found


def _pairs(seen: Watched) -> list[Diagnosis]:
    """All pairs computed, few of which count: the first line of a function that makes such a matrix."""
    operations, steps = seen.operations, seen.operations.steps
    matrices = [matrix for many in operations.matrices.values() for matrix in many if not matrix.weight]
    made: dict[tuple[str, str, int], list[Place]] = {}
    compared = _compared(operations.ops)
    of_contacts = {matrix.columns for matrix in matrices if matrix.derived and matrix.share < FEW}
    # Distances of which no few are picked: whatever few of the same rows there are are labels beside them.
    compared |= {rows for _, rows, real in operations.pairs.values() if real and rows not in of_contacts}
    for place, rows, real in operations.pairs.values():
        if rows not in compared or (real and rows in of_contacts):
            made.setdefault((place.file, place.function, rows), []).append(place)
    for matrix in matrices:
        square = matrix.rows == matrix.columns and matrix.rows not in compared and matrix.relates
        if square and 0 < matrix.share < FEW:  # all zeros: a buffer, or a batch of as many rows as columns
            made.setdefault((matrix.place.file, matrix.place.function, matrix.rows), []).append(matrix.place)
    found: dict[tuple[str, str, int], Diagnosis] = {}
    for matrix in matrices:
        key = (matrix.place.file, matrix.place.function, matrix.columns)
        if matrix.share >= FEW or key not in made or key in found:
            continue
        first = min(made[key], key=lambda place: place.line)
        there = [op for op in operations.ops if op.line == (first.file, first.line)]
        evidence = [
            f"all {matrix.columns:,} x {matrix.columns:,} pairs, of which {matrix.share:.2%} count (line "
            f"{matrix.place.line}); bytes grow with the square of the rows"
        ]
        period = period_of({op.step for op in there}, steps)
        square = [op for op in operations.ops if op.numel >= matrix.columns**2 and _of(op, first)]
        diagnosis = at("dense-quadratic", first, 1, period, evidence, confidence="medium")
        spare = round((1 - matrix.share) * _bytes(square)) if square else 0
        found[key] = dataclasses.replace(diagnosis, bytes=_bytes(there), needless=spare)
    return list(found.values())


def _compared(ops: list[Op]) -> set[int]:
    """Rows of which products make all pairs, as in attention and contrastive losses: masks beside them save nothing."""
    made = [op for op in ops if op.schema in PRODUCTS and len(op.shape) >= 2 and "cdist" not in op.place.code]
    square = [
        op.shape[-1] for op in made if op.shape[-1] == op.shape[-2] >= SQUARE and op.flops < 2 * op.numel * op.shape[-1]
    ]
    return {*square, *(op.shape[-2] for op in ops if "scaled_dot_product" in op.schema and len(op.shape) >= 2)}


def _of(op: Op, place: Place) -> bool:
    """Whether an operation belongs to the function of a place, or to the backward pass."""
    return op.part == "backward" or (op.place.file, op.place.function) == (place.file, place.function)


# --- types ------------------------------------------------------------------------------------------------------------


def _fp64(seen: Watched) -> list[Diagnosis]:
    double, steps = torch.float64, seen.operations.steps
    ops = [op for op in seen.operations.ops if double in (op.dtype, *op.sources) and op.numel > 1]
    if not ops:
        return []
    origins = [op for op in ops if op.dtype == double and double not in op.sources and not op.part]
    if not origins:
        origins = [op for op in ops if op.line == ops[0].line]
    found = []
    per_step = a_step(ops)
    last = [op for op in ops if op.step == ops[-1].step]
    spare = sum(op.double for op in last) // 2
    much = spare >= DOUBLE * _bytes([op for op in seen.operations.ops if op.step == ops[-1].step])  # not sums alone
    work = much and (per_step > 1 or any(op.schema in PRODUCTS for op in ops))
    level = WARNING if seen.device.type != "cpu" and work else NOTE
    flops = sum(op.flops for op in last if op.dtype == double)
    for place, there in by_line(origins):
        evidence = [f"float64 comes in here; {per_step} operations a step then work in it, with twice the bytes"]
        period = period_of({op.step for op in there}, steps)
        one = at("dtype-fp64", place, a_step(there), period, evidence, level=level, op=there[0].name, needless=spare)
        found.append(dataclasses.replace(one, flops=flops))
    return found


def _fp32(seen: Watched) -> list[Diagnosis]:
    if seen.device.type == "cpu":
        return []
    ops = [
        op
        for op in seen.operations.ops
        if op.schema in PRODUCTS
        and op.dtype == torch.float32
        and not op.autocast
        and not op.fast
        and not op.part
        and op.flops >= LARGE_PRODUCT
        and (op.schema != "aten::convolution" or not takes_tf32(torch.backends.cudnn))
    ]
    found = []
    old = seen.device.type == "cuda" and torch.cuda.get_device_capability(seen.device)[0] < 8
    fix = "torch.autocast(device, torch.float16) with a GradScaler: what its tensor cores take" if old else ""
    for place, there in by_line(ops):
        flops = sum(op.flops for op in there if op.step == there[-1].step)
        evidence = [f"{a_step(there)} products of float32 matrices a step, {flops / 1e9:.3g} GFLOP, no tensor cores"]
        evidence += ["backward passes take twice as much again"] if seen.graphs.backwards else []
        period = period_of({op.step for op in there}, seen.operations.steps)
        found.append(
            at("dtype-fp32", place, a_step(there), period, evidence, op=there[0].name, confidence="medium", fix=fix)
        )
    return found


def _wide(seen: Watched) -> list[Diagnosis]:
    found, steps = [], seen.operations.steps
    for line, (place, dtype, low, high, size) in seen.operations.narrow.items():
        if line in seen.operations.flow.as_places:
            continue
        narrow = next((kind for kind, least, most in _NARROWER if least <= low and high <= most), None)
        there = [op for op in seen.operations.ops if op.line == line]
        if narrow is None or not there:
            continue
        total = _bytes([op for op in seen.operations.ops if op.step == there[-1].step])
        moved = max(size, _bytes([op for op in there if dtype in (op.dtype, *op.sources)]))
        level = WARNING if moved >= 0.05 * total else NOTE
        evidence = [f"{size:,} bytes of {dtype} hold values from {low} to {high}, which fit into {narrow}"]
        period = period_of({op.step for op in there}, steps)
        spare = size - size // dtype.itemsize * narrow.itemsize
        diagnosis = at(
            "dtype-wide-int", place, 1, period, evidence, level=level, confidence="medium", bytes=size, needless=spare
        )
        found.append(diagnosis)
    return found


# --- autograd and modules ---------------------------------------------------------------------------------------------


def _retention(seen: Watched) -> list[Diagnosis]:
    found, steps = {}, seen.operations.steps
    for line, (place, came) in seen.operations.older.items():
        evidence = ["adds to a result of an earlier step that has a graph: the graph grows with every step"]
        if len(set(came)) >= max(2, len(steps) - 2):
            found[line] = at("graph-retention", place, 1, period_of(came, steps[1:]), evidence)
    for line, (place, came, holder) in kept(seen.operations, seen.hooks.put).items():
        evidence = [f"results of {len(set(came))} earlier steps are kept in {holder}, each with its graph"]
        if line not in found and len(set(came)) > 1:
            found[line] = at("graph-retention", place, 1, period_of(came, steps[:-1]), evidence)
    last = {call.step: call for call in seen.graphs.backwards}  # of each step
    needless = [call for call in last.values() if call.retains and not call.creates]
    for call in needless[:1]:
        evidence = ["retain_graph=True, and no later backward pass of the step uses the graph"]
        period = period_of({other.step for other in needless}, steps)
        found[call.place.file, call.place.line] = at("graph-retention", call.place, 1, period, evidence)
    return list(found.values())


def _no_grad(seen: Watched) -> list[Diagnosis]:
    found, steps = [], seen.operations.steps
    for saved in seen.graphs.saved.values():
        early = [step for step in saved.steps if step < steps[-1]]
        line = saved.place.file, saved.place.line
        if saved.used or not early or not (saved.weights or line in seen.operations.differentiable):
            continue
        size = saved.bytes // len(saved.steps)
        evidence = [
            f"{saved.count // len(saved.steps)} tensors ({size:,} bytes) saved a step, and no backward pass took any"
        ]
        level = WARNING if size >= SAVED else NOTE
        found.append(at("no-grad-missing", saved.place, 1, period_of(saved.steps, steps), evidence, level=level))
    return found


def _eval(seen: Watched) -> list[Diagnosis]:
    lines: dict[tuple[str, int], list[tuple[int, Place]]] = {}
    flow = seen.operations.flow
    for step, place, normal in seen.operations.untrained:
        line = place.file, place.line
        # A momentum encoder or a generator has its turn; dropout is sampled for its spread.
        if line not in flow.into_graph and (normal or line not in flow.repeated):
            lines.setdefault((place.file, place.line), []).append((step, place))
    found = []
    for there in lines.values():
        count = max(collections.Counter(step for step, _ in there).values())
        evidence = [f"{count} dropout or batch-norm layers train here while gradients are off: results are random"]
        period = period_of({step for step, _ in there}, seen.operations.steps)
        found.append(at("eval-mode-missing", there[0][1], count, period, evidence, confidence="medium"))
    return found


def _optimizers(seen: Watched) -> list[Diagnosis]:
    found, steps = [], seen.operations.steps
    lines: dict[tuple[str, int], list[Any]] = {}
    for stepped in seen.hooks.stepped:
        lines.setdefault((stepped.place.file, stepped.place.line), []).append(stepped)
    for there in lines.values():
        last = there[-1]
        many = [stepped for stepped in there if stepped.step == last.step and not stepped.hooked]
        ops, parameters = last.ops, last.parameters
        if len({id(stepped.optimizer) for stepped in many}) >= OPTIMIZERS:
            ops, parameters = (sum(getattr(stepped, name) for stepped in many) for name in ("ops", "parameters"))
        if seen.device.type == "cpu" or parameters < 4 or ops < 3 * parameters:
            continue
        name = type(last.optimizer).__name__
        evidence = [f"{name}.step launches {ops} operations for {parameters} parameters, one after another"]
        period = period_of({stepped.step for stepped in there}, steps)
        found.append(at("optimizer-unfused", last.place, ops, period, evidence, op=f"{name}.step"))
    return found


def _memset(seen: Watched) -> list[Diagnosis]:
    found = []
    for place, there in by_line(op for op in seen.operations.ops if op.grads):
        count = sum(op.grads for op in there if op.step == there[-1].step)
        evidence = [f"{count} gradients filled with zeros a step, which the backward pass then reads and adds to"]
        period = period_of({op.step for op in there}, seen.operations.steps)
        found.append(at("grad-memset", place, count, period, evidence, op=there[0].name))
    return found


# --- the rest ---------------------------------------------------------------------------------------------------------


def _compile(seen: Watched) -> list[Diagnosis]:
    lines: dict[tuple[str, int], list[tuple[int, Place]]] = {}
    for step, place in seen.hooks.compiled:
        lines.setdefault((place.file, place.line), []).append((step, place))
    found = []
    for there in lines.values():
        count = max(collections.Counter(step for step, _ in there).values())
        period = period_of({step for step, _ in there}, seen.operations.steps)
        evidence = [f"torch.compile is called {count} times a step: each call makes a wrapper and looks its graph up"]
        found.append(at("compile-overhead", there[0][1], count, period, evidence, op="torch.compile"))
    return found


def _clocks(seen: Watched) -> list[Diagnosis]:
    """Two readings with work in between, which nothing waited for: in a function, or of a class that keeps one."""
    if seen.device.type == "cpu":
        return []
    lines: dict[tuple[str, int], list[tuple[int, Place, int]]] = {}
    before: dict[tuple[str, str], Any] = {}
    for clock in seen.hooks.clocks:
        key = (clock.place.file, clock.place.function)
        kept, taken = clock_attributes(clock.place.file, clock.place.line)
        earlier = before.get((clock.place.file, f".{taken}")) or before.get(key)
        if earlier is not None and earlier.step == clock.step and clock.ops > earlier.ops and not clock.synced:
            there = lines.setdefault((clock.place.file, clock.place.line), [])
            there.append((clock.step, clock.place, clock.ops - earlier.ops))
        before[key] = clock
        if kept:
            before[clock.place.file, f".{kept}"] = clock
    found = []
    for there in lines.values():
        evidence = [
            f"{there[-1][2]} operations since the clock was read before, and nothing waited for them: "
            "this measures launches, not work"
        ]
        period = period_of({step for step, _, _ in there}, seen.operations.steps)
        found.append(at("timing-async", there[0][1], 1, period, evidence))
    return found


def _debugging(seen: Watched) -> list[Diagnosis]:
    files = list(dict.fromkeys(op.place.file for op in seen.operations.ops if role(op.place.file) == USER))
    found = []
    for flag, text in seen.flags.items():
        place = _mention(files, text) or (seen.operations.ops[0].place if seen.operations.ops else None)
        if place is None:
            continue
        level = NOTE if text == "use_deterministic_algorithms" else WARNING
        backward = sum(op.part == "backward" for op in seen.operations.ops) // max(1, len(seen.operations.steps))
        evidence = [f"{flag} is on while the step runs"]
        evidence += [f"{backward} operations of backward passes a step are checked"] if "anomaly" in flag else []
        found.append(at("debug-left-on", place, 1, "every step", evidence, level=level, op=text))
    return found


def _mention(files: Iterable[str], text: str) -> Place | None:
    """The line that calls what switches it on, or else one that names it."""
    for said in (f"{text}(", text):
        for file in files:
            for number, line in enumerate(linecache.getlines(file), 1):
                if said in line and not line.lstrip().startswith(("#", "import ", "from ", "def ")):
                    return Place(file, number, "")
    return None


def _loops(seen: Watched) -> list[Diagnosis]:
    last = seen.operations.steps[-1] if seen.operations.steps else -1
    drawn = [one.place for one in seen.hooks.drawn.values() for step in one.steps if step == last]
    return loops(seen.operations.ops, seen.operations.steps, seen.device.type, drawn)


RULES = (
    _loops,
    _cat,
    _clones,
    _weights,
    _pairs,
    _fp64,
    _fp32,
    _wide,
    _retention,
    _no_grad,
    _eval,
    _optimizers,
    _memset,
    _compile,
    _clocks,
    _debugging,
    _inplace,
)


OFTEN = 16  # rounds in one step
PARAMETERS = 8  # rounds, where each takes another parameter
LAUNCH = 5e-6  # seconds of the host for an operation, about
BYTES, FLOPS = 2e12, 3e13  # per second, of a large GPU: an operation below LAUNCH by these leaves it waiting
# Where libraries are made of parts that a GPU has one kernel for.
_PARTS = ("torch/_decomp/", "torch/nn/modules/rnn.py", "perf/simulated/_device.py")

_PLAIN = ("aten::copy_", "aten::clone", "aten::zero_", "aten::fill_")  # element by element, though not tagged so

Loop = tuple[str, int]  # file and first line


def loops(ops: list[Op], steps: list[int], device: str, drawn: Iterable[Place]) -> list[Diagnosis]:
    """Lines in loops whose operations are so small and so many that launching them is what takes the time.

    Args:
        ops: of some steps.
        steps: numbers of these.
        device: kind of the device.
        drawn: the line of each batch that a step drew from a loader.
    """
    sites: dict[Loop, list[Op]] = {}
    for op in ops:
        if op.site is not None and not op.part and not _is_one_kernel(op):
            sites.setdefault((op.site.file, op.site.line), []).append(op)
    rounds = _rounds(ops, drawn)
    found: dict[Loop, list[tuple[int, list[Op]]]] = {}
    for (file, line), there in sites.items():
        heads = loops_around(file, line)
        times = max((rounds.get((file, head), 1) for head in heads), default=1)
        often = _often(there) // times
        own, plain = _own(there)
        if often >= (PARAMETERS if own and plain else OFTEN) and (plain or not own) and _small(there):
            found.setdefault((file, heads[-1]), []).append((often, there))
    return [_loop(head, group, steps, device) for (_, head), group in found.items()]


def _often(there: list[Op]) -> int:
    """Rounds of a line in a step: how often most of its operations came, for a network has some more than once."""
    last = there[-1].step
    counts = collections.Counter((op.line, op.at, op.name) for op in there if op.step == last)
    return statistics.median_low(counts.values())


def _is_one_kernel(op: Op) -> bool:
    return any(part in file for file, _, _ in op.place.libraries for part in _PARTS)


def _rounds(ops: list[Op], drawn: Iterable[Place]) -> dict[Loop, int]:
    """Rounds of loops that are steps of training or batches of a loader: not loops that could be one operation."""
    passes: dict[Loop, set[int]] = {}
    last, before, number = ops[-1].step if ops else -1, "", 0
    for op in ops:
        number += op.part == "backward" and before != "backward"
        before = op.part
        if op.part == "backward" and op.step == last:
            for head in loops_around(*op.line):
                passes.setdefault((op.place.file, head), set()).add(number)
    rounds = {loop: len(numbers) for loop, numbers in passes.items()}
    for place in drawn:
        for head in loops_around(place.file, place.line):
            rounds[place.file, head] = rounds.get((place.file, head), 0) + 1
    return rounds


def _own(there: list[Op]) -> tuple[bool, bool]:
    """Whether rounds take parameters of their own, as over a network's layers; whether all of that is pointwise."""
    last = there[-1].step
    weights: dict[tuple[Loop, str], list[Op]] = {}
    for op in there:
        if op.step == last and op.weight:
            weights.setdefault((op.line, op.name), []).append(op)
    own = [many for many in weights.values() if len(many) > 1 and len({op.weight for op in many}) >= len(many) // 2]
    return bool(own), all(op.pointwise or op.schema in _PLAIN for many in own for op in many)


def _small(there: list[Op]) -> bool:
    mean = sum(max(op.bytes / BYTES, op.flops / FLOPS) for op in there) / len(there)
    return mean < LAUNCH


def _loop(head: int, group: list[tuple[int, list[Op]]], steps: list[int], device: str) -> Diagnosis:
    often, there = max(group, key=lambda entry: (len(entry[1]), -_line(entry[1])))
    came = {op.step for op in there}
    last, place = max(came), there[0].site
    assert place is not None
    total = sum(op.step == last for _, ops in group for op in ops)
    largest = max(op.numel for op in there)
    evidence = [f"the loop of line {head} launches {total} operations a step, {often} of a kind at this line"]
    evidence += [f"the largest has {largest:,} elements: its work is less than its launch"]
    if device != SIMULATED:
        evidence += [f"about {1e3 * LAUNCH * total:.2g} ms of launching at {1e6 * LAUNCH:.0f} µs each (estimate)"]
    return at("launch-bound", place, total, period_of(came, steps), evidence, op=there[0].name, confidence="medium")


def _line(there: list[Op]) -> int:
    return 0 if there[0].site is None else there[0].site.line


BOUND = 0.05  # share of a step that may be waited for data
LEAST = 5e-4  # seconds of the host for a batch, below which workers would not be faster


def loaders(
    drawn: Sequence[Drawn], times: Sequence[float], steps: Sequence[int], rest: float | None
) -> list[Diagnosis]:
    """Diagnoses of the loaders that plain steps drew from.

    Args:
        drawn: batches, by line.
        times: seconds of the host in each step, loading within.
        steps: numbers of these steps.
        rest: seconds of a step besides loading, about, where `times` are those of a stand-in; None where they are real.
    """
    found: list[Diagnosis] = []
    for batches in drawn:
        found += _restarted(batches, steps) + _waited(batches, times, steps, rest)
    return found


def _made(batches: Drawn) -> Place:
    """The line that made the loader, where that is known or the file with the loop has one only; else that draws."""
    known = getattr(batches.loader, "_denizen_place", None)
    if known is not None:
        return known
    file, text = batches.place.file, "DataLoader("
    lines = [n for n, line in enumerate(linecache.getlines(file), 1) if text in line.partition("#")[0]]
    return Place(file, lines[0], "") if len(lines) == 1 else batches.place


def _workers(loader: Any) -> int:
    """Of a loader or of a pass over one that began before anybody listened."""
    return getattr(loader, "num_workers", getattr(loader, "_num_workers", 0))


def _restarted(batches: Drawn, steps: Sequence[int]) -> list[Diagnosis]:
    loader = batches.loader
    if len(batches.starts) < 2 or getattr(loader, "persistent_workers", False):
        return []
    evidence = [f"{len(batches.starts)} passes in {len(steps)} steps each started {_workers(loader)} workers anew"]
    period = period_of(batches.starts, steps)
    return [at("loader-persistent", _made(batches), 1, period, evidence, op="DataLoader.__iter__")]


def _waited(batches: Drawn, times: Sequence[float], steps: Sequence[int], rest: float | None) -> list[Diagnosis]:
    workers = _workers(batches.loader)
    if not batches.wait or not times or (workers and rest is not None):
        return []
    drawn, came = len(batches.wait), len(set(batches.steps))
    wait, dataset, collate = statistics.median(batches.wait), batches.dataset / drawn, batches.collate / drawn
    per_step = wait * drawn / came
    share = per_step / (statistics.median(times) if rest is None else per_step + rest)
    if share < BOUND:
        return []
    evidence = [f"line {batches.place.line} draws from it and waits {1e3 * wait:.3g} ms for a batch"]
    if workers:
        evidence[0] += f", though {workers} workers prepare them"
    else:
        evidence[0] += f", made in this process (dataset {1e3 * dataset:.3g} ms, collate {1e3 * collate:.3g} ms)"
        evidence += [f"{batches.samples} samples one by one"] if batches.samples > 1 else []
    evidence += [f"{share:.0%} of a step here"] if rest is None else []
    period = period_of(batches.steps, steps)
    often = period == EVERY or came > len(steps) // 2
    level = WARNING if often and not workers and min(batches.wait) >= LEAST else NOTE
    kind = "loader-collate" if collate > dataset and not workers else "loader-workers"
    count = max(1, round(drawn / came))
    return [at(kind, _made(batches), count, period, evidence, level=level, op="DataLoader", confidence="medium")]
