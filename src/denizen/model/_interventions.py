"""Interventions: changes of parameters or of the state that switch on and off while a model runs.

Each has a `when` that is decided on the device. At every step the engine first lets each intervention act, in the order
given, then takes the model's step. Draws inside an intervention come from a scope of its own, so adding one changes
nobody else's random numbers.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from denizen import _tree
from denizen._arguments import number, whole
from denizen._units import fraction
from denizen.errors import InputError, ModelError, expect_function, nearest
from denizen.model._model import Model
from denizen.model._state import State, form, own, values
from denizen.model._when import ALWAYS, Clock, During, When
from denizen.rng import Rng
from denizen.space import Layers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intervention:
    """Base of interventions.

    Attributes:
        when: when it is on.
        name: scope of its random numbers; unique within a run.
    """

    when: When
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"{type(self).__name__}: name={self.name!r}, expected a text")
        if not callable(getattr(self.when, "on", None)):
            raise InputError(f"{type(self).__name__}: when={self.when!r}, expected During(…) or Trigger(…)")
        if isinstance(self.when, When):
            self.when.check()
        else:
            expect_function(f"{type(self).__name__}: when.on", self.when.on, "now", "was_on")

    def check(self, model: Model) -> None:
        """Raise `InputError` where the intervention does not fit the model; called once, before the run."""

    def among(self, others: Sequence["Intervention"]) -> None:
        """Raise `InputError` where it does not go with all interventions of a run; called once, after every `check`."""

    @property
    def _sets(self) -> str | None:
        """The parameter whose value it gives in every step, so that no other one counts; None: it sets none."""
        return None

    def timed(self, clock: Clock) -> Self:
        """The intervention in steps of a run; called once, after `check`."""
        when = self.when.at(clock) if isinstance(self.when, When) else self.when
        return self if when is self.when else dataclasses.replace(self, when=when)

    def answers(self, step: int) -> dict[str, Tensor]:
        """Parameter values decided on the host before a step; called once a step."""
        return {}

    def kept(self) -> dict[str, Tensor]:
        """What it keeps on the host from step to step, for a run that is resumed."""
        return {}

    def restore(self, kept: Mapping[str, Tensor]) -> None:
        """Go on from what `kept` gave."""

    def bind(self, model: Any) -> Any:
        """The model as the engine holds it for the run; called once, after `check`."""
        return model

    def begin(self, model: Any) -> Any:
        """The model as `init` shall see it."""
        return model

    def act(self, model: Any, now: Any, on: Tensor, rng: Rng) -> tuple[Any, Any]:
        """(model, state) as the step shall see them."""
        raise NotImplementedError


def bind(model: Any, interventions: Sequence[Intervention]) -> Any:
    """The model as the engine holds it for a run with these interventions."""
    for intervention in interventions:
        model = intervention.bind(model)
    return model


def interventions_of(where: str, model: Model, more: Sequence[Any] = ()) -> tuple[Intervention, ...]:
    """The interventions of a run: those of the model, then those given with it; each fits the model and the others.

    Raises:
        InputError: one that does not, or what is no intervention, which names `where`.
    """
    of_model = model.interventions
    if not isinstance(of_model, list | tuple):
        raise InputError(
            f"{type(model).__name__}: interventions is {of_model!r}, "
            "expected a tuple of interventions, such as (Scale(…),)"
        )
    given = (*of_model, *more)
    for intervention in given:
        if not isinstance(intervention, Intervention):
            kind = type(intervention).__name__
            raise InputError(
                f"{where}: interventions has {kind} {intervention!r}, expected Scale, Course, Act or Ask objects"
            )
    names = [intervention.name for intervention in given]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: two interventions are called {name!r}; give each its own name=")
    for intervention in given:
        intervention.check(model)
    for intervention in given:
        intervention.among(given)
    return given


def check_not_set(caller: str, what: str, names: Collection[str], acting: Sequence[Intervention]) -> None:
    """Raise `InputError` where an intervention sets one of these parameters, whose other values would count nowhere.

    Args:
        caller: for messages.
        what: is done to the parameters: ``"is to be fitted"``.
        names: of them.
        acting: interventions of the run.
    """
    for one in acting:
        if one._sets in names:
            article = "an" if isinstance(one, Ask) else "a"
            raise InputError(
                f"{caller}: interventions has {article} {type(one).__name__} of {one._sets!r}, which sets what {what}; "
                f"leave one of the two out"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale(Intervention):
    """Multiplies a parameter, or one layer's strength, while on.

    Attributes:
        target: name of a parameter (``"infect_rate"``) or of a layer (``"contacts.school"``).
        factor: number to multiply with, for example 0 to close a layer.
    """

    target: str
    factor: float
    name: str = "scale"

    def __post_init__(self) -> None:
        super().__post_init__()
        number("Scale", "factor", self.factor)

    def check(self, model: Model) -> None:
        super().check(model)
        _check_target("Scale", model, self.target)

    def act(self, model: Any, now: Any, on: Tensor, rng: Rng) -> tuple[Any, Any]:
        return _with(model, self.target, _value(model, self.target) * torch.where(on, self.factor, 1.0)), now


def _check_target(caller: str, model: Model, target: Any) -> None:
    """Raise `InputError` where a target is neither a parameter nor a layer's strength."""
    if not isinstance(target, str):
        raise InputError(
            f"{caller}: target={target!r}, expected the name of a parameter or of a layer, such as "
            "'infect_rate' or 'contacts.school'"
        )
    head, _, layer = target.partition(".")
    if head not in model.field_names:
        raise InputError(f"{caller}: the model has no {head!r}; {nearest(head, model.field_names)}")
    value = getattr(model, head)
    if layer:
        if not isinstance(value, Layers):
            raise InputError(f"{caller}: {head!r} is not Layers, so it has no layer {layer!r}")
        value[layer]
    elif head not in model.params:
        kind = type(value).__name__
        raise InputError(f"{caller}: {target!r} is {kind}, expected a parameter; {nearest(head, model.params)}")


