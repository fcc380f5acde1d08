"""A table of any columns in a file."""

import numpy as np

from denizen._results import write_table


def test_a_table_is_written_whole(tmp_path) -> None:
    import polars

    columns = {"a": np.arange(3), "b": [1.5, None, 2.0]}
    for name in ("t.csv", "t.parquet"):
        write_table(columns, tmp_path / "new" / name)
    for read in (polars.read_csv(tmp_path / "new/t.csv"), polars.read_parquet(tmp_path / "new/t.parquet")):
        assert read["b"].to_list() == [1.5, None, 2.0]
