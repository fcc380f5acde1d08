"""Why series part with the length of a step: single steps of dt and of dt/2 from the same states, watched."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from denizen.errors import DenizenError
from denizen.model._flat_world import FlatWorld, advance
from denizen.model._history import History
from denizen.model._interventions import Course, Intervention
from denizen.model._source_lines import Line, author_frame, line_of_frame
from denizen.model._state import State, Time, own, plain
from denizen.model._when import ALWAYS, During
from denizen.rng import Rng

SAME = 0.8  # a chance or an effect that stays above this share in half a step does not follow dt
LOOKS, SEEN = 6, 2  # steps of a run, and worlds, that single steps are taken from
CERTAIN = 20.0  # a hazard of who is certain: half of it is as certain, and tells nothing


@dataclasses.dataclass(frozen=True)
class Cause:
    """Something that goes by the step.

    Attributes:
        line: the author's, or None.
        what: in words.
        instead: what to write.
        series: names of those that it parts; None for all.
    """

    line: Line | None
    what: str
    instead: str
    series: frozenset[str] | None = None


@dataclasses.dataclass
class Draw:
    """A 0/1 draw, in steps of dt and of dt/2 from the same states.

    Attributes:
        stream: its number.
        name: the author's.
        event: whether it is `rng.event`.
        line: the author's.
        chances: sum of hazards over agents, with dt and with dt/2.
        effects: how much the next states and what is recorded change with it, with dt and with dt/2.
    """

    stream: int
    name: str
    event: bool
    line: Line | None
    chances: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0])
    effects: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0])

    @property
    def stays(self) -> bool:
        """Whether chance and effect are those of a whole step in half a step as well.

        A chance alone may: that of what follows from an event, such as whom it hits, has half the effect.
        """
        return all(whole > 0 and half > SAME * whole for whole, half in (self.chances, self.effects))

    def cause(self, series: frozenset[str]) -> Cause:
        """In words."""
        kind = "hazard times dt" if self.event else "probability"
        what = f"the {kind} of {self.name!r} does not follow dt: in the same time it is drawn twice as often"
        instead = f"rng.event({self.name!r}, rate), with a rate per unit of time"
        return Cause(self.line, what, instead + ("" if self.event else "; or 1 - (1 - p) ** now.time.dt"), series)


class Looks:
    """Single steps of dt and of dt/2 from states of a run.

    Attributes:
        clocks: lines of the author that read the number of the step.
    """

    def __init__(self, keys: Tensor, steps: int) -> None:
        """Args:
        keys: of the worlds.
        steps: of the run.
        """
        self.clocks: list[Line] = []
        self._keys = keys[:SEEN]
        self._wanted = {round(k * (steps - 1) / (LOOKS - 1)) for k in range(LOOKS)}
        self._kept: list[tuple[int, FlatWorld, list[Tensor], Tensor]] = []
        self._draws: dict[int, Draw] = {}
        self._moves: dict[str, list[float]] = {}  # of each field: how far, and how much less or more with dt/2
        self._replaced: dict[str, Line] = {}
        self._ages: dict[Line, None] = {}
        self._histories: set[str] = set()

    def keep(self, number: int, world: FlatWorld, leaves: list[Tensor], switches: Tensor) -> None:
        """Keep the states before a step, where they are wanted."""
        if number in self._wanted:
            self._kept.append((number, world, leaves, switches))

    def look(self, half: FlatWorld) -> None:
        """Take the steps, unless a state of steps of dt is none for those of dt/2, as that of a history in time.

        Args:
            half: the same world with steps of dt/2.
        """
        try:
            self._look(half)
        except DenizenError:
            self._draws, self._moves = {}, {}

    def _look(self, half: FlatWorld) -> None:
        for number, whole, leaves, switches in self._kept:
            answers = {n: v for one in whole.setting.interventions for n, v in one.answers(number).items()}
            for k, key in enumerate(self._keys):
                now = whole.state([leaf[k] for leaf in leaves], torch.tensor(number))
                self._histories |= {name for name, kind in now.kinds.items() if kind.name == "history"}
                moved = []
                for place, world in enumerate((whole, half)):
                    setting = dataclasses.replace(world.setting, custom_ids=whole.setting.custom_ids)
                    begun = own(now, Time(now.time.step, setting.dt, now.time.unit), now.id)

                    def step(world: FlatWorld = world, begun: Any = begun, setting: Any = setting) -> Any:
                        return advance(world.model, begun, switches[k], key, answers, setting)  # noqa: B023

                    with self._watched(place):
                        out = step()
                    moved.append({n: _number(getattr(out.state, n)) - _number(getattr(now, n)) for n in now.kinds})
                    for stream, draw in self._draws.items():
                        with _without(stream):
                            draw.effects[place] += _distance(_all(out), _all(step()))
                self._note(*moved)

    def draws(self) -> list[Draw]:
        """Those whose chance and effect do not follow dt."""
        return [draw for draw in self._draws.values() if draw.stays]

    def clock(self, line: Line, series: frozenset[str] | None = None) -> Cause:
        """A line that takes the number of the step for time, in words."""
        what = "now.time.step counts steps, whatever their length"
        return Cause(line, what, "now.time.value, the time since the start in the model's unit", series)

    def fields(self) -> list[Cause]:
        """Fields that move as far in half a step as in a whole one, and what else counts steps."""
        found = []
        for name, (whole, off) in self._moves.items():
            if whole and off < (1 - SAME) * whole:
                line = self._replaced.get(name)
                what = f"the field {name!r} moves as far in half a step as in a whole one"
                instead = "changes in proportion to now.time.dt; for ages and timers, time in place of counts of steps"
                if name in self._histories:
                    line = next(iter(self._ages), line)
                    what = f"the history {name!r} counts steps, so its ages are shorter with shorter steps"
                    instead = "ages and tables in steps: days / now.time.dt"
                found.append(Cause(line, what, instead))
        return found or [self.clock(line) for line in self.clocks[:1]]

    def _note(self, whole: dict[str, Tensor], half: dict[str, Tensor]) -> None:
        for name, move in whole.items():
            sums = self._moves.setdefault(name, [0.0, 0.0])
            sums[0] += float(move.abs().sum())
            sums[1] += float((move - half[name]).abs().sum())

    @contextmanager
    def _watched(self, place: int) -> Iterator[None]:
        """Note draws, where fields are replaced, and who asks for ages or for the number of the step."""

        def mask(inner: Any, rng: Rng, name: str, chances: Tensor, hazard: bool, stream: int) -> Tensor:
            frame = author_frame(through_denizen=True)
            line = None if frame is None else line_of_frame(frame)
            draw = self._draws.setdefault(stream, Draw(stream, name, hazard, line))
            hazards = chances.double() if hazard else -torch.log1p(-chances.double())
            draw.chances[place] += float(torch.where(hazards < CERTAIN, hazards, 0).sum())
            return inner(rng, name, chances, hazard, stream)

        def replace(inner: Any, state: State, **changes: Any) -> Any:
            frame = author_frame()
            if frame is not None:
                self._replaced |= {name: line_of_frame(frame) for name in changes if name not in self._replaced}
            return inner(state, **changes)

        def ages(inner: Any, *args: Any, **options: Any) -> Any:
            frame = author_frame()
            if frame is not None:
                self._ages.setdefault(line_of_frame(frame))
            return inner(*args, **options)

        def read(inner: Any, time: Time, name: str) -> Any:
            frame = author_frame() if name == "step" else None
            if frame is not None and line_of_frame(frame) not in self.clocks:
                self.clocks.append(line_of_frame(frame))
            return inner(time, name)

        with ExitStack() as stack:
            for patch in (
                _masks_by(mask),
                _patched(State, "replace", replace),
                _patched(History, "weigh", ages),
                _patched(History, "within", ages),
                _patched(Time, "__getattribute__", read),
            ):
                stack.enter_context(patch)
            yield


def _number(field: Any) -> Tensor:
    return plain(field).double()


def _all(out: Any) -> list[Tensor]:
    """The state after a step and what was recorded, without identities."""
    return [_number(getattr(out.state, name)) for name in out.state.kinds] + [row.double() for row in out.records]


def _distance(one: list[Tensor], other: list[Tensor]) -> float:
    return sum(float((a - b).nan_to_num().abs().sum()) for a, b in zip(one, other, strict=True))


@contextmanager
def _patched(owner: type, name: str, made: Callable[..., Any]) -> Iterator[None]:
    """A method replaced for a while by a function of it and of its arguments."""
    inner, own_one = getattr(owner, name), name in vars(owner)
    setattr(owner, name, lambda *args, **options: made(inner, *args, **options))
    try:
        yield
    finally:
        if own_one:
            setattr(owner, name, inner)
        else:
            delattr(owner, name)


@contextmanager
def _masks_by(made: Callable[..., Any]) -> Iterator[None]:
    """0/1 draws replaced for a while; all have their chances multiplied by their masks before."""
    with _patched(Rng, "_plain", lambda *_: False), _patched(Rng, "_mask", made):
        yield


def _without(stream: int) -> AbstractContextManager[None]:
    """Nothing comes of one draw."""

    def mask(inner: Any, rng: Rng, name: str, chances: Tensor, hazard: bool, number: int) -> Tensor:
        drawn = inner(rng, name, chances, hazard, number)
        return 0 * drawn if number == stream else drawn

    return _masks_by(mask)


def slowed(*streams: int) -> AbstractContextManager[None]:
    """Draws at half of their hazard."""

    def mask(inner: Any, rng: Rng, name: str, chances: Tensor, hazard: bool, number: int) -> Tensor:
        if number in streams:
            chances = chances / 2 if hazard else 1 - (1 - chances).sqrt()
        return inner(rng, name, chances, hazard, number)

    return _masks_by(mask)


def halved_clock(line: Line) -> AbstractContextManager[None]:
    """One line of the author reads half of the number of the step."""

    def read(inner: Any, time: Time, name: str) -> Any:
        value = inner(time, name)
        frame = author_frame() if name == "step" else None
        return value // 2 if frame is not None and line_of_frame(frame) == line else value

    return _patched(Time, "__getattribute__", read)


def in_steps(interventions: Sequence[Intervention]) -> list[Cause]:
    """Interventions that are given in steps."""
    found = []
    for one in interventions:
        when = one.when
        if isinstance(one, Course) and one.days is one.dates is None:
            told = f"the intervention {one.name!r} has a value for every {one.every} steps"
            found.append(Cause(None, told, "Course(…, days=7)"))
        elif isinstance(when, During) and when.start is not None and when != ALWAYS:
            told = f"the intervention {one.name!r} counts steps: During({when.start}, {when.stop})"
            found.append(Cause(None, told, "During(days=…), or dates="))
    return found
