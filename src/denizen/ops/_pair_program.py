"""Functions of two neighbours as short programs: what the kernels of `_pairs` evaluate for each pair.

A program is a list of operations on numbered values, float32 or bool. First come its inputs: `dims` components of the
offset from the receiver to its neighbour, the square of their distance, numbers of the neighbour, numbers of the
receiver and numbers that all pairs share; then one value for each line. There are few operations, each of them rounded
in one way by IEEE 754, so that every variant computes the same bits; sine, exponential and the like are made of them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

# name -> number of operands; kernels number the operations by their place here.
ARITY = {"const": 1, "abs": 1, "sqrt": 1, "floor": 1, "pow2": 1, "not": 1}
ARITY |= {"add": 2, "sub": 2, "mul": 2, "div": 2, "lt": 2, "le": 2, "eq": 2, "and": 2, "or": 2, "where": 3}
BOOLEAN = {"lt", "le", "eq", "and", "or", "not"}
MOST_POWER = 126  # 2 to a power beyond this is taken as 2 to this

Line = tuple[str, tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of two neighbours.

    Attributes:
        dims: components of the offset.
        theirs: numbers of the neighbour.
        own: numbers of the receiver.
        shared: numbers that are the same for all pairs.
        lines: (operation, numbers of its operands); of ``"const"`` the operand is a float.
        outputs: numbers of the values that are summed over neighbours.
    """

    dims: int
    theirs: int
    own: int
    shared: int
    lines: tuple[Line, ...]
    outputs: tuple[int, ...]

    @property
    def inputs(self) -> int:
        """How many values come before the lines."""
        return self.dims + 1 + self.theirs + self.own + self.shared

    @functools.cached_property
    def text(self) -> str:
        """One line of text, as the ops take it: a constant for torch.compile."""
        head = f"{self.dims} {self.theirs} {self.own} {self.shared}"
        return ";".join([head, *(f"{op} {' '.join(map(repr, args))}" for op, args in self.lines), str(self.outputs)])


@functools.lru_cache(maxsize=512)
def read(text: str) -> Program:
    """The program of a text that `Program.text` gave."""
    head, *lines, outputs = text.split(";")
    made: list[Line] = []
    for line in lines:
        op, *args = line.split()
        made.append((op, (float(args[0]),) if op == "const" else tuple(map(int, args))))
    dims, theirs, own, shared = map(int, head.split())
    places = tuple(int(place) for place in outputs.strip("(),").split(",") if place)
    return Program(dims, theirs, own, shared, tuple(made), places)


