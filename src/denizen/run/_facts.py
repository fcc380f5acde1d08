"""What a run folder keeps of a `Run`: tensors as safetensors, facts for the manifest."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from denizen._fingerprint import describe, fingerprint
from denizen._run_folder import Part, commit, encode, now, versions
from denizen.model import series_kinds, tensors
from denizen.run._manifest import Manifest, Series, Setup

if TYPE_CHECKING:
    from denizen.run._run import Run


def setup(run: "Run") -> Setup:
    """What fixes the run besides its model."""
    setting = run._stepper.setting
    kinds = series_kinds(run.model, setting)
    return Setup(
        seed=run.seed,
        worlds=tuple(run.worlds),
        dt=setting.dt,
        time_unit=run.model.time_unit,
        device=run.device.type,
        relax=None if setting.relax is None else describe(setting.relax),
        interventions={i.name: describe(i) for i in setting.interventions},
        record={name: f"{kinds[name]} {describe(function)}" for name, _, function in setting.record},
        vouched=run._vouched,
        start=setting.start,
        log={name: "" if function is None else describe(function) for name, function in setting.log} or None,
    )


def first_manifest(
    run: "Run", wanted: int, inputs: Part, checkpoint: Part, settings: Mapping[str, Any] | None
) -> Manifest:
    """The manifest before anything but the inputs is safe."""
    return Manifest(
        status="running",
        error=None,
        created=now(),
        updated=now(),
        steps=0,
        wanted=max(wanted, run.steps),
        setup=setup(run),
        model=fingerprint(run.model),
        series=(),
        inputs=inputs,
        checkpoint=checkpoint,
        metrics=(),
        snapshots=None,
        versions=versions(),
        commit=commit(),
        settings=dict(settings) if settings else None,
    )


def series(run: "Run") -> tuple[Series, ...]:
    """How each series is stored."""
    kinds = run.kinds
    return tuple(
        Series(
            name, kinds[name], str(run[name].dtype).removeprefix("torch."), tuple(run[name].shape[2:]), run.about(name)
        )
        for name in run.series_names
    )


# --- tensors ----------------------------------------------------------------------------------------------------------


def metrics(run: "Run", done: int) -> bytes:
    """The series after step `done`."""
    return encode({name: run[name][:, done:] for name in run.series_names})


def inputs(run: "Run") -> bytes:
    """Identities and parameters per replicate, where they were given."""
    held = {f"param.{name}": value for name, value in run._stepper.values.items()}
    if run._custom_ids:
        held["ids"] = run._stepper.ids
    held |= {f"ids.{axis}": ids for axis, ids in run._stepper.setting.kind_ids.items()}
    return encode(held)


def checkpoint(run: "Run") -> bytes:
    """State, switches and step, and what interventions keep on the host."""
    leaves = dict(zip(leaf_names(run), run._run_state.leaves, strict=True))
    kept = {
        f"kept.{one.name}.{name}": value
        for one in run._stepper.setting.interventions
        for name, value in one.kept().items()
    }
    return encode({**leaves, "switches": run._run_state.switches, "step": run._run_state.step, **kept})


def leaf_names(run: "Run") -> list[str]:
    """A name for each tensor of the state: that of its field, numbered where a field has several."""
    names, state = [], run.state
    for field in state.kinds:
        parts = tensors(getattr(state, field))
        names += [f"state.{field}"] if len(parts) == 1 else [f"state.{field}.{k}" for k in range(len(parts))]
    names += [f"state.ids.{axis}" for axis in run._stepper.identified]
    return [*names, "state.id"] if run._stepper.setting.custom_ids else names


def narrow_fields(data: bytes) -> dict[str, torch.dtype]:
    """Fields that a checkpoint holds in float16 or bfloat16; a damaged one is found when it is decoded."""
    dtypes = {"F16": torch.float16, "BF16": torch.bfloat16}
    try:
        entries = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        found = {name: dtypes.get(entry.get("dtype")) for name, entry in entries.items()}
    except (ValueError, AttributeError):
        return {}
    return {name.split(".")[1]: dtype for name, dtype in found.items() if dtype and name.startswith("state.")}
