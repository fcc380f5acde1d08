"""Where threads wait for each other within compiled code, which holds no interpreter lock."""

import ctypes
import os
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic as _numba_intrinsic

from denizen.ops._cpu import _jit

intrinsic: Any = _numba_intrinsic
SPINS = 2_000  # looks at the gate before the processor is given to others
_ARRIVED, _ROUND, _OVER = 0, 8, 16  # entries of a gate, each in a line of the cache of its own
_YIELD = "denizen.yield"


def _do_nothing() -> int:
    return 0


_give_way = ctypes.CFUNCTYPE(ctypes.c_int)(_do_nothing)
if os.name == "posix":
    _give_way = ctypes.CDLL(None).sched_yield
llvmlite.binding.add_symbol(_YIELD, ctypes.cast(_give_way, ctypes.c_void_p).value)


def gate() -> np.ndarray:
    """What threads of one group meet at."""
    return np.zeros(24, np.int64)


def leave(at: np.ndarray) -> None:
    """Let nobody wait for this thread any more: `meet` raises in the others."""
    at[_OVER] = 1


def _pointer(context, builder, kind, array, place):  # type: ignore[no-untyped-def]
    made = context.make_array(kind)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, kind, made, [place], wraparound=False)


@intrinsic
def _add(context, array, place):  # type: ignore[no-untyped-def]
    """Adds 1 to an entry; what it was."""

    def write(context, builder, signature, values):  # type: ignore[no-untyped-def]
        at = _pointer(context, builder, signature.args[0], *values)
        return builder.atomic_rmw("add", at, ir.Constant(ir.IntType(64), 1), "acq_rel")

    return types.int64(array, types.intp), write


@intrinsic
def _load(context, array, place):  # type: ignore[no-untyped-def]
    def write(context, builder, signature, values):  # type: ignore[no-untyped-def]
        return builder.load_atomic(_pointer(context, builder, signature.args[0], *values), "acquire", 8)

    return types.int64(array, types.intp), write


@intrinsic
def _store(context, array, place, value):  # type: ignore[no-untyped-def]
    def write(context, builder, signature, values):  # type: ignore[no-untyped-def]
        builder.store_atomic(values[2], _pointer(context, builder, signature.args[0], *values[:2]), "release", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), write


@intrinsic
def _yield(context):  # type: ignore[no-untyped-def]
    def write(context, builder, signature, values):  # type: ignore[no-untyped-def]
        form = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, form, _YIELD), [])
        return context.get_dummy_value()

    return types.void(), write


@_jit
def meet(at, parts):
    """Wait until all of so many threads are here."""
    if parts == 1:
        return
    now = _load(at, _ROUND)
    if _add(at, _ARRIVED) == parts - 1:
        _store(at, _ARRIVED, 0)
        _store(at, _ROUND, now + 1)
        return
    looks = 0
    while _load(at, _ROUND) == now:
        looks += 1
        if looks > SPINS:
            if _load(at, _OVER) != 0:
                raise RuntimeError("another thread ended the step")
            _yield()


@_jit
def _added(of_parts, out, parts):
    for w in range(out.shape[0]):
        out[w] = of_parts[0, w]
        for p in range(1, parts):
            out[w] += of_parts[p, w]


@_jit
def _some(of_parts, out, parts):
    for w in range(out.shape[0]):
        out[w] = of_parts[0, w]
        for p in range(1, parts):
            out[w] |= of_parts[p, w]


@_jit
def _every(of_parts, out, parts):
    for w in range(out.shape[0]):
        out[w] = of_parts[0, w]
        for p in range(1, parts):
            out[w] &= of_parts[p, w]