class PairBuilder:
    """Writes a program; equal operations on equal operands are written once."""

    def __init__(self, dims: int, theirs: int, own: int, shared: int) -> None:
        self._form = (dims, theirs, own, shared)
        self.num_inputs = dims + 1 + theirs + own + shared
        self.lines: list[Line] = []
        self._known: dict[Line, int] = {}

    @property
    def inputs(self) -> tuple[list[int], int, list[int], list[int], list[int]]:
        """Numbers of (offset, squared distance, theirs, own, shared)."""
        dims, theirs, own, shared = self._form
        starts = [dims + 1, dims + 1 + theirs, dims + 1 + theirs + own]
        ranges = [list(range(a, a + n)) for a, n in zip(starts, (theirs, own, shared), strict=True)]
        return list(range(dims)), dims, ranges[0], ranges[1], ranges[2]

    def const(self, value: float) -> int:
        """A constant, rounded to float32."""
        return self._line("const", (float(np.float32(value)),))

    def value(self, place: int) -> float | None:
        """The value of a constant; None for others."""
        line = self.lines[place - self.num_inputs] if place >= self.num_inputs else ("", ())
        return line[1][0] if line[0] == "const" else None

    def boolean(self, place: int) -> bool:
        """Whether a value is true or false."""
        return place >= self.num_inputs and self.lines[place - self.num_inputs][0] in BOOLEAN

    def op(self, name: str, *args: int) -> int:
        """The result of an operation; on constants alone it is a constant."""
        if name == "where" and args[1] == args[2]:
            return args[1]
        known = [self.value(arg) for arg in args]
        if name not in BOOLEAN and args and all(value is not None for value in known):
            return self.const(float(TORCH[name](*[torch.tensor(value, dtype=torch.float32) for value in known])))
        return self._line(name, args)

    def _line(self, name: str, args: tuple[Any, ...]) -> int:
        key = (name, (repr(args[0]),) if name == "const" else args)  # -0.0 is not 0.0
        if key not in self._known:
            self._known[key] = self.num_inputs + len(self.lines)
            self.lines.append((name, args))
        return self._known[key]

    def program(self, outputs: Sequence[int]) -> Program:
        """The program that gives these values, without what they do not need."""
        needed, stack = set(outputs), list(outputs)
        while stack:
            place = stack.pop()
            name, args = self.lines[place - self.num_inputs] if place >= self.num_inputs else ("const", ())
            new = set() if name == "const" else set(args) - needed
            needed |= new
            stack += new
        kept = [k for k in range(len(self.lines)) if self.num_inputs + k in needed]
        place = {k: k for k in range(self.num_inputs)}
        place |= {self.num_inputs + k: self.num_inputs + new for new, k in enumerate(kept)}
        lines = []
        for k in kept:
            name, args = self.lines[k]
            lines.append((name, args if name == "const" else tuple(place[arg] for arg in args)))
        return Program(*self._form, tuple(lines), tuple(place[out] for out in outputs))

    # --- made of the few operations ---------------------------------------------------------------------------------

    def add(self, a: int, b: int) -> int:
        """The sum."""
        return self.op("add", a, b)

    def sub(self, a: int, b: int) -> int:
        """The difference."""
        return self.op("sub", a, b)

    def mul(self, a: int, b: int) -> int:
        """The product."""
        return a if self.value(b) == 1 else b if self.value(a) == 1 else self.op("mul", a, b)

    def scaled(self, a: int, factor: float) -> int:
        """A times a number."""
        return self.mul(a, self.const(factor))

    def neg(self, a: int) -> int:
        """-a."""
        return self.scaled(a, -1.0)

    def number(self, a: int) -> int:
        """A truth value as 0 or 1."""
        return self.op("where", a, self.const(1.0), self.const(0.0)) if self.boolean(a) else a

    def truth(self, a: int) -> int:
        """Whether a number is not 0."""
        return a if self.boolean(a) else self.op("not", self.op("eq", a, self.const(0.0)))

    def least(self, a: int, b: int) -> int:
        """The smaller of two; NaN if one is NaN."""
        return self.op("where", self.op("or", self.op("lt", b, a), self._nan(b)), b, a)

    def most(self, a: int, b: int) -> int:
        """The larger of two; NaN if one is NaN."""
        return self.op("where", self.op("or", self.op("lt", a, b), self._nan(b)), b, a)

    def _nan(self, a: int) -> int:
        return self.op("not", self.op("eq", a, a))

    def polynomial(self, x: int, coefficients: Sequence[float]) -> int:
        """A polynomial, highest power first."""
        total = self.const(coefficients[0])
        for one in coefficients[1:]:
            total = self.add(self.mul(total, x), self.const(one))
        return total

    def exp(self, x: int) -> int:
        """The exponential: 2 to a whole number times a polynomial on ±ln 2 / 2; 0 below -87, inf above 88."""
        inside = self.most(self.least(x, self.const(88.0)), self.const(-87.0))
        whole = self.op("floor", self.add(self.scaled(inside, math.log2(math.e)), self.const(0.5)))
        rest = self.sub(self.sub(inside, self.scaled(whole, _LN2[0])), self.scaled(whole, _LN2[1]))
        half = self.op("pow2", self.op("floor", self.scaled(whole, 0.5)))  # in two: 2**127 times a little is finite
        other = self.op("pow2", self.sub(whole, self.op("floor", self.scaled(whole, 0.5))))
        inner = self.mul(
            self.mul(self.polynomial(rest, [1 / math.factorial(k) for k in range(7, -1, -1)]), half), other
        )
        high = self.op("where", self.op("lt", self.const(88.0), x), self.const(math.inf), inner)
        return self.op("where", self.op("lt", x, self.const(-87.0)), self.const(0.0), high)

    def sin(self, x: int, quarter: bool = False) -> int:
        """Sine by a polynomial on ±π/2, or cosine: within 3e-7 for |x| up to 1,000 π."""
        turns = self.scaled(x, 1 / math.pi)
        if quarter:  # cos x = sin(x + π/2): whole half turns are counted from -π/2
            whole = self.op("floor", turns)
            away = self.add(whole, self.const(0.5))
        else:
            whole = away = self.op("floor", self.add(turns, self.const(0.5)))
        rest = x
        for part in _PI:
            rest = self.sub(rest, self.scaled(away, part))
        square = self.mul(rest, rest)
        series = [(-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)]
        value = self.mul(rest, self.polynomial(square, series))
        odd = self.sub(whole, self.scaled(self.op("floor", self.scaled(whole, 0.5)), 2.0))
        sign = self.sub(self.const(1.0), self.scaled(odd, 2.0))
        return self.mul(self.neg(value) if quarter else value, sign)


