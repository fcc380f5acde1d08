"""Checks of a run: bounds of parameters that may change in place, and what steps checked on the device."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from denizen.errors import CapacityError, InputError, ModelError
from denizen.model import Model, Param, faults, read_bounds_label, short
from denizen.run._engine import RunState


class Bounds:
    """Looks at values of parameters again where they changed since; what did not change costs no read."""

    def __init__(self, model: Model) -> None:
        """Args:
        model: whose declarations count.
        """
        self._specs, self._name = model.params, type(model).__name__
        self._seen: dict[str, tuple[Tensor, int | None]] = {}

    def check(self, values: Mapping[str, Tensor], advice: str = "") -> None:
        """Raise `InputError` for a value that is not finite or out of its bounds; reads those that changed.

        Args:
            values: by name; others than parameters pass.
            advice: what to do, at the end of the message.
        """
        for name, value in values.items():
            seen = self._seen.get(name)
            if seen is not None and seen[0] is value and seen[1] is not None and seen[1] == value._version:
                continue
            if name in self._specs:
                checked(self._specs[name], value, f"{self._name}.{name}", advice)
                self.vouch({name: value})

    def vouch(self, values: Mapping[str, Tensor]) -> None:
        """Take values for looked at."""
        self._seen |= {name: (value, version(value)) for name, value in values.items() if name in self._specs}


class Flag:
    """Whether parameters that the device itself changes are within their bounds; comes to the host without a wait.

    Attributes:
        outside: bool 0-d on the device, as `set` left it.
    """

    def __init__(self, specs: Mapping[str, Param], device: torch.device) -> None:
        """Args:
        specs: by name.
        device: where their values are.
        """
        self._specs = specs
        self.outside = torch.zeros((), dtype=torch.bool, device=device)
        cuda = device.type == "cuda"
        self._told = torch.zeros((), dtype=torch.bool, pin_memory=cuda)
        self._heard = self._told.numpy()  # the same memory: the host looks at its own
        self._sent = torch.cuda.Event() if cuda else None

    def now(self, values: Mapping[str, Tensor]) -> Tensor:
        """Whether a value is not finite or out of its bounds: bool 0-d on the device."""
        flags = [~spec.inside(values[name]) for name, spec in self._specs.items()]
        return torch.stack(flags).any() if flags else torch.zeros_like(self.outside)

    def send(self) -> None:
        """Have `outside` sent to the host, behind what the device does now."""
        if self.outside.device.type in ("cpu", "cuda"):
            self._told.copy_(self.outside, non_blocking=True)
        if self._sent is not None:
            self._sent.record()

    def raised(self) -> bool:
        """Whether the host has heard of a value outside; taken back with that."""
        if (self._sent is not None and not self._sent.query()) or not self._heard.item():
            return False
        self._heard[...] = False
        return True


def held(model: Model) -> dict[str, Tensor]:
    """The parameters that a model holds."""
    return {name: getattr(model, name) for name in model.params}


def checked(spec: Param, value: Tensor, where: str, advice: str) -> None:
    """Raise `InputError` where a value is not finite or out of bounds (reads it); placeholders of transforms pass."""
    functorch = torch._C._functorch
    if not isinstance(value, Tensor) or functorch.is_batchedtensor(value) or functorch.is_gradtrackingtensor(value):
        return
    try:
        spec.check(value, where)
    except InputError as error:
        raise InputError(f"{error}{advice and '; ' + advice}") from None


def version(value: Tensor) -> int | None:
    """How often it was written to; None where torch does not count."""
    return None if not isinstance(value, Tensor) or value.is_inference() else value._version


EXPECTED = {
    "event": "hazards that are not negative",
    "bernoulli": "probabilities from 0 to 1",
    "categorical": "weights that are finite, not negative and not all 0",
    "exponential": "rates that are not negative",
    "gamma": "shapes that are finite and above 0",
    "poisson": "means from 0 to 2**31",
}
CAPACITY = ("births", "Ties: ")  # how labels of overflows begin


def read_checks(run_state: RunState, state: Any, checks: list[str], step: int, values: Mapping[str, Tensor]) -> None:
    """Read the checks made since the last look, which followed step `step`; raise where one failed.

    Args:
        run_state: holds them.
        state: of all worlds.
        checks: what each looked for.
        step: after which the last look was.
        values: of the parameters, before interventions.

    Raises:
        CapacityError: births beyond the capacity.
        ModelError: a draw from values out of range, a field that is out of range, or an intervention took a parameter
            out of its bounds.
    """
    if run_state.bad is not None and run_state.bad.numel():
        failed = run_state.bad.any(dim=0).tolist()
        for k, (label, bad) in enumerate(zip(checks, failed, strict=True)):
            if bad:
                kind = CapacityError if label.startswith(CAPACITY) else ModelError
                error = kind(_explain(label, run_state, step, values))
                error.place = int(run_state.bad[:, k].nonzero()[0])
                raise error
    for name, fault in faults(state):
        if bool(fault):
            raise ModelError(f"{name} is out of range (or NaN) {when(step, run_state)}")


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


def _explain(label: str, run_state: RunState, step: int, values: Mapping[str, Tensor]) -> str:
    scaled, at = read_bounds_label(label), when(step, run_state)
    if scaled is not None:
        name, bounds, by = scaled
        return (
            f"{by} took the parameter {name!r}, which is {short(values[name].detach())}, out of its bounds "
            f"{at}: expected {bounds}; change the intervention, or declare wider bounds with dz.param"
        )
    if not label.startswith("rng."):  # what is no draw tells all itself
        return f"{label} ({at})"
    wanted = EXPECTED[label.removeprefix("rng.").partition("(")[0]]
    return (
        f"{label} got a value that is negative, NaN or out of range {at}; expected {wanted}. A NaN may "
        f"come from a sum over neighbours whose values exceeded its max=, or from a parameter"
    )


def when(step: int, run_state: RunState) -> str:
    """What was checked by a look that follows one at `step`."""
    return "in init" if int(run_state.step) == 0 else f"between steps {step} and {int(run_state.step)}"
