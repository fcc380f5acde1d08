"""The binary column store: one `.npz` file of plain numpy arrays and a JSON manifest, and a careful reader of `.npz`.

numpy reads the file too: `numpy.load(path)["columns/age"]`. The reader takes no pickled arrays, and believes no
size before it has been checked against the bytes that are there.
"""

import io
import json
import math
import os
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import DataError, StorageError, nearest
from denizen.population._files import reading
from denizen.population._population import Population

FORMAT = "denizen-population/1"
MANIFEST = "manifest.json"
_COMPRESSED_LIMIT = 4 << 30
"""Bytes that compressed members may unpack to, together: a small file must not fill the memory."""


def save(population: Population, path: str | os.PathLike[str]) -> None:
    """Write `population` to `path` atomically; see `Population.save`."""
    path = Path(path)
    arrays = {f"columns/{name}": values for name, values in population.columns.items()}
    for name, (source, target) in population.networks.items():
        arrays |= {f"networks/{name}/source": source, f"networks/{name}/target": target}
    arrays |= {f"weights/{name}": values for name, values in population.weights.items()}
    arrays |= {f"targets/{name}": values for name, values in population.targets.items()}
    manifest = {
        "format": FORMAT,
        "name": population.name,
        "size": population.size,
        "source": population.source,
        "labels": population.labels,
        "report": list(population.report),
    }
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                _write(file, arrays, json.dumps(manifest, ensure_ascii=False))
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(
            f"population could not be saved to {path}: {error.strerror or error}; nothing there was changed"
        ) from error


def _write(file: Any, arrays: dict[str, np.ndarray], manifest: str) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.writestr(zipfile.ZipInfo(MANIFEST), manifest)
        for name, values in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(values), allow_pickle=False)


def read_npz(path: Path, origin: str, wanted: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any] | None]:
    """All arrays of an `.npz` file, and the manifest if it is a column store.

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
        manifest = _manifest(archive, origin) if MANIFEST in archive.namelist() else None
        arrays = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name != member.filename and (wanted is None or wanted(name)):
                arrays[name] = _member(archive, member, path, origin)
        return arrays, manifest


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, origin: str) -> np.ndarray:
    if member.compress_type == zipfile.ZIP_STORED and member.file_size > path.stat().st_size:
        raise DataError(f"{origin}: array {member.filename!r} announces more bytes than the file holds")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise DataError(f"{origin}: array {member.filename!r} has an unknown npy version")
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = read_header(file)
        if kind.kind not in "biufU" or len(shape) > 2:
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


def _manifest(archive: zipfile.ZipFile, origin: str) -> dict[str, Any]:
    info = archive.getinfo(MANIFEST)
    if info.file_size > 1 << 28:
        raise DataError(f"{origin}: its manifest is larger than 256 MiB")
    manifest = parse_json(archive.read(info), f"{origin}:{MANIFEST}")
    labels, report = manifest.get("labels"), manifest.get("report")
    if manifest.get("format") != FORMAT:
        raise DataError(f"{origin} has format {manifest.get('format')!r}; this version reads {FORMAT!r}")
    sound = isinstance(labels, dict) and all(
        isinstance(values, list) and all(isinstance(value, str) for value in values) for values in labels.values()
    )
    sound = sound and isinstance(report, list) and all(isinstance(line, str) for line in report)
    sound = (
        sound
        and type(manifest.get("size")) is int
        and all(isinstance(manifest.get(key), str) for key in ("name", "source"))
    )
    if not sound:
        raise DataError(f"{origin}: its manifest is damaged")
    return manifest


def parse_json(data: bytes, origin: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        DataError: broken JSON, or something other than an object.
    """
    try:
        value = json.load(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{origin} is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise DataError(f"{origin} holds a {type(value).__name__}; expected an object of lists")
    return value


def load_store(path: Path, columns: Sequence[str] | None, networks: Sequence[str] | None) -> Population:
    """Read a file written by `Population.save`; arguments as for `load`.

    Raises:
        DataError: not such a file, a damaged one, or one without a column or network that is asked for.
    """

    def wanted(key: str) -> bool:
        kind, _, name = key.partition("/")
        if kind == "networks":
            name = name.rpartition("/")[0]
        chosen = {"columns": columns, "networks": networks, "weights": networks}.get(kind)
        return chosen is None or name in chosen

    arrays, manifest = read_npz(path, path.name, wanted)
    if manifest is None:
        raise DataError(f"{path.name} has no {MANIFEST}; expected a file written by Population.save")
    size = manifest["size"]
    parts: dict[str, dict[str, Any]] = {"columns": {}, "networks": {}, "weights": {}, "targets": {}}
    for key, values in arrays.items():
        kind, _, name = key.partition("/")
        if kind not in parts or not name or values.ndim != 1:
            raise DataError(f"{path.name}: array {key!r} does not belong to a population")
        parts[kind][name] = values
    for name, values in parts["columns"].items():
        if len(values) != size or values.dtype not in (np.uint8, np.int8, np.int16, np.int32, np.float32):
            raise DataError(
                f"{path.name}: column {name!r} is {values.dtype} of length {len(values)}; expected {size} narrow values"
            )
        if not np.isfinite(values).all():
            raise DataError(f"{path.name}: column {name!r} has missing or infinite values")
    edges = _stored_networks(parts, size, path.name)
    for what, chosen, found in (("column", columns, parts["columns"]), ("network", networks, edges)):
        for name in chosen or ():
            if name not in found:
                raise DataError(f"{path.name} has no {what} {name!r}; {nearest(str(name), found)}")
    return Population(
        name=manifest["name"],
        size=size,
        columns=parts["columns"],
        labels={name: values for name, values in manifest["labels"].items() if name in parts["columns"]},
        networks=edges,
        weights=parts["weights"],
        targets=parts["targets"],
        report=tuple(manifest["report"]),
        source=str(path),
    )


def _stored_networks(
    parts: dict[str, dict[str, Any]], size: int, origin: str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    ends, edges = parts["networks"], {}
    for name in sorted({key.rpartition("/")[0] for key in ends}):
        source, target = ends.get(f"{name}/source"), ends.get(f"{name}/target")
        if source is None or target is None or len(source) != len(target):
            raise DataError(f"{origin}: network {name!r} is incomplete")
        for end in (source, target):
            if end.dtype != np.int32:
                raise DataError(f"{origin}: network {name!r} has ids of type {end.dtype}; expected int32")
            if end.size and (end.min() < 0 or end.max() >= size):
                raise DataError(f"{origin}: network {name!r} has ids outside 0..{size - 1}")
        weight = parts["weights"].get(name)
        if weight is not None and (len(weight) != len(source) or weight.dtype != np.float32):
            raise DataError(f"{origin}: weights of network {name!r} do not fit its edges")
        edges[name] = source, target
    return edges