def _parts(value: float, count: int, bits: int) -> tuple[float, ...]:
    """A number as a sum of floats, all but the last of few digits, which small whole numbers multiply exactly."""
    out = []
    for _ in range(count - 1):
        mantissa, exponent = math.frexp(value)
        part = math.ldexp(math.floor(mantissa * 2**bits), exponent - bits)
        out.append(part)
        value -= part
    return (*out, value)


_LN2, _PI = _parts(math.log(2), 2, 14), _parts(math.pi, 3, 12)


def _pow2(x: Tensor) -> Tensor:
    return ((x.detach().clamp(-MOST_POWER, MOST_POWER).to(torch.int32) + 127) << 23).view(torch.float32)


def _sqrt(x: Tensor) -> Tensor:
    """Rounded correctly, which torch's own is not on a CPU: in float32 one in five is off by a bit."""
    return x.to(torch.float64).sqrt().to(torch.float32)


TORCH: dict[str, Callable[..., Tensor]] = {
    "abs": torch.abs,
    "sqrt": _sqrt,
    "floor": torch.floor,
    "pow2": _pow2,
    "not": torch.logical_not,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "lt": torch.lt,
    "le": torch.le,
    "eq": torch.eq,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "where": torch.where,
}


def evaluate(program: Program, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a program in plain torch, for inputs of one shape or that broadcast."""
    values = list(inputs)
    for name, args in program.lines:
        if name == "const":
            values.append(torch.full((), args[0], dtype=torch.float32, device=inputs[0].device))
        else:
            values.append(TORCH[name](*[values[arg] for arg in args]))
    return [values[out] for out in program.outputs]


# --- derivatives ------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=128)
def backward(text: str) -> str:
    """The program that sums up gradients, itself a function of two neighbours.

    Agent i reaches the loss as a receiver and as the neighbour of its neighbours, and neighbours are mutual; so one sum
    over neighbours j has both. Of each agent it takes the numbers that the forward program takes of a neighbour, those
    of a receiver, and the gradient of its sums. Outputs: the gradients of the position, of the numbers of a neighbour,
    of those of a receiver, and of the shared numbers.
    """
    forward = read(text)
    num = forward.theirs + forward.own + len(forward.outputs)
    made = PairBuilder(forward.dims, num, num, forward.shared)
    offset, square, others, mine, shared = made.inputs
    cut, end = forward.theirs, forward.theirs + forward.own
    # As a receiver: what j is to i.
    seen = [*offset, square, *others[:cut], *mine[cut:end], *shared]
    received = _reverse(made, forward, seen, mine[end:])
    # As a neighbour: what i is to j.
    opposite = [made.neg(o) for o in offset]
    shown = [*opposite, square, *mine[:cut], *others[cut:end], *shared]
    given = _reverse(made, forward, shown, others[end:])
    place = [
        made.sub(_of_offset(made, given, k, opposite), _of_offset(made, received, k, offset))
        for k in range(forward.dims)
    ]
    first = forward.dims + 1
    rest = [*given[first : first + cut], *received[first + cut :]]
    return made.program([*place, *(made.const(0.0) if one is None else one for one in rest)]).text


def _of_offset(made: PairBuilder, gradients: list[int | None], axis: int, offset: list[int]) -> int:
    direct, square = gradients[axis], gradients[len(offset)]
    through = None if square is None else made.mul(made.scaled(square, 2.0), offset[axis])
    if direct is None or through is None:
        found = through if direct is None else direct
        return made.const(0.0) if found is None else found
    return made.add(direct, through)


def _reverse(made: PairBuilder, program: Program, inputs: list[int], cotangents: list[int]) -> list[int | None]:
    """Gradients of a program's inputs; None for those that no output depends on."""
    values = list(inputs)
    for name, args in program.lines:
        values.append(made.const(args[0]) if name == "const" else made.op(name, *[values[arg] for arg in args]))
    gradients: list[int | None] = [None] * len(values)

    def give(place: int, gradient: int) -> None:
        before = gradients[place]
        gradients[place] = gradient if before is None else made.add(before, gradient)

    for out, cotangent in zip(program.outputs, cotangents, strict=True):
        give(out, cotangent)
    for k in range(len(program.lines) - 1, -1, -1):
        (name, args), out = program.lines[k], program.inputs + k
        gradient = gradients[out]
        if gradient is not None and name in _RULES:
            _RULES[name](made, give, gradient, values[out], args, [values[arg] for arg in args])
    return gradients[: program.inputs]


def _where_rule(made: PairBuilder, give: Any, g: int, out: int, args: Any, v: Any) -> None:
    zero = made.const(0.0)
    give(args[1], made.op("where", v[0], g, zero))
    give(args[2], made.op("where", v[0], zero, g))


def _sqrt_rule(made: PairBuilder, give: Any, g: int, out: int, args: Any, v: Any) -> None:
    """0 at 0: agents in one place pull each other nowhere."""
    zero, one = made.const(0.0), made.const(1.0)
    at_zero = made.op("eq", out, zero)
    slope = made.op("div", made.scaled(g, 0.5), made.op("where", at_zero, one, out))
    give(args[0], made.op("where", at_zero, zero, slope))


def _abs_rule(made: PairBuilder, give: Any, g: int, out: int, args: Any, v: Any) -> None:
    zero = made.const(0.0)
    down = made.op("where", made.op("lt", v[0], zero), made.neg(g), zero)
    give(args[0], made.op("where", made.op("lt", zero, v[0]), g, down))


def _both(left: Callable[..., int], right: Callable[..., int]) -> Callable[..., None]:
    def rule(made: PairBuilder, give: Any, g: int, out: int, args: Any, v: Any) -> None:
        give(args[0], left(made, g, out, v))
        give(args[1], right(made, g, out, v))

    return rule


_RULES: dict[str, Callable[..., None]] = {
    "add": _both(lambda made, g, out, v: g, lambda made, g, out, v: g),
    "sub": _both(lambda made, g, out, v: g, lambda made, g, out, v: made.neg(g)),
    "mul": _both(lambda made, g, out, v: made.mul(g, v[1]), lambda made, g, out, v: made.mul(g, v[0])),
    "div": _both(
        lambda made, g, out, v: made.op("div", g, v[1]),
        lambda made, g, out, v: made.neg(made.op("div", made.mul(g, out), v[1])),
    ),
    "where": _where_rule,
    "sqrt": _sqrt_rule,
    "abs": _abs_rule,
}
