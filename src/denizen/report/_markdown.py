"""Pages of reports that experiments write as Markdown: headings, tables, sentences, pictures beside the file."""

import re
from pathlib import Path

from denizen.errors import DataError
from denizen.report._page import Page, picture_file

PICTURE = re.compile(r"!\[(.*)\]\(([\w.-]+\.png)\)")


def page_of(file: Path) -> Page:
    """The page of a report.

    Raises:
        DataError: it cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}; the experiment writes it at its end") from error
    blocks = [block for block in text.split("\n\n") if block.strip()]
    first = blocks[0] if blocks else ""
    page, section = Page(first.removeprefix("# ") if first.startswith("# ") else file.parent.parent.name), "Setting"
    for block in blocks:
        if block.startswith("## "):
            section = block.removeprefix("## ").strip()
            page.section(section)
        elif block.startswith("|"):
            head, _, *rows = (_cells(line) for line in block.strip().splitlines())
            page.table(section, head, rows)
        elif found := PICTURE.fullmatch(block.strip()):
            if (file.parent / found[2]).exists():
                picture_file(page, file.parent / found[2], file.parent, found[1])
        elif not block.startswith("# "):
            page.text(" ".join(block.split()))
    return page


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
