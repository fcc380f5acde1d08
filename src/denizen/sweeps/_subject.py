"""What is swept: a model, one that is built anew, or a function of theta and worlds; and the rows of a launch."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen._fingerprint import describe, fingerprint
from denizen._launches import called, simulated
from denizen._results import check_names
from denizen.errors import InputError, ModelError, nearest
from denizen.model import Intervention, Model
from denizen.run import model_to_run
from denizen.sweeps import _knobs
from denizen.sweeps._builder import Builder
from denizen.sweeps._executors import ROWS
from denizen.sweeps._knobs import Knob

OUTPUT = "output"  # the series of a function that names none

Function = Callable[[Tensor, list[int]], Any]


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is swept.

    Attributes:
        model: as it is where nothing is swept; or a function.
        given: interventions.
        builder: builds the model anew; None: its fields are replaced.
    """

    model: Model | Function
    given: tuple[Intervention, ...]
    builder: Builder | None = None

    @classmethod
    def of(cls, model: Any, interventions: Any) -> "Subject":
        """Check what was given to `sweep`.

        Raises:
            InputError: it cannot be swept.
        """
        if not isinstance(interventions, list | tuple):
            raise InputError(f"sweep: interventions={interventions!r}, expected a list of interventions")
        builder = model if isinstance(model, Builder) else None
        if builder is not None:
            builder.defaults()
            model = builder.model({})
        if isinstance(model, Model | type) or not callable(model):
            model_to_run("sweep", model)
        elif interventions:
            raise InputError("sweep: interventions go with a model, and this is a function; leave them out")
        return cls(model, tuple(interventions), builder)

    def find(self, name: str) -> Knob:
        """What may be swept of a name.

        Raises:
            InputError: nothing; names the nearest.
        """
        model = self.model
        if not isinstance(name, str) or not name:
            raise InputError(f"sweep: {name!r}, expected the name of something to sweep, a text")
        if not isinstance(model, Model):
            return Knob(name, "number", False)
        defaults = self.builder.defaults() if self.builder else {}
        found = _knobs.of_model(model, name) if name in model.params or name not in defaults else None
        if found is None and name in defaults:
            kind = _knobs.kind_of(defaults[name])
            found = None if kind is None else Knob(name, kind, True)
        if found is None:
            found = _knobs.of_interventions(self.given, name)
        if found is None:
            known = [*_knobs.names(model, self.given), *(n for n in defaults if n not in model.field_names)]
            told = f"{type(model).__name__} has nothing of that name to sweep; {nearest(name, known)}"
            raise InputError(f"sweep: {name!r}: {told}")
        return found

    def at(self, fixed: Mapping[str, Any]) -> tuple[Model, tuple[Intervention, ...]]:
        """Model and interventions of launches in which fixed knobs have these values."""
        model = self.model
        assert isinstance(model, Model)
        given = dict(fixed)
        if self.builder is not None and given:
            built = {name: given.pop(name) for name in self.builder.defaults() if name in given}
            model = self.builder.model(built) if built else model
        return _knobs.with_fixed(model, self.given, given)

    @property
    def kinds(self) -> dict[str, str] | None:
        """``"flow"`` or ``"level"`` of each series; None for a function, which shows them when it is called."""
        return dict(self.model.all_series) if isinstance(self.model, Model) else None

    def about(self, name: str) -> str:
        """The sentence with which a series is documented."""
        text = getattr(type(self.model), name, None)
        return (getattr(text, "__doc__", "") or "").strip().partition("\n")[0] if isinstance(self.model, Model) else ""

    def facts(self) -> dict[str, Any]:
        """What it is, for a manifest."""
        if not isinstance(self.model, Model):
            return {"function": describe(self.model)}
        builder = {"builder": describe(self.builder.build)} if self.builder else {}
        return {**fingerprint(self.model), **builder}


