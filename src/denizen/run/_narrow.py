"""How fields are narrowed on the device before they are copied, and widened again when they are read.

Masks become bits, eight agents to a byte. Other fields are stored as they are, or in a dtype of fewer bytes that the
author names. What would not fit is flagged on the device; the flag is read at the end of a chunk.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen.errors import DataError, InputError, nearest

BITS = "bits"
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
WHOLES = (torch.int8, torch.uint8, torch.int16, torch.int32)
# What NumPy and Zarr lack is stored as its bits: those of a bfloat16 are the upper half of a float32's.
HOSTED = {"bfloat16": "int16", BITS: "uint8"}
GATHER = 0x0102040810204080  # times eight bytes of 0 or 1: their bits meet in the highest byte, the first one lowest


@dataclasses.dataclass(frozen=True)
class Form:
    """How a field is stored.

    Attributes:
        dtype: the state's, for example ``"int8"``; what is read has it again.
        stored: ``"bits"``, or the dtype that is stored.
        size: entries of the last axis, where it is stored as bits; else 0.
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
        return self.stored not in (self.dtype, BITS)

    @property
    def wanted(self) -> torch.dtype | None:
        """What `Snapshots.fields` says to get this form."""
        dtype = None if self.stored == BITS else getattr(torch, self.stored)
        return dtype if dtype in (*FLOATS, *WHOLES) else None

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """As stored, of a field `[worlds, …]`."""
        return (*shape[:-1], -(-self.size // 8)) if self.stored == BITS else shape


def chosen(fields: Any, kinds: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Form]:
    """The form of each field that is to be kept.

    Args:
        fields: names, or a mapping from names to a dtype or None, or None for all.
        kinds: of the state.
        tensors: of the state, `[worlds, …]` each.

    Raises:
        InputError: an unknown field, or a dtype that cannot hold its values.
    """
    if isinstance(fields, str):
        raise InputError(f"snapshots: fields={fields!r}, expected a list of names, such as [{fields!r}]")
    named: dict[Any, Any] = dict(fields) if isinstance(fields, Mapping) else {}
    names = list(kinds) if fields is None else list(fields)
    if not names or len(set(names)) != len(names):
        raise InputError(f"snapshots: fields={names}, expected different names, at least one")
    for name in names:
        if name not in kinds:
            raise InputError(f"snapshots: unknown field {name!r}; {nearest(name, kinds)}")
    return {name: _form(name, named.get(name), kinds[name].name, tensors[name]) for name in names}


def _form(name: str, wanted: Any, kind: str, tensor: Tensor) -> Form:
    dtype = _name(tensor.dtype)
    if wanted is None:
        bits = kind == "mask" and tensor.dtype == torch.int8 and tensor.dim() > 1
        return Form(dtype, BITS, tensor.shape[-1]) if bits else Form(dtype, dtype)
    family = FLOATS if tensor.dtype.is_floating_point else WHOLES
    valid = [other for other in family if other.itemsize <= tensor.dtype.itemsize]
    if wanted not in valid:
        raise InputError(
            f"snapshots: field {name!r} holds {dtype} values and cannot be stored as {wanted}; expected None (as it "
            f"is{', masks as bits' if kind == 'mask' else ''}) or one of {', '.join(map(str, valid))}"
        )
    return Form(dtype, _name(wanted))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def narrow(form: Form, tensor: Tensor) -> tuple[Tensor, Tensor | None]:
    """A field as it is stored, on its device, and a 0-d bool: whether a value did not fit (None where all do).

    The result may share memory with `tensor`.
    """
    if form.stored == BITS:
        return _bits(tensor), None
    stored = tensor.to(getattr(torch, form.stored))
    bad = _misfit(tensor, stored) if form.checked else None
    return (stored.view(torch.int16) if form.stored == "bfloat16" else stored), bad


def _bits(mask: Tensor) -> Tensor:
    """uint8 `[…, ceil(n / 8)]` from int8 `[…, n]` of 0 and 1; bit k of byte j is entry 8 j + k."""
    if mask.numel() == 0:
        return mask.new_zeros(*mask.shape[:-1], -(-mask.shape[-1] // 8), dtype=torch.uint8)
    eights = torch.nn.functional.pad(mask, (0, -mask.shape[-1] % 8)) if mask.shape[-1] % 8 else mask
    eights = eights.contiguous()
    if eights.storage_offset() % 8:
        eights = eights.clone()
    return (eights.view(torch.int64) * GATHER).view(torch.uint8)[..., 7::8]


def _misfit(tensor: Tensor, stored: Tensor) -> Tensor:
    if tensor.dtype.is_floating_point:
        return (torch.isinf(stored) & torch.isfinite(tensor)).any()
    wide = torch.int64 if tensor.dtype == torch.int64 else torch.int32
    return (stored.to(wide) != tensor.to(wide)).any()


def widen(form: Form, values: np.ndarray) -> Tensor:
    """A field in the state's dtype, from what is stored."""
    dtype = getattr(torch, form.dtype)
    if form.stored == BITS:
        return torch.from_numpy(np.unpackbits(values, axis=-1, count=form.size, bitorder="little")).to(dtype)
    values = np.ascontiguousarray(values)
    if form.stored == "bfloat16":
        return torch.from_numpy(values).view(torch.bfloat16).to(dtype)
    return torch.from_numpy(values).to(dtype)


def checked_form(dtype: str, stored: str, size: int, where: str) -> Form:
    """A form that a manifest names.

    Raises:
        DataError: not one that denizen writes.
    """
    names = {_name(known) for known in (*FLOATS, *WHOLES)} | {"int64", "float64", "bool"}
    if dtype not in names or stored not in (names | {BITS}):
        raise DataError(f"{where} is {dtype!r} stored as {stored!r}, expected dtypes of torch or 'bits'")
    return Form(dtype, stored, size)
