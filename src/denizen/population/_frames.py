"""From the records of `_pickle` to numpy columns: pandas Series, DataFrame, Index and numpy arrays, without pandas.

Each layout below was read off pickles written by pandas 1.5, 2.2 and 3.1 with numpy 1.26, 2.2 and 2.4. A layout that
is not known ends in a `DataError`; every buffer is compared with the size that its shape announces before it is used.
"""

import math
import re
from typing import Any

import numpy as np

from denizen.errors import DataError
from denizen.population._columns import Raw, categorical, strings
from denizen.population._pickle import Call, Name

_DTYPE = re.compile(r"(?:[biu][1248]|f[248]|O8?|U\d{1,6}|S\d{1,6})")
_WORDS = {"int64": "i8", "int32": "i4", "int16": "i2", "int8": "i1", "float64": "f8", "float32": "f4", "bool": "b1"}
_MAX_DEPTH = 12


class _Refused(Exception):
    """A layout that is not known; carries a phrase for the message."""


def columns_of(record: Any, origin: str, stem: str) -> dict[str, Raw]:
    """The columns that a pickle holds.

    Args:
        record: what `_pickle.read` returned.
        origin: the file's name, for messages.
        stem: the name of the only column of a Series, an Index or an array.

    Raises:
        DataError: the layout is not that of a pandas or numpy column.
    """
    try:
        if isinstance(record, Call) and record.name == "DataFrame":
            return _frame(record)
        return {stem: _values(record, 0)}
    except _Refused as refused:
        raise DataError(
            f"{origin}: {refused}; expected a pandas Series or DataFrame or a numpy array of numbers or strings. "
            "Convert the file to Parquet where it was written; nothing in it was run"
        ) from None


def index_of(record: Any) -> tuple[str, Raw] | None:
    """Name ("" for none) and values of the row index of a Series or DataFrame; None for 0, 1, 2, … or no plain one."""
    if not isinstance(record, Call) or record.name not in ("Series", "DataFrame"):
        return None
    try:
        state = _state(record)
        manager = state.get("_mgr", state.get("_data"))
        index = _axis(manager)
        if not isinstance(index, Call) or not isinstance(index.args[1], dict):
            return None
        fields = index.args[1]
        name = "" if fields.get("name") is None else str(fields["name"])
        if index.args[0].name == "RangeIndex":
            extent = _range(fields)
            if not name and (extent.start, extent.step) == (0, 1):
                return None
            if len(extent) != _rows_of(manager):  # four bytes must not ask for gigabytes
                return None
            return name, Raw(np.array(extent, dtype=np.int64))
        raw = _values(index, 1)
    except (_Refused, AttributeError, IndexError):
        return None
    if raw.values.ndim != 1 or (raw.labels is None and raw.values.dtype.kind not in "iuf"):
        return None
    return name, raw


def _axis(manager: Any) -> Any:
    """The last axis of a block manager, that of the rows."""
    if isinstance(manager.state, tuple) and manager.state:
        axes = manager.state[0]
    else:
        axes = manager.args[1] if len(manager.args) > 1 else None
    return axes[-1] if isinstance(axes, list | tuple) and axes else None


def _rows_of(manager: Any) -> int:
    values = _blocks(manager)[0][0]
    if isinstance(values, Call) and values.name in ("_frombuffer", "_reconstruct"):
        return _array(values).shape[-1]
    return len(_values(values, 1).values)


def _values(record: Any, depth: int) -> Raw:
    """One column, from any of the layouts that hold one."""
    if depth > _MAX_DEPTH:
        raise _Refused("its parts are nested too deeply")
    if isinstance(record, list | tuple):
        return _plain(list(record))
    if not isinstance(record, Call):
        raise _Refused(f"it holds a {type(record).__name__} where a column is expected")
    reader = _READERS.get(record.name)
    if reader is None:
        raise _Refused(f"it holds a {record.name} where a column is expected")
    return reader(record, depth)


def _plain(items: list[Any]) -> Raw:
    """A column from Python values."""
    items = [None if isinstance(item, Name | Call) and _is_missing(item) else item for item in items]
    kinds = {type(item) for item in items}
    if kinds <= {str, type(None)}:
        return strings(items)
    if kinds <= {bool, int} or kinds <= {bool, int, float, type(None)}:
        try:
            array = np.array([math.nan if item is None else item for item in items])
        except OverflowError:
            raise _Refused("an integer does not fit in 64 bits") from None
        if array.dtype.kind in "biuf":
            return Raw(array)
        raise _Refused("an integer does not fit in 64 bits")
    names = sorted(kind.__name__ for kind in kinds)
    raise _Refused(f"its values are of mixed or unknown types ({', '.join(names)})")