@dataclasses.dataclass(frozen=True)
class Points:
    """The sets of a sweep.

    Attributes:
        knobs: what is swept.
        rows: values of each set.
    """

    knobs: tuple[Knob, ...]
    rows: tuple[tuple[Any, ...], ...]

    def told(self, number: int) -> str:
        """A set, in words."""
        return told(dict(zip(self.names, self.rows[number], strict=True)))

    @property
    def names(self) -> list[str]:
        """Of the knobs."""
        return [knob.name for knob in self.knobs]

    def fixed(self, number: int) -> tuple[tuple[str, Any], ...]:
        """What is the same in all rows of a launch with this set."""
        pairs = zip(self.knobs, self.rows[number], strict=True)
        return tuple((knob.name, value) for knob, value in pairs if knob.fixed)

    def numbers(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Of each knob that is not fixed, float64 `[sets]`."""
        return {
            knob.name: torch.tensor([self.rows[k][place] for k in numbers], dtype=torch.float64)
            for place, knob in enumerate(self.knobs)
            if not knob.fixed
        }

    def groups(self) -> list[list[int]]:
        """Sets that may share a launch, in order."""
        found: dict[Any, list[int]] = {}
        for number in range(len(self.rows)):
            found.setdefault(self.fixed(number), []).append(number)
        return list(found.values())


def check_series(names: Iterable[str]) -> None:
    """Raise `InputError` where the folder or the table of a sweep has something else of a series' name."""
    check_names(names, ("set", "replicate", "step", "time"), (ROWS,))


def told(values: Mapping[str, Any]) -> str:
    """Values by name, in words."""
    return ", ".join(f"{n}={v:.6g}" if isinstance(v, float) else f"{n}={v}" for n, v in values.items())


@dataclasses.dataclass(frozen=True)
class Launch:
    """Simulates rows: the set ``row // replicates`` in the world ``row % replicates``.

    Attributes:
        subject: what is swept.
        points: the sets.
        replicates: worlds of a set.
        steps: of each row.
        names: series that are kept; None: all.
        options: `seed`, `dt`, `start`, `device` and `compile` of `simulate`.
    """

    subject: Subject
    points: Points
    replicates: int
    steps: int
    names: tuple[str, ...] | None
    options: Mapping[str, Any]

    def __call__(self, rows: np.ndarray) -> tuple[np.ndarray, dict[str, Tensor]]:
        """Rows of one group, and their series `[rows, steps, …]`.

        Where memory does not take them together, they run in halves; so does what fails, until one row is blamed.
        """
        try:
            return rows, self._simulated(rows)
        except (ModelError, InputError) as error:
            if len(rows) == 1:
                number, world = divmod(int(rows[0]), self.replicates)
                told = f"sweep: set {number} ({self.points.told(number)}) in world {world}: {error}"
                raise type(error)(told) from error
        half = len(rows) // 2
        parts = [self(part)[1] for part in (rows[:half], rows[half:])]
        return rows, {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _simulated(self, rows: np.ndarray) -> dict[str, Tensor]:
        numbers, worlds = (part.tolist() for part in np.divmod(rows, self.replicates))
        values, model = self.points.numbers(numbers), self.subject.model
        if not isinstance(model, Model):
            theta = torch.stack([values[name] for name in self.points.names], dim=1)
            found = model(theta, worlds)
            series = found if isinstance(found, Mapping) else {OUTPUT: found}
            if not series:
                raise InputError("the function gave no series, expected one by name or more")
            check_series(series)
            lacking = [name for name in self.names or () if name not in series]
            if lacking:
                raise InputError(f"series has {lacking[0]!r}; {nearest(lacking[0], series)}")
            return called("sweep", {name: series[name] for name in self.names or series}, theta, self.steps)
        model, acting = self.subject.at(dict(self.points.fixed(numbers[0])))
        return simulated(
            model,
            self.steps,
            worlds,
            _knobs.with_rows(model, values),
            self.names if self.names is not None else model.all_series,
            interventions=acting,
            **self.options,
        )
