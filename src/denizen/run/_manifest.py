"""The manifest of a simulation: what the run is, what of it is safe on disk, and the checksum of each file.

Reading trusts nothing: a manifest that was damaged or made up ends in a `DataError` that names the entry.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from denizen.errors import DataError
from denizen.run._folder import NAME, Part, read_manifest
from denizen.run._narrow import Form, checked_form

KIND, FORMAT = "simulation", "denizen run 1"
STATUSES = ("running", "finished", "interrupted", "failed")
MOST_STEPS = 1 << 53
PART = re.compile(r"metrics/part-\d{5,9}\.parquet")
CHECKPOINT = re.compile(r"checkpoints/step-\d{8,16}\.safetensors")
INPUTS = re.compile(r"inputs\.safetensors")
NAME_LIKE = re.compile(r"[^\W\d]\w*")


@dataclasses.dataclass(frozen=True)
class Series:
    """A series as it is stored: kind ``"flow"`` or ``"level"``, torch dtype, shape of one entry, one sentence."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    about: str


@dataclasses.dataclass(frozen=True)
class Taken:
    """The snapshots on disk.

    Attributes:
        every: steps between them.
        fields: names.
        forms: how each field is stored.
        steps: after which they were taken.
        digests: one text for each snapshot, with a word for each field.
        slots: buffers that were asked for.
    """

    every: int
    fields: tuple[str, ...]
    forms: tuple[Form, ...]
    steps: tuple[int, ...]
    digests: tuple[str, ...]
    slots: int | None = None


@dataclasses.dataclass(frozen=True)
class Setup:
    """What fixes a run besides the model; `vouched`: steps over which narrow fields were compared with wide ones."""

    seed: int
    worlds: tuple[int, ...]
    dt: float
    time_unit: str
    device: str
    relax: str | None
    interventions: dict[str, str]
    record: dict[str, str]
    vouched: int | None = None


@dataclasses.dataclass(frozen=True)
class Manifest:
    """All of `manifest.json`.

    Attributes:
        status: one of `STATUSES`; a killed run stays ``"running"``.
        error: what ended the run, where something did.
        created, updated: UTC, ISO 8601.
        steps: steps that are safe on disk.
        wanted: steps that the run was asked for.
        setup: see `Setup`.
        model: fingerprint, see `_fingerprint`.
        series: what is recorded; empty before the first step.
        inputs: file with identities and parameters per replicate.
        checkpoint: file with the state after `steps` steps.
        metrics: files with the series, in order.
        snapshots: see `Taken`; None where none were asked for.
        versions: of denizen, torch, Python and others.
        commit: of the git checkout that the run was started in, with "+" for uncommitted changes.
        settings: the command line's configuration, where it began the run.
    """

    status: str
    error: str | None
    created: str
    updated: str
    steps: int
    wanted: int
    setup: Setup
    model: dict[str, Any]
    series: tuple[Series, ...]
    inputs: Part
    checkpoint: Part
    metrics: tuple[Part, ...]
    snapshots: Taken | None
    versions: dict[str, str]
    commit: str | None
    settings: dict[str, Any] | None

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(
            {"format": FORMAT, "kind": KIND, **dataclasses.asdict(self)}, indent=1, ensure_ascii=False
        ).encode()


def read(folder: Path) -> tuple[Manifest, bytes]:
    """The manifest of a simulation's folder and its bytes.

    Raises:
        DataError: there is none, or it is damaged; names the entry that is wrong.
    """
    raw, data = read_manifest(folder, KIND, FORMAT)
    return decode(raw, str(folder / NAME)), data


def decode(raw: dict[str, Any], origin: str) -> Manifest:
    """A manifest from JSON.

    Raises:
        DataError: names the entry that is wrong.
    """
    top = _Entry(raw, origin)
    snapshots = top.optional("snapshots", _taken)
    manifest = Manifest(
        status=top.one_of("status", STATUSES),
        error=top.optional("error", _Entry.as_text),
        created=top.text("created"),
        updated=top.text("updated"),
        steps=top.whole("steps"),
        wanted=top.whole("wanted"),
        setup=_setup(top.entry("setup")),
        model=_model(top.entry("model")),
        series=tuple(_series(e) for e in top.items("series")),
        inputs=_part(top.entry("inputs"), INPUTS),
        checkpoint=_part(top.entry("checkpoint"), CHECKPOINT),
        metrics=tuple(_part(e, PART) for e in top.items("metrics")),
        snapshots=snapshots,
        versions=top.entry("versions").texts(),
        commit=top.optional("commit", _Entry.as_text),
        settings=top.optional("settings", _Entry.as_object),
    )
    _consistent(manifest, origin)
    return manifest


def _consistent(manifest: Manifest, origin: str) -> None:
    """Raise where the entries, each right in itself, contradict one another."""
    expected = 1
    for part in manifest.metrics:
        if part.first != expected or part.last < part.first:
            raise DataError(
                f"{origin}: {part.file} covers steps {part.first} to {part.last}, expected to begin at {expected}"
            )
        expected = part.last + 1
    if expected - 1 != manifest.steps or manifest.checkpoint.last != manifest.steps:
        raise DataError(
            f"{origin}: steps is {manifest.steps}, but metrics end at {expected - 1} and the checkpoint is of step "
            f"{manifest.checkpoint.last}"
        )
    names = [series.name for series in manifest.series]
    if len(set(names)) != len(names):
        raise DataError(f"{origin}: two series have one name: {names}")
    taken = manifest.snapshots
    if taken is not None:
        due = range(0, manifest.steps + 1, taken.every)
        if not len(taken.steps) == len(taken.digests) == len(due) or taken.steps != tuple(due):
            raise DataError(f"{origin}: snapshots are of steps {list(taken.steps[:8])}…, expected every {taken.every}")


