"""Whether two tensors are the same: bit for bit, within the tolerance of their precision, or not; the verdict."""

import dataclasses
import json
import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from denizen._notebook import InNotebook

BIT_EQUAL, WITHIN, STATISTICALLY, DIFFERENT = "bit-equal", "within tolerance", "statistically equal", "different"
Tolerances = Mapping[torch.dtype, tuple[float, float]]
# (relative, absolute), as in torch.testing.assert_close. The absolute one is for values of the order of 1; for smaller
# tensors it shrinks with them, or a gradient of 1e-6 that is missing altogether would pass.
TOLERANCES: Tolerances = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float16: (1e-3, 1e-5),
}
# Of the largest value of its kind (all gradients of a step): what is smaller is what rounding leaves of a zero.
NOISE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-3, torch.float16: 1e-4}
LOW = (torch.bfloat16, torch.float16)
AS_EXACT = 2.0  # times the reference's own distance from float64 that the candidate's may be


@dataclasses.dataclass(frozen=True)
class Compared:
    """One tensor of the reference beside its counterpart.

    Attributes:
        name: such as ``"output"``, ``"gradient of head.weight"``, ``"head.weight after the step"``.
        step: of training, from 1 on; 0 is the forward pass in eval mode.
        level: ``"bit-equal"``, ``"within tolerance"`` or ``"different"``.
        max_error: largest absolute difference.
        max_relative: largest difference as a share of the reference's value.
        relative_norm: norm of the difference as a share of the reference's norm.
        share_outside: elements outside the tolerance, as a share of all.
        why: what else there is to say.
    """

    name: str
    step: int
    level: str
    max_error: float = 0.0
    max_relative: float = 0.0
    relative_norm: float = 0.0
    share_outside: float = 0.0
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Rule:
    """How tensors are compared.

    Attributes:
        tolerances: relative and absolute, by dtype.
        equal_nan: whether NaN equals NaN.
    """

    tolerances: Tolerances
    equal_nan: bool = False

    def compare(
        self, name: str, step: int, a: Tensor, b: Tensor, truth: Tensor | None = None, largest: float = 0.0
    ) -> Compared:
        """Compare two tensors.

        Args:
            name: for the report.
            step: for the report.
            a: of the reference.
            b: of the candidate.
            truth: the reference's in float64; None where there is none.
            largest: value among tensors of this kind.
        """
        a, b = _of_one_dtype(a, b), _of_one_dtype(b, a)
        types = _kinds(a, b)
        a, b = dense(a), dense(b)
        shapes = "" if a.shape == b.shape else f"shape {[*a.shape]} against {[*b.shape]}"
        if shapes or a.is_complex() != b.is_complex():
            why = "; ".join(part for part in (types, shapes) if part)
            return Compared(name, step, DIFFERENT, float("inf"), share_outside=1.0, why=why)
        if not types and not self._nan(a) and _same_bits(a, b):
            return Compared(name, step, BIT_EQUAL)
        dtype = _coarser(a.dtype, b.dtype)
        x, y = _exactly(a), _exactly(b)
        error = torch.where(x == y, 0.0, (x - y).abs())
        both = torch.isnan(x) & torch.isnan(y)
        error = torch.where(both & self.equal_nan, 0.0, error.nan_to_num(nan=float("inf")))
        inside = error <= self._allowed(x, dtype, largest)
        size = x.abs()
        finite = torch.nan_to_num(size, nan=0.0, posinf=0.0)
        relative = torch.where(error == 0, 0.0, error / finite)
        share = 1.0 - float(inside.double().mean()) if inside.numel() else 0.0
        passed, why = share == 0.0, types
        if truth is not None and dtype in TOLERANCES and dtype is not torch.float64 and truth.shape == a.shape:
            passed, more = self._against(_exactly(truth.detach().cpu()), x, y, dtype, passed)
            why = "; ".join(part for part in (types, more) if part)
        missing = float(both.any()) and not self.equal_nan
        why = "; ".join(part for part in (why, "NaN in both" if missing else "") if part)
        norm = float(error.norm()) / max(float(finite.norm()), 1e-300) if error.numel() else 0.0
        worst, most = (float(part.max()) if part.numel() else 0.0 for part in (error, relative))
        return Compared(name, step, WITHIN if passed and not types else DIFFERENT, worst, most, norm, share, why)

    def _nan(self, a: Tensor) -> bool:
        """Whether there is a NaN that must not equal another."""
        return not self.equal_nan and (a.is_floating_point() or a.is_complex()) and bool(torch.isnan(a).any())

    def _allowed(self, x: Tensor, dtype: torch.dtype, largest: float) -> Tensor:
        relative, absolute = self.tolerances.get(dtype, (0.0, 0.0))
        size = torch.nan_to_num(x.abs(), nan=0.0, posinf=0.0)
        top = float(size.max()) if size.numel() else 0.0
        return relative * size + max(absolute * min(1.0, top), NOISE.get(dtype, 0.0) * largest * (relative > 0))

    @staticmethod
    def _against(t: Tensor, x: Tensor, y: Tensor, dtype: torch.dtype, close: bool) -> tuple[bool, str]:
        """Whether the candidate is about as exact as the reference, where float64 tells what is right."""
        own, other = (x - t).abs(), (y - t).abs()
        if not own.numel() or not bool(torch.isfinite(own).all() and torch.isfinite(other).all()):
            return close, ""
        unit = torch.finfo(dtype).eps * _rms(t)
        as_exact = _rms(other) <= max(AS_EXACT * _rms(own), unit)
        peak = float(other.max()) <= max(AS_EXACT * float(own.max()), unit)
        text = f"distance from float64 {_rms(other):.1e} (reference {_rms(own):.1e})"
        if dtype in LOW:
            return (close and as_exact) or (as_exact and peak), text
        return close or (as_exact and peak), "" if close else text


