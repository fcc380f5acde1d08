"""Files of a run folder that the page shows: pictures, films, reports, the log; and reports of the doctor."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from denizen._atomic import open_plain, read_plain
from denizen.ui._runs import inside, shallow, stamp_of

PICTURES = {".png": "image/png", ".gif": "image/gif", ".jpg": "image/jpeg", ".webp": "image/webp"}
FILMS = {".mp4": "video/mp4", ".webm": "video/webm"}
REPORTS = (".html",)
MOST = 60  # files of a run that are listed
LARGEST = 1 << 22  # bytes of a JSON file
LOG = 1 << 15  # bytes of a log's end
EVALUATED = ("mean", "low", "high")


class Files:
    """Finds them; a JSON file is read again where it has changed."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[Any, Any]] = {}

    def of(self, path: Path) -> dict[str, Any]:
        """Names of pictures, films and reports of a run, and what evaluations in it found."""
        names = self._names(path)
        return {
            "pictures": [name for name in names if Path(name).suffix in PICTURES],
            "films": [name for name in names if Path(name).suffix in FILMS],
            "reports": [name for name in names if Path(name).suffix in REPORTS],
            "evaluations": [
                {"file": file.name, "rows": rows}
                for file in self._json(path)
                if (rows := _evaluation(self._object(file)))
            ],
            "doctor": [_report(file, path, told) for file in self._json(path) if (told := self._doctor(file))],
        }

    def path(self, folder: Path, name: str) -> Path | None:
        """A file of those names; None where there is none."""
        return folder / name if name in self._names(folder) else None

    def findings(self, folders: Sequence[Path]) -> list[dict[str, Any]]:
        """Reports of the doctor beside the runs, as ``denizen doctor … --json > runs/doctor.json`` leaves them."""
        return [
            _report(file, root, told) for root in folders for file in self._json(root) if (told := self._doctor(file))
        ]

    def _names(self, path: Path) -> list[str]:
        """Files of the folder and of `films` and `pictures` in it, that do not lead out of it."""
        known = {*PICTURES, *FILMS, *REPORTS}
        found = []
        try:
            root = path.resolve()
            for file in sorted([*path.iterdir(), *path.glob("films/*"), *path.glob("pictures/*")]):
                if file.suffix in known and file.is_file() and inside(file, root):
                    found.append(file.relative_to(path).as_posix())
        except OSError:
            return []
        return found[:MOST]

    def _json(self, path: Path) -> list[Path]:
        try:
            root = path.resolve()
            found = sorted(file for file in path.glob("*.json") if file.name != "manifest.json")
            return [file for file in found if inside(file, root)][:MOST]
        except OSError:
            return []

    def _object(self, file: Path) -> Any:
        stamp = stamp_of(file)
        if stamp is None or stamp[2] > LARGEST:
            return None
        held = self._read.get(file)
        if held is None or held[0] != stamp:
            try:
                value = json.loads(read_plain(file, file.parent, LARGEST))
            except (OSError, ValueError, RecursionError):
                value = None
            held = self._read[file] = stamp, value if shallow(value) else None
        return held[1]

    def _doctor(self, file: Path) -> dict[str, Any] | None:
        value = self._object(file)
        right = isinstance(value, dict) and isinstance(value.get("verdict"), str)
        return value if right and isinstance(value.get("findings"), list) else None


def log(path: Path) -> str:
    """The end of a run's log."""
    file = path / "log.txt"
    try:
        with open_plain(file, path) as opened:
            size = opened.seek(0, 2)
            opened.seek(max(0, size - LOG))
            text = opened.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return text if size <= LOG else text.partition("\n")[2]


def _report(file: Path, root: Path, told: dict[str, Any]) -> dict[str, Any]:
    shown = ("kind", "file", "line", "function", "code", "level", "period", "fix")
    findings = []
    for one in told["findings"]:
        if isinstance(one, dict):
            evidence, cost = one.get("evidence"), one.get("cost")
            seconds = cost.get("seconds") if isinstance(cost, dict) else None
            findings.append(
                {
                    **{name: str(one.get(name, ""))[:2000] for name in shown},
                    "evidence": [str(line)[:500] for line in evidence[:8]] if isinstance(evidence, list) else [],
                    "seconds": seconds if isinstance(seconds, int | float) else None,
                }
            )
    return {"file": file.relative_to(root).as_posix(), "verdict": told["verdict"][:500], "findings": findings[:500]}


def _evaluation(value: Any) -> list[dict[str, Any]]:
    """Rows of `denizen evaluate --json`."""
    if not isinstance(value, list):
        return []
    rows = [
        row for row in value if isinstance(row, dict) and all(isinstance(row.get(n), int | float) for n in EVALUATED)
    ]
    return [{"run": str(row.get("run", "")), **{name: row[name] for name in EVALUATED}} for row in rows[:100]]
