"""State: what changes from step to step, as typed fields that the engine allocates, checks and stores."""

import dataclasses
import difflib
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Self, dataclass_transform

import torch
from torch import Tensor

from denizen import _tree
from denizen._units import fraction
from denizen.errors import ModelError, nearest
from denizen.model._history import History
from denizen.model._kinds import Alive, Kind, alive, count, history, mask, real, stage
from denizen.model._stage import LivingStage, Stage

OWNED = ("time", "id", "ids")


@dataclasses.dataclass(frozen=True, eq=False)
class Time:
    """The clock of a run.

    Attributes:
        step: int64 0-d: steps done so far.
        dt: length of a step in `unit`.
        unit: unit of time, for example ``"day"``.
    """

    step: Tensor
    dt: float
    unit: str

    @property
    def value(self) -> Tensor:
        """float32 0-d: time in `unit` since the start."""
        return self.step.to(torch.float32) * self.dt

    def whole(self, length: float) -> Tensor:
        """int64 0-d: whole spans of a length in `unit` since the start, such as weeks of a model of days: `whole(7)`.

        Exact at any length of a step: lengths and `dt` are taken as fractions.
        """
        if not fraction(length) > 0:
            raise ModelError(f"now.time.whole: length={length!r}, expected a number of {self.unit}s above 0")
        per_step = fraction(self.dt) / fraction(length)
        step = self.step if per_step.numerator == 1 else self.step * per_step.numerator
        return step // per_step.denominator


_tree.register(Time, lambda time: ([time.step], (time.dt, time.unit)), lambda children, rest: Time(children[0], *rest))


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(mask, alive, stage, count, real, history)
)
class State:
    """Base of states. Subclasses declare fields with their kinds; `init` builds one, `step` returns `now.replace(…)`.

    Fields that name the same axis share its size; an axis that one field alone names must not look like a misspelling
    of another one. The engine owns further fields: `time` (a `Time`), `id` (int64 `[agents]`, identities that survive
    renumbering and births) and `ids`, the identities of other kinds of agents by axis, ``now.ids["sheep"]``.

    Examples:
        >>> class People(State):
        ...     infected: Tensor = mask("agents")
        >>> now = People(infected=torch.tensor([1, 0], dtype=torch.int8))
        >>> now.replace(infected=0 * now.infected).infected
        tensor([0, 0], dtype=torch.int8)
    """

    kinds: ClassVar[dict[str, Kind]] = {}
    _living: ClassVar[dict[str, str]] = {}
    time: Time
    id: Tensor
    ids: dict[str, Tensor]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {k: v for k, v in inspect.get_annotations(cls).items() if "ClassVar" not in str(v)}
        taken = [name for name in own if name in (*OWNED, "kinds", "replace")]
        if taken:
            raise ModelError(f"{cls.__name__}: {taken[0]!r} belongs to the engine; give the field another name")
        kinds = dict(cls.kinds)
        for name in own:
            declared = cls.__dict__.get(name)
            kind = declared.metadata.get("kind") if isinstance(declared, dataclasses.Field) else None
            if kind is None:
                raise ModelError(
                    f"{cls.__name__}.{name} has no kind; write: {name}: Tensor = dz.mask('agents') "
                    f"(or stage, count, real, history)"
                )
            kinds[name] = kind
            delattr(cls, name)
        _no_misspelt_axis(cls.__name__, kinds)
        cls.kinds, cls._living = kinds, living_axes(cls.__name__, kinds)
        _tree.register(cls, _flatten, lambda children, static: _unflatten(cls, children, static))

    def __init__(self, **fields: Any) -> None:
        unknown = [name for name in fields if name not in self.kinds]
        if unknown:
            raise ModelError(f"{type(self).__name__}: unknown field {unknown[0]!r}; {nearest(unknown[0], self.kinds)}")
        missing = [name for name in self.kinds if name not in fields]
        if missing:
            raise ModelError(f"{type(self).__name__}: no value for {', '.join(missing)}")
        _bind(self, fields)

    def __setattr__(self, name: str, value: Any) -> None:
        raise ModelError(f"{type(self).__name__}.{name}: a state is never changed; return now.replace({name}=…)")

    def __delattr__(self, name: str) -> None:
        raise ModelError(f"{type(self).__name__}.{name}: a state is never changed")

    def __getitem__(self, name: object) -> Any:
        raise ModelError(
            f"{type(self).__name__}[{name!r}]: a state has attributes: now.{name}. A series of recorded events has a "
            f"last argument called events: events[{name!r}]"
        )

    __iter__ = None  # else Python would iterate by the above

    def replace(self, **changes: Any) -> Self:
        """A new state with some fields changed.

        Raises:
            ModelError: for a field that the state does not have, or one that the engine owns.
        """
        for name in changes:
            if name not in self.kinds:
                why = "belongs to the engine" if name in OWNED else f"is unknown; {nearest(name, self.kinds)}"
                raise ModelError(f"{type(self).__name__}.replace: {name!r} {why}")
        return make(type(self), {**values(self), **changes})

    def __repr__(self) -> str:
        parts = [f"{name}={_shape(self.__dict__.get(name))}" for name in self.kinds]
        return f"{type(self).__name__}({', '.join(parts)})"


