"""Arrays by address, calls by symbol, and what goes on between two steps, for native steps on the CPU."""

import llvmlite.binding
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from denizen.ops._cpu import _jit


@intrinsic
def whole(context, address, shape, dtype):
    """An array whose entries lie in order from an address on."""
    made = types.Array(dtype.dtype, shape.count, "C")

    def write(context, builder, signature, values):
        return _array(context, builder, made, values[0], values[1], None)

    return made(address, shape, dtype), write


@intrinsic
def strided(context, address, shape, strides, dtype):
    """An array of some strides, in bytes."""
    made = types.Array(dtype.dtype, shape.count, "A")

    def write(context, builder, signature, values):
        return _array(context, builder, made, values[0], values[1], values[2])

    return made(address, shape, strides, dtype), write


def _array(context, builder, made, address, shape, strides):
    array = make_array(made)(context, builder)
    size = context.get_abi_sizeof(context.get_data_type(made.dtype))
    sides = cgutils.unpack_tuple(builder, shape, made.ndim)
    if strides is None:
        steps, step = [], context.get_constant(types.intp, size)
        for side in reversed(sides):
            steps.insert(0, step)
            step = builder.mul(step, side)
    else:
        steps = cgutils.unpack_tuple(builder, strides, made.ndim)
    data = builder.inttoptr(address, array.data.type)
    populate_array(array, data=data, shape=sides, strides=steps, itemsize=size, meminfo=None)
    return array._getvalue()


@intrinsic
def invoke(context, function, given):
    """A compiled function's result, by its symbol; what it raises goes on."""
    types_given = tuple(types.unliteral(one) for one in given.types)
    function.dispatcher.compile(types_given)
    compiled = function.dispatcher.overloads[types_given]
    name, result = compiled.fndesc.llvm_func_name, compiled.signature.return_type
    symbol = f"denizen.{name}"
    llvmlite.binding.add_symbol(symbol, compiled.library.get_pointer_to_function(name))

    def write(context, builder, signature, values):
        form = context.call_conv.get_function_type(result, types_given)
        called = cgutils.get_or_insert_function(builder.module, form, symbol)
        parts = cgutils.unpack_tuple(builder, values[1], len(types_given))
        status, out = context.call_conv.call_function(builder, called, result, types_given, parts)
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return out

    return result(function, given), write


@_jit
def moved(addresses, moves, buffers, counter, number):
    """After a step: what came out goes in, into one buffer and the other by turns; records lie one after the other.

    Args:
        addresses: of each buffer.
        moves: int64 `[outputs, 3]`: buffers that go out and come in, or -1, and the bytes of a record.
        buffers: addresses for what goes out, `[outputs, 2]`.
        counter: int64 `[1]`, the step.
        number: of this time.
    """
    for k in range(moves.shape[0]):
        out, into = moves[k, 0], moves[k, 1]
        if into >= 0:
            addresses[into] = addresses[out]
            addresses[out] = buffers[k, (number + 1) & 1]
        else:
            addresses[out] += moves[k, 2]
    counter[0] += 1


@_jit
def _clear(x):
    for i in range(x.shape[0]):
        x[i] = 0


@_jit
def _copy(to, x):
    for i in range(x.shape[0]):
        to[i] = x[i]
