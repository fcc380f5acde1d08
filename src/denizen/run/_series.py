"""Series as a run folder keeps them: a safetensors file for each save, which the core alone writes and reads.

Older folders hold Parquet instead. It is still read, and what a resumed run adds is safetensors.
"""

import io
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from denizen import _run_folder
from denizen._results import WIDER
from denizen.errors import DataError, need
from denizen.run._manifest import Series


def decode(data: bytes, series: Sequence[Series], worlds: int, steps: int, where: str) -> dict[str, Tensor]:
    """The series of one file, `[replicates, steps, …]` each, in their own dtype.

    Raises:
        DataError: the file does not hold what the manifest says.
        MissingExtra: it is Parquet, and polars is not installed.
    """
    if where.endswith(".parquet"):
        return _of_parquet(data, series, worlds, steps, where)
    found, names = _run_folder.decode(data, where), [entry.name for entry in series]
    if set(found) != set(names):
        raise DataError(f"{where} holds {sorted(found)}, expected {sorted(names)}")
    for entry in series:
        values, shape = found[entry.name], [worlds, steps, *entry.shape]
        if values.dtype != _torch_dtype(entry.dtype, where) or list(values.shape) != shape:
            raise DataError(
                f"{where}: {entry.name} is {values.dtype} {list(values.shape)}, expected {entry.dtype} {shape}"
            )
    return {name: found[name] for name in names}


def _of_parquet(data: bytes, series: Sequence[Series], worlds: int, steps: int, where: str) -> dict[str, Tensor]:
    """The series of one Parquet file, `[replicates, steps, …]` each, in their own dtype.

    Raises:
        DataError: the file does not hold what the manifest says.
    """
    polars = need("polars", "tables", "read the series of an older run folder, which are Parquet,")
    try:
        table = polars.read_parquet(io.BytesIO(data), columns=[s.name for s in series])
    except Exception as error:  # polars raises many types for a damaged file
        raise DataError(f"{where} cannot be read as Parquet: {str(error)[:200]}") from error
    if table.height != worlds * steps:
        raise DataError(f"{where} has {table.height} rows, expected {worlds} replicates × {steps} steps")
    out = {}
    for entry in series:
        dtype = _torch_dtype(entry.dtype, where)
        try:
            values = torch.from_numpy(np.array(table[entry.name].to_numpy()))
        except Exception as error:  # a column of text or of lists, whatever polars and torch make of it
            raise DataError(f"{where}: column {entry.name!r} does not hold numbers") from error
        if tuple(values.shape[1:]) != entry.shape or values.dtype != WIDER.get(dtype, dtype):
            raise DataError(
                f"{where}: column {entry.name!r} is {values.dtype} {list(values.shape[1:])}, expected {entry.dtype} "
                f"{list(entry.shape)}"
            )
        out[entry.name] = values.reshape(steps, worlds, *entry.shape).transpose(0, 1).to(dtype).contiguous()
    return out


def _torch_dtype(name: str, where: str) -> torch.dtype:
    """A dtype by the name that the manifest holds, for example ``"float32"``."""
    dtype = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(dtype, torch.dtype) or dtype.is_complex:
        raise DataError(f"{where}: {name!r} is no dtype of a series")
    return dtype
