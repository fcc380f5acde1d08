"""A pickle reader that cannot run anything: it executes no code, imports nothing and calls nothing.

A pickle is a program for a small stack machine, and two of its instructions import a name and call it. This module
runs the machine itself instead of using Python's `pickle`: a known name becomes an inert `Call` record, and
"call" only notes the arguments in it. An unknown name ends the reading. `_frames` turns the records into columns.

Every count in the file is checked against the bytes that are left, so memory stays within a constant factor of
the file's size. What it does not do: protocols 0 and 1, out-of-band buffers, extension codes, persistent ids.
"""

import struct
from collections.abc import Callable
from typing import Any

from denizen.errors import DataError

_ARRAY_MODULES = ("numpy.core", "numpy._core")
_PANDAS = {
    "Series": ("pandas", "pandas.core.series"),
    "DataFrame": ("pandas", "pandas.core.frame"),
    "Index": ("pandas", "pandas.core.indexes.base"),
    "RangeIndex": ("pandas", "pandas.core.indexes.range"),
    "Int64Index": ("pandas", "pandas.core.indexes.numeric"),
    "Float64Index": ("pandas", "pandas.core.indexes.numeric"),
    # an index of dates is skipped, but a Series of observed cases often has one
    "DatetimeIndex": ("pandas", "pandas.core.indexes.datetimes"),
    "_new_DatetimeIndex": ("pandas.core.indexes.datetimes",),
    "DatetimeArray": ("pandas", "pandas.arrays", "pandas.core.arrays.datetimes"),
    "PeriodIndex": ("pandas", "pandas.core.indexes.period"),
    "MultiIndex": ("pandas", "pandas.core.indexes.multi"),
    "Day": ("pandas._libs.tslibs.offsets",),
    "Week": ("pandas._libs.tslibs.offsets",),
    "_new_Index": ("pandas.core.indexes.base",),
    "SingleBlockManager": ("pandas.core.internals.managers",),
    "BlockManager": ("pandas.core.internals.managers",),
    "_unpickle_block": ("pandas._libs.internals",),
    "new_block": ("pandas.core.internals.blocks",),
    "Categorical": ("pandas", "pandas.core.arrays.categorical"),
    "CategoricalDtype": ("pandas", "pandas.core.dtypes.dtypes"),
    "StringDtype": ("pandas", "pandas.core.arrays.string_"),
    "StringArray": ("pandas.arrays", "pandas.core.arrays.string_"),
    "ArrowStringArray": ("pandas.arrays", "pandas.core.arrays.string_arrow"),
    "IntegerArray": ("pandas.arrays", "pandas.core.arrays.integer"),
    "BooleanArray": ("pandas.arrays", "pandas.core.arrays.boolean"),
    "FloatingArray": ("pandas.arrays", "pandas.core.arrays.floating"),
    "__pyx_unpickle_NDArrayBacked": ("pandas._libs.arrays",),
    "NAType": ("pandas._libs.missing",),
    "_NA": ("pandas._libs.missing",),
    "NA": ("pandas", "pandas._libs.missing"),
}
_PANDAS |= {
    f"{kind}{bits}Dtype": ("pandas", "pandas.core.arrays.integer")
    for kind in ("Int", "UInt")
    for bits in (8, 16, 32, 64)
}
_PANDAS |= {f"Float{bits}Dtype": ("pandas", "pandas.core.arrays.floating") for bits in (32, 64)}
_PANDAS |= {"BooleanDtype": ("pandas", "pandas.core.arrays.boolean")}
_OTHER = {
    "dtype": ("numpy",),
    "ndarray": ("numpy",),
    "_reconstruct": tuple(f"{module}.multiarray" for module in _ARRAY_MODULES),
    "scalar": tuple(f"{module}.multiarray" for module in _ARRAY_MODULES),
    "_frombuffer": tuple(f"{module}.numeric" for module in _ARRAY_MODULES),
    "encode": ("_codecs",),
    "slice": ("builtins", "__builtin__"),
    "bytearray": ("builtins", "__builtin__"),
    "bytes": ("builtins", "__builtin__"),
    "_restore_array": ("pyarrow.lib",),
    "type_for_alias": ("pyarrow.lib",),
    "py_buffer": ("pyarrow.lib",),
    "chunked_array": ("pyarrow.lib",),
}
ALLOWED = frozenset((module, name) for name, modules in (_PANDAS | _OTHER).items() for module in modules)
"""The (module, name) pairs that a pickle may mention. Each is noted, none is imported."""