def _is_missing(item: Name | Call) -> bool:
    return item.name in ("NA", "_NA", "NAType")


def _state(record: Call) -> dict[str, Any]:
    if not isinstance(record.state, dict):
        raise _Refused(f"a {record.name} without content")
    return record.state


def _series(record: Call, depth: int) -> Raw:
    state = _state(record)
    manager = state.get("_mgr", state.get("_data"))
    blocks = _blocks(manager)
    if len(blocks) != 1:
        raise _Refused(f"a Series of {len(blocks)} blocks")
    return _values(blocks[0][0], depth + 1)


def _blocks(manager: Any) -> list[tuple[Any, Any]]:
    """(values, places) of each block of a block manager, in either of its two layouts."""
    if not isinstance(manager, Call) or manager.name not in ("SingleBlockManager", "BlockManager"):
        raise _Refused("a Series or DataFrame without its block manager")
    if isinstance(manager.state, tuple) and manager.state:
        for part in manager.state:
            if isinstance(part, dict) and isinstance(part.get("0.14.1"), dict):
                blocks = part["0.14.1"].get("blocks")
                if isinstance(blocks, list) and all(isinstance(block, dict) for block in blocks):
                    return [(block.get("values"), block.get("mgr_locs")) for block in blocks]
    elif manager.args and isinstance(manager.args[0], tuple | list):
        blocks = list(manager.args[0])
        if all(
            isinstance(block, Call) and block.name in ("_unpickle_block", "new_block") and len(block.args) >= 2
            for block in blocks
        ):
            return [(block.args[0], block.args[1]) for block in blocks]
    raise _Refused("a block manager of an unknown layout")


def _axes(manager: Call) -> Any:
    if isinstance(manager.state, tuple) and manager.state:
        axes = manager.state[0]
    else:
        axes = manager.args[1] if len(manager.args) > 1 else None
    if not isinstance(axes, list | tuple) or len(axes) != 2:
        raise _Refused("a DataFrame without axes")
    return axes[0]


def _frame(record: Call) -> dict[str, Raw]:
    state = _state(record)
    manager = state.get("_mgr", state.get("_data"))
    blocks = _blocks(manager)
    header = _values(_axes(manager), 1)
    names = header.texts()
    columns: dict[str, Raw] = {}
    for values, places in blocks:
        where = _places(places, len(names))
        for name, column in zip([names[k] for k in where], _block_rows(values, len(where)), strict=True):
            columns[name] = column
    if len(columns) != len(names):
        raise _Refused("a DataFrame whose blocks do not cover its columns")
    return {name: columns[name] for name in names}


def _places(places: Any, count: int) -> list[int]:
    """Which columns of the frame a block holds."""
    if isinstance(places, Call) and places.name == "slice" and len(places.args) == 3:
        bounds = places.args
        if all(part is None or isinstance(part, int) for part in bounds) and bounds[2] != 0:
            return list(range(count))[slice(*bounds)]
    elif isinstance(places, Call):
        array = _values(places, 1).values
        if array.dtype.kind in "iu" and array.ndim == 1 and all(0 <= k < count for k in array.tolist()):
            return [int(k) for k in array]
    raise _Refused("a block whose columns are not known")


def _block_rows(values: Any, rows: int) -> list[Raw]:
    """A block's columns: the rows of a 2-d array, or the one column of an extension array."""
    if isinstance(values, Call) and values.name in ("_frombuffer", "_reconstruct"):
        array = _array(values)
        if array.ndim == 2 and array.shape[0] == rows:
            return [_plain(row.tolist()) if array.dtype == object else Raw(np.ascontiguousarray(row)) for row in array]
        raise _Refused("a block of the wrong shape")
    if rows != 1:
        raise _Refused("a block of the wrong shape")
    return [_values(values, 1)]


def _range(fields: dict[str, Any]) -> range:
    start, stop, step = (fields.get(key) for key in ("start", "stop", "step"))
    if not (isinstance(start, int) and isinstance(stop, int) and isinstance(step, int)) or step == 0:
        raise _Refused("a RangeIndex without bounds")
    return range(start, stop, step)


def _range_index(fields: dict[str, Any]) -> Raw:
    extent = _range(fields)
    if len(extent) > 4096:  # only ever read as a frame's header; four bytes must not ask for gigabytes
        raise _Refused("a RangeIndex where values are expected")
    return Raw(np.array(extent, dtype=np.int64))


def _index(record: Call, depth: int) -> Raw:
    if len(record.args) != 2 or not isinstance(record.args[0], Name) or not isinstance(record.args[1], dict):
        raise _Refused("an Index of an unknown layout")
    kind, fields = record.args[0].name, record.args[1]
    if kind == "RangeIndex":
        return _range_index(fields)
    return _values(fields.get("data"), depth + 1)


