"""Series as a table, one row for each step and replicate, for polars, pandas and xarray, and as a file."""

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from denizen._atomic import write_atomic
from denizen.errors import InputError, StorageError, need
from denizen.model import Clock

if TYPE_CHECKING:
    from denizen._results.results import Results

KEYS = ("replicate", "world", "step", "time")
RESERVED = "__metadata__"  # which safetensors keeps for itself
# dtypes that tables lack, and where they fit without loss
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
FORMATS = {"csv": ".csv", "parquet": ".parquet", "netcdf": ".nc"}


def check_names(names: Iterable[str], columns: Sequence[str] = KEYS, tensors: Sequence[str] = ()) -> None:
    """Raise `InputError` where a series has a name that no table or file can give it.

    Args:
        names: of the series.
        columns: that the table has anyway.
        tensors: that the files hold beside the series.
    """
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"series {name!r} has a name of type {type(name).__name__}, expected a text; rename it")
        if name in columns:
            raise InputError(f"series {name!r} has the name of a column that the run's table has anyway; rename it")
        if name == RESERVED or name in tensors:
            raise InputError(f"series {name!r} has a name that files of tensors keep for themselves; rename it")


def columns(results: "Results") -> dict[str, np.ndarray]:
    """Columns of the table, see `Results.to_polars`."""
    check_names(results.series_names)
    worlds, steps = results.worlds, results.steps if results.series_names else 0
    step = np.repeat(np.arange(1, steps + 1, dtype=np.int64), len(worlds))
    found = {
        "replicate": np.tile(np.arange(len(worlds), dtype=np.int32), steps),
        "world": np.tile(np.asarray(worlds, dtype=np.int64), steps),
        "step": step,
        "time": step * results.dt,
    }
    begun = dates(results)
    if begun is not None:
        found["date"] = np.repeat(begun[:steps], len(worlds))
    for name in results.series_names:
        for column, values in numbered(name, as_numbers(results[name]), 2).items():
            if column in found:
                raise InputError(f"series {column!r} has the name of an entry of another series; rename it")
            found[column] = np.ascontiguousarray(values.T).reshape(-1)
    return found


def dates(results: Any) -> np.ndarray | None:
    """When each step begins, datetime64 `[steps]`, of days or milliseconds; None in a run without a start.

    So the flow of a day has the date of that day, as in data.

    Args:
        results: a run, or a sweep.
    """
    if results.start is None:
        return None
    if "date" in results.series_names:
        raise InputError("series 'date' has the name of a column that tables of a run with a start have; rename it")
    step = Clock(results.dt, results.time_unit, results.start).step_in_days("date")
    if step.denominator == 1:
        return np.datetime64(results.start) + np.arange(results.steps) * step.numerator
    since = [round(k * step * 86_400_000) for k in range(results.steps)]
    return np.datetime64(results.start, "ms") + np.asarray(since, dtype="timedelta64[ms]")


def numbered(name: str, values: np.ndarray, axes: int = 1) -> dict[str, np.ndarray]:
    """Columns of values `[…]` of so many axes: one, or one for each entry of what axes follow."""
    if values.ndim == axes:
        return {name: values}
    return {f"{name}[{','.join(map(str, at))}]": values[(..., *at)] for at in np.ndindex(*values.shape[axes:])}


def as_numbers(values: Tensor) -> np.ndarray:
    """A tensor for NumPy, wider where NumPy has no such numbers."""
    host = values.detach().cpu()
    return host.to(WIDER.get(host.dtype, host.dtype)).numpy()


def to_polars(results: "Results") -> Any:
    """See `Results.to_polars`."""
    return need("polars", "tables", "make tables of series").DataFrame(columns(results))


def to_pandas(results: "Results") -> Any:
    """See `Results.to_pandas`."""
    return need("pandas", "pandas", "make data frames of pandas").DataFrame(columns(results))


def to_xarray(results: "Results") -> Any:
    """See `Results.to_xarray`."""
    xarray = need("xarray", "xarray", "make datasets of xarray")
    check_names(results.series_names)
    variables = {}
    for name in results.series_names:
        values = as_numbers(results[name])
        axes = ("replicate", "step", *(f"{name}_dim_{k}" for k in range(values.ndim - 2)))
        variables[name] = (axes, values, {"long_name": results.about(name), "kind": results.kinds[name]})
    steps = np.arange(1, results.steps + 1)
    at = {
        "replicate": np.arange(len(results.worlds)),
        "world": ("replicate", np.asarray(results.worlds)),
        "step": steps,
        "time": ("step", steps * results.dt, {"units": results.time_unit}),
    }
    begun = dates(results)
    if begun is not None:
        at["date"] = ("step", begun.astype("datetime64[ns]"))
    return xarray.Dataset(variables, coords=at, attrs={"model": results.name, "seed": results.seed, "dt": results.dt})


def write_table(table: Mapping[str, Any], path: Path) -> None:
    """Write columns as CSV or Parquet, by the suffix of the path; the file is there whole or not at all.

    Raises:
        MissingExtra: polars is not installed.
        StorageError: the file cannot be written.
    """
    frame = need("polars", "tables", "write tables").DataFrame(table)
    buffer = io.BytesIO()
    if path.suffix == FORMATS["csv"]:
        frame.write_csv(buffer)
    else:
        frame.write_parquet(buffer)
    _write(path, buffer.getvalue())


def write_netcdf(dataset: Any, path: Path) -> None:
    """Write a dataset or a tree of xarray as NetCDF 4; the file is there whole or not at all.

    Raises:
        MissingExtra: h5netcdf is not installed.
        StorageError: the file cannot be written.
    """
    need("h5netcdf", "xarray", "write NetCDF")
    _write(path, bytes(dataset.to_netcdf(engine="h5netcdf")))


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        raise StorageError(f"table {path} could not be written: {error.strerror or error}") from error
