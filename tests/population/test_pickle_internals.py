"""The pickle reader: what it reads, and that a pickle can make it run nothing."""

import base64
import builtins
import contextlib
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from denizen.errors import DataError
from denizen.population import _frames, _pickle, load

STORED = json.loads((Path(__file__).parent / "pickles.json").read_text())
EXPECTED = {
    "int": {"x": ([1, 2, 3], None)},
    "str": {"x": ([1, 0], ("a", "b"))},
    "cat": {"x": ([0, 1, 0], ("a", "b"))},
    "df": {"a": ([1, 2], None), "b": ([0, 1], ("x", "y")), "c": ([0.1, 0.2], None), "d": ([3, 4], None)},
    "Int": {"x": ([1, 2], None)},
    "strpy": {"x": ([0, 1], ("a", "b"))},
    "strpa": {"x": ([0, 1], ("a", "b"))},
    "scal": {"x": ([3, 4], None)},
    "big": {"x": ([1, 2], None)},
    "idx": {"x": ([1, 2], None)},
}


def read(data: bytes) -> dict[str, tuple[list, tuple[str, ...] | None]]:
    columns = _frames.columns_of(_pickle.read(data, "x.pickle"), "x.pickle", "x")
    return {name: (raw.values.tolist(), raw.labels) for name, raw in columns.items()}


def unpack(name: str) -> bytes:
    return zlib.decompress(base64.b64decode(STORED[name]))


@pytest.mark.parametrize("name", STORED)
def test_reads_pickles_of_older_versions(name):
    assert read(unpack(name)) == EXPECTED[name.split(", ")[2]]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_reads_pickles_of_the_installed_pandas(protocol):
    pandas = pytest.importorskip("pandas", reason="pandas writes the pickles of this test")
    columns = {
        "int": (pandas.Series([1, 2, 3]), ([1, 2, 3], None)),
        "str": (pandas.Series(["b", "a", "b"]), ([1, 0, 1], ("a", "b"))),
        "object": (pandas.Series(["b", None], dtype=object), ([0, -1], ("b",))),
        "long": (pandas.Series(["b", "a"] * 300, index=range(5, 605)), ([1, 0] * 300, ("a", "b"))),
        "category": (pandas.Series(["x", "w"]).astype(pandas.CategoricalDtype(["x", "w"])), ([0, 1], ("x", "w"))),
        "bool": (pandas.Series([True, False]), ([True, False], None)),
        "dates": (pandas.Series([1.0, 2.0], index=pandas.date_range("2020", periods=2, freq="W")), ([1.0, 2.0], None)),
        "index": (pandas.Index([4, 5]), ([4, 5], None)),
    }
    for name, (column, expected) in columns.items():
        assert read(pickle.dumps(column, protocol)) == {"x": expected}, name
    frame = pandas.DataFrame({"a": [1, 2], "b": ["p", "q"], "c": [3, 4], "d": [1.5, 2.5]})
    assert read(pickle.dumps(frame, protocol)) == {
        "a": ([1, 2], None),
        "b": ([0, 1], ("p", "q")),
        "c": ([3, 4], None),
        "d": ([1.5, 2.5], None),
    }


def test_plain_row_numbers_are_no_index():
    pandas = pytest.importorskip("pandas", reason="pandas writes the pickles of this test")
    plain = pandas.DataFrame({"age": [1, 2, 3]})
    assert _frames.index_of(_pickle.read(pickle.dumps(plain), "x")) is None
    assert _frames.index_of(_pickle.read(pickle.dumps(plain.iloc[[2, 0, 1]]), "x")) is not None


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(5, dtype=np.uint8),
        np.array([-1, 2**40]),
        np.array([1, 2], dtype=">i4"),
        np.array([0.5, 1.5], dtype=np.float32),
        np.asfortranarray(np.arange(3).reshape(3, 1)),
        np.arange(10)[::2],
        np.zeros(0, dtype=np.int64),
    ],
    ids=str,
)
def test_reads_numpy_arrays(array, protocol):
    assert read(pickle.dumps(array, protocol)) == {"x": (array.reshape(-1).tolist(), None)}


def call(module: str, name: str, *args: object) -> bytes:
    """A protocol 4 pickle that calls a function by name."""
    body = pickle.dumps(args, 4)[2:-1]
    if body[:1] == b"\x95":  # drop the frame, its length no longer fits
        body = body[9:]
    short = b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name))
    return b"\x80\x04" + short + b"\x93" + body + b"R."


