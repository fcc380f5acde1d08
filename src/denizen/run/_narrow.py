"""How fields are narrowed on the device before they are copied, and widened again when they are read.

Masks become bits, eight agents to a byte; stages of up to 4 levels share a byte by fours, of up to 16 by twos. Other
fields are stored as they are, or in a dtype of fewer bytes that the author names. What would not fit is flagged on the
device; the flag is read at the end of a chunk.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import ops
from denizen.errors import DataError, InputError, nearest
from denizen.model import Stage, State, plain

PACKED = {"bits": 1, "2 bits": 2, "4 bits": 4}  # bits of an entry
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
WHOLES = (torch.int8, torch.uint8, torch.int16, torch.int32)
# What NumPy and Zarr lack is stored as its bits: those of a bfloat16 are the upper half of a float32's.
HOSTED = {"bfloat16": "int16", **dict.fromkeys(PACKED, "uint8")}


@dataclasses.dataclass(frozen=True)
class Form:
    """How a field is stored.

    Attributes:
        dtype: the state's, for example ``"int8"``; what is read has it again.
        stored: ``"bits"``, ``"2 bits"`` or ``"4 bits"`` an entry, or the dtype that is stored.
        size: entries of the last axis, where several share a byte; else 0.
    """

    dtype: str
    stored: str
    size: int = 0

    @property
    def hosted(self) -> str:
        """The dtype in host memory and in Zarr."""
        return HOSTED.get(self.stored, self.stored)

    @property
    def checked(self) -> bool:
        """Whether values may not fit."""
        return self.stored != self.dtype and not self.bits

    @property
    def bits(self) -> int:
        """Of an entry, where several share a byte; else 0."""
        return PACKED.get(self.stored, 0)

    @property
    def wanted(self) -> torch.dtype | None:
        """What `Snapshots.fields` says to get this form."""
        dtype = None if self.bits else getattr(torch, self.stored)
        return dtype if dtype in (*FLOATS, *WHOLES) else None

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """As stored, of a field `[worlds, …]`."""
        return (*shape[:-1], self.width) if self.bits else shape

    @property
    def width(self) -> int:
        """Bytes of the last axis, where several entries share one."""
        return -(-self.size * self.bits // 8)


def chosen(fields: Any, state: State) -> dict[str, Form]:
    """The form of each field that is to be kept.

    Args:
        fields: names, or a mapping from names to a dtype or None, or None for all.
        state: every field `[worlds, …]`. Its own levels count: `init` may make more than its class declares.

    Raises:
        InputError: an unknown field, or a dtype that cannot hold its values.
    """
    if isinstance(fields, str):
        raise InputError(f"snapshots: fields={fields!r}, expected a list of names, such as [{fields!r}]")
    if fields is not None and not isinstance(fields, Iterable):
        raise InputError(f"snapshots: fields={fields!r}, expected a list of names, or dtypes by name")
    kinds = state.kinds
    named: dict[Any, Any] = dict(fields) if isinstance(fields, Mapping) else {}
    names = list(kinds) if fields is None else list(fields)
    if not names or len(set(map(str, names))) != len(names):
        raise InputError(f"snapshots: fields={names}, expected different names, at least one")
    for name in names:
        if not isinstance(name, str) or name not in kinds:
            raise InputError(f"snapshots: unknown field {name!r}; {nearest(name, kinds)}")
    return {name: _form(name, named.get(name), kinds[name], getattr(state, name)) for name in names}


def _form(name: str, wanted: Any, kind: Any, value: Any) -> Form:
    tensor = plain(value)
    dtype, packed = _name(tensor.dtype), _packed(kind, value)
    if wanted is None:
        return Form(dtype, packed, tensor.shape[-1]) if packed else Form(dtype, dtype)
    family = FLOATS if tensor.dtype.is_floating_point else WHOLES
    valid = [other for other in family if other.itemsize <= tensor.dtype.itemsize]
    if wanted not in valid:
        raise InputError(
            f"snapshots: field {name!r} holds {dtype} values and cannot be stored as {wanted}; expected None (as it "
            f"is{f', packed into {packed}' if packed else ''}) or one of {', '.join(map(str, valid))}"
        )
    return Form(dtype, _name(wanted))


def _packed(kind: Any, value: Any) -> str | None:
    """The closest packing of a field with few values; None for others, and for shares of a relaxed run."""
    tensor = plain(value)
    if tensor.dtype != torch.int8 or tensor.dim() < 2:
        return None
    count = len(value.levels) if isinstance(value, Stage) else 2 if kind.name == "mask" else 0
    return next((name for name, bits in PACKED.items() if 0 < count <= 1 << bits), None)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def narrow(form: Form, tensor: Tensor) -> tuple[Tensor, Tensor | None]:
    """A field as it is stored, on its device, and a 0-d bool: whether a value did not fit (None where all do).

    The result may share memory with `tensor`.
    """
    if form.bits:
        packed = tensor.new_empty(form.shape(tuple(tensor.shape)), dtype=torch.uint8)
        ops.pack(tensor, form.bits, packed)
        return packed, None
    stored = tensor.to(getattr(torch, form.stored))
    bad = _misfit(tensor, stored) if form.checked else None
    return (stored.view(torch.int16) if form.stored == "bfloat16" else stored), bad


def _misfit(tensor: Tensor, stored: Tensor) -> Tensor:
    if tensor.dtype.is_floating_point:
        return (torch.isinf(stored) & torch.isfinite(tensor)).any()
    wide = torch.int64 if tensor.dtype == torch.int64 else torch.int32
    return (stored.to(wide) != tensor.to(wide)).any()


def widen(form: Form, values: np.ndarray) -> Tensor:
    """A field in the state's dtype, from what is stored."""
    dtype = getattr(torch, form.dtype)
    if form.bits:
        return torch.from_numpy(_unpacked(values, form)).to(dtype)
    values = np.ascontiguousarray(values)
    if form.stored == "bfloat16":
        return torch.from_numpy(values).view(torch.bfloat16).to(dtype)
    return torch.from_numpy(values).to(dtype)


def _unpacked(values: np.ndarray, form: Form) -> np.ndarray:
    if form.bits == 1:
        return np.unpackbits(values, axis=-1, count=form.size, bitorder="little")
    places = np.arange(0, 8, form.bits, dtype=np.uint8)
    codes = values[..., None] >> places & np.uint8((1 << form.bits) - 1)
    return np.ascontiguousarray(codes.reshape(*values.shape[:-1], values.shape[-1] * places.size)[..., : form.size])


def check_form(form: Form, where: str) -> None:
    """Raise `DataError` where a manifest names a form that denizen does not write."""
    names = {_name(known) for known in (*FLOATS, *WHOLES)} | {"int64", "float64", "bool"}
    if form.dtype not in names or form.stored not in (names | set(PACKED)):
        known = ", ".join(map(repr, PACKED))
        raise DataError(
            f"{where} is {form.dtype!r} stored as {form.stored!r}, expected dtypes of torch, or one of {known}"
        )
