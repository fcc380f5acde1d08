"""`denizen list`: the runs in some folders."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen._printing import give, say
from denizen.app._exit import DONE
from denizen.app._folders import RUNS
from denizen.errors import ConfigError

if TYPE_CHECKING:
    from denizen._printing import Console

KEPT = ("folder", "kind", "what", "status", "started", "updated", "count", "counted", "goal", "keys", "error")
LEAST = 20  # letters of settings that are shown on any screen


@dataclasses.dataclass(frozen=True)
class List:
    """`denizen list`."""

    about: ClassVar[str] = """List the runs in folders: what they are, how they stand, what was set.

examples:
  denizen list                       all in runs/, the newest last
  denizen list sweeps ~/trainings
  denizen list --json | jq '.[] | select(.status == "killed") | .folder'"""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="[RUNS]", help_behavior_hint="(default: runs)")] = ()
    """Folders that hold run folders, or run folders."""
    json: FlagCreatePairsOff[bool] = False
    """Print JSON."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print only the paths of the run folders."""

    def __call__(self, console: "Console") -> int:
        """Print the table."""
        from denizen.ui._runs import MOST, Runs, row

        for folder in self.runs:
            if not folder.is_dir():
                raise ConfigError(f"RUNS: there is no folder {folder}; give a folder that holds run folders")
        folders = [folder for folder in self.runs or (RUNS,) if folder.is_dir()]
        found = Runs(folders)
        entries = found.all()
        several = {entry.path for entry in entries if entry.seeds}
        entries = [
            entry for entry in entries if entry.path.parent not in several
        ]  # their seeds are no runs of their own
        rows = [row(entry, found.folders[int(entry.id.partition(":")[0])]) for entry in entries]
        told = [{"folder": _shown(entry.path), **one} for entry, one in zip(entries, rows, strict=True)]
        told.sort(key=lambda one: (one["started"], one["folder"]))
        if self.json:
            give(json.dumps([{name: one[name] for name in KEPT} for one in told], indent=1))
        elif self.quiet:
            for one in told:
                give(one["folder"])
        elif not told:
            say(console, f"no runs in {', '.join(map(str, self.runs or (RUNS,)))}; denizen hello makes a first one")
        else:
            _tell(told, console)
        if found.cut:
            say(console, f"these are the first {MOST:,}; name a folder within")
        return DONE


def _shown(path: Path) -> str:
    """A path as it is typed from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _tell(rows: list[dict[str, Any]], console: "Console") -> None:
    """Print a line for each run; folders are whole, to be copied, and settings take what is left of the screen."""
    lines = [("folder", "kind", "of", "status", "done", "set")]
    for row in rows:
        goal = f" of {row['goal']:,}" if isinstance(row["goal"], int) and row["goal"] != row["count"] else ""
        done = f"{row['count']:,}{goal} {row['counted']}" if row["counted"] else ""
        pairs = ", ".join(f"{name}={value}" for name, value in row["keys"].items())
        wrong = row["error"] if row["status"] in ("failed", "damaged") else ""
        lines.append((row["folder"], row["kind"], row["what"], row["status"], done, wrong or pairs))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = max(LEAST, console.width - sum(widths[:-1]) - 2 * len(widths[:-1]))
    for k, (*cells, last) in enumerate(lines):
        shown = last if len(last) <= left else f"{last[: left - 1]}…"
        line = "  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)), shown]).rstrip()
        say(console, (line, "bold" if k == 0 else ""))
