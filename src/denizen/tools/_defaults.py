"""Global switches of torch that most training loops want, set in one place, told, and taken back."""

import dataclasses
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from denizen.perf.watch import tf32_switch

TENSOR_CORES = (8, 0)  # compute capability from which TF32 exists


@dataclasses.dataclass(frozen=True)
class FastDefaults:
    """What `set_fast_defaults` did; also a context manager that takes it back at its end.

    Attributes:
        changed: name of each switch that got another value -> (before, now).
        skipped: name of each switch that was left alone -> why.
    """

    changed: dict[str, tuple[Any, Any]]
    skipped: dict[str, str]
    _undo: list[Callable[[], None]] = dataclasses.field(repr=False, default_factory=list)

    def undo(self) -> None:
        """Give every changed switch its former value; a second call does nothing."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> "FastDefaults":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def __str__(self) -> str:
        lines = [f"{name}: {before} -> {now}" for name, (before, now) in self.changed.items()]
        lines += [f"{name}: left alone, {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


def set_fast_defaults(tf32: bool = True, benchmark: bool = True) -> FastDefaults:
    """Let float32 matrix products and convolutions use TF32, and let cuDNN try its algorithms out.

    TF32 rounds the factors of a product to 10 bits of mantissa (relative error up to 5e-4 for each) and adds up in
    float32. `cudnn.benchmark` tries algorithms at the first call of each shape: it pays where shapes repeat, and costs
    where they change all the time. Both are off on AMD, where TF32 is experimental and the trials are slow, and nothing
    is touched without a CUDA device.

    Args:
        tf32: use TF32 where the card has it (Ampere and later).
        benchmark: set ``torch.backends.cudnn.benchmark``.

    Returns:
        What was changed; ``undo()`` takes it back, and so does the end of a ``with`` block.
    """
    done = FastDefaults({}, {})
    wanted = {"tf32": tf32, "benchmark": benchmark}
    for name, owner, field, now, kind in _switches():
        why = "not asked for" if not wanted[kind] else _why_not(kind)
        if why:
            done.skipped[name] = why
            continue
        before = getattr(owner, field)
        if before != now:
            setattr(owner, field, now)
            done.changed[name] = (before, now)
            done._undo.append(lambda owner=owner, field=field, before=before: setattr(owner, field, before))
    return done


def _switches() -> list[tuple[str, Any, str, Any, str]]:
    """(name, object, attribute, value to set, kind of switch)."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return [
        ("torch.backends.cuda.matmul", matmul, *tf32_switch(matmul), "tf32"),
        ("torch.backends.cudnn", cudnn, *tf32_switch(cudnn), "tf32"),
        ("torch.backends.cudnn.benchmark", cudnn, "benchmark", True, "benchmark"),
    ]


def _why_not(kind: str) -> str:
    """Why a switch had better stay as it is on this machine; empty where it had not."""
    if torch.version.hip is not None:
        return "off on AMD"
    if not torch.cuda.is_available():
        return "no CUDA device"
    capability = torch.cuda.get_device_capability()
    if kind == "tf32" and capability < TENSOR_CORES:
        return f"compute capability {capability[0]}.{capability[1]} has no TF32, which begins with 8.0"
    return ""