def _no_misspelt_axis(owner: str, kinds: dict[str, Kind]) -> None:
    """Refuse an axis of one field whose name is close to another one's: a size of its own would go unnoticed.

    Names of one length count as close where letters changed places only, so that ``"level1"`` and ``"level2"`` pass.
    """
    used = [axis for kind in kinds.values() for axis in dict.fromkeys(kind.axes)]
    for name, kind in kinds.items():
        for axis in (axis for axis in kind.axes if axis != "agents" and used.count(axis) == 1):
            others = sorted({"agents", *used} - {axis})
            for other in difflib.get_close_matches(axis, others, cutoff=0.82):
                swapped = sorted(axis.lower()) == sorted(other.lower())
                if other == "agents" or len(other) != len(axis) or swapped:
                    raise ModelError(
                        f"{owner}.{name}: axis {axis!r} is close to {other!r}, a typo? Write {other!r}, or, for an "
                        f"axis of its own, a name that differs more"
                    )


def _shape(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}".replace("torch.", "") if isinstance(value, Tensor) else repr(value)


def _bind(target: Any, values: dict[str, Any]) -> None:
    # One attribute at a time: dynamo of torch 2.11 cannot trace __dict__.update.
    for name, value in values.items():
        object.__setattr__(target, name, value)


def make(cls: type[Any], values: dict[str, Any]) -> Any:
    """A state of a class from values of its fields; nothing is checked."""
    state = object.__new__(cls)
    _bind(state, values)
    return state


def values(state: State) -> dict[str, Any]:
    """Every field that the state holds, the engine's among them, by name."""
    return {name: getattr(state, name) for name in (*state.kinds, *OWNED) if hasattr(state, name)}


def plain(field: Any) -> Tensor:
    """The tensor of a field's value."""
    return field.value if isinstance(field, Stage | History) else field


def tensors(field: Any) -> list[Tensor]:
    """What is stored of a field's value: one tensor, or every column of a relaxed history."""
    return field.tensors() if isinstance(field, History) else [plain(field)]


def own(state: State, time: Time, ids: Tensor, others: dict[str, Tensor] | None = None) -> Any:
    """The state with the fields that the engine owns.

    Args:
        state: the state.
        time: the clock.
        ids: int64 `[agents]`.
        others: identities of other kinds of agents by axis; None keeps those that there are.
    """
    kept = {} if others is None else {"ids": others}
    return make(type(state), {**values(state), "time": time, "id": ids, **kept})


def form(
    state: Any,
    before: State | None,
    sizes: dict[str, int],
    cls: type[State] | None,
    relaxed: bool,
    device: torch.device | None = None,
) -> Any:
    """A state as the author returned it, in the form the engine stores: kinds, dtypes and sizes checked.

    Args:
        state: the author's return value.
        before: the previous state, whose fields fix class, shape and dtype; None after `init`.
        sizes: sizes of axes known so far; filled by this call.
        cls: class expected, where known.
        relaxed: whether the run is relaxed.
        device: where the fields go: `init` may build on the CPU what it does not get from rng or the model. None
            leaves them where they are.

    Raises:
        ModelError: names the field and what changed.
    """
    if not isinstance(state, State) or (cls is not None and not isinstance(state, cls)):
        wanted = cls.__name__ if cls else "a dz.State"
        raise ModelError(f"expected {wanted}, got {type(state).__name__}; end a step with: return now.replace(…)")
    formed: dict[str, Any] = {}
    for name, kind in state.kinds.items():
        where = f"{type(state).__name__}.{name}"
        old = None if before is None else getattr(before, name)
        value = kind.form(getattr(state, name), where, relaxed, old)
        formed[name] = value if device is None else _tree.map_tensors(lambda tensor: tensor.to(device), value)
        tensor = tensors(value)[0]
        for axis, size in zip(kind.axes, tensor.shape, strict=False):
            if sizes.setdefault(axis, size) != size:
                raise ModelError(f"{where} has {size} entries on axis {axis!r}, others have {sizes[axis]}")
        old_tensor = None if old is None else tensors(old)[0]
        if old_tensor is not None and not _same_form(old_tensor, tensor):
            raise ModelError(
                f"{where} changed from {_shape(old_tensor)} to {_shape(tensor)} within a run; "
                f"a field keeps its shape and dtype"
            )
        if _described(old) != _described(value) and old is not None:
            raise ModelError(
                f"{where} changed from {_described(old)} to {_described(value)} within a run; a field keeps its levels "
                f"and its length"
            )
    return settle(make(type(state), formed))


