"""Series as a run folder keeps them: a safetensors file for each save, which the core alone writes and reads.

Older folders hold Parquet instead. It is still read, and what a resumed run adds is safetensors.
"""

from collections.abc import Sequence

from torch import Tensor

from denizen import _run_folder
from denizen.errors import DataError
from denizen.run import _parquet
from denizen.run._manifest import Series


def decode(data: bytes, series: Sequence[Series], worlds: int, steps: int, where: str) -> dict[str, Tensor]:
    """The series of one file, `[replicates, steps, …]` each, in their own dtype.

    Raises:
        DataError: the file does not hold what the manifest says.
        MissingExtra: it is Parquet, and polars is not installed.
    """
    if where.endswith(".parquet"):
        return _parquet.decode(data, series, worlds, steps, where)
    found, names = _run_folder.decode(data, where), [entry.name for entry in series]
    if set(found) != set(names):
        raise DataError(f"{where} holds {sorted(found)}, expected {sorted(names)}")
    for entry in series:
        values, shape = found[entry.name], [worlds, steps, *entry.shape]
        if values.dtype != _parquet.torch_dtype(entry.dtype, where) or list(values.shape) != shape:
            raise DataError(
                f"{where}: {entry.name} is {values.dtype} {list(values.shape)}, expected {entry.dtype} {shape}"
            )
    return {name: found[name] for name in names}
