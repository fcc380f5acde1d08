"""Model: parameters and fixed structures, the pure functions `init` and `step` over one world, and its series."""

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, dataclass_transform

import torch
from torch import Tensor

from denizen import _tree
from denizen._arguments import checks_of
from denizen.errors import InputError, ModelError, nearest
from denizen.model._in_order import check_stages
from denizen.model._param import Param, check_units, param, short
from denizen.model._state import State
from denizen.rng import Events, Rng
from denizen.space import Graph, Grid, Layers, Mixing, Structure

SERIES_FORMS = "(now) or (before, now), or (events) for what rng.record noted"


_CONTACTS = (Graph, Layers, Mixing, Grid)
_UNBOUND = (staticmethod, classmethod)  # methods that are not given the object


def series_takes(function: Callable[..., Any], skip: int = 0) -> tuple[str, ...] | None:
    """What a function of a series is given, some of ``("before", "now", "events")``; None for one of another form.

    One argument is the state after the step, two are the states before and after it, and a last one that is called
    `events` is what the step recorded. Arguments with a default are the author's own: ``lambda now, group=group: …``.

    Args:
        function: the function.
        skip: arguments before those: 1 for a method that is not bound.
    """
    try:
        arguments = list(inspect.signature(function).parameters.values())[skip:]
    except ValueError:  # of what is written in C
        return None
    needed = [argument for argument in arguments if argument.default is argument.empty]
    if any(argument.kind is argument.KEYWORD_ONLY for argument in needed):
        return None
    names = [argument.name for argument in needed if argument.kind is not argument.VAR_KEYWORD]
    recorded = ("events",) if names and names[-1] == "events" else ()
    states = names[: len(names) - len(recorded)]
    if "events" in states or len(states) > 2 or not names:
        return None
    return (*("before", "now")[2 - len(states) :], *recorded)


def kind(given: tuple[str, ...]) -> str:
    """``"level"`` for a value after the step, ``"flow"`` for what happened within it."""
    return "level" if given == ("now",) else "flow"


def value(
    name: str, function: Callable[..., Any], given: tuple[str, ...], before: Any, now: Any, events: Events
) -> Tensor:
    """What a series is after a step.

    Args:
        name: of the series.
        function: of what `given` names.
        given: as `series_takes` told it.
        before: the state as the author's step found it, after the interventions.
        now: the state after the step.
        events: what the step and its interventions recorded.
    """
    known = {"before": before, "now": now, "events": events}
    found = function(*[known[argument] for argument in given])
    if not isinstance(found, Tensor):
        code = getattr(function, "__code__", None)
        at = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
        raise ModelError(
            f"series {name!r} returned {type(found).__name__} {found!r}; expected a tensor, without .item(){at}"
        )
    return found