def _setup(entry: "_Entry") -> Setup:
    worlds = tuple(e.as_whole(high=2**32 - 1) for e in entry.items("worlds"))
    if not worlds:
        entry.wrong("worlds", "world numbers, at least one")
    dt = entry.value("dt")
    if isinstance(dt, bool) or not isinstance(dt, int | float) or not 0 < dt < float("inf"):
        entry.wrong("dt", "a positive number")
    return Setup(
        seed=entry.whole("seed", high=2**32 - 1),
        worlds=worlds,
        dt=float(dt),
        time_unit=entry.text("time_unit"),
        device=entry.text("device"),
        relax=entry.optional("relax", _Entry.as_text),
        interventions=entry.entry("interventions").texts(),
        record=entry.entry("record").texts(),
        vouched=entry.later("vouched", _Entry.as_whole),
    )


def _model(entry: "_Entry") -> dict[str, Any]:
    return {
        "class": entry.text("class"),
        "time_unit": entry.text("time_unit"),
        "agents": entry.whole("agents"),
        "fields": entry.entry("fields").texts(),
        "python": entry.text("python"),
        "code": entry.entry("code").texts(),
    }


def _series(entry: "_Entry") -> Series:
    name = entry.text("name")
    if name in ("replicate", "world", "step", "time"):
        entry.wrong("name", "a name that is no column of its own")
    shape = tuple(e.as_whole(low=1, high=1 << 32) for e in entry.items("shape"))
    return Series(name, entry.one_of("kind", ("flow", "level")), entry.text("dtype"), shape, entry.text("about"))


def _part(entry: "_Entry", pattern: re.Pattern[str]) -> Part:
    file = entry.text("file")
    if not pattern.fullmatch(file):  # so no path leads out of the folder
        entry.wrong("file", f"a name like {pattern.pattern}")
    return Part(file, entry.whole("first"), entry.whole("last"), entry.whole("size"), entry.text("digest"))


def _taken(entry: "_Entry") -> Taken:
    fields = tuple(e.as_text() for e in entry.items("fields"))
    if not fields or len(set(fields)) != len(fields) or not all(NAME_LIKE.fullmatch(field) for field in fields):
        entry.wrong("fields", "different names of fields")
    forms = tuple(
        checked_form(e.text("dtype"), e.text("stored"), e.whole("size"), e.where) for e in entry.items("forms")
    )
    if len(forms) != len(fields):
        entry.wrong("forms", "one for each field")
    return Taken(
        every=entry.whole("every", low=1),
        fields=fields,
        forms=forms,
        steps=tuple(e.as_whole() for e in entry.items("steps")),
        digests=tuple(e.as_text() for e in entry.items("digests")),
        slots=entry.later("slots", lambda e: e.as_whole(low=1)),
    )


class _Entry:
    """A JSON value and where it stands, for messages."""

    def __init__(self, raw: Any, where: str) -> None:
        self.raw, self.where = raw, where

    def value(self, key: str) -> Any:
        if not isinstance(self.raw, dict):
            raise DataError(f"{self.where} is {_short(self.raw)}, expected an object")
        if key not in self.raw:
            raise DataError(f"{self.where}: entry {key!r} is missing")
        return self.raw[key]

    def entry(self, key: str) -> "_Entry":
        return _Entry(self.value(key), f"{self.where}: {key}")

    def wrong(self, key: str, expected: str) -> None:
        raise DataError(f"{self.where}: {key} is {_short(self.value(key))}, expected {expected}")

    def as_text(self) -> str:
        if not isinstance(self.raw, str) or not _writable(self.raw):
            raise DataError(f"{self.where} is {_short(self.raw)}, expected a text")
        return self.raw

    def as_whole(self, low: int = 0, high: int = MOST_STEPS) -> int:
        if isinstance(self.raw, bool) or not isinstance(self.raw, int) or not low <= self.raw <= high:
            raise DataError(f"{self.where} is {_short(self.raw)}, expected a whole number from {low} to {high}")
        return self.raw

    def as_object(self) -> dict[str, Any]:
        if not isinstance(self.raw, dict):
            raise DataError(f"{self.where} is {_short(self.raw)}, expected an object")
        return self.raw

    def text(self, key: str) -> str:
        return self.entry(key).as_text()

    def whole(self, key: str, low: int = 0, high: int = MOST_STEPS) -> int:
        return self.entry(key).as_whole(low, high)

    def one_of(self, key: str, valid: tuple[str, ...]) -> str:
        if self.value(key) not in valid:
            self.wrong(key, " or ".join(map(repr, valid)))
        return self.raw[key]

    def items(self, key: str) -> list["_Entry"]:
        entry = self.entry(key)
        if not isinstance(entry.raw, list):
            raise DataError(f"{entry.where} is {_short(entry.raw)}, expected a list")
        return [_Entry(item, f"{entry.where}[{place}]") for place, item in enumerate(entry.raw)]

    def texts(self) -> dict[str, str]:
        found = {}
        for key, value in self.as_object().items():
            found[_Entry(key, self.where).as_text()] = _Entry(value, f"{self.where}: {key}").as_text()
        return found

    def optional(self, key: str, read_as: "Callable[[_Entry], Any]") -> Any:
        return None if self.value(key) is None else read_as(self.entry(key))

    def later(self, key: str, read_as: "Callable[[_Entry], Any]") -> Any:
        """As `optional`; older folders lack it."""
        return self.optional(key, read_as) if isinstance(self.raw, dict) and key in self.raw else None


def _writable(text: str) -> bool:
    """Whether a text can be printed: JSON may hold halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
