"""Snapshots as Zarr: one array `[replicates, snapshots, …]` for each field, a chunk never spans two snapshots.

What has been written is not touched again; only the arrays' length, a line of metadata, grows. The manifest says how
many snapshots count. Only format 3 is opened: format 2 knows a codec that unpickles.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen.errors import DataError, need
from denizen.run._atomic import digest, sync
from denizen.run._manifest import Taken

FOLDER = "snapshots"
CHUNK_BYTES = 1 << 26
PURPOSE = "store snapshots"


def append(folder: Path, old: int, taken: list[tuple[int, dict[str, Tensor]]]) -> list[str]:
    """Write further snapshots behind the first `old` ones and bring them to the disk; returns the digest of each.

    Raises:
        OSError: what the system says. What was there before is intact.
    """
    zarr = need("zarr", "storage", PURPOSE)
    root = folder / FOLDER
    group = zarr.open_group(root, mode="a", zarr_format=3)
    digests = []
    for place, (_, fields) in enumerate(taken, start=old):
        parts = []
        for name, tensor in fields.items():
            values = np.ascontiguousarray(tensor.detach().cpu().numpy())
            array = _array(group, name, values)
            array.resize((values.shape[0], place + 1, *values.shape[1:]))
            array[:, place] = values
            parts.append(values)
        digests.append(_digest(parts))
    _sync(root, old)
    return digests


def trim(folder: Path, taken: Taken) -> None:
    """Remove snapshots behind those that count: a killed process left them."""
    group = need("zarr", "storage", PURPOSE).open_group(folder / FOLDER, mode="r+", zarr_format=3)
    for name in taken.fields:
        shape = group[name].shape
        if shape[1] > len(taken.steps):
            group[name].resize((shape[0], len(taken.steps), *shape[2:]))


def load(folder: Path, taken: Taken, worlds: int) -> list[tuple[int, dict[str, Tensor]]]:
    """The snapshots that the manifest names.

    Raises:
        DataError: they are missing or differ from what was written.
    """
    zarr = need("zarr", "storage", PURPOSE)
    where = folder / FOLDER
    out: list[tuple[int, dict[str, Tensor]]] = []
    try:
        group = zarr.open_group(where, mode="r", zarr_format=3)
        arrays = {name: group[name] for name in taken.fields}
        sizes = [(array.shape[0], array.shape[1] >= len(taken.steps)) for array in arrays.values()]
        if any(size != (worlds, True) for size in sizes):
            raise DataError(f"{where} does not hold {worlds} replicates × {len(taken.steps)} snapshots of each field")
        for place, step in enumerate(taken.steps):
            fields = {name: np.asarray(array[:, place]) for name, array in arrays.items()}
            if _digest(list(fields.values())) != taken.digests[place]:
                raise DataError(f"{where}: the snapshot of step {step} differs from what was written")
            out.append((step, {name: torch.from_numpy(values) for name, values in fields.items()}))
    except DataError:
        raise
    except Exception as error:  # zarr raises many types for a damaged store
        raise DataError(f"{where} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
    return out


def _array(group: Any, name: str, values: np.ndarray) -> Any:
    if name in group:
        return group[name]
    one = max(values.nbytes // max(values.shape[0], 1), 1)
    agents = [max(1, size if one <= CHUNK_BYTES else size * CHUNK_BYTES // one) for size in values.shape[1:2]]
    rows = max(1, min(values.shape[0], CHUNK_BYTES // one))
    return group.create_array(
        name,
        shape=(values.shape[0], 0, *values.shape[1:]),
        chunks=(rows, 1, *agents, *(max(1, size) for size in values.shape[2:])),
        dtype=values.dtype,
    )


def _digest(parts: list[np.ndarray]) -> str:
    whole = [np.ascontiguousarray(values) for values in parts]
    lines = [f"{values.dtype} {values.shape} {digest(values.reshape(-1).view(np.uint8).data)}" for values in whole]
    return digest("\n".join(lines).encode())


def _sync(root: Path, old: int) -> None:
    """Bring metadata and the chunks of new snapshots to the disk: Zarr leaves that to the system."""
    for path in (root / "zarr.json", *root.glob("*/zarr.json")):
        sync(path)
        sync(path.parent)
    for row in root.glob("*/c/*"):
        for snapshot in row.iterdir():
            if snapshot.name.isdecimal() and int(snapshot.name) >= old:
                for path in (row, snapshot, *snapshot.rglob("*")):
                    sync(path)