def _array_column(record: Call, depth: int) -> Raw:
    array = _array(record)
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.ndim != 1:
        raise _Refused(f"an array of {array.ndim} dimensions")
    if array.dtype == object:
        return _plain(array.tolist())
    if array.dtype.kind in "US":
        return strings([str(item) for item in array.astype(str)])
    return Raw(array)


def _array(record: Any) -> np.ndarray:
    """A numpy array from either of numpy's two layouts, its size checked before anything is allocated."""
    if not isinstance(record, Call):
        raise _Refused("an array of an unknown layout")
    if record.name == "_frombuffer" and len(record.args) == 4:
        data, dtype, shape, order = record.args
        fortran = order == "F"
    elif record.name == "_reconstruct" and isinstance(record.state, tuple) and len(record.state) == 5:
        _, shape, dtype, fortran, data = record.state
    else:
        raise _Refused("an array of an unknown layout")
    kind = _dtype(dtype)
    if not isinstance(shape, tuple) or len(shape) > 2 or not all(type(n) is int and 0 <= n < 2**40 for n in shape):
        raise _Refused("an array of an unknown shape")
    count = math.prod(shape)
    if kind.hasobject:
        if not isinstance(data, list) or len(data) != count:
            raise _Refused(f"an array that announces {count} values and holds another number")
        flat = np.empty(count, dtype=object)
        flat[:] = [None if isinstance(item, Name | Call) and _is_missing(item) else _scalar(item) for item in data]
    else:
        data = _bytes(data)
        if len(data) != count * kind.itemsize:
            raise _Refused(f"an array that announces {count * kind.itemsize} bytes and holds {len(data)}")
        flat = np.frombuffer(data, dtype=kind).astype(kind.newbyteorder("="))
    return flat.reshape(shape, order="F" if fortran else "C")


def _scalar(item: Any) -> Any:
    """A value of an object array: a plain value, or a numpy scalar such as `numpy.int64(3)`."""
    if isinstance(item, Call) and item.name == "scalar" and len(item.args) == 2:
        kind, data = _dtype(item.args[0]), _bytes(item.args[1])
        if not kind.hasobject and len(data) == kind.itemsize:
            return np.frombuffer(data, dtype=kind)[0].item()
    if item is None or isinstance(item, str | int | float):
        return item
    raise _Refused(f"an array holds a {item.name if isinstance(item, Call | Name) else type(item).__name__}")


def _bytes(data: Any) -> bytes:
    """Bytes, also where protocol 2 spells them `encode(text, "latin1")`, `bytearray(bytes)` or `bytes()`."""
    if isinstance(data, Call) and data.name in ("bytearray", "bytes"):
        if not data.args:
            return b""
        data = data.args[0]
    if isinstance(data, Call) and data.name == "encode" and data.args and isinstance(data.args[0], str):
        try:
            return data.args[0].encode("latin1")
        except UnicodeEncodeError:
            raise _Refused("bytes that are not bytes") from None
    if isinstance(data, bytes):
        return data
    raise _Refused("an array without its bytes")


def _dtype(record: Any) -> np.dtype[Any]:
    if not isinstance(record, Call) or record.name != "dtype" or not record.args or not isinstance(record.args[0], str):
        raise _Refused("an array of an unknown type")
    code = _WORDS.get(record.args[0], record.args[0])
    if not _DTYPE.fullmatch(code):
        raise _Refused(f"an array of type {code[:20]!r}")
    big = isinstance(record.state, tuple) and len(record.state) > 1 and record.state[1] == ">"
    kind = np.dtype("O") if code.startswith("O") else np.dtype(code)
    return kind.newbyteorder(">") if big else kind


def _array_backed(record: Call, depth: int) -> Raw:
    """`Categorical`: codes and categories, as a tuple state (pandas 1.4 on) or as a dictionary."""
    parts: Any = record.state
    if isinstance(parts, dict):
        parts = (parts.get("_dtype"), parts.get("_ndarray", parts.get("_codes")))
    if not isinstance(parts, tuple) or len(parts) < 2:
        raise _Refused("a Categorical of an unknown layout")
    dtype, codes = parts[0], parts[1]
    if isinstance(dtype, Call) and dtype.name in ("_frombuffer", "_reconstruct"):
        dtype, codes = codes, dtype
    if isinstance(dtype, Call) and dtype.name == "StringDtype":  # pandas 1 and 2: a StringArray has the same layout
        return _array_column(codes, depth + 1)
    if not isinstance(dtype, Call) or dtype.name != "CategoricalDtype":
        raise _Refused("values of a type that is not known")
    labels = _values(_state(dtype).get("categories"), depth + 1).texts()
    array = _array(codes)
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
        raise _Refused("a Categorical whose codes are not integers")
    array = array.reshape(-1)
    if array.size and (array.max() >= len(labels) or array.min() < -1):
        raise _Refused("a Categorical with a code beyond its categories")
    return categorical(array, labels)


