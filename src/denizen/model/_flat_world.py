"""One step of one world over flat tensors, with everything that the engine adds around the author's `step`.

Pure: takes the model, the state and the keys, returns the next state, what was recorded and what went wrong. The engine
batches it with vmap, compiles it and loops over it; `dz.check` watches it. Fields stored in float16 or bfloat16 are
narrowed once at the end of a step and computed with in float32.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen import ops
from denizen.errors import InputError, ModelError, nearest
from denizen.model._history import History
from denizen.model._interventions import Course, Intervention, Scale
from denizen.model._model import Model, kind, value
from denizen.model._param import Param
from denizen.model._stage import Stage
from denizen.model._state import State, Time, axis_sizes, form, known, make, own, tensors, values
from denizen.model._when import When
from denizen.rng import Known, Relax, Rng, weighs

NARROW = (torch.float16, torch.bfloat16)


def check(precision: Mapping[str, torch.dtype], state: State, relaxed: bool) -> None:
    """Raise `InputError` where a field or a dtype cannot be chosen."""
    for name, dtype in precision.items():
        if name not in state.kinds:
            raise InputError(f"precision: {type(state).__name__} has no field {name!r}; {nearest(name, state.kinds)}")
        if dtype not in NARROW:
            raise InputError(f"precision[{name!r}]={dtype!r}, expected torch.float16 or torch.bfloat16")
        kind = state.kinds[name]
        if not relaxed and kind.name != "real":
            raise InputError(
                f"precision: {name!r} is a {kind.name}, stored in {_bits(getattr(state, name))} bits already; only a "
                f"real field, or any field of a relaxed run, can be stored in {dtype}"
            )


def narrowed(state: Any, precision: Mapping[str, torch.dtype]) -> Any:
    """The state as it is stored."""
    return _with(state, {name: _to(getattr(state, name), dtype) for name, dtype in precision.items()})


def widened(state: Any, precision: Mapping[str, torch.dtype]) -> Any:
    """The state as a step sees it: float32, but for the columns of a history."""
    fields = {name: getattr(state, name) for name in precision}
    return _with(state, {n: v if isinstance(v, History) else _to(v, torch.float32) for n, v in fields.items()})


def _with(state: Any, changes: dict[str, Any]) -> Any:
    return make(type(state), {**values(state), **changes}) if changes else state


def _to(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, History):
        return History([column.to(dtype) for column in value.tensors()], value.length)
    return (
        Stage(ops.rounded(value.value, dtype), value.levels) if isinstance(value, Stage) else ops.rounded(value, dtype)
    )


def _bits(value: Any) -> int:
    tensor = value.value if isinstance(value, Stage | History) else value
    return 8 * tensor.element_size()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What is fixed for a whole run.

    Attributes:
        dt: length of a step.
        relax: makes draws differentiable; None for hard draws.
        interventions: act before each step, in order.
        record: further series: name, what it takes (see `denizen.model._model`), function.
        custom_ids: whether identities differ from 0 … n - 1.
        kind_ids: identities of other kinds of agents, by axis, where they were given.
        precision: fields that are stored in float16 or bfloat16.
        start: the day of the first step, as an ISO date; None where none was given.
        log: events that get rows: name, and a function of (model, before, happened, rng) that gives columns, or None.
        tries: whether what only a log asks for is asked for anyway, as `check` does to find what is wrong with it.
    """

    dt: float = 1.0
    relax: Relax | None = None
    interventions: tuple[Intervention, ...] = ()
    record: tuple[tuple[str, tuple[str, ...], Callable[..., Tensor]], ...] = ()
    custom_ids: bool = False
    kind_ids: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    precision: Mapping[str, torch.dtype] = dataclasses.field(default_factory=dict)
    start: str | None = None
    log: tuple[tuple[str, Callable[..., Any] | None], ...] = ()
    tries: bool = False

    @property
    def shares(self) -> bool:
        """Whether the state is in its relaxed form."""
        return self.relax is not None and not self.weighs

    @property
    def weighs(self) -> bool:
        """Whether slopes come from what is noted of draws; each step then ends its records with that."""
        return weighs(self.relax)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one step of one world returns.

    Attributes:
        state: the next state.
        switches: int8 `[interventions]`: which were on.
        records: one tensor per series, in the order of `series_names`.
        bad: labels of the checks made on the device and, for each, an int8 0-d tensor: 1 where it failed.
        noted: what a relaxation has noted of draws so far: one tensor or none.
        logged: for each logged event its mask int8 `[agents]` and its columns by name.
    """

    state: Any
    switches: Tensor
    records: list[Tensor]
    bad: list[tuple[str, Tensor]]
    noted: list[Tensor]
    logged: list[tuple[Tensor, dict[str, Tensor]]]


def series_names(model: Model, setting: Setting) -> list[str]:
    """Names of everything recorded: the model's own series, then the run's."""
    return list(series_kinds(model, setting))


def series_kinds(model: Model, setting: Setting) -> dict[str, str]:
    """``"flow"`` or ``"level"`` for everything recorded."""
    return {**model.all_series, **{name: kind(given) for name, given, _ in setting.record}}


def start(
    model: Model, key: Tensor, ids: Tensor, setting: Setting
) -> tuple[Any, list[tuple[str, Tensor]], list[Tensor]]:
    """The state before the first step, the checks made while drawing it, and what was noted of draws.

    Args:
        model: the model.
        key: int64 `[2]` (seed, world).
        ids: int64 `[agents]`.
        setting: of the run.
    """
    step = torch.zeros((), dtype=torch.int64, device=key.device)
    given = {axis: Known(one.numel(), one) for axis, one in setting.kind_ids.items()}
    rng = _rng(key, step, ids, "init", setting, given)
    for intervention in setting.interventions:
        model = intervention.begin(model)
    sizes = {"agents": ids.numel()}
    state = form(model.init(rng), None, sizes, None, setting.shares, key.device)
    time = Time(step, setting.dt, model.time_unit)
    return own(state, time, ids, _identities(state, sizes, setting, key.device)), rng._bad, rng._noted


def _identities(state: State, sizes: dict[str, int], setting: Setting, device: torch.device) -> dict[str, Tensor]:
    """Of each kind of agents besides `agents`: as they were given, else 0, 1, … for those that are born and die."""
    found = {}
    for axis in sorted({*setting.kind_ids, *state._living} - {"agents"}):
        given = setting.kind_ids.get(axis)
        if axis not in sizes:
            raise InputError(f"ids has {axis!r}, which is no axis of {type(state).__name__}; {nearest(axis, sizes)}")
        if given is not None and given.numel() != sizes[axis]:
            raise InputError(f"ids[{axis!r}] has {given.numel()} entries, expected {sizes[axis]}, one for each place")
        found[axis] = torch.arange(sizes[axis], device=device) if given is None else given
    return found


def advance(
    model: Model,
    now: Any,
    switches: Tensor,
    key: Tensor,
    answers: dict[str, Tensor],
    setting: Setting,
    noted: Sequence[Tensor] = (),
) -> Outcome:
    """One step: interventions, the author's step, the clock, the records.

    Args:
        model: the model.
        now: the state, with the engine's fields.
        switches: int8 `[interventions]` as the step before left them.
        key: int64 `[2]` (seed, world).
        answers: parameters decided on the host for this step.
        setting: of the run.
        noted: of the draws so far, where the setting's relaxation notes them.
    """
    others = values(now).get("ids", {})
    rng = _rng(key, now.time.step, now.id, "step", setting, known_axes(now))
    rng._noted[:] = noted
    rng._logs = None if setting.tries else [name for name, _ in setting.log]
    model = model.with_values(answers) if answers else model
    seen, cls = model, type(now)
    if setting.interventions:
        found = now
        seen, now, switches = _intervene(model, now, switches, rng, setting)
        if now is not found:  # some may have died or been born
            rng = rng._of(_with_agents(known_axes(now), now.id, setting))
    returned = seen.step(now, rng)
    new = form(returned, now, {}, cls, setting.shares)
    if setting.precision:  # series see what the next step will see
        new = widened(narrowed(new, setting.precision), setting.precision)
    time = now.time
    after = values(returned)
    new = own(new, Time(time.step + 1, time.dt, time.unit), after.get("id", now.id), after.get("ids", others))
    # Flows compare with what the step found: what interventions moved before it is none of its doing.
    functions = [(name, given, getattr(seen, name)) for name, given in model._series_takes.items()]
    records = [
        value(name, function, given, now, new, rng.events) for name, given, function in (*functions, *setting.record)
    ]
    logged = [_logged(name, function, seen, now, rng) for name, function in setting.log]
    return Outcome(new, switches, records, rng._bad, rng._noted, logged)


def _logged(
    name: str, function: Callable[..., Any] | None, model: Any, before: Any, rng: Rng
) -> tuple[Tensor, dict[str, Tensor]]:
    """To whom a logged event happened, and the columns of its rows."""
    happened = rng.events[name]
    if happened.dim() != 1 or happened.is_complex():
        raise ModelError(
            f"log: {name!r} was recorded as {happened.dtype} {tuple(happened.shape)}, expected a mask or numbers, one "
            f"for each agent"
        )
    if function is not None:
        given = function(model, before, happened, rng["log", name])
        if not isinstance(given, Mapping):
            raise ModelError(
                f"log: the function of {name!r} gave {type(given).__name__}, expected columns by name: {{'by': …}}"
            )
        teller = rng._tellers[name]
        there, here = rng._details[name].get("id"), _ids_of(before, teller._axis)
        # Of those who were there as the step began, where some have died or were born since.
        teller._describe(name, given, None if there is None or there is here else here)
    mask = happened if happened.dtype == torch.int8 else (happened != 0).to(torch.int8)
    return mask.detach(), rng._details[name]


def _ids_of(now: Any, axis: str) -> Tensor | None:
    """Identities on an axis; None for 0, 1, …"""
    return now.id if axis == "agents" else values(now).get("ids", {}).get(axis)


def _rng(
    key: Tensor,
    step: Tensor,
    ids: Tensor,
    phase: str,
    setting: Setting,
    axes: dict[str, Known],
) -> Rng:
    own = ids if setting.custom_ids else None
    rng = Rng(key, step, num=ids.shape[-1], ids=own, dt=setting.dt, phase=phase, relax=setting.relax)
    rng._axes.update(_with_agents(axes, ids, setting))
    return rng


def _with_agents(axes: dict[str, Known], ids: Tensor, setting: Setting) -> dict[str, Known]:
    """What is known of axes, and of the agents with it."""
    alive = axes["agents"].alive if "agents" in axes else None
    return {**axes, "agents": Known(ids.shape[-1], ids if setting.custom_ids else None, alive)}


def known_axes(now: Any) -> dict[str, Known]:
    """What random numbers need of each axis of a state."""
    others = values(now).get("ids", {})
    alive = {axis: getattr(now, name) for axis, name in now._living.items()}
    return {axis: Known(size, others.get(axis), alive.get(axis)) for axis, size in axis_sizes(now).items()}


def bounds_label(name: str, spec: Param, by: list[Intervention]) -> str:
    """Label of the check that a parameter is within its bounds after the interventions that changed it."""
    return f"bounds|{name}|{spec.bounds()}|{' and '.join(_named(one) for one in by)}"


def read_bounds_label(label: str) -> tuple[str, str, str] | None:
    """(parameter, its bounds, the interventions that changed it) in words; None for the label of another check."""
    if not label.startswith("bounds|"):
        return None
    name, bounds, by = label.split("|", 3)[1:]
    return name, bounds, by


def _named(intervention: Intervention) -> str:
    factor = f" (factor {intervention.factor:g})" if isinstance(intervention, Scale) else ""
    return f"the intervention {intervention.name!r}{factor}"


def _intervene(model: Any, now: Any, switches: Tensor, rng: Rng, setting: Setting) -> tuple[Any, Any, Tensor]:
    on = []
    changed: dict[str, list[Intervention]] = {}
    for k, intervention in enumerate(setting.interventions):
        when = intervention.when
        if isinstance(when, When):
            active, kept = when.switch(now, switches[k])
        else:  # an author's own
            active = when.on(now, switches[k] != 0)
            kept = active.to(torch.int8)
        on.append(kept)
        told = len(rng._recorded)
        before = model
        model, now = intervention.act(model, now, active, rng["intervention", intervention.name])
        for name in list(rng._recorded)[told:]:  # what it records happens only while it is on
            happened = rng._recorded[name]
            rng._recorded[name] = torch.where(active, happened, torch.zeros_like(happened))
        for name in model.params if model is not before else ():
            if getattr(model, name) is not getattr(before, name):
                changed.setdefault(name, []).append(intervention)
    for name, by in changed.items():
        spec = model.params[name]
        if all(isinstance(one, Course) or (isinstance(one, Scale) and spec.keeps(one.factor)) for one in by):
            continue  # checked before the run, or such as halving a rate: a check would be a kernel in every step
        rng._bad.append((bounds_label(name, spec, by), (~spec.inside(getattr(model, name))).to(torch.int8)))
    return model, now, torch.stack(on)


class FlatWorld:
    """Init and step of one world as functions of tensors.

    Attributes:
        setting: of the run; has custom ids from `init` on where agents are born.
        checks: labels of the device checks, as `init` or `step` made them last.
        identified: axes of other kinds of agents whose identities are part of the state.
        logged: for each logged event the names of its columns, as `step` made them last.
    """

    def __init__(self, model: Model, setting: Setting, ids: Tensor) -> None:
        """Args:
        model: the model, on its device.
        setting: of the run.
        ids: int64 `[agents]`.
        """
        self.model, self.setting, self.ids = model, setting, ids
        self.checks: list[str] = []
        self.logged: tuple[tuple[str, ...], ...] = ()
        self._class: type[State] = State
        # How each field is put together again: its name, its number of tensors (0 for one that is the field itself),
        # and for a stage or a history its class and what that needs.
        self._fields: tuple[tuple[str, int, Any, Any], ...] = ()
        self.identified: tuple[str, ...] = ()

    def init(self, key: Tensor, values: dict[str, Tensor]) -> tuple[list[Tensor], Tensor]:
        """(leaves, checks int8 `[checks]`) of the initial state.

        Args:
            key: int64 `[2]`.
            values: parameters.
        """
        state, bad, noted = start(self.model.with_values(values), key, self.ids, self.setting)
        check(self.setting.precision, state, self.setting.shares)
        state = narrowed(state, self.setting.precision)
        if "alive" in state.kinds or "agents" in state._living:  # births make identities differ between worlds
            self.setting = dataclasses.replace(self.setting, custom_ids=True)
        self._learn(state)
        return [*self.leaves(state), *noted], self._stack(bad, key)

    def step(
        self,
        leaves: list[Tensor],
        switches: Tensor,
        key: Tensor,
        values: dict[str, Tensor],
        step: Tensor,
        answers: dict[str, Tensor],
    ) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
        """(leaves, switches, records, checks) one step on; arguments as those of `init` and `advance`.

        Behind the records come the logged events: the mask of each and its columns, the first of which are the
        identities where these are not 0 … n - 1; last what a relaxation notes.
        """
        model = self.model.with_values(values) if values else self.model
        now = widened(self.state(leaves, step), self.setting.precision)
        noted = leaves[-1:] if self.setting.weighs else []
        out = advance(model, now, switches, key, answers, self.setting, noted)
        logged = [tensor for mask, columns in out.logged for tensor in (mask, *columns.values())]
        self.logged = tuple(tuple(columns) for _, columns in out.logged)
        return (
            [*self.leaves(narrowed(out.state, self.setting.precision)), *out.noted],
            out.switches,
            [*out.records, *logged, *out.noted],
            self._stack(out.bad, key),
        )

    def leaves(self, state: Any) -> list[Tensor]:
        """The tensors of a state, in the order of its fields; identities last where they differ from 0 … n - 1."""
        leaves = [tensor for name in state.kinds for tensor in tensors(getattr(state, name))]
        leaves += [state.ids[axis] for axis in self.identified]
        return [*leaves, state.id] if self.setting.custom_ids else leaves

    @property
    def num_logged(self) -> int:
        """Tensors that a step hands over for logged events: a mask and columns for each."""
        return sum(1 + len(columns) for columns in self.logged)

    @property
    def leaf_kinds(self) -> list[str]:
        """The kind of field that each leaf belongs to; ``"id"`` for identities, ``"noted"`` for what is of draws."""
        kinds: list[str] = []
        for name, columns, *_ in self._fields:
            kinds += [self._class.kinds[name].name] * max(columns, 1)
        kinds += ["id"] * len(self.identified)
        kinds += ["id"] if self.setting.custom_ids else []
        return [*kinds, "noted"] if self.setting.weighs else kinds

    @property
    def masks(self) -> list[bool]:
        """For each leaf whether it holds only 0 and 1: masks do, as every look at the state checks."""
        return [kind == "mask" for kind in self.leaf_kinds]

    def state(self, leaves: list[Tensor], step: Tensor) -> Any:
        """The state with these tensors, after `step` steps."""
        fields: dict[str, Any] = {}
        place = 0
        for name, columns, cls, rest in self._fields:
            if columns:
                fields[name] = cls(leaves[place : place + columns], rest)
            else:
                fields[name] = leaves[place] if cls is None else cls(leaves[place], rest)
            place += max(columns, 1)
        fields["ids"] = dict(zip(self.identified, leaves[place:], strict=False))
        place += len(self.identified)
        fields["time"] = Time(step, self.setting.dt, self.model.time_unit)
        fields["id"] = leaves[place] if self.setting.custom_ids else self.ids
        cls = self._class
        return make(cls, known(cls.kinds, cls._living, fields) if cls._living else fields)

    def _learn(self, state: Any) -> None:
        """Keep how a state is put together."""
        self._class = type(state)
        self.identified = tuple(values(state).get("ids", ()))
        self._fields = tuple((name, *_structure(getattr(state, name))) for name in state.kinds)

    def _stack(self, bad: list[tuple[str, Tensor]], like: Tensor) -> Tensor:
        self.checks = [label for label, _ in bad]
        if not bad:
            return torch.zeros(0, dtype=torch.int8, device=like.device)
        return torch.stack([flag for _, flag in bad])


def _structure(field: Any) -> tuple[int, Any, Any]:
    """(columns, class, levels or length) of a field."""
    if isinstance(field, Stage):
        return 0, Stage, field.levels
    if isinstance(field, History):
        return len(field.columns or ()), History, field.length
    return 0, None, None
