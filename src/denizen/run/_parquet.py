"""The Parquet files of older run folders."""

import io
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from denizen.errors import DataError, need
from denizen.run._manifest import Series

# dtypes that Parquet lacks, and where they fit without loss
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def decode(data: bytes, series: Sequence[Series], worlds: int, steps: int, where: str) -> dict[str, Tensor]:
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
        dtype = torch_dtype(entry.dtype, where)
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


def torch_dtype(name: str, where: str) -> torch.dtype:
    """A dtype by the name that the manifest holds, for example ``"float32"``."""
    dtype = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(dtype, torch.dtype) or dtype.is_complex:
        raise DataError(f"{where}: {name!r} is no dtype of a series")
    return dtype
