"""One step of one world, with everything that the engine adds around the author's `step`.

Pure: takes the model, the state and the keys, returns the next state, what was recorded and what went wrong. The
engine batches it with vmap, compiles it and loops over it; `dz.check` watches it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from denizen import _tree
from denizen.model._interventions import Intervention, Scale
from denizen.model._model import Model
from denizen.model._param import Param
from denizen.model._precision import narrowed, widened
from denizen.model._series import kind, value
from denizen.model._state import Time, form, own
from denizen.rng import Relax, Rng


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What is fixed for a whole run.

    Attributes:
        dt: length of a step.
        relax: makes draws differentiable; None for hard draws.
        interventions: act before each step, in order.
        record: further series: name, what it takes (see `denizen.model._series`), function.
        custom_ids: whether identities differ from 0 … n - 1.
        precision: fields that are stored in float16 or bfloat16.
    """

    dt: float = 1.0
    relax: Relax | None = None
    interventions: tuple[Intervention, ...] = ()
    record: tuple[tuple[str, tuple[str, ...], Callable[..., Tensor]], ...] = ()
    custom_ids: bool = False
    precision: Mapping[str, torch.dtype] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one step of one world returns.

    Attributes:
        state: the next state.
        switches: int8 `[interventions]`: which were on.
        records: one tensor per series, in the order of `series_names`.
        bad: labels of the checks made on the device and, for each, an int8 0-d tensor: 1 where it failed.
    """

    state: Any
    switches: Tensor
    records: list[Tensor]
    bad: list[tuple[str, Tensor]]


def series_names(model: Model, setting: Setting) -> list[str]:
    """Names of everything recorded: the model's own series, then the run's."""
    return list(series_kinds(model, setting))


def series_kinds(model: Model, setting: Setting) -> dict[str, str]:
    """``"flow"`` or ``"level"`` for everything recorded."""
    return {**model.all_series, **{name: kind(given) for name, given, _ in setting.record}}


def start(model: Model, key: Tensor, ids: Tensor, setting: Setting) -> tuple[Any, list[tuple[str, Tensor]]]:
    """The state before the first step, and the checks made while drawing it.

    Args:
        model: the model.
        key: int64 `[2]` (seed, world).
        ids: int64 `[agents]`.
        setting: of the run.
    """
    step = torch.zeros((), dtype=torch.int64, device=key.device)
    rng = _rng(key, step, ids, "init", setting)
    state = form(model.init(rng), None, {"agents": ids.numel()}, None, setting.relax is not None)
    # The one move to the device: `init` may build on the CPU what it does not get from rng or the model.
    state = _tree.map_tensors(lambda tensor: tensor.to(key.device), state)
    time = Time(step, setting.dt, model.time_unit)
    return own(state, time, ids), rng._bad


def advance(
    model: Model, now: Any, switches: Tensor, key: Tensor, answers: dict[str, Tensor], setting: Setting
) -> Outcome:
    """One step: interventions, the author's step, the clock, the records.

    Args:
        model: the model.
        now: the state, with the engine's fields.
        switches: int8 `[interventions]` as the step before left them.
        key: int64 `[2]` (seed, world).
        answers: parameters decided on the host for this step.
        setting: of the run.
    """
    rng = _rng(key, now.time.step, now.id, "step", setting)
    model = model.with_values(answers) if answers else model
    seen, cls = model, type(now)
    if setting.interventions:
        seen, now, switches = _intervene(model, now, switches, rng, setting)
    returned = seen.step(now, rng)
    new = form(returned, now, {}, cls, setting.relax is not None)
    if setting.precision:  # series see what the next step will see
        new = widened(narrowed(new, setting.precision), setting.precision)
    time = now.time
    new = own(new, Time(time.step + 1, time.dt, time.unit), getattr(returned, "id", now.id))
    # Flows compare with what the step found: what interventions moved before it is none of its doing.
    functions = [(name, given, getattr(seen, name)) for name, given in model._series_takes.items()]
    records = [
        value(name, function, given, now, new, rng.events) for name, given, function in (*functions, *setting.record)
    ]
    return Outcome(new, switches, records, rng._bad)


def _rng(key: Tensor, step: Tensor, ids: Tensor, phase: str, setting: Setting) -> Rng:
    known = ids if setting.custom_ids else None
    return Rng(key, step, num=ids.shape[-1], ids=known, dt=setting.dt, phase=phase, relax=setting.relax)


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
        active = intervention.when.on(now, switches[k] != 0)
        on.append(active.to(torch.int8))
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
        if all(isinstance(one, Scale) and spec.keeps(one.factor) for one in by):
            continue  # such as closing a layer or halving a rate: a check would be a kernel in every step
        rng._bad.append((bounds_label(name, spec, by), (~spec.inside(getattr(model, name))).to(torch.int8)))
    return model, now, torch.stack(on)