class Name:
    """A mentioned name, for example `Series`. Nothing was imported."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Call:
    """The record of a call that did not happen: `name(*args)`, then `state` handed to the result."""

    __slots__ = ("args", "name", "state")

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        self.name = name
        self.args = args
        self.state: Any = None


class _Mark:
    """Where a group of stack entries begins."""


_MARK = _Mark()
_STOP = 0x2E
_KEYS = (str, int, float, type(None))


class _Reader:
    """The stack machine over one file's bytes."""

    def __init__(self, data: bytes, origin: str) -> None:
        self.data = data
        self.origin = origin
        self.position = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def error(self, what: str) -> DataError:
        return DataError(f"{self.origin} is not a pickle that can be read safely: {what}; nothing in it was run")

    def run(self) -> Any:
        data, stack, memo = self.data, self.stack, self.memo
        size = len(data)
        while self.position < size:
            code = data[self.position]
            self.position += 1
            if code == _STOP:
                return self.pop()
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise self.error(f"instruction {code:#04x} at byte {self.position - 1} is not allowed")
            if operation is _memoize:  # the two commonest instructions of a column of strings, inline
                if not stack:
                    raise self.error("its stack is empty")
                memo[len(memo)] = stack[-1]
            else:
                operation(self)
        raise self.error("the file ends too early")

    def take(self, count: int) -> bytes:
        end = self.position + count
        if count < 0 or end > len(self.data):
            raise self.error(f"{count} bytes are announced at byte {self.position}, more than the file holds")
        chunk = self.data[self.position : end]
        self.position = end
        return chunk

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        end = self.data.find(b"\n", self.position, self.position + 256)
        if end < 0:
            raise self.error("a name does not end")
        text = self.text(self.take(end - self.position))
        self.position += 1
        return text

    def text(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.error("a string is not UTF-8") from None

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise self.error("its stack is empty")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise self.error(f"a {kind.__name__} is expected at byte {self.position}")
        return self.stack[-1]

    def group(self) -> list[Any]:
        stack = self.stack
        for place in range(len(stack) - 1, -1, -1):
            if stack[place] is _MARK:
                items = stack[place + 1 :]
                del stack[place:]
                return items
        raise self.error("a group has no beginning")

    def name(self, module: Any, name: Any) -> Name:
        if not isinstance(module, str) or not isinstance(name, str):
            raise self.error("a name is not a string")
        if (module, name) not in ALLOWED:
            raise self.error(f"it asks for {module[:80]}.{name[:80]}, which no column of a population needs")
        return Name(name)

    def call(self, function: Any, args: Any) -> Call:
        if not isinstance(function, Name) or not isinstance(args, tuple):
            raise self.error("it calls something that is not a known name")
        return Call(function.name, args)

    def fetch(self, key: int) -> Any:
        if key not in self.memo:
            raise self.error(f"it refers to object {key}, which it has not defined")
        return self.memo[key]

    def put(self, key: int) -> None:
        self.memo[key] = self.top(object)

    def set_items(self, target: dict[Any, Any], items: list[Any]) -> None:
        if len(items) % 2:
            raise self.error("a dictionary has a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, _KEYS):  # hashing nested tuples can take for ever
                raise self.error(f"a dictionary has a key of type {type(key).__name__}")
            target[key] = value

    def integer(self, raw: bytes) -> int:
        if len(raw) > 16:
            raise self.error(f"an integer of {len(raw)} bytes is not an attribute of an agent")
        return int.from_bytes(raw, "little", signed=True)


def _memoize(reader: _Reader) -> None:
    reader.put(len(reader.memo))


def _proto(reader: _Reader) -> None:
    if reader.number("B") > 5:
        raise reader.error("it uses a protocol above 5")


def _frame(reader: _Reader) -> None:
    if reader.number("<Q") > len(reader.data) - reader.position:
        raise reader.error("a frame is longer than the file")


def _push_mark(reader: _Reader) -> None:
    reader.stack.append(_MARK)


def _drop(reader: _Reader) -> None:
    if not reader.stack:
        raise reader.error("its stack is empty")
    reader.stack.pop()


def _drop_group(reader: _Reader) -> None:
    reader.group()


def _push_group(kind: Callable[[list[Any]], Any]) -> Callable[[_Reader], None]:
    def operation(reader: _Reader) -> None:
        reader.stack.append(kind(reader.group()))

    return operation


def _push(value: Callable[[_Reader], Any]) -> Callable[[_Reader], None]:
    def operation(reader: _Reader) -> None:
        reader.stack.append(value(reader))

    return operation


def _push_tuple(count: int) -> Callable[[_Reader], None]:
    def operation(reader: _Reader) -> None:
        items = [reader.pop() for _ in range(count)]
        reader.stack.append(tuple(reversed(items)))

    return operation


def _append(reader: _Reader) -> None:
    item = reader.pop()
    reader.top(list).append(item)


def _appends(reader: _Reader) -> None:
    items = reader.group()
    reader.top(list).extend(items)


def _set_item(reader: _Reader) -> None:
    value, key = reader.pop(), reader.pop()
    reader.set_items(reader.top(dict), [key, value])


def _set_items(reader: _Reader) -> None:
    items = reader.group()
    reader.set_items(reader.top(dict), items)


def _global(reader: _Reader) -> Name:
    module = reader.line()
    return reader.name(module, reader.line())


def _stack_global(reader: _Reader) -> Name:
    name, module = reader.pop(), reader.pop()
    return reader.name(module, name)


def _reduce(reader: _Reader) -> Call:
    args, function = reader.pop(), reader.pop()
    return reader.call(function, args)


def _build(reader: _Reader) -> None:
    state = reader.pop()
    reader.top(Call).state = state


def _dict_of(reader: _Reader) -> dict[Any, Any]:
    target: dict[Any, Any] = {}
    reader.set_items(target, reader.group())
    return target


_OPERATIONS: dict[int, Callable[[_Reader], None]] = {
    0x80: _proto,
    0x95: _frame,
    ord("("): _push_mark,
    ord("0"): _drop,
    ord("1"): _drop_group,
    ord("N"): _push(lambda reader: None),
    0x88: _push(lambda reader: True),
    0x89: _push(lambda reader: False),
    ord("J"): _push(lambda reader: reader.number("<i")),
    ord("K"): _push(lambda reader: reader.number("B")),
    ord("M"): _push(lambda reader: reader.number("<H")),
    0x8A: _push(lambda reader: reader.integer(reader.take(reader.number("B")))),
    ord("G"): _push(lambda reader: reader.number(">d")),
    ord("X"): _push(lambda reader: reader.text(reader.take(reader.number("<I")))),
    0x8C: _push(lambda reader: reader.text(reader.take(reader.number("B")))),
    0x8D: _push(lambda reader: reader.text(reader.take(reader.number("<Q")))),
    ord("B"): _push(lambda reader: reader.take(reader.number("<I"))),
    ord("C"): _push(lambda reader: reader.take(reader.number("B"))),
    0x8E: _push(lambda reader: reader.take(reader.number("<Q"))),
    0x96: _push(lambda reader: reader.take(reader.number("<Q"))),
    ord("]"): _push(lambda reader: []),
    ord("}"): _push(lambda reader: {}),
    ord(")"): _push(lambda reader: ()),
    0x85: _push_tuple(1),
    0x86: _push_tuple(2),
    0x87: _push_tuple(3),
    ord("t"): _push_group(tuple),
    ord("l"): _push_group(list),
    ord("d"): _push(_dict_of),
    ord("a"): _append,
    ord("e"): _appends,
    ord("s"): _set_item,
    ord("u"): _set_items,
    ord("h"): _push(lambda reader: reader.fetch(reader.number("B"))),
    ord("j"): _push(lambda reader: reader.fetch(reader.number("<I"))),
    ord("q"): lambda reader: reader.put(reader.number("B")),
    ord("r"): lambda reader: reader.put(reader.number("<I")),
    0x94: _memoize,
    ord("c"): _push(_global),
    0x93: _push(_stack_global),
    ord("R"): _push(_reduce),
    0x81: _push(_reduce),
    ord("b"): _build,
}


def read(data: bytes, origin: str) -> Any:
    """The object that a pickle describes, made of plain values, `Name` and `Call` records.

    Args:
        data: the file's bytes, protocol 2 to 5.
        origin: the file's name, for messages.

    Raises:
        DataError: the pickle is broken, or mentions a name that is not in `ALLOWED`.
    """
    return _Reader(data, origin).run()
