"""The run folder of a sweep.

    checkpoints/design-*         values of every set
    parts/part-*.safetensors     rows that are done: their numbers, and series `[rows, steps, …]`
    sweep.parquet, summary.csv   tables, once all rows are done
    report.html                  pictures, where the command line made it

The rest is as in every run folder, see `denizen._run_folder`. A row is a set in a world: number ``set * replicates +
replicate``. Launches that end are kept together until a save is due; a kill loses what was launched since.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from denizen._atomic import status_now
from denizen._fingerprint import differences
from denizen._run_folder import NAME, Part, StateFolder, check_free, content, decode, encode, kind_of, versions, write
from denizen.errors import DataError, InputError, StorageError
from denizen.sweeps._executors import ROWS
from denizen.sweeps._knobs import Knob
from denizen.sweeps._subject import Points

PART = re.compile(r"parts/part-\d{6,9}\.safetensors")
FORMS: dict[str, Any] = {
    "model": dict,
    "design": dict,
    "versions": dict,
    "columns": list,
    "parts": list,
    "recorded": dict | None,
}
FORMS |= dict.fromkeys(("sets", "replicates", "steps"), int)
MOST = 1 << 40  # sets, replicates, steps
GIVEN = ("sets", "replicates", "steps", "seed", "dt", "start", "interventions", "series", "design")


class SweepFolder(StateFolder):
    """A sweep's folder: begun, gone on with, or read."""

    KIND, FORMAT, COUNT = "sweep", "denizen sweep 1", "rows"
    FILES: ClassVar[Mapping[str, str]] = {"points": "design-{:08d}"}
    SECONDS: ClassVar[float] = 2.0

    @classmethod
    def read(cls, path: Path) -> dict[str, Any]:
        """The manifest; raises `DataError` where it is none of a sweep, or damaged."""
        manifest = super().read(path)
        for name, kind in FORMS.items():
            value = manifest[name]
            counts = kind is not int or (type(value) is int and 0 < value <= MOST)
            if not isinstance(value, kind) or not counts:
                raise DataError(f"{path / NAME}: {name} is {str(value)[:80]}, which none of a sweep is; it was damaged")
        return manifest

    @classmethod
    def enter(cls, path: Path, points: Points, facts: Mapping[str, Any]) -> "SweepFolder":
        """The folder of a new sweep, or that of the same one, which goes on; this process holds it.

        Raises:
            InputError: the sweep in the folder was begun with something else; says what.
            StorageError: the folder holds something else, another process works on it, or it cannot be written.
        """
        columns, values = _encoded(points)
        facts = {**facts, "columns": columns, "sets": len(points.rows)}
        if kind_of(path) != cls.KIND:
            check_free(path)
            folder = cls.begin(path, {**facts, "parts": [], "recorded": None})
            try:
                folder.save(0, {"points": {"values": values}})
            except BaseException:
                folder.release()
                raise
            return folder
        folder = cls.open(path)
        folder.hold()
        try:
            folder._same(facts, values)
        except BaseException:
            folder.release()
            raise
        return folder

    def _same(self, facts: Mapping[str, Any], values: Tensor) -> None:
        """Refuse what the sweep was not begun with."""
        held = self.manifest
        found = _model_differences(held["model"], facts["model"])
        before: dict[str, Any] = {"start": None, **held}  # which older sweeps had not
        found += [f"{n} is {facts[n]} here and was {before[n]}" for n in GIVEN if before[n] != facts[n]]
        if not found and (
            held["columns"] != facts["columns"] or not torch.equal(self.load("points")["values"], values)
        ):
            found = ["the sets have other values"]
        if found:
            raise InputError(
                f"sweep: {self.path} holds a sweep that was begun with something else: {'; '.join(found)}; choose "
                f"another folder for out="
            )
        was = {**held["versions"], "device": held["device"]}
        changed = [f"{n} {now} (was {was.get(n)})" for n, now in versions().items() if was.get(n) != now]
        if held["device"] != facts["device"]:
            changed.append(f"device {facts['device']} (was {held['device']})")
        if changed:
            import warnings

            warnings.warn(
                f"sweep: {self.path} was begun with other versions: {', '.join(changed)}; numbers may differ from "
                f"those of a sweep that was never stopped",
                stacklevel=4,
            )

    @contextlib.contextmanager
    def working(self) -> Generator[None]:
        """Around launches; whatever ends them, what came back is kept."""
        self._waiting: list[tuple[np.ndarray, Mapping[str, Tensor]]] = []
        with self.session():
            self._remove_leftovers()
            if self.manifest["status"] != "finished":
                self.note(status="running", error=None)
            self.log(f"works on it, {self.manifest['rows']} rows safe")
            try:
                yield
                self.flush()
            except StorageError as error:
                with contextlib.suppress(StorageError):  # a full disk may still take that little
                    self.note(status="failed", error=str(error))
                raise
            except BaseException as error:
                status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
                told = f"{type(error).__name__}: {error}".strip(": ")
                try:
                    self.flush(status=status, error=told)
                except StorageError as failure:
                    error.add_note(str(failure))
                self.log(f"{status}, {self.manifest['rows']} rows safe: {told[:200]}")
                raise

    def add(self, rows: np.ndarray, series: Mapping[str, Tensor], recorded: Mapping[str, Any]) -> None:
        """Take what a launch gave, and save where that is due."""
        self._waiting.append((rows, series))
        self._recorded = recorded
        if self.due():
            self.flush()

    def flush(self, **changes: Any) -> None:
        """Save what launches gave since the last save.

        Raises:
            StorageError: the disk is full or gone; says what is safe.
        """
        if not self._waiting:
            if changes:
                self.note(**changes)
            return
        rows = np.concatenate([part for part, _ in self._waiting])
        tensors = {n: torch.cat([series[n] for _, series in self._waiting]) for n in self._waiting[0][1]}
        held = self.manifest["parts"]
        number = 1 + max((int(entry["file"][-18:-12]) for entry in held), default=-1)
        with self._saving():
            (self.path / "parts").mkdir(exist_ok=True)
            data = encode({**tensors, ROWS: torch.as_tensor(rows)})
            file = f"parts/part-{number:06d}.safetensors"
            part = write(self.path, file, int(rows.min()), int(rows.max()), data)
            entry = {**dataclasses.asdict(part), "rows": len(rows)}
            self._commit(
                parts=[*held, entry], rows=self.manifest["rows"] + len(rows), recorded=self._recorded, **changes
            )
        self._waiting.clear()

    def parts(self) -> Iterable[tuple[np.ndarray, dict[str, Tensor]]]:
        """Rows that are done, and their series, file by file.

        Raises:
            DataError: a file is missing or damaged, or a row is there twice.
        """
        rows = self.manifest["sets"] * self.manifest["replicates"]
        seen = np.zeros(rows, dtype=bool)
        where = self.path / NAME
        for entry in self.manifest["parts"]:
            count = entry.get("rows") if isinstance(entry, dict) else None
            if count is None or not PART.fullmatch(str(entry.get("file"))):
                raise DataError(f"{where}: parts has {str(entry)[:80]}, expected the entry of a file")
            try:
                part = Part(**{name: value for name, value in entry.items() if name != "rows"})
            except TypeError as error:
                raise DataError(f"{where}: parts has {str(entry)[:80]}, expected the entry of a file") from error
            tensors = decode(content(self.path, part), str(self.path / part.file))
            numbers = tensors.pop(ROWS, torch.empty(0)).numpy()
            if numbers.dtype != np.int64 or len(numbers) != count or any(len(one) != count for one in tensors.values()):
                raise DataError(f"{self.path / part.file} does not hold {count} rows, as the manifest says")
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < rows):
                raise DataError(f"{self.path / part.file} has rows beyond the sweep's {rows}")
            if seen[numbers].any() or len(np.unique(numbers)) != count:
                raise DataError(f"{self.path / part.file} has rows that are there already")
            seen[numbers] = True
            yield numbers, tensors

    def points(self) -> Points:
        """The sets."""
        return _decoded(self.manifest["columns"], self.load("points").get("values"), f"{self.path}: columns")

    def design(self) -> "Again":
        """The sets as a design, with which the sweep goes on."""
        return Again(self.points(), self.manifest["design"])

    @property
    def status(self) -> str:
        """As the manifest says it, or ``"killed"``."""
        return status_now(self.path, self.manifest["status"])

    def _remove_leftovers(self) -> None:
        listed = {entry["file"] for entry in self.manifest["parts"]}
        with contextlib.suppress(OSError):
            for file in self.path.glob("parts/*"):
                if file.relative_to(self.path).as_posix() not in listed:
                    file.unlink()


