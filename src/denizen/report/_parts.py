"""Parts that reports of several kinds of runs have in common."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from denizen._atomic import read_plain
from denizen.errors import DataError
from denizen.report._page import Page, flat

LARGEST = 1 << 25  # bytes of a picture


def settings_of_runs(page: Page, title: str, names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> None:
    """Settings of one run as a list; of several as columns, those that differ first."""
    if len(names) == 1:
        page.settings(settings[0], title)
        return
    columns = [{name: str(value) for name, value in flat(one)} for one in settings]
    rows = [
        (name, [column.get(name, "") for column in columns]) for name in dict.fromkeys(n for c in columns for n in c)
    ]
    rows.sort(key=lambda row: len(set(row[1])) == 1)
    page.table(title, ["name", *names], [[name, *values] for name, values in rows], "What differs comes first.")


def commands(page: Page, lines: Sequence[str]) -> None:
    """What to type to get the same again; nothing where that is not known."""
    known = [line for line in lines if line]
    if known:
        page.section("To repeat").command("\n".join(known))


UNFINISHED = {"running": "is still going on", "killed": "was killed", "interrupted": "was interrupted"}


def status_note(page: Page, name: str, status: str, done: str, error: str | None = None) -> None:
    """Say so where a run is not finished."""
    if status != "finished":
        page.note(f"{name} {UNFINISHED.get(status, status)}: {done} so far{f'. {error}' if error else ''}.")


def picture_file(page: Page, file: Path, folder: Path, title: str) -> None:
    """Add a PNG of a run folder; nothing that its links name elsewhere gets into a page.

    Raises:
        DataError: it cannot be read, or leads out of the folder.
    """
    try:
        data = read_plain(file, folder, LARGEST)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    page.picture(data, "image/png", title, title)