def _rms(t: Tensor) -> float:
    return float(t.square().mean().sqrt())


def _exactly(t: Tensor) -> Tensor:
    """In float64; complex numbers as pairs."""
    return torch.view_as_real(t.to(torch.complex128)).flatten() if t.is_complex() else t.double()


def _same_bits(a: Tensor, b: Tensor) -> bool:
    if a.numel() == 0:
        return True
    return torch.equal(*(t.resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8) for t in (a, b)))


def as_number(tensor: Tensor) -> Tensor:
    """Mark a tensor as made of a number of Python's, which has no dtype."""
    tensor._denizen_number = True  # type: ignore[attr-defined]
    return tensor


def _of_one_dtype(a: Tensor, b: Tensor) -> Tensor:
    """`a`; where it is a number of Python's, such as `loss.item()`, in the dtype of `b` if that is of its sort."""
    number, other = (getattr(tensor, "_denizen_number", False) for tensor in (a, b))
    alike = (a.is_floating_point(), a.is_complex(), a.dtype is torch.bool) == (
        b.is_floating_point(),
        b.is_complex(),
        b.dtype is torch.bool,
    )
    return a.to(b.dtype) if number and not other and alike else a


def _kinds(a: Tensor, b: Tensor) -> str:
    """What differs between the kinds of two tensors: whoever takes the one in the other's place would notice."""
    types = "" if a.dtype is b.dtype else f"dtype {_short(a.dtype)} against {_short(b.dtype)}"
    layouts = "" if a.layout is b.layout else f"layout {_short(a.layout)} against {_short(b.layout)}"
    return "; ".join(part for part in (types, layouts) if part)