@dataclasses.dataclass(frozen=True)
class Again:
    """The sets of a folder as a design.

    Attributes:
        points: the sets.
        told: the design that they were made by, as a manifest has it.
    """

    points: Points
    told: dict[str, Any]

    def sets(self, find: Callable[[str], Knob]) -> tuple[list[str], list[list[Any]]]:
        knobs = [find(name) for name in self.points.names]
        rows = [[knob.read(v) for knob, v in zip(knobs, row, strict=True)] for row in self.points.rows]
        return self.points.names, rows


def _model_differences(saved: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    if "function" in saved or "function" in given or saved.get("builder") != given.get("builder"):
        if saved == given:
            return []
        told = [one.get("builder", one.get("function", one.get("class"))) for one in (given, saved)]
        return [f"the model is {told[0]} here and was {told[1]}"]
    return differences(saved, given)


def _encoded(points: Points) -> tuple[list[dict[str, Any]], Tensor]:
    """Columns as JSON, and their values as float64 `[sets, names]`; a text is its place among the column's texts."""
    columns, values = [], []
    for place, knob in enumerate(points.knobs):
        column = [row[place] for row in points.rows]
        texts = sorted(set(column)) if knob.kind == "text" else []
        bounds = {"low": knob.low, "high": knob.high, "unit": knob.spec.unit if knob.spec else ""}
        columns.append({"name": knob.name, "kind": knob.kind, "fixed": knob.fixed, **bounds, "texts": texts})
        values.append([float(texts.index(value)) if texts else float(value) for value in column])
    return columns, torch.tensor(values, dtype=torch.float64).T.contiguous()


def _decoded(columns: Any, values: Tensor | None, where: str) -> Points:
    knobs, rows = [], []
    try:
        for place, told in enumerate(columns):
            kind, texts, numbers = told["kind"], told["texts"], values[:, place].tolist()  # type: ignore[index]
            as_it_was: Any = {"number": float, "whole": int, "switch": bool, "text": int}[kind]
            column = [as_it_was(number) for number in numbers]
            knobs.append(Knob(str(told["name"]), kind, bool(told["fixed"])))
            rows.append([texts[k] for k in column] if kind == "text" else column)
        assert knobs
    except (KeyError, TypeError, IndexError, ValueError, AssertionError) as error:
        raise DataError(f"{where} cannot be read: {type(error).__name__}: {str(error)[:100]}") from error
    return Points(tuple(knobs), tuple(zip(*rows, strict=True)))