GADGETS = {
    "os.system": call("os", "system", "touch CANARY"),
    "posix.system": call("posix", "system", "touch CANARY"),
    "old os.system": b"cos\nsystem\n(S'touch CANARY'\ntR.",
    "protocol 2 os.system": b"\x80\x02cos\nsystem\nX\x0c\x00\x00\x00touch CANARY\x85R.",
    "eval": call("builtins", "eval", "open('CANARY', 'w')"),
    "exec": call("builtins", "exec", "open('CANARY', 'w')"),
    "open": call("builtins", "open", "CANARY", "w"),
    "getattr": call("builtins", "getattr", "x", "__class__"),
    "dotted name": call("numpy", "dtype.__init__.__globals__"),
    "dotted array": call("numpy", "ndarray.tofile", "CANARY"),
    "subprocess": call("subprocess", "Popen", "touch CANARY"),
    "numpy.load": call("numpy", "load", "x.npy"),
    "numpy.fromfile": call("numpy", "fromfile", "x.npy"),
    "numpy.memmap": call("numpy", "memmap", "CANARY"),
    "numpy f2py": call("numpy.f2py", "compile", "x"),
    "numpy exec_command": call("numpy.distutils.exec_command", "exec_command", "touch CANARY"),
    "numpy runstring": call("numpy.testing._private.utils", "runstring", "open('CANARY','w')", {}),
    "pandas read_pickle": call("pandas", "read_pickle", "x"),
    "pandas eval": call("pandas", "eval", "1"),
    "pandas unpickle helper": call("pandas.compat.pickle_compat", "load", "x"),
    "import": call("importlib", "import_module", "antigravity"),
    "copyreg": call("copyreg", "_reconstructor", 1, 2, 3),
    "torch": call("torch.storage", "_load_from_bytes", b"x"),
    "pickle in pickle": call("pickle", "loads", b"x"),
    "operator": call("operator", "attrgetter", "x"),
    "codecs open": call("codecs", "open", "CANARY", "w"),
    "persistent id": b"\x80\x04\x8c\x01xQ.",
    "text persistent id": b"Px\n.",
    "extension code": b"\x80\x02\x82\x01.",
    "instance": b"(ios\nsystem\n.",
    "object": b"(cos\nsystem\no.",
    "buffer": b"\x80\x05\x97.",
    "newobj_ex": b"\x80\x04\x8c\x05numpy\x8c\x07ndarray\x93)}\x92.",
}


@pytest.mark.parametrize("gadget", GADGETS)
def test_a_hostile_pickle_runs_nothing(gadget, tmp_path, monkeypatch):
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("the reader called something")

    folder = tmp_path / "people"
    folder.mkdir()
    (folder / "age.pickle").write_bytes(GADGETS[gadget])
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "system", forbidden)
        patch.setattr(subprocess, "Popen", forbidden)
        patch.setattr(builtins, "eval", forbidden)
        with pytest.raises(DataError, match=r"age\.pickle.*nothing in it was run"):
            load(folder)
    assert not (tmp_path / "CANARY").exists()


def test_the_message_names_what_was_asked_for():
    with pytest.raises(DataError, match=r"os\.system"):
        _pickle.read(GADGETS["os.system"], "age.pickle")