def settle(state: Any, axis: str | None = None) -> Any:
    """The state with nothing in the fields of who is not alive, where it declares who is; None means on every axis."""
    living = state._living if axis is None else {axis: state._living[axis]}
    return make(type(state), settled(state.kinds, living, values(state))) if living else state


def axis_sizes(state: State) -> dict[str, int]:
    """Size of each axis of one world's state."""
    found: dict[str, int] = {}
    for name, kind in state.kinds.items():
        found.update(zip(kind.axes, tensors(getattr(state, name))[0].shape, strict=False))
    return found


def _same_form(old: Tensor, new: Tensor) -> bool:
    """One shape and one dtype, float16 and float32 being one: columns are narrowed at the end of a step."""
    both_real = old.dtype.is_floating_point and new.dtype.is_floating_point
    return old.shape == new.shape and (both_real or old.dtype == new.dtype)


def _described(value: Any) -> Any:
    """What a stage or a history tells apart; None for plain tensors."""
    return value.levels if isinstance(value, Stage) else value.length if isinstance(value, History) else None


def faults(state: State) -> list[tuple[str, Tensor]]:
    """For each field a 0-d bool on the device: whether it breaks what its kind promises."""
    owner = type(state).__name__
    return [(f"{owner}.{name} ({kind.name})", kind.fault(getattr(state, name))) for name, kind in state.kinds.items()]


def _flatten(state: State) -> tuple[list[Any], Any]:
    held = values(state)
    return list(held.values()), tuple(held)


def _unflatten(cls: type[Any], children: list[Any], names: Any) -> Any:
    return make(cls, dict(zip(names, children, strict=True)))


# --- who is alive -----------------------------------------------------------------------------------------------------

# Where a state declares it by `alive`, fields of the dead and of free places hold nothing. The engine empties them
# after `init`, after each stage of a step and at its end: so the dead give 0 to sums over neighbours, nobody counts
# them, and whoever is born into their place starts clean.


def living_axes(owner: str, kinds: Mapping[str, Kind]) -> dict[str, str]:
    """Axis -> its field of kind `alive`; at most one for each.

    Raises:
        ModelError: two of them on one axis.
    """
    found: dict[str, str] = {}
    for name, kind in kinds.items():
        if isinstance(kind, Alive):
            (axis,) = kind.axes
            if axis in found:
                raise ModelError(
                    f"{owner}.{name}: {found[axis]!r} says already who of {axis!r} is alive; keep one of the two"
                )
            found[axis] = name
    return found


def settled(kinds: Mapping[str, Kind], living: Mapping[str, str], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with nothing in the places of who is not alive; stages know who is.

    Args:
        kinds: of the fields.
        living: as `living_axes` gave it.
        fields: values by name, those of the engine among them.
    """
    who = {axis: _mask(fields[name]) for axis, name in living.items()}
    out = dict(fields)
    for name, kind in kinds.items():
        if any(axis in who for axis in kind.axes) and not isinstance(kind, Alive):
            value = fields[name]
            if isinstance(value, Stage):
                out[name] = Stage(emptied(value.value, kind.axes, who), value.levels)
            elif isinstance(value, History):
                out[name] = History(emptied(value.value, kind.axes, who), value.length)
            else:
                out[name] = emptied(value, kind.axes, who)
    return known(kinds, living, out)


def known(kinds: Mapping[str, Kind], living: Mapping[str, str], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields whose stages know who is alive; arguments as those of `settled`."""
    out = dict(fields)
    for name, kind in kinds.items():
        value = fields[name]
        if isinstance(value, Stage) and kind.axes[0] in living:
            out[name] = LivingStage(value.value, value.levels, _mask(fields[living[kind.axes[0]]]))
    return out


def emptied(value: Tensor, axes: tuple[str, ...], who: Mapping[str, Tensor]) -> Tensor:
    """A tensor with 0 wherever one of its axes has somebody who is not alive."""
    for place, axis in enumerate(axes):
        if axis in who:
            alive = who[axis].reshape(-1, *[1] * (value.dim() - 1 - place))
            # A product would keep NaN; of whole numbers it is what costs less on a CPU.
            value = torch.where(alive != 0, value, 0.0) if value.dtype.is_floating_point else value * alive
    return value


def _mask(alive: Tensor) -> Tensor:
    """As an author may have left it within a step: perhaps of bools, or wide."""
    return alive if alive.dtype == torch.int8 else (alive != 0).to(torch.int8)
