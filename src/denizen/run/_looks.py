"""Reading the checks that steps made on the device, and saying what failed."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from denizen.errors import CapacityError, ModelError
from denizen.model import faults, read_bounds_label, short
from denizen.run._engine import Carry

EXPECTED = {
    "event": "hazards that are not negative",
    "bernoulli": "probabilities from 0 to 1",
    "categorical": "weights that are finite, not negative and not all 0",
    "exponential": "rates that are not negative",
    "gamma": "shapes that are finite and above 0",
    "poisson": "means from 0 to 2**31",
}


def look(carry: Carry, state: Any, checks: list[str], step: int, values: Mapping[str, Tensor]) -> None:
    """Read the checks made since the last look, which followed step `step`; raise where one failed.

    Args:
        carry: holds them.
        state: of all worlds.
        checks: what each looked for.
        step: after which the last look was.
        values: of the parameters, before interventions.

    Raises:
        CapacityError: births beyond the capacity.
        ModelError: a draw from values out of range, a field that is out of range, or an intervention took a parameter
            out of its bounds.
    """
    if carry.bad is not None and carry.bad.numel():
        failed = carry.bad.any(dim=0).tolist()
        for label, bad in zip(checks, failed, strict=True):
            if bad:
                raise (CapacityError if label.startswith("births") else ModelError)(
                    _explain(label, carry, step, values)
                )
    for name, fault in faults(state):
        if bool(fault):
            raise ModelError(f"{name} is out of range (or NaN) {when(step, carry)}")


def keep_form(records: list[Tensor], rows: list[list[Tensor]], chunks: Mapping[str, list[Tensor]], step: int) -> None:
    """Refuse the records of a step where one has another shape or dtype than before.

    Args:
        records: of the step, `[worlds, …]` each.
        rows: those of the steps of its chunk before it.
        chunks: by name, the chunks before, `[worlds, steps, …]`.
        step: its number.

    Raises:
        ModelError: says which series changed, and how.
    """
    for place, (name, before) in enumerate(chunks.items()):
        new = records[place]
        old = rows[-1][place] if rows else before[-1][:, -1] if before else new
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            forms = [f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape[1:])}" for tensor in (old, new)]
            raise ModelError(
                f"series {name!r} changed from {' to '.join(forms)} in step {step}; a series keeps its shape and dtype"
            )


def _explain(label: str, carry: Carry, step: int, values: Mapping[str, Tensor]) -> str:
    scaled = read_bounds_label(label)
    if scaled is not None:
        name, bounds, by = scaled
        return (
            f"{by} took the parameter {name!r}, which is {short(values[name].detach())}, out of its bounds "
            f"{when(step, carry)}: expected {bounds}; change the intervention, or declare wider bounds with dz.param"
        )
    if label.startswith("births"):
        return f"{label} ({when(step, carry)})"
    wanted = EXPECTED[label.removeprefix("rng.").partition("(")[0]]
    return (
        f"{label} got a value that is negative, NaN or out of range {when(step, carry)}; expected {wanted}. A NaN may "
        f"come from a sum over neighbours whose values exceeded its max=, or from a parameter"
    )


def when(step: int, carry: Carry) -> str:
    """What was checked by a look that follows one at `step`."""
    return "in init" if int(carry.step) == 0 else f"between steps {step} and {int(carry.step)}"
