"""The manifest of a simulation: what the run is, what of it is safe on disk, and the checksum of each file.

The dataclasses are the form of the file. Reading trusts nothing: a manifest that was damaged or made up ends in a
`DataError` that names the entry.
"""

import dataclasses
import json
import re
import types
import typing
from pathlib import Path
from typing import Any

from denizen import _dates, _run_folder
from denizen._fingerprint import Fingerprint
from denizen._run_folder import NAME, Part
from denizen.errors import DataError, InputError
from denizen.run._narrow import Form, check_form

KIND, FORMAT = "simulation", "denizen run 1"
STATUSES = ("running", "finished", "interrupted", "failed")
MOST_STEPS = 1 << 53
EVENTS = r"events/[\w.-]+-\d{5,9}\.parquet"
PART, CHECKPOINT = r"metrics/part-\d{5,9}\.(safetensors|parquet)", r"checkpoints/step-\d{8,16}\.safetensors"
INPUTS, DRAWING = r"inputs\.safetensors", r"drawing\.safetensors"
COLUMN_KINDS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")
NAME_LIKE = r"[^\W\d]\w*"


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
class Logged:
    """A logged event on disk: name, dtype of each column of a row by NumPy's name, and files with the rows, in order.

    Rows have the columns ``replicate``, ``step``, ``id`` and its own, and those that make them a table of the run.
    """

    name: str
    columns: dict[str, str]
    parts: tuple[Part, ...]


@dataclasses.dataclass(frozen=True)
class Drawing:
    """How agents can be drawn: names of stages by field, and the file with places and a network, if any."""

    levels: dict[str, tuple[str, ...]]
    file: Part | None


@dataclasses.dataclass(frozen=True)
class Setup:
    """What fixes a run besides the model.

    `vouched`: steps over which narrow fields were compared with wide ones; `start`: the day of the first step, ISO;
    `log`: logged events, and the function of each that finds out more, in words.
    """

    seed: int
    worlds: tuple[int, ...]
    dt: float
    time_unit: str
    device: str
    relax: str | None
    interventions: dict[str, str]
    record: dict[str, str]
    vouched: int | None = None
    start: str | None = None
    log: dict[str, str] | None = None


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
        model: fingerprint, see `denizen._fingerprint`.
        series: what is recorded; empty before the first step.
        inputs: file with identities and parameters per replicate.
        checkpoint: file with the state after `steps` steps.
        metrics: files with the series, in order.
        snapshots: see `Taken`; None where none were asked for.
        versions: of denizen, torch, Python and others.
        commit: of the git checkout that the run was started in, with "+" for uncommitted changes.
        settings: the command line's configuration, where it began the run.
        drawing: see `Drawing`; None where no snapshots are kept.
        events: the logged events; None where none are.
    """

    status: str
    error: str | None
    created: str
    updated: str
    steps: int
    wanted: int
    setup: Setup
    model: Fingerprint
    series: tuple[Series, ...]
    inputs: Part
    checkpoint: Part
    metrics: tuple[Part, ...]
    snapshots: Taken | None
    versions: dict[str, str]
    commit: str | None
    settings: dict[str, Any] | None
    drawing: Drawing | None = None
    events: tuple[Logged, ...] | None = None

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(
            {"format": FORMAT, "kind": KIND, **dataclasses.asdict(self)}, indent=1, ensure_ascii=False
        ).encode()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a simulation's folder.

    Raises:
        DataError: there is none, or it is damaged; names the entry that is wrong.
    """
    return read_manifest_and_bytes(folder)[0]


def read_manifest_and_bytes(folder: Path) -> tuple[Manifest, bytes]:
    """The same, and its bytes."""
    raw, data = _run_folder.read_manifest(folder, KIND, FORMAT)
    where = str(folder / NAME)
    manifest: Manifest = _as(Manifest, raw, where)
    _check(manifest, where)
    return manifest, data


def _as(kind: Any, raw: Any, where: str) -> Any:
    """A JSON value as a type: of the dataclasses above, or of what their fields are.

    Raises:
        DataError: it is no such value.
    """
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if raw is None and types.NoneType in options:
        return None
    kind = options[0]
    outer, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        entries, hints = _expect(dict, raw, where, "an object"), typing.get_type_hints(kind)
        later = (
            {f.name for f in dataclasses.fields(kind) if f.default is None}
            if dataclasses.is_dataclass(kind)
            else kind.__optional_keys__
        )
        for name in hints:
            if name not in entries and name not in later:  # which folders of before lack
                raise DataError(f"{where}: entry {name!r} is missing")
        return kind(**{name: _as(hints[name], entries[name], f"{where}: {name}") for name in hints if name in entries})
    if outer is tuple:
        items = _expect(list, raw, where, "a list")
        return tuple(_as(inner[0], item, f"{where}[{place}]") for place, item in enumerate(items))
    if outer is dict:
        entries = _expect(dict, raw, where, "an object")
        if inner[1] is Any:
            return entries
        return {_as(str, name, where): _as(inner[1], value, f"{where}: {name}") for name, value in entries.items()}
    if outer is float:
        number = _expect(int | float, raw, where, "a number")
        return float(_within(number, where)) if isinstance(number, int) else number
    if outer is int:
        return _within(_expect(int, raw, where, f"a whole number from 0 to {MOST_STEPS}"), where)
    return _printable(_expect(str, raw, where, "a text"), where)


