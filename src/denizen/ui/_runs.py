"""Which runs lie in some folders, and what their manifests say; a manifest is read again where its file has changed."""

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from denizen._atomic import digest, status_now
from denizen._run_folder import KINDS, NAME, read_object
from denizen.errors import DataError

DEEP = 4  # folders within folders
MOST = 5_000  # runs that are listed
LOOKS = 50_000  # folders that are looked into; links may lead in circles
# What a manifest calls how far a run is, and how far it is to go.
COUNTS = ("rows", "steps", "updates", "launches", "epochs", "sets")  # of a sweep, rows: its steps are those of each run
GOALS = {"steps": "wanted"}
BYHAND = ("set", "world", "policy", "validation")  # groups of NAME=VALUE of the command line
LONGEST = 400  # letters of a value that is shown


@dataclass(frozen=True)
class Entry:
    """A run folder as it was found.

    Attributes:
        id: number of the folder that was given, and the path within it.
        path: the run folder.
        stamp: differs where the manifest was replaced.
        manifest: as JSON; empty where it cannot be read.
        error: why it cannot be read.
        seeds: folders of several seeds of a training within a folder that has no manifest.
    """

    id: str
    path: Path
    stamp: tuple[Any, ...]
    manifest: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    seeds: tuple[Path, ...] = ()

    @property
    def kind(self) -> str:
        """Such as ``"simulation"``."""
        kind = self.manifest.get("kind") or KINDS.get(str(self.manifest.get("format")))
        if self.seeds:
            return "training"
        return text(kind) if kind else "unknown" if self.error else "simulation"

    @property
    def status(self) -> str:
        """As the manifest says it, or ``"killed"``, or ``"damaged"``."""
        if self.error:
            return "damaged"
        if self.seeds:
            return ""
        return status_now(self.path, text(self.manifest.get("status", "")))

    @property
    def version(self) -> str:
        """Differs where anything that is shown of the run may."""
        return digest(repr((self.stamp, self.status)).encode())[:12]


class Runs:
    """The runs in some folders."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Args:
        folders: of runs, or run folders.
        """
        self.folders = [folder.resolve() for folder in folders]
        self._held: dict[str, Entry] = {}
        self.cut = False  # whether there are more runs than are listed

    def all(self) -> list[Entry]:
        """Every run that is there now."""
        found: dict[str, Entry] = {}
        self.cut = False
        for number, folder in enumerate(self.folders):
            looks = itertools.count()
            for path in _run_folders(folder, folder, DEEP, looks):
                if path is None or len(found) >= MOST:
                    self.cut = True
                    break
                entry = self._entry(sendable(f"{number}:{path.relative_to(folder).as_posix()}"), path)
                if entry is not None:
                    found[entry.id] = entry
        self._held = found
        return list(found.values())

    def get(self, id: str) -> Entry | None:
        """A run as it is now; None where there is none of this name, or none any more."""
        if id not in self._held:
            self.all()
        if id not in self._held:
            return None
        path = self._held[id].path
        return self._entry(id, path) if inside(path, self.folders[int(id.partition(":")[0])]) else None

    def _entry(self, id: str, path: Path) -> Entry | None:
        file = path / NAME
        stamp = stamp_of(file)
        if stamp is None:
            seeds = _seeds(path)
            stamps = tuple(stamp_of(seed / NAME) for seed in seeds)
            return Entry(id, path, stamps, _shared(seeds), seeds=seeds) if seeds else None
        held = self._held.get(id)
        if held is not None and held.stamp == (stamp, _grown(path)):
            return held
        try:
            manifest = read_object(path)[0]
            if not shallow(manifest):
                raise DataError(f"{file} is nested too deeply; something else wrote it")
            return Entry(id, path, (stamp, _grown(path)), manifest)
        except DataError as error:
            return None if stamp_of(file) is None else Entry(id, path, (stamp, _grown(path)), error=str(error))


def stamp_of(file: Path) -> tuple[int, int, int] | None:
    """What differs where a file was replaced or has grown; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def inside(path: Path, folder: Path) -> bool:
    """Whether a path leads into a folder, wherever links go."""
    try:
        return path.resolve().is_relative_to(folder)
    except (OSError, RuntimeError, ValueError):
        return False


def shallow(value: Any, deep: int = 50) -> bool:
    """Whether values within values of JSON end before the interpreter's stack does."""
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return deep > 0 and all(shallow(one, deep - 1) for one in within)


def _grown(path: Path) -> Any:
    """Of the files that are appended to while the manifest stays."""
    return stamp_of(path / "metrics.jsonl"), stamp_of(path / "launches.bin")


def _seeds(path: Path) -> tuple[Path, ...]:
    try:
        root = path.resolve()
        found = [one.parent for one in path.glob("seed-*/manifest.json") if one.parent.name[5:].isdecimal()]
        found = [one for one in found if inside(one, root)]
    except OSError:
        return ()
    return tuple(sorted(found, key=lambda one: int(one.name[5:]))) if len(found) > 1 else ()


