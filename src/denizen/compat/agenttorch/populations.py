"""Populations by name; each is looked for on disk when it is read, not when it is imported."""

import os
import sys
from pathlib import Path

DATA_VARIABLE = "DENIZEN_DATA"


class Place:
    """A named population: `$DENIZEN_DATA/NAME` where that folder exists, else the synthetic stand-in.

    Attributes:
        name: of the folder and of the stand-in.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def __path__(self) -> str:
        """What `denizen.population.load` reads; says on stderr which of the two it is."""
        root = os.environ.get(DATA_VARIABLE)
        folder = Path(root) / self.name if root else None
        if folder is not None and folder.is_dir():
            print(f"{self.name}: read from {folder}", file=sys.stderr)
            return str(folder)
        why = f"{DATA_VARIABLE} is not set" if not root else f"{DATA_VARIABLE}={root} has no folder {self.name}"
        print(f"{self.name}: the synthetic stand-in ({why})", file=sys.stderr)
        return f"synthetic:{self.name}"

    def __repr__(self) -> str:
        return f"Place({self.name!r})"


astoria = Place("astoria")