def _masked(record: Call, depth: int) -> Raw:
    """`IntegerArray`, `BooleanArray`, `FloatingArray`: values and a mask of the missing ones."""
    state = _state(record)
    values, mask = _array(state.get("_data")), _array(state.get("_mask"))
    if values.shape != mask.shape or values.ndim != 1 or mask.dtype != np.bool_ or values.dtype.kind not in "biuf":
        raise _Refused("a masked array of an unknown layout")
    return Raw(np.where(mask, math.nan, values) if mask.any() else values)


def _string_array(record: Call, depth: int) -> Raw:
    state = record.state
    if isinstance(state, tuple):
        arrays = [part for part in state if isinstance(part, Call) and part.name in ("_reconstruct", "_frombuffer")]
        return _values(arrays[0], depth + 1) if arrays else _values(None, depth)
    state = _state(record)
    return _values(state.get("_ndarray", state.get("_pa_array", state.get("_data"))), depth + 1)


def _chunked(record: Call, depth: int) -> Raw:
    if not record.args or not isinstance(record.args[0], list | tuple):
        raise _Refused("a chunked array of an unknown layout")
    texts: list[str | None] = []
    for chunk in record.args[0]:
        texts.extend(_arrow_texts(chunk))
    return strings(texts)


def _arrow(record: Call, depth: int) -> Raw:
    return strings(_arrow_texts(record))


def _arrow_texts(record: Any) -> list[str | None]:
    """The strings of an Arrow string array: validity bits, offsets, UTF-8 text.

    Layout: the Arrow columnar format, variable-size binary.
    """
    if not isinstance(record, Call) or record.name != "_restore_array" or not record.args:
        raise _Refused("an Arrow array of an unknown layout")
    parts = record.args[0] if len(record.args) == 1 else record.args
    if not isinstance(parts, tuple) or len(parts) < 5:
        raise _Refused("an Arrow array of an unknown layout")
    kind, length, _, offset, buffers = parts[:5]
    alias = kind.args[0] if isinstance(kind, Call) and kind.name == "type_for_alias" and kind.args else None
    if (
        alias not in ("large_string", "string", "large_utf8", "utf8")
        or not isinstance(buffers, list)
        or len(buffers) != 3
    ):
        raise _Refused("an Arrow array that does not hold strings")
    valid, bounds, text = (None if part is None else _arrow_buffer(part) for part in buffers)
    width = np.dtype("<i8" if str(alias).startswith("large") else "<i4")
    if type(length) is not int or type(offset) is not int or min(length, offset) < 0:
        raise _Refused("an Arrow array of an unknown length")
    if length == 0:
        return []
    text = text or b""
    end = length + offset
    if bounds is None or len(bounds) < (end + 1) * width.itemsize or (valid is not None and len(valid) * 8 < end):
        raise _Refused("an Arrow array longer than its buffers")
    marks = np.frombuffer(bounds, dtype=width, count=end + 1)[offset:]
    if marks[0] < 0 or marks[-1] > len(text) or (np.diff(marks) < 0).any():
        raise _Refused("an Arrow array whose offsets leave its text")
    try:
        texts: list[str | None] = [
            text[a:b].decode() for a, b in zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True)
        ]
    except UnicodeDecodeError:
        raise _Refused("a string that is not UTF-8") from None
    if valid is not None:
        present = np.unpackbits(np.frombuffer(valid, dtype=np.uint8), bitorder="little")[offset:end]
        texts = [item if bit else None for item, bit in zip(texts, present.tolist(), strict=True)]
    return texts


def _arrow_buffer(record: Any) -> bytes:
    if not isinstance(record, Call) or record.name != "py_buffer" or len(record.args) != 1:
        raise _Refused("an Arrow array of an unknown layout")
    return _bytes(record.args[0])


_READERS = {
    "Series": _series,
    "_new_Index": _index,
    "_frombuffer": _array_column,
    "_reconstruct": _array_column,
    "Categorical": _array_backed,
    "__pyx_unpickle_NDArrayBacked": _array_backed,
    "IntegerArray": _masked,
    "BooleanArray": _masked,
    "FloatingArray": _masked,
    "StringArray": _string_array,
    "ArrowStringArray": _string_array,
    "chunked_array": _chunked,
    "_restore_array": _arrow,
}