def _shared(seeds: Sequence[Path]) -> dict[str, Any]:
    """What several seeds of a training have in common, as the first tells it."""
    try:
        first = read_object(seeds[0])[0] if seeds else {}
    except DataError:
        return {}
    return {**(first if shallow(first) else {}), "seed": f"{len(seeds)} seeds"}


def _run_folders(folder: Path, root: Path, deep: int, looks: Iterator[int]) -> Iterator[Path | None]:
    """Run folders, outer ones first; nothing within them, but for the seeds of a training. None: looked long enough."""
    if next(looks) >= LOOKS:
        yield None
        return
    if (folder / NAME).is_file():
        yield folder
        return
    if _seeds(folder):
        yield folder
    if deep < 0:
        return
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".")
                and entry.is_dir()
                and (not entry.is_symlink() or inside(Path(entry.path), root))
            )
    except OSError:
        return
    for name in names:
        yield from _run_folders(folder / name, root, deep - 1, looks)


# --- what a manifest says ---------------------------------------------------------------------------------------------


def row(entry: Entry, folder: Path) -> dict[str, Any]:
    """A line of the list."""
    told = entry.manifest
    counted = next((name for name in COUNTS if isinstance(told.get(name), int)), "")
    pairs = settings(told)
    return {
        "id": entry.id,
        "path": entry.path.relative_to(folder).as_posix() if entry.path != folder else entry.path.name,
        "name": entry.path.name,
        "kind": entry.kind,
        "what": _what(told),
        "status": entry.status,
        "started": text(told.get("created", "")),
        "updated": text(told.get("updated", "")),
        "count": told.get(counted, 0),
        "counted": "runs" if counted == "rows" else counted,
        "goal": _goal(told, counted),
        "keys": _keys(told, pairs),
        "error": entry.error or text(told.get("error") or ""),
        "version": entry.version,
    }


def _goal(manifest: Mapping[str, Any], counted: str) -> Any:
    """What the count is to become; None where nothing says."""
    if counted != "rows":
        goal = manifest.get(GOALS.get(counted, ""))
        return goal if isinstance(goal, int) else None
    sets, replicates = manifest.get("sets"), manifest.get("replicates")
    return sets * replicates if isinstance(sets, int) and isinstance(replicates, int) else None


def settings(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What fixes a run, as texts by name: parameters of its model or world, then the settings of its command."""
    flat: dict[str, str] = {}
    for part in ("model", "env"):
        for name, value in _table(_table(manifest.get(part)).get("fields")).items():
            _flatten(name, re.sub(r"^\w+ number ", "", value) if isinstance(value, str) else value, flat)
    given = _given(manifest)
    for name, value in given.items():
        inner = _table(value) if name in BYHAND else {name: value}
        for key, one in inner.items():
            if key not in flat:
                _flatten(key if name in BYHAND else name, one, flat)
    setup = _table(manifest.get("setup"))
    for name in ("seed", "algorithm", "total_steps", "device", "relax", "interventions", "dt"):
        value = setup.get(name, manifest.get(name))
        if name not in flat and value not in (None, {}, ""):
            _flatten(name, value, flat)
    if isinstance(setup.get("worlds"), list):
        flat["replicates"] = str(len(setup["worlds"]))
    for name, value in (
        ("agents", _table(manifest.get("model")).get("agents")),
        ("contacts from", _table(_table(manifest.get("settings")).get("source")).get("name")),
    ):
        if value is not None:
            flat[name] = text(value)
    return flat


def _given(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings of the command that began the run."""
    given = _table(manifest.get("settings"))
    return _table(given["config"]) if "config" in given else given


def _keys(manifest: Mapping[str, Any], pairs: Mapping[str, str]) -> dict[str, str]:
    """Settings that stand in the list: what was set by hand, and a few that tell most."""
    given = _given(manifest)
    byhand = [str(name) for group in BYHAND for name in _table(given.get(group))]
    found = {name: pairs[name] for name in (*byhand, "replicates", "agents", "seed") if name in pairs}
    if "algorithm" in pairs:
        found["algorithm"] = pairs["algorithm"].partition("(")[0]
    return found


def _what(manifest: Mapping[str, Any]) -> str:
    """The model or world of a run."""
    given = _given(manifest)
    for name in ("model", "world_name", "task"):
        if isinstance(given.get(name), str):
            return text(given[name])
    for part in ("model", "env"):
        found = _table(manifest.get(part)).get("class")
        if isinstance(found, str):
            return text(found.rpartition(".")[2])
    return ""


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _flatten(name: str, value: Any, into: dict[str, str]) -> None:
    if isinstance(value, Mapping):
        for inner, one in value.items():
            _flatten(f"{name}.{inner}", one, into)
    elif value is not None and value != []:
        into[text(name)] = ", ".join(map(text, value)) if isinstance(value, list) else text(value)


def text(value: Any) -> str:
    """A text of a manifest, cut where it is long; JSON may hold halves of surrogate pairs."""
    found = sendable(str(value))
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 1]}…"


def sendable(text: str) -> str:
    """A text as UTF-8 has it; names of folders may be any bytes."""
    return text.encode("utf-8", "backslashreplace").decode()
