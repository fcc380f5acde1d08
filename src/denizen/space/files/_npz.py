"""A careful reader of `.npz`: no pickled arrays, and no size is believed before the bytes that are there confirm it."""

import math
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from denizen.errors import DataError
from denizen.space.files._reading import reading

_COMPRESSED_LIMIT = 4 << 30
"""Bytes that compressed members may unpack to, together: a small file must not fill the memory."""


def npz_names(path: Path, origin: str) -> list[str]:
    """The names of the arrays of an `.npz` file.

    Raises:
        DataError: not an `.npz`.
    """
    with reading(origin, "npz"), zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def read_npz(path: Path, origin: str, wanted: Callable[[str], bool] | None = None) -> dict[str, np.ndarray]:
    """Arrays of an `.npz` file: numbers or strings, `[…]` with at most two axes.

    Args:
        path: the file.
        origin: its name for messages.
        wanted: a function of an array's name that says whether to read it; default all.

    Raises:
        DataError: not an `.npz`, pickled objects inside, sizes that do not agree.
    """
    with reading(origin, "npz"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len({member.filename for member in members}) != len(members):
            raise DataError(f"{origin} holds two arrays of one name")
        packed = sum(member.file_size for member in members if member.compress_type != zipfile.ZIP_STORED)
        if packed > _COMPRESSED_LIMIT:
            raise DataError(f"{origin} unpacks to {packed / 2**30:.1f} GiB; save it uncompressed if that is right")
        arrays = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name != member.filename and (wanted is None or wanted(name)):
                arrays[name] = _member(archive, member, path, origin)
        return arrays


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, origin: str) -> np.ndarray:
    if member.compress_type == zipfile.ZIP_STORED and member.file_size > path.stat().st_size:
        raise DataError(f"{origin}: array {member.filename!r} announces more bytes than the file holds")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise DataError(f"{origin}: array {member.filename!r} has an unknown npy version")
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = read_header(file)
        if kind.kind not in "biufUS" or len(shape) > 2:
            raise DataError(
                f"{origin}: array {member.filename!r} is {kind} {shape}; expected numbers or strings in one column"
            )
        size = math.prod(shape) * kind.itemsize
        if min(shape, default=0) < 0 or size > member.file_size:
            raise DataError(f"{origin}: array {member.filename!r} announces {size} bytes and holds {member.file_size}")
        data = bytearray(size)  # writable, so that torch takes the array without a copy or a warning
        if file.readinto(data) != size or file.read(1):  # type: ignore[missing-attribute]  # ZipExtFile has it
            raise DataError(f"{origin}: array {member.filename!r} does not have the {size} bytes that it announces")
    values = np.frombuffer(data, dtype=kind).reshape(shape, order="F" if fortran else "C")
    return values.astype(kind.newbyteorder("="), copy=False)
