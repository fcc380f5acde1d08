"""Operations on narrow integers whose numbers come out wrong without an error, and those that torch refuses.

`before` and `after` look at one call of a torch function as the author wrote it; under vmap they see the world's view.
"""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

NARROW = (torch.int8, torch.uint8, torch.int16)
_NOT = {"__invert__", "bitwise_not", "bitwise_not_"}
_FLOAT_ONLY = {"mean", "std", "var", "nanmean", "std_mean", "var_mean"}
_MATMUL = {"matmul", "__matmul__", "__rmatmul__", "mm", "mv", "dot", "bmm", "inner", "einsum"}
_BINARY = {"add", "sub", "mul", "__rsub__", "rsub", "subtract", "multiply", "pow", "__pow__", "__rpow__", "__lshift__"}
_OTHERS = {"neg", "__neg__", "square", "sum", "prod", "cumsum", "cumprod", "index_add", "scatter_add", "scatter_reduce"}
_IN_PLACE = {name + "_" for name in (*_BINARY, *_OTHERS)} | {"__iadd__", "__isub__", "__imul__"}
_CASTS = {"to", "char", "byte", "short", "type", "type_as"}
# Operations whose result is extreme where the operands are, on which `_fits` relies.
_CORNERS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "__rsub__": lambda x, y: y - x,
}
WATCHED = _NOT | _FLOAT_ONLY | _MATMUL | _BINARY | _OTHERS | _IN_PLACE | _CASTS


@dataclasses.dataclass(frozen=True)
class Hazard:
    """What is wrong with a call, and what to write instead."""

    what: str
    instead: str


def before(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hazard | None:
    """A hazard that shows before the call: from dtypes and constants alone."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    if not tensors:
        return None
    first = tensors[0]
    if name in _NOT and first.dtype in NARROW:
        zero, one = _flip(first.dtype, 0), _flip(first.dtype, 1)
        return Hazard(f"~ on {_short(first.dtype)} flips all bits: 0 becomes {zero} and 1 becomes {one}", "1 - mask")
    whole = not (first.dtype.is_floating_point or first.dtype.is_complex or kwargs.get("dtype"))
    if name in _FLOAT_ONLY and whole:
        what = f"torch has no {name} of {_short(first.dtype)}"
        return Hazard(what, f"mask.float().{name}(), or mask.sum() / mask.numel()")
    if name.strip("_") not in ("pow", "lshift") and (name in _BINARY or name in _IN_PLACE):
        return _constant(args)
    return None


def _constant(args: tuple[Any, ...]) -> Hazard | None:
    """A Python integer that does not fit the narrow dtype that the result will have."""
    operands = args[:2]
    numbers = [a for a in operands if isinstance(a, int) and not isinstance(a, bool)]
    tensors = [a for a in operands if isinstance(a, Tensor)]
    if len(numbers) != 1 or len(tensors) != 1 or tensors[0].dtype not in NARROW:
        return None
    dtype, number = tensors[0].dtype, numbers[0]
    info = torch.iinfo(dtype)
    if info.min <= number <= info.max:
        return None
    wrapped = (number - info.min) % 2**info.bits + info.min
    return Hazard(
        f"{number} does not fit {_short(dtype)} and wraps to {wrapped} without an error",
        f"mask.to(torch.int32) with {number}, or the float {float(number)}",
    )


def product(name: str, args: tuple[Any, ...]) -> Hazard | None:
    """A matrix product of narrow integers, which accumulates in the narrow dtype."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    if name in _MATMUL and tensors and all(t.dtype in NARROW for t in tensors):
        dtype = _short(tensors[0].dtype)
        return Hazard(
            f"{dtype} @ {dtype} adds up in {dtype} and wraps beyond {torch.iinfo(tensors[0].dtype).max}",
            "mask.float() @ …, or (a * b).sum(), whose sum is int64",
        )
    return None


def expected(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """For an in-place call on a narrow tensor: what it should write, computed wide; None for every other call."""
    if name not in _IN_PLACE or not isinstance(args[0], Tensor) or args[0].dtype not in NARROW:
        return None
    plain = "__" + name[3:] if name.startswith("__i") else name[:-1]
    return _wide(getattr(Tensor, plain, None), args, kwargs)


def after(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, wide: Any
) -> Hazard | None:
    """A narrow result whose numbers differ from those of the same call in int64."""
    if not isinstance(out, Tensor) or out.dtype not in NARROW:
        return None
    if name in _CASTS:
        return cast(args[0], out)
    if name in _FLOAT_ONLY or name in _NOT:
        return None
    if name in _CORNERS and not kwargs and _fits(_CORNERS[name], args, out.dtype):
        return None
    if name not in _IN_PLACE:
        wide = _wide(function, args, kwargs)
    if not isinstance(wide, Tensor) or wide.shape != out.shape or not _any(wide != out):
        return None
    info = torch.iinfo(out.dtype)
    what = f"{name.strip('_')} wraps around in {_short(out.dtype)}: a result lies outside {info.min} … {info.max}"
    return Hazard(what, "mask.to(torch.int32) or mask.float() first")


def cast(source: Any, out: Tensor) -> Hazard | None:
    """A cast to an integer that changes more than the fraction of a number."""
    if not isinstance(source, Tensor) or source.dtype == torch.bool or source.dtype == out.dtype:
        return None
    whole = source.detach().trunc() if source.dtype.is_floating_point else source
    if not _any(whole != out):
        return None
    info = torch.iinfo(out.dtype)
    return Hazard(
        f"the cast to {_short(out.dtype)} changes numbers: some lie outside {info.min} … {info.max} or are NaN",
        "clamp(…) first, or keep the wider dtype",
    )


def _wide(function: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def widen(value: Any) -> Any:
        if isinstance(value, Tensor) and not value.dtype.is_floating_point and value.dtype != torch.bool:
            return value.to(torch.int64)
        return torch.int64 if isinstance(value, torch.dtype) and value in NARROW else value

    if function is None:
        return None
    try:
        return function(*map(widen, args), **{k: widen(v) for k, v in kwargs.items() if k != "out"})
    except (RuntimeError, TypeError):
        return None  # nothing to compare with


def _fits(corner: Callable[[int, int], int], args: tuple[Any, ...], dtype: torch.dtype) -> bool:
    """Whether no result can leave the dtype, judged cheaply by the extremes of the operands."""
    if len(args) != 2 or not all(isinstance(a, Tensor) and a.numel() for a in args if not isinstance(a, int)):
        return False
    ranges = [(a, a) if isinstance(a, int) else [int(x) for x in torch.aminmax(plain(a))] for a in args]
    corners = [corner(x, y) for x in ranges[0] for y in ranges[1]]
    info = torch.iinfo(dtype)
    return info.min <= min(corners) and max(corners) <= info.max


def plain(tensor: Tensor) -> Tensor:
    """The tensor below vmap, which holds every world of a batch."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def _any(hit: Tensor) -> bool:
    """Read on the host whether anything is true, in any world."""
    return bool(plain(hit).any())


def _flip(dtype: torch.dtype, value: int) -> int:
    return -1 - value if dtype.is_signed else torch.iinfo(dtype).max - value


def _short(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")