def series(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Mark a method as a series, recorded at every step.

    A method of (self, now) is a level, the value after each step. A flow, what happened within the step, is a method of
    (self, events), of what `rng.record` noted in it: ``events["caught"].sum()``; or of (self, before, now), of the
    states that the step found and left. Interventions act before the step, so what they move is in neither: they record
    events of their own. Both may be combined: (self, before, now, events).

    It returns a tensor of fixed shape, usually 0-d, and is part of the step: no host reads.
    """
    given = series_takes(function, skip=1)
    if given is None:
        try:
            takes = _plain_signature(inspect.signature(function))
        except (TypeError, ValueError):  # no function, or written in C
            takes = ""
        raise ModelError(
            f"series {getattr(function, '__qualname__', function)}{takes}{_at(function)}: expected "
            f"{SERIES_FORMS.replace('(', '(self, ')}"
        )
    function.__series__ = given  # type: ignore[attr-defined]  # a mark for collection
    return function


@dataclass_transform(frozen_default=True, field_specifiers=(param, dataclasses.field))
class Model:
    """Base of models. A subclass declares parameters (`dz.param`) and structures (graphs, tensors, plain numbers).

    A field that is declared as `int` takes whole numbers alone, `bool` True or False, `float` numbers (also infinite
    ones, and tensors of one number), `Tensor` tensors; one that is declared as `int | None` or the like also None.

    Subclasses write `init(self, rng) -> State` and `step(self, now, rng) -> State` for one world, as pure functions of
    their arguments: fixed shapes, no value read on the host, random numbers only from `rng`, new values returned
    instead of written in place. `dz.check(model)` proves it.
    """

    time_unit: ClassVar[str] = "step"
    params: ClassVar[dict[str, Param]] = {}
    all_series: ClassVar[dict[str, str]] = {}
    field_names: ClassVar[tuple[str, ...]] = ()
    _graph_names: ClassVar[tuple[str, ...]] = ()
    _plain: ClassVar[dict[str, Callable[..., Any]]] = {}
    _series_takes: ClassVar[dict[str, tuple[str, ...]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        required = _without_default(cls)
        written = "__init__" in vars(cls)
        dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
        if not written:
            cls.__init__ = _told(cls)  # type: ignore[method-assign]
        for name in required:
            setattr(cls, name, _Given(name))
        cls.__setattr__ = _refuse  # type: ignore[method-assign]  # says what to do, where a dataclass says "frozen"
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # made a dataclass on the line above
        cls.params = {f.name: f.metadata["param"] for f in fields if "param" in f.metadata}
        check_units(cls.__name__, cls.params, cls.time_unit)
        cls.field_names = tuple(f.name for f in fields)
        cls._graph_names = tuple(f.name for f in fields if _of_graphs(f.type))
        cls._plain = {n: check for n, check in checks_of(cls).items() if n not in cls.params}
        found: dict[str, tuple[str, ...]] = {}
        for base in reversed(cls.__mro__):
            found.update({n: v.__series__ for n, v in vars(base).items() if hasattr(v, "__series__")})
        cls.all_series, cls._series_takes = {name: kind(given) for name, given in found.items()}, found
        _check_methods(cls)
        _tree.register(cls, _flatten, lambda children, static: _unflatten(cls, children, static))

    def __post_init__(self) -> None:
        check_stages(type(self))
        for name, spec in self.params.items():
            value = getattr(self, name)
            # Only what the author or user gives is read; placeholders of torch's transforms pass.
            foreign = isinstance(value, Tensor) and torch._C._functorch.is_batchedtensor(value)
            if not foreign and not torch.compiler.is_compiling():
                object.__setattr__(self, name, spec.read(value, f"{type(self).__name__}.{name}"))
        if not torch.compiler.is_compiling():
            for name, check in self._plain.items():
                object.__setattr__(self, name, check(type(self).__name__, name, getattr(self, name)))
        for name in self._graph_names:
            given = getattr(self, name)
            if not isinstance(given, _CONTACTS):
                raise InputError(
                    f"{type(self).__name__}.{name} is {type(given).__name__} {_brief(given)}, expected a dz.Graph; "
                    f"build one with Graph.from_edges, from_file, from_scipy or from_networkx"
                )

    def init(self, rng: Rng) -> State:
        """The state before the first step."""
        raise ModelError(f"{type(self).__name__} has no init(self, rng)")

    def step(self, now: Any, rng: Rng) -> State:
        """The state one step on."""
        raise ModelError(f"{type(self).__name__} has no step(self, now, rng)")

    def fits(self, dt: float) -> None:
        """Raise `InputError` where the model does not go with steps of length `dt`; called once, before a run.

        A model whose tables, histories or schedules have an entry for each step says so here: they do not follow `dt`.
        """

    @property
    def interventions(self) -> tuple[Any, ...]:
        """Interventions that belong to the model and act before those given to `simulate`."""
        return ()

    @property
    def num_agents(self) -> int:
        """Number of agents: that of the first graph or structure among the fields, unless a subclass says otherwise.

        Of a grid where a field takes graphs as well, the cells are the agents.
        """
        for name, value in self._held().items():
            if isinstance(value, Grid) and name in self._graph_names:
                return value.num_cells
            if isinstance(value, Graph | Layers | Structure) and hasattr(value, "num_agents"):
                return value.num_agents
        raise ModelError(
            f"{type(self).__name__} does not say how many agents it has; add a dz.Graph, or a field `num_agents: int`"
        )

    def replace(self, **changes: Any) -> Self:
        """The model with some fields changed; parameters may be numbers, sequences or tensors.

        Raises:
            InputError: for an unknown field, or a value that is out of bounds.
        """
        for name in changes:
            if name not in self.field_names:
                raise InputError(f"{type(self).__name__}: unknown field {name!r}; {nearest(name, self.field_names)}")
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """The model with other parameter tensors, bound as they are: no check, no conversion; for engines."""
        return _make(type(self), {**self._held(), **values})

    def _held(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.field_names}

    def to(self, device: torch.device | str) -> Self:
        """The model with every tensor, graph and module on a device; modules themselves move, as in torch."""
        movable = Tensor | Graph | Layers | Structure | torch.nn.Module
        moved = {n: v.to(device) for n, v in self._held().items() if isinstance(v, movable)}
        return self.with_values(moved)

    def _repr_html_(self) -> str:
        from denizen._printing import Table, html

        table = Table("parameter", "value", "bounds", "unit", box=None)
        for name, spec in self.params.items():
            table.add_row(name, _brief(getattr(self, name)), spec.bounds(), spec.unit)
        return html(repr(self)) + html(table)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={_brief(v)}' for n, v in self._held().items())})"


def ids_of(model: Model, device: torch.device | None = None) -> Tensor:
    """int64 `[agents]`: identities of a model's agents as a run begins, 0 to `num_agents` - 1.

    Raises:
        ModelError: `num_agents` is no number of agents.
    """
    number = model.num_agents
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ModelError(f"{type(model).__name__}.num_agents={number!r}, expected a whole number, at least 0")
    return torch.arange(number, device=device)


def extent(model: Any) -> tuple[int, str]:
    """How much a step works on: (number, ``"agents"`` or ``"cells"``), the cells of a grid where they are more."""
    cells = [grid.num_cells for grid in model._held().values() if isinstance(grid, Grid)]
    return max([(model.num_agents, "agents"), *((number, "cells") for number in cells)], key=lambda found: found[0])


def _check_methods(cls: type[Any]) -> None:
    """Raise `ModelError` where a method of an author's class cannot be called as the engine will call it."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("denizen.model.")]
    if cls in ours:  # which say themselves how they are called
        return
    names = {name for base in ours for name in vars(base) if not name.startswith("_")}
    for name in sorted(names):  # in the author's classes, also in those that the class mixes in
        holder = next(base for base in cls.__mro__ if name in vars(base))
        own = vars(holder)[name]
        declared = next(vars(base)[name] for base in ours if name in vars(base))
        if holder in ours or not callable(function := getattr(cls, name, None)):
            continue
        if isinstance(declared, property) and isinstance(own, types.FunctionType):
            raise ModelError(f"{cls.__name__}.{name}{_at(own)} is a method, expected a value: write @property above it")
        if not isinstance(declared, types.FunctionType):
            continue
        takes = inspect.signature(declared).parameters.values()
        needed = [a.name for a in takes if a.default is a.empty and a.kind is a.POSITIONAL_OR_KEYWORD]
        try:
            given = inspect.signature(function, follow_wrapped=False)
        except (TypeError, ValueError):  # written in C: it has to tell itself
            continue
        try:  # what is no method of the object, such as a staticmethod, is not given it
            given.bind(*(needed if hasattr(own, "__get__") and not isinstance(own, _UNBOUND) else needed[1:]))
        except TypeError:
            wanted = f"{name}({', '.join(needed)})"
            raise ModelError(
                f"{cls.__name__}.{name}{_at(own)} is {name}{_plain_signature(given)}, expected {wanted}: write "
                f"def {wanted}"
            ) from None


def _at(function: Any) -> str:
    """Where a function stands; "" where that is not known."""
    held = getattr(function, "__func__", getattr(function, "func", function))  # by a staticmethod, by a partial
    code = getattr(held, "__code__", None)
    return "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"


def _plain_signature(given: inspect.Signature) -> inspect.Signature:
    """Without annotations, which would hide how many arguments there are."""
    plain = [a.replace(annotation=a.empty) for a in given.parameters.values()]
    return given.replace(parameters=plain, return_annotation=given.empty)


class _Given:
    """In the place of a base's property of the same name, for a field that has no default: models hold it themselves.

    To a class it is as if the name were not there, so that a subclass finds no default either.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, model: Any, cls: type) -> Any:
        raise AttributeError(f"{cls.__name__} has no {self._name}")


def _without_default(cls: type) -> list[str]:
    """Fields such as ``num_agents: int``, for which a dataclass would take the base's property as default."""
    names = [
        name
        for name, annotation in cls.__annotations__.items()
        if name not in vars(cls)
        and isinstance(getattr(cls, name, None), property)
        and "ClassVar" not in str(annotation)
    ]
    for name in names:
        setattr(cls, name, dataclasses.field())
    return names


def _told(cls: type[Any]) -> Callable[..., None]:
    """The constructor that the dataclass made, which knows what a misspelt argument was meant to be."""
    made = cls.__init__
    names = list(inspect.signature(made).parameters)[1:]  # an InitVar is no field

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in names:
                raise InputError(f"{cls.__name__}: unknown argument {name!r}; {nearest(name, names)}")
        made(self, *args, **kwargs)

    return init


def _refuse(model: Model, name: str, value: Any) -> None:
    raise ModelError(
        f"{type(model).__name__}.{name}: a model is never changed; a parameter: model.replace({name}=…), what changes "
        f"from step to step: a field of the state"
    )


def _of_graphs(annotation: Any) -> bool:
    """Whether a field's annotation, perhaps a string, allows contacts only; a grid alone may be where agents are."""
    if isinstance(annotation, str):
        names = {part.strip().rpartition(".")[2] for part in annotation.split("|")}
    else:
        parts = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
        names = {part.__name__ if part in _CONTACTS else "" for part in parts}
    return names <= {kind.__name__ for kind in _CONTACTS} and names != {"Grid"}


def _brief(value: Any) -> str:
    if isinstance(value, Tensor):
        return short(value) if value.numel() <= 8 else f"{value.dtype}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _flatten(model: Model) -> tuple[list[Any], Any]:
    held = model._held()
    dynamic = [n for n, v in held.items() if isinstance(v, Tensor | Graph | Layers | Structure)]
    static = tuple((n, v) for n, v in held.items() if n not in dynamic)
    return [held[name] for name in dynamic], (tuple(dynamic), static)


def _unflatten(cls: type[Any], children: list[Any], context: Any) -> Any:
    names, static = context
    return _make(cls, {**dict(static), **dict(zip(names, children, strict=True))})


def _make(cls: type[Any], values: dict[str, Any]) -> Any:
    model = object.__new__(cls)
    for name, value in values.items():  # one at a time: dynamo of torch 2.11 cannot trace __dict__.update
        object.__setattr__(model, name, value)
    return model
