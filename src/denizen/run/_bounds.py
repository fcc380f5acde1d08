"""Bounds of parameters that may change in place: looked at where they did, so that none leaves them unseen."""

from collections.abc import Mapping

import torch
from torch import Tensor

from denizen.errors import InputError
from denizen.model import Model, Param


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
        self._seen |= {name: (value, _version(value)) for name, value in values.items() if name in self._specs}


class Flag:
    """Whether parameters that the device itself changes are within their bounds; comes to the host without a wait.

    Attributes:
        outside: bool 0-d on the device, as `set` left it.
    """

    def __init__(self, specs: Mapping[str, Param], values: Mapping[str, Tensor], device: torch.device) -> None:
        """Args:
        specs: by name.
        values: of the same names, on the device, changed in place.
        device: where they are.
        """
        self._specs, self._values = specs, values
        self.outside = torch.zeros((), dtype=torch.bool, device=device)
        cuda = device.type == "cuda"
        self._told = torch.zeros((), dtype=torch.bool, pin_memory=cuda)
        self._heard = self._told.numpy()  # the same memory: the host looks at its own
        self._sent = torch.cuda.Event() if cuda else None

    def now(self) -> Tensor:
        """Whether a value is not finite or out of its bounds: bool 0-d on the device."""
        flags = [~spec.inside(self._values[name]) for name, spec in self._specs.items()]
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


def _version(value: Tensor) -> int | None:
    """How often it was written to; None where torch does not count."""
    return None if not isinstance(value, Tensor) or value.is_inference() else value._version