@pytest.mark.parametrize(("module", "name"), sorted(_pickle.ALLOWED))
def test_allowed_names_only_make_records(module, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = _pickle.read(call(module, name, "CANARY", {"__class__": 1}), "x.pickle")
    assert type(record) is _pickle.Call
    assert record.args == ("CANARY", {"__class__": 1})
    with pytest.raises(DataError):
        _frames.columns_of(record, "x.pickle", "x")
    assert not list(tmp_path.iterdir())


def test_a_state_is_noted_and_never_applied():
    hostile = call("pandas", "Series")[:-1] + b"}\x8c\x09__class__\x8c\x02os\x8c\x04nope\x86sb."
    record = _pickle.read(hostile, "x.pickle")
    assert type(record) is _pickle.Call
    assert record.state == {"__class__": ("os", "nope")}


def test_calling_a_result_is_refused():
    inner = call("numpy", "dtype", "i8")[:-1]
    with pytest.raises(DataError, match="not a known name"):
        _pickle.read(inner + b")R.", "x.pickle")


def nested(levels: int) -> bytes:
    return b"\x80\x04)" + b"\x85" * levels


BOMBS = {
    "bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x.",
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b"x.",
    "string": b"\x80\x04\x8d" + struct.pack("<Q", 2**63) + b"x.",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 2**50) + b"N.",
    "memo index": b"\x80\x02Nr" + struct.pack("<I", 2**32 - 1) + b"0N.",
    "array shape": call("numpy._core.numeric", "_frombuffer", b"", "i8", (2**39,), "C"),
    "range": call("pandas.core.indexes.base", "_new_Index", "RangeIndex", {"start": 0, "stop": 2**60, "step": 1}),
    "doubling tuples": b"\x80\x04)" + b"\x94h\x00\x86" * 100 + b".",
    "hash of doubling tuples": b"\x80\x04})" + b"\x942\x86" * 60 + b"Ns.",
    "hash by memo": b"\x80\x04}" + b")" + b"".join(b"\x94h%c\x86" % k for k in range(60)) + b"Ns.",
    "deep tuples": nested(200_000) + b".",
    "long integer": b"\x80\x02\x8b" + struct.pack("<i", 10**6) + b"\xff" * 10**6 + b".",
    "cycle": b"\x80\x04]\x94h\x00a.",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_cost_neither_time_nor_memory(bomb, tmp_path):
    (tmp_path / "age.pickle").write_bytes(BOMBS[bomb])
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(DataError):
        load(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * len(BOMBS[bomb]) + 2**22
    assert time.process_time() - start < 5.0


def test_array_sizes_are_compared_with_their_bytes():
    good = pickle.dumps(np.arange(4), 5)
    assert good.count(b"K\x04\x85") == 1
    with pytest.raises(DataError, match="announces 40 bytes and holds 32"):
        read(good.replace(b"K\x04\x85", b"K\x05\x85"))


@given(st.binary(max_size=200))
@example(b"].")  # the pickle of an empty list, a column without rows
@settings(max_examples=300)
def test_random_bytes_end_in_a_data_error_or_are_a_plain_list(data):
    try:
        columns = read(data)
    except DataError:
        return
    assert list(columns) == ["x"]


OPCODES = bytes(sorted(set(_pickle._OPERATIONS) | {ord(".")}))


@given(st.lists(st.sampled_from([bytes([code]) for code in OPCODES] + [b"\x01", b"numpy", b"\n"]), max_size=60))
@settings(max_examples=500)
def test_random_programs_end_in_a_data_error_or_a_column(parts):
    with contextlib.suppress(DataError):
        read(b"\x80\x04" + b"".join(parts) + b".")


@pytest.mark.parametrize("name", [name for name in STORED if "1.5.3" not in name])
def test_flipped_bytes_end_in_a_data_error_or_a_column(name, tmp_path):
    data, rng = unpack(name), random.Random(name)
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(data))] = rng.randrange(256)
        cut = broken[: rng.randrange(len(broken))] if rng.random() < 0.2 else broken
        (tmp_path / "age.pickle").write_bytes(cut)
        with contextlib.suppress(DataError):
            load(tmp_path)


@pytest.mark.real
def test_flipped_bytes_of_real_pickles(data_root, tmp_path):
    rng = random.Random(0)
    for path in sorted((data_root / "sample").glob("*.pickle")):
        data = path.read_bytes()
        for _ in range(40):
            broken = bytearray(data)
            place = rng.choice([rng.randrange(400), len(data) - 1 - rng.randrange(400)])
            broken[place] ^= 1 << rng.randrange(8)
            (tmp_path / "age.pickle").write_bytes(broken)
            with contextlib.suppress(DataError):
                load(tmp_path)


def test_reading_needs_neither_pandas_nor_pickle():
    code = (
        "import sys; sys.modules['pandas'] = sys.modules['pyarrow'] = None\n"
        "from denizen.population import _pickle, _frames\n"
        "source = open(_pickle.__file__).read() + open(_frames.__file__).read()\n"
        "assert 'import pickle' not in source\n"
        "data = sys.stdin.buffer.read()\n"
        "print(_frames.columns_of(_pickle.read(data, 'x'), 'x', 'x')['x'].values.tolist())"
    )
    data = unpack("pandas 2.2.3, numpy 2.2.6, int, protocol 5")
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert done.stdout.split() == [b"[1,", b"2,", b"3]"]