def dense(tensor: Tensor) -> Tensor:
    """On the host, with a value for every place."""
    tensor = tensor.detach().cpu()
    if tensor.is_nested:
        return tensor.to_padded_tensor(0.0)
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _coarser(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """The dtype whose tolerance holds: the less exact one of two floating dtypes, else the floating one."""
    kinds = [kind.to_real() if kind.is_complex else kind for kind in (a, b)]
    floats = [kind for kind in kinds if kind.is_floating_point]
    return max(floats, key=lambda kind: torch.finfo(kind).eps) if floats else kinds[0]


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


MOST = 8  # rows of the table
DTYPES = (
    "where another precision is meant, have b give back the dtype of a (`.float()`) and say how near it should come: "
    "tolerances={torch.float32: (0.02, 0.02)}"
)
ORDER = (BIT_EQUAL, WITHIN, STATISTICALLY, DIFFERENT)


@dataclasses.dataclass
class Verdict(InNotebook):
    """Whether two implementations compute the same; print it.

    Attributes:
        mapping: how the weights were taken over.
        compared: every tensor, in the order in which it was compared.
        notes: what else was seen.
        steps: of training, or calls, that were done; those after the first difference are not.
        module: the first inner module, known by its name in both, whose output differs.
        seed: of random numbers.
        distribution: outcome over many seeds; None where it was not asked for, or needed.
    """

    mapping: str = ""
    compared: list[Compared] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    steps: int = 0
    module: str = ""
    seed: int = 0
    distribution: Compared | None = None

    @property
    def level(self) -> str:
        """``"bit-equal"``, ``"within tolerance"``, ``"statistically equal"`` or ``"different"``.

        That of the worst tensor; of the distributions where tensors differ and many seeds were tried.
        """
        worst = ORDER[max((ORDER.index(one.level) for one in self.compared), default=0)]
        return worst if worst != DIFFERENT or self.distribution is None else self.distribution.level

    @property
    def passed(self) -> bool:
        """Whether the candidate may take the reference's place unseen: never by statistics alone."""
        return bool(self.compared) and self.level in (BIT_EQUAL, WITHIN)

    @property
    def differences(self) -> list[Compared]:
        """Tensors that differ, the first one first."""
        return [one for one in self.compared if one.level == DIFFERENT]

    @property
    def first(self) -> Compared | None:
        """Where they first differ."""
        return next(iter(self.differences), None)

    def add(self, found: Compared, missing: Collection[str] = (), name: str = "") -> None:
        """Take a tensor in; a gradient that is None in the candidate is said to be."""
        if found.level == DIFFERENT and name in missing:
            found = dataclasses.replace(found, why="no gradient (None) in b")
        self.compared.append(found)
        if found.level == DIFFERENT and found.why.startswith("dtype "):
            self.note(DTYPES)

    def differs(self, step: int, name: str, why: str) -> None:
        """Something that is no tensor differs."""
        self.compared.append(Compared(name, step, DIFFERENT, why=why))

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes:
            self.notes.append(text)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; numbers that are not finite are None."""
        first = None if self.first is None else _plain(self.first)
        head = {"level": self.level, "passed": self.passed, "steps": self.steps, "seed": self.seed, "first": first}
        tail: dict[str, Any] = {"module": self.module, "mapping": self.mapping, "notes": self.notes}
        tail["distribution"] = None if self.distribution is None else _plain(self.distribution)
        return head | tail | {"compared": [_plain(one) for one in self.compared]}

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        first = self.first
        lines = [f"{self.level}: {len(self.compared):,} tensors compared, {self.steps} steps"]
        lines += [f"weights: {self.mapping}"] if self.mapping else []
        lines += [f"{self.distribution.name}: {self.distribution.why}"] if self.distribution is not None else []
        if first is not None:
            lines += [f"first difference: {first.name}, {_when(first.step)}: {_numbers(first)}"]
            lines += [f"first module whose output differs: {self.module}"] if self.module else []
            lines += [f"  also {one.name}, {_when(one.step)}: {_numbers(one)}" for one in self.differences[1:MOST]]
            rest = len(self.differences) - MOST
            lines += [f"  and {rest} more (verdict.differences)"] if rest > 0 else []
        elif self.level == WITHIN:
            worst = max(self.compared, key=lambda one: one.relative_norm)
            lines += [f"largest difference: {worst.name}, {_when(worst.step)}: {_numbers(worst)}"]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _when(step: int) -> str:
    return f"step {step}" if step else "before training"


def _numbers(one: Compared) -> str:
    if not one.max_error and not one.share_outside:
        return one.why or "equal"
    text = f"max error {one.max_error:.2g}, relative {one.max_relative:.2g} (norm {one.relative_norm:.2g})"
    text += f", {100 * one.share_outside:.3g} % outside" if one.level == DIFFERENT else ""
    return f"{text}; {one.why}" if one.why else text


def _plain(one: Compared) -> dict[str, Any]:
    items = dataclasses.asdict(one).items()
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in items}