def _expect(kind: Any, raw: Any, where: str, words: str) -> Any:
    if isinstance(raw, bool) or not isinstance(raw, kind):
        raise DataError(f"{where} is {_short(raw)}, expected {words}")
    return raw


def _within(number: int, where: str, low: int = 0, high: int = MOST_STEPS) -> int:
    if not low <= number <= high:
        raise DataError(f"{where} is {_short(number)}, expected a whole number from {low} to {high}")
    return number


def _printable(text: str, where: str) -> str:
    """A text that can be printed: JSON may hold halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where} is {_short(text)}, expected a text") from None
    return text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _check(manifest: Manifest, where: str) -> None:
    """Raise where an entry is of the right type and yet wrong, or where entries contradict one another."""

    def expect(right: bool, name: str, value: Any, words: str) -> None:
        if not right:
            raise DataError(f"{where}: {name} is {_short(value)}, expected {words}")

    expect(manifest.status in STATUSES, "status", manifest.status, " or ".join(map(repr, STATUSES)))
    setup, taken = manifest.setup, manifest.snapshots
    for number in (setup.seed, *setup.worlds):
        _within(number, f"{where}: setup: seed or one of worlds", high=2**32 - 1)
    expect(bool(setup.worlds), "setup: worlds", setup.worlds, "world numbers, at least one")
    expect(0 < setup.dt < float("inf"), "setup: dt", setup.dt, "a positive number")
    known = setup.start is None or _is_day(setup.start)
    expect(known, "setup: start", setup.start, "a date such as '2020-03-01'")
    named = [(manifest.inputs, INPUTS), (manifest.checkpoint, CHECKPOINT), *((part, PART) for part in manifest.metrics)]
    if manifest.drawing is not None and manifest.drawing.file is not None:
        named.append((manifest.drawing.file, DRAWING))
    named += [(part, EVENTS) for event in manifest.events or () for part in event.parts]
    for part, pattern in named:  # so no path leads out of the folder
        expect(bool(re.fullmatch(pattern, part.file)), "file", part.file, f"a name like {pattern}")
    for series in manifest.series:
        columns = ("replicate", "world", "step", "time")
        expect(series.name not in columns, "series: name", series.name, "a name that is no column of its own")
        expect(series.kind in ("flow", "level"), "series: kind", series.kind, "'flow' or 'level'")
        for size in series.shape:
            _within(size, f"{where}: series: shape", 1, 1 << 32)
    names = [series.name for series in manifest.series]
    if len(set(names)) != len(names):
        raise DataError(f"{where}: two series have one name: {names}")
    _check_steps(manifest, where)
    _check_events(manifest, where)
    if taken is not None:
        _within(taken.every, f"{where}: snapshots: every", 1)
        _within(1 if taken.slots is None else taken.slots, f"{where}: snapshots: slots", 1)
        right = all(re.fullmatch(NAME_LIKE, name) for name in taken.fields) and len(set(taken.fields)) == len(
            taken.fields
        )
        expect(right and bool(taken.fields), "snapshots: fields", taken.fields, "different names of fields")
        expect(len(taken.forms) == len(taken.fields), "snapshots: forms", taken.forms, "one for each field")
        for form in taken.forms:
            check_form(form, f"{where}: snapshots: forms")
        due = tuple(range(0, manifest.steps + 1, taken.every))
        if taken.steps != due or len(taken.digests) != len(due):
            raise DataError(f"{where}: snapshots are of steps {list(taken.steps[:8])}…, expected every {taken.every}")


def _check_events(manifest: Manifest, where: str) -> None:
    for event in manifest.events or ():
        columns = f"{where}: events: {event.name}: columns"
        for kind in event.columns.values():
            if kind not in COLUMN_KINDS:
                raise DataError(f"{columns} has {_short(kind)}, expected {' or '.join(COLUMN_KINDS)}")
        if not {"replicate", "step", "id"} <= set(event.columns):
            raise DataError(f"{columns} is {_short(list(event.columns))}, expected replicate, step and id among them")


def _is_day(text: str) -> bool:
    try:
        return str(_dates.day("manifest", "start", text)) == text
    except InputError:
        return False


def _check_steps(manifest: Manifest, where: str) -> None:
    expected = 1
    for part in manifest.metrics:
        if part.first != expected or part.last < part.first:
            raise DataError(
                f"{where}: {part.file} covers steps {part.first} to {part.last}, expected to begin at {expected}"
            )
        expected = part.last + 1
    for event in manifest.events or ():
        spans = [(part.first, part.last) for part in event.parts]
        if spans != [(part.first, part.last) for part in manifest.metrics]:
            raise DataError(f"{where}: events {event.name!r} cover steps {spans[:8]}…, and metrics others")
    if expected - 1 != manifest.steps or manifest.checkpoint.last != manifest.steps:
        raise DataError(
            f"{where}: steps is {manifest.steps}, but metrics end at {expected - 1} and the checkpoint is of step "
            f"{manifest.checkpoint.last}"
        )
