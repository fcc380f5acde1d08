"""The binary column store: one `.npz` file of plain numpy arrays and a JSON manifest.

numpy reads the file too: `numpy.load(path)["columns/age"]`.
"""

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from denizen import _arguments
from denizen.errors import DataError, StorageError, nearest
from denizen.population._population import Population
from denizen.space.files import read_npz, reading

FORMAT = "denizen-population/1"
MANIFEST = "manifest.json"


def save(population: Population, path: str | os.PathLike[str]) -> None:
    """Write `population` to `path` atomically; see `Population.save`."""
    path = _arguments.path("save", "path", path, "the path of a file, such as 'village.npz'")
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


def _manifest(path: Path) -> dict[str, Any]:
    origin = path.name
    with reading(origin, "npz"), zipfile.ZipFile(path) as archive:
        if MANIFEST not in archive.namelist():
            raise DataError(f"{origin} has no {MANIFEST}; expected a file written by Population.save")
        info = archive.getinfo(MANIFEST)
        if info.file_size > 1 << 28:
            raise DataError(f"{origin}: its manifest is larger than 256 MiB")
        data = archive.read(info)
    manifest = parse_json(data, f"{origin}:{MANIFEST}")
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

    manifest = _manifest(path)
    arrays = read_npz(path, path.name, wanted)
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