def _value(model: Any, target: str) -> Tensor:
    head, _, layer = target.partition(".")
    value = getattr(model, head)
    return value.strength[layer] if layer else value


def _with(model: Any, target: str, value: Tensor) -> Any:
    """The model with another value of a parameter, or another strength of a layer."""
    head, _, layer = target.partition(".")
    if not layer:
        return model.with_values({head: value})
    layers = getattr(model, head)
    return model.with_values({head: Layers._with(layers.graphs, {**layers.strength, layer: value})})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course(Intervention):
    """Sets a parameter, or one layer's strength, in time: a value for every so many steps; the last one holds on.

    It acts from the first step on, and `init` sees the first value. ``simulate(..., params=)`` takes values in time for
    each replicate, `[replicates, values, …]`, and `run.Gradient` the slope of each value.

    Attributes:
        target: name of a parameter (``"R"``) or of a layer (``"contacts.school"``).
        values: each as the parameter is, a number for a number.
        every: steps of a value.
        days: days of a value, whatever the length of a step, in place of `every`; or the day on which each begins, as
            many as there are values, in order. The first value holds before, too.
        dates: the same as dates, in runs with a start.
    """

    target: str
    values: Any
    every: int = 7
    days: Any = dataclasses.field(default=None, metadata={"unless": None})
    dates: Any = dataclasses.field(default=None, metadata={"unless": None})
    when: When = dataclasses.field(default=ALWAYS, init=False)
    name: str = "course"
    _begins: tuple[int, ...] | None = dataclasses.field(default=None, init=False, repr=False, metadata={"unless": None})

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("Course", "every", self.every, 1)
        if isinstance(self.values, str) or not hasattr(self.values, "__len__") or not len(self.values):
            raise InputError(f"Course: values={self.values!r}, expected a list of values, at least one")
        if self.days is not None and self.dates is not None:
            raise InputError("Course: days and dates given, expected one of the two")
        self._starts()

    def check(self, model: Model) -> None:
        super().check(model)
        if "." in str(self.target):
            _check_target("Course", model, self.target)
        elif self.target not in model.params:
            raise InputError(
                f"Course: the model has no parameter {self.target!r}; {nearest(self.target, model.params)}"
            )
        for k, value in enumerate(self.values):
            self._read(model, k, value)

    def among(self, others: Sequence[Intervention]) -> None:
        """Raise `InputError` where another one sets the same, too."""
        for one in others:
            if one is not self and isinstance(one, Course | Ask) and one.target == self.target:
                raise InputError(
                    f"Course: {self.name!r} sets {self.target!r}, and so does the {type(one).__name__} {one.name!r}; "
                    f"leave one of the two out"
                )

    @property
    def _sets(self) -> str | None:
        return self.target

    def _read(self, model: Any, k: int, value: Any) -> Any:
        where = f"Course: values[{k}]"
        if self.target in model.params:
            return model.params[self.target].read(value, where)
        return number("Course", f"values[{k}]", value)

    def _starts(self) -> list[During] | None:
        """Where each value begins; None where each lasts equally long."""
        name = "dates" if self.dates is not None else "days"
        given = getattr(self, name)
        if given is None:
            return None
        if not isinstance(given, list | tuple | np.ndarray):
            if name == "days":
                number("Course", "days", given, above=0)
                return None
            given = [given]
        if len(given) != len(self.values):
            raise InputError(
                f"Course: {name} has {len(given)} entries, expected {len(self.values)}, one for each value"
            )
        for one, next_ in zip(given, [*given[1:], given[-1]], strict=True):
            _from(name, (one, next_)).check()  # in order
        return [_from(name, one) for one in given]

    def timed(self, clock: Clock) -> Self:
        made, starts = super().timed(clock), self._starts()
        if starts is not None:
            begins = tuple(one.at(clock).start for one in starts)
            for k, (one, next_) in enumerate(pairwise(begins)):
                if one == next_ and (k or one == 0):  # the first one holds before, too
                    raise InputError(f"Course: no step begins while values[{k}] holds; take a smaller dt, or drop it")
            made = dataclasses.replace(made, days=None, dates=None)
            object.__setattr__(made, "_begins", begins)
        elif self.days is not None:
            steps = _steps_of("Course", self.days, clock)
            every: Any = int(steps) if steps.denominator == 1 else steps
            made = dataclasses.replace(made, days=None)
            object.__setattr__(made, "every", every)
        return made

    def bind(self, model: Any) -> Any:
        like = _value(model, self.target)
        read = [self._read(model, k, value) for k, value in enumerate(self.values)]
        values = [torch.as_tensor(value, dtype=like.dtype, device=like.device) for value in read]
        return _with(model, self.target, torch.stack(values))

    def begin(self, model: Any) -> Any:
        return _with(model, self.target, _value(model, self.target)[0])

    def act(self, model: Any, now: Any, on: Tensor, rng: Rng) -> tuple[Any, Any]:
        values = _value(model, self.target)
        if self._begins is None:
            every = Fraction(self.every)  # of a step, where it is longer than a value
            step = now.time.step if every.denominator == 1 else now.time.step * every.denominator
            place = (step // every.numerator).clamp(max=values.shape[0] - 1)
        else:
            place = sum((now.time.step >= begin).to(torch.int64) for begin in self._begins[1:]) + 0 * now.time.step
        return _with(model, self.target, values.index_select(0, place[None])[0]), now


@dataclasses.dataclass(frozen=True, kw_only=True)
class Act(Intervention):
    """Changes the state while on, for example vaccinates, tests or imports cases.

    It acts before the step, so what it moves is in no flow of the model. What `change` notes by ``rng.record("doses",
    mask)`` is read as ``events["campaign/doses"]``, with its name in front, and is 0 while it is off.

    Attributes:
        change: function of (model, now, rng) that returns ``now.replace(…)``.
    """

    change: Callable[[Any, Any, Rng], State]
    name: str = "act"

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_function("Act: change", self.change, "model", "now", "rng")

    def act(self, model: Any, now: Any, on: Tensor, rng: Rng) -> tuple[Any, Any]:
        first = len(rng._bad)
        changed = self.change(model, now, rng)
        rng._count_only(first, on)
        if type(changed) is not type(now):
            got, wanted = type(changed).__name__, type(now).__name__
            raise ModelError(f"intervention {self.name!r}: change returned {got}, expected {wanted}: now.replace(…)")
        formed = form(changed, now, {}, type(now), _relaxed(now))
        formed = own(formed, now.time, getattr(changed, "id", now.id), values(changed).get("ids"))
        old, structure = _tree.flatten(now)
        new, _ = _tree.flatten(formed)
        return model, _tree.unflatten([torch.where(on, n, o) for n, o in zip(new, old, strict=True)], structure)


def _relaxed(now: State) -> bool:
    """Whether the state is in its relaxed form: a field that is a byte in the hard form holds floats."""
    fields = [getattr(now, name) for name, kind in now.kinds.items() if kind.name != "real"]
    return len(fields) > 0 and all(_tree.tensors(field)[0].dtype.is_floating_point for field in fields)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask(Intervention):
    """Sets a parameter with one entry per group from a function on the host, asked once per group and step.

    Attributes:
        target: name of a parameter of shape `[groups]`, or of one number, which is then widened to groups.
        groups: label of each group.
        answer: function of (group label, number of the step) that returns a probability.
        days: days that an answer holds; the function is asked at the first step of each such span then, and told its
            number: with ``days=1`` the day, whatever the length of a step.
    """

    target: str
    groups: Sequence[str]
    answer: Callable[[str, int], float]
    when: During = ALWAYS
    name: str = "ask"
    days: float | None = dataclasses.field(default=None, metadata={"unless": None})
    _steps: Fraction | None = dataclasses.field(default=None, init=False, repr=False, metadata={"unless": None})

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_function("Ask: answer", self.answer, "group", "step")
        if isinstance(self.groups, str) or not isinstance(self.groups, Sequence):
            raise InputError(f"Ask: groups={self.groups!r}, expected the groups' labels, such as ['under 19', '65+']")
        if not isinstance(self.when, During):
            raise InputError(f"Ask: when={self.when!r}, expected During(…): it is the host that asks, before the step")
        if self.days is not None:
            number("Ask", "days", self.days, above=0)

    def check(self, model: Model) -> None:
        super().check(model)
        if self.target not in model.params:
            raise InputError(f"Ask: the model has no parameter {self.target!r}; {nearest(self.target, model.params)}")
        shape = tuple(getattr(model, self.target).shape)
        if not len(self.groups) or shape not in ((), (len(self.groups),)):
            raise InputError(f"Ask: {self.target!r} has shape {shape} and there are {len(self.groups)} groups")

    def timed(self, clock: Clock) -> Self:
        if self.days is None:
            return super().timed(clock)
        every = _steps_of("Ask", self.days, clock)
        made = dataclasses.replace(super().timed(clock), days=None)
        if every != 1:
            object.__setattr__(made, "_steps", every)
        return made

    @property
    def _sets(self) -> str | None:
        return self.target if self.when == ALWAYS else None

    def answers(self, step: int) -> dict[str, Tensor]:
        assert self.when.start is not None  # `timed` has been called
        if step < self.when.start or (self.when.stop is not None and step >= self.when.stop):
            return {}
        if self._steps is None:
            return {self.target: self._asked(step, step)}
        span = step // self._steps
        held = self.kept()
        if not held or int(held["span"]) != span:
            held = {"span": torch.tensor(span), "answers": self._asked(span, step)}
            self.restore(held)
        return {self.target: held["answers"]}

    def kept(self) -> dict[str, Tensor]:
        return vars(self).get("_held", {})  # of a run, and no part of what the intervention is

    def restore(self, kept: Mapping[str, Tensor]) -> None:
        object.__setattr__(self, "_held", dict(kept))

    def _asked(self, number: int, step: int) -> Tensor:
        values = []
        for group in self.groups:
            answer = self.answer(group, number)
            ok = isinstance(answer, Real) and not isinstance(answer, bool)
            if not ok or not math.isfinite(answer) or not 0 <= answer <= 1:
                raise ModelError(
                    f"intervention {self.name!r}: asked for {self.target} of group {group!r} at step {step}, the "
                    f"answer was {answer!r}; expected a number from 0 to 1"
                )
            values.append(float(answer))
        return torch.tensor(values)

    def act(self, model: Any, now: Any, on: Tensor, rng: Rng) -> tuple[Any, Any]:
        return model, now  # the engine binds the answers before it calls


def _from(name: str, time: Any) -> During:
    """During ``days=`` or ``dates=``."""
    return During(days=time) if name == "days" else During(dates=time)


def _steps_of(caller: str, days: float, clock: Clock) -> Fraction:
    """Number of steps in so many days."""
    return fraction(days) / clock.step_in_days(f"{caller}: days={days!r}")
