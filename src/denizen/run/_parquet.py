"""Series as a table, one row for each step and replicate, and the Parquet files of older run folders."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen.errors import DataError, InputError, need
from denizen.run._manifest import Series

KEYS = ("replicate", "world", "step", "time")
# dtypes that Parquet lacks, and where they fit without loss
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
RESERVED = "__metadata__"  # which safetensors keeps for itself


def check_names(names: Sequence[str]) -> None:
    """Raise `InputError` where a series has a name that no table or file can give it."""
    for name in names:
        if name in KEYS:
            raise InputError(f"series {name!r} has the name of a column that the run's table has anyway; rename it")
        if name == RESERVED:
            raise InputError(f"series {name!r} has a name that files of tensors keep for themselves; rename it")


def frame(series: Mapping[str, Tensor], worlds: Sequence[int], first: int, dt: float) -> Any:
    """A polars data frame.

    Args:
        series: each `[replicates, steps, …]`.
        worlds: world number of each replicate.
        first: number of the first step; step k ends at time k * dt.
        dt: length of a step.

    Returns:
        Rows by step, then replicate. Columns ``replicate`` (int32), ``world``, ``step`` (int64), ``time`` (float64) and
        one for each series; a series with further axes is a column of arrays.
    """
    polars = need("polars", "tables", "make tables of series")
    check_names(list(series))
    steps = next((values.shape[1] for values in series.values()), 0)
    step = np.repeat(np.arange(first, first + steps, dtype=np.int64), len(worlds))
    columns = {
        "replicate": np.tile(np.arange(len(worlds), dtype=np.int32), steps),
        "world": np.tile(np.asarray(worlds, dtype=np.int64), steps),
        "step": step,
        "time": step * dt,
    }
    for name, values in series.items():
        host = values.detach().transpose(0, 1).cpu()
        host = host.to(WIDER.get(host.dtype, host.dtype))
        columns[name] = np.ascontiguousarray(host.reshape(-1, *host.shape[2:]).numpy())
    return polars.DataFrame(columns)


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
