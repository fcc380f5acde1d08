"""`denizen export`: what a run folder holds, as files for other tools."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro
from tyro.conf import Positional, arg

from denizen._printing import say
from denizen.app._exit import DONE
from denizen.errors import ConfigError

if TYPE_CHECKING:
    from denizen._printing import Console

DRAWS = 1_000  # of a fit


@dataclasses.dataclass(frozen=True)
class Export:
    """`denizen export`."""

    about: ClassVar[str] = """Write a run's numbers as CSV, Parquet or NetCDF, for other tools.

examples:
  denizen export runs/covid-20261128-120000 --csv                    into covid-20261128-120000.csv
  denizen export runs/covid-20261128-120000 --parquet --netcdf --out data/covid
  denizen export runs/covid-fit-20261128-120000 --csv"""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder: of a simulation, a row for each step and replicate is written, and beside it a file with the rows of
    each event that it logs; of a training, one for each update; of a calibration, draws of its parameters."""
    csv: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write CSV."""
    parquet: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write Parquet."""
    netcdf: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write NetCDF 4, as xarray reads it."""
    out: Annotated[Path | None, arg(metavar="NAME", help_behavior_hint="(default: the folder's name)")] = None
    """Path of the files without their suffix. Files that are there already are left alone."""

    def __call__(self, console: "Console") -> int:
        """Write what is asked for."""
        from denizen._results import FORMATS
        from denizen.app import _folders

        chosen = [name for name in FORMATS if getattr(self, name)]
        if not chosen:
            raise ConfigError(f"export: give a format or several: {', '.join(f'--{name}' for name in FORMATS)}")
        out = Path(self.run.resolve().name) if self.out is None else self.out
        if out.name in ("", ".."):
            raise ConfigError(f"--out {out}: expected the path of a file without its suffix, such as data/covid")
        files = {name: out.with_name(f"{out.name}{FORMATS[name]}") for name in chosen}
        for file in files.values():
            if file.exists():
                raise ConfigError(f"export: {file} exists already; remove it, or give another name with --out")
        write = _folders.do("export", self, console)
        for name, file in files.items():
            write(name, file)
            say(console, str(file))
        return DONE


def of_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns of rows that need not have the same names."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
