"""Tensors of a simulated accelerator: real values on the CPU behind a device of their own, heard by open budgets.

Every operation runs on the CPU at once. What differs is the device's type, so that torch takes the paths that it takes
for an accelerator, and that a value which leaves the device can be told from one that never was there.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _python_dispatch

from denizen.perf.simulated._pinned import mark
from denizen.perf.watch import _blame
from denizen.perf.watch._event_log import HOST_READS, here, log_event, open_logs
from denizen.perf.watch._faults import kind_of_read
from denizen.perf.watch._operations import SIMULATED as NAME
from denizen.perf.watch._operations import Traits, is_pinned, traits, waits, work
from denizen.perf.watch._places import instruction

_NUMBERS = ("aten::fill_", "aten::scalar_tensor")
_WRITES = {"aten::index_put_": 2, "aten::index_put": 2, "aten::copy_": 1}  # where in the arguments the number is
_memory = threading.RLock()  # also taken by the collector, which may run at any allocation
_live = 0
_thread = threading.local()


def live_bytes() -> int:
    """Bytes of simulated device memory in use."""
    return _live


class _Block:
    """A piece of device memory, shared by the views of it; freed with the last of them."""

    __slots__ = ("__weakref__", "size", "weights")

    def __init__(self, size: int) -> None:
        global _live
        self.size, self.weights = size, False
        with _memory:
            _live += size

    def __del__(self) -> None:
        global _live
        if _memory is None:  # the interpreter is at its end
            return
        with _memory:
            _live -= self.size


_EXCLUDED = torch._C._dispatch_tls_is_dispatch_key_excluded


class SimulatedTensor(Tensor):
    """A tensor on the simulated device."""

    _real: Tensor
    _block: _Block
    _filled: tuple[int, int] | None  # the instruction that filled it with a number, where it has no dimensions
    _of_number: bool  # whether it stands for a number in `x[i] = 0`, which on a GPU comes from the host

    @staticmethod
    def __new__(cls: type, real: Tensor, block: _Block | None = None) -> "SimulatedTensor":
        dense = real.layout is torch.strided
        made = Tensor._make_wrapper_subclass(
            cls,
            real.size(),
            strides=real.stride() if dense else None,
            storage_offset=real.storage_offset() if dense else None,
            dtype=real.dtype,
            layout=real.layout,
            device=torch.device(NAME, 0),
            requires_grad=False,
        )
        made._real, made._filled, made._of_number = real, None, False
        made._block = block or _Block(real.numel() * real.element_size())
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyrefly: ignore[bad-override]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # pyrefly: ignore[bad-override]
        return run(func, args, kwargs or {})

    # How values leave the device through Python. The names tell budgets what was written (see `Place.method`).

    def item(self) -> Any:
        return _value(self, Tensor.item)

    def __bool__(self) -> bool:
        return _value(self, Tensor.__bool__)

    def __float__(self) -> float:
        return _value(self, Tensor.__float__)

    def __int__(self) -> int:
        return _value(self, Tensor.__int__)

    def __index__(self) -> int:
        return _value(self, Tensor.__index__)

    def __complex__(self) -> complex:
        return _value(self, Tensor.__complex__)

    def tolist(self) -> Any:
        _left(self, "Tensor.tolist", "host-sync-item")
        return self._real.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if self.requires_grad and not force:
            return self._real.detach().requires_grad_().numpy()  # refused as torch refuses it
        _left(self, "Tensor.numpy", "host-sync-copy")
        return self._real.numpy().copy()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        _left(self, "Tensor.__repr__", "host-sync-print")
        text = repr(self._real).removesuffix(")")
        grad = f", grad_fn=<{type(self.grad_fn).__name__}>" if self.grad_fn else ""
        return f"{text}, device='{self.device}'{grad or (', requires_grad=True' if self.requires_grad else '')})"

    def __format__(self, format_spec: str) -> str:
        if self.dim() == 0:
            _left(self, "Tensor.__format__", "host-sync-print")
            return format(self._real.item(), format_spec)
        return format(repr(self), format_spec)

    __str__ = __repr__

    def __reduce_ex__(self, proto: Any) -> Any:
        _left(self, "Tensor.__reduce_ex__", "host-sync-copy")
        return rebuild, (self._real, self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise RuntimeError("deepcopy() takes tensors that no operation made (graph leaves); detach() it first")
        if id(self) not in memo:
            copied = self.detach().clone().requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                copied = torch.nn.Parameter(copied, self.requires_grad)
            if self.grad is not None:
                copied.grad = self.grad.__deepcopy__(memo)
            memo[id(self)] = copied
        return memo[id(self)]

    def as_subclass(self, cls: Any) -> Any:
        raise _blame.could_not_look("subclasses of tensors (as_subclass)")

    def __dlpack_device__(self) -> Any:
        raise _blame.could_not_look("DLPack")

    def __dlpack__(self, **_: Any) -> Any:
        raise _blame.could_not_look("DLPack")

    def pin_memory(self, device: Any = None) -> Tensor:
        raise RuntimeError(f"cannot pin a tensor on {NAME}: only dense CPU tensors can be pinned")

    def record_stream(self, s: Any) -> None: ...

    @property
    def __tensor_flatten__(self) -> Any:
        """There for `nn.Module` only, while it moves a parameter: it then swaps the parameter with this tensor.

        On a GPU a parameter takes other memory and stays who it is, so that optimizers know it. Modules swap tensors
        of classes that have this attribute. One that is referred to weakly, or that a graph holds, cannot be swapped:
        the module gets a new parameter.
        """
        asking: Any = sys._getframe(1)
        while asking is not None and asking.f_code.co_filename == _python_dispatch.__file__:
            asking = asking.f_back
        moves = asking is not None and asking.f_code is torch.nn.Module._apply.__code__
        if not moves or not _swappable(asking.f_locals["self"], asking.f_locals["param"]):
            raise AttributeError("__tensor_flatten__")
        return None

    __tensor_unflatten__ = None

    def backward(self, *args: Any, **kwargs: Any) -> None:
        _calm()
        super().backward(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "data" and isinstance(value, SimulatedTensor):  # as `module.half()` does: the values come along
            self._real, self._block = value._real.detach(), value._block
            self._block.weights |= self._is_param

    # torch marks parameters so; their memory is remembered, whichever view of it is examined.

    @property
    def _is_param(self) -> bool:
        return self.__dict__.get("_parameter", False)

    @_is_param.setter
    def _is_param(self, value: bool) -> None:
        self.__dict__["_parameter"] = value
        self._block.weights |= value

    @property
    def _of_parameter(self) -> bool:
        return self._block.weights


def _swappable(module: Any, parameter: Any) -> bool:
    holders = 1 + parameter.requires_grad  # itself, and the node of a graph that adds up its gradient
    scripted = isinstance(module, torch.jit.ScriptModule)  # which holds it in C++ as well
    return not scripted and not weakref.getweakrefs(parameter) and parameter._use_count() <= holders


def _left(tensor: SimulatedTensor, op: str, kind: str) -> None:
    """A tensor's values went to the host in a way that is no operation. No kind: that of the method in the stack."""
    if not tensor.numel():
        return  # nobody waits for no values
    kind = kind or kind_of_read(op, here(), tensor.dtype == torch.bool)
    size = tensor.numel() * tensor.element_size()
    log_event(
        kind,
        op,
        (HOST_READS,),
        bytes=size,
        numel=tensor.numel(),
        to="host",
        weights=tensor._of_parameter,
    )


def _value(tensor: SimulatedTensor, method: Callable[[Tensor], Any]) -> Any:
    """What a method of torch reads; frames of the caller tell which it was."""
    # A compiler that traces this (torch 2.11 does) cannot take the question for a key.
    if torch.compiler.is_compiling() or not _EXCLUDED(torch._C.DispatchKey.Python):
        return method(tensor)
    _left(tensor, "aten::_local_scalar_dense", "")  # torch.tensor([tensors]) reads so, past every operation
    return method(tensor._real)


def rebuild(real: Tensor, requires_grad: bool) -> Tensor:
    """A tensor of the device from a file."""
    return SimulatedTensor(real).requires_grad_(requires_grad)


def run(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operation on the values and wrap what stays on the device. The kernel of every operation there."""
    _calm()
    seen, found = traits(func), _Arguments()
    if seen.composite:  # tensors of inference mode bring it here whole
        parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
    reals = [found.unwrap(value) for value in args]
    named = {name: found.unwrap(value) for name, value in kwargs.items()} if kwargs else {}
    if found.hosts and seen.strict and found.devices:
        _refuse_mixture(seen, found)
    if "pin_memory" in named:
        named["pin_memory"] = None
    result = func(*reals, **named)
    if seen.mutates:
        _refit_all(found)
    wanted = kwargs.get("device")
    stays = found.there if wanted is None else torch.device(wanted).type == NAME
    out = _wrap(result, found, seen) if stays else result
    if seen.schema == "aten::_pack_padded_sequence":
        out = (out[0], result[1])  # the sizes of its batches are for the host
    if not stays and seen.schema == "aten::_to_copy" and kwargs.get("non_blocking") and isinstance(out, Tensor):
        mark(out)  # torch takes pinned memory for such a copy
    if open_logs():
        if seen.schema in _NUMBERS or seen.schema in _WRITES:
            _numbers(seen, args, out)
        if stays or seen.may_wait:
            weights = seen.schema == "aten::clone" and any(tensor._of_parameter for tensor in found.devices.values())
            work(seen, found.blocks, found.new_bytes, _live, weights)
        waits(func, seen, args, kwargs, out, NAME)
    return out


class _Arguments:
    """What an operation was given, and what it made."""

    __slots__ = ("blocks", "devices", "hosts", "new_bytes", "there")

    def __init__(self) -> None:
        self.devices: dict[int, SimulatedTensor] = {}  # by the identity of their values
        self.hosts = False  # whether a tensor of the host with dimensions is among them
        self.there = False  # whether anything names the simulated device
        self.blocks = self.new_bytes = 0

    def unwrap(self, value: Any) -> Any:
        if isinstance(value, SimulatedTensor):
            self.devices[id(value._real)] = value
            self.there = True
            return value._real
        if isinstance(value, Tensor):
            self.hosts |= value.dim() > 0 and value.device.type == "cpu"
        elif isinstance(value, list | tuple):
            return type(value)([self.unwrap(part) for part in value]) if value else value
        elif isinstance(value, torch.device) and value.type == NAME:
            self.there = True
            return torch.device("cpu")
        return value


def _wrap(value: Any, found: _Arguments, seen: Traits) -> Any:
    if isinstance(value, Tensor):
        known = found.devices.get(id(value))
        if known is not None:
            return known
        if value.is_complex() and (value.is_conj() or value.is_neg()):
            value = value.resolve_conj().resolve_neg()  # bits of the values that the wrapper has not
        if value._is_zerotensor():  # neither has it memory, and then kernels crash
            value = torch.zeros(value.shape, dtype=value.dtype)
        if seen.view and found.devices:
            return _view(value, next(iter(found.devices.values())))
        made = SimulatedTensor(value)
        found.blocks, found.new_bytes = found.blocks + 1, found.new_bytes + made._block.size
        return made
    if isinstance(value, list | tuple):
        return type(value)([_wrap(part, found, seen) for part in value])
    return value


def _view(value: Tensor, base: SimulatedTensor) -> SimulatedTensor:
    if torch.is_inference_mode_enabled() and not base.is_inference():  # then its views are none of inference either
        with torch.inference_mode(False):
            return SimulatedTensor(value, base._block)
    return SimulatedTensor(value, base._block)


def _refit_all(found: _Arguments) -> None:
    for tensor in found.devices.values():
        dense = tensor._real.layout is torch.strided
        if tensor._real.shape != tensor.shape or (dense and tensor._real.stride() != tensor.stride()):
            _refit(tensor)


def _refit(tensor: SimulatedTensor) -> None:
    """An operation changed its argument's shape, as those with `out=` do."""
    real = tensor._real
    fresh = SimulatedTensor(real, tensor._block)
    size = real.untyped_storage().nbytes()
    if size > tensor._block.size:
        fresh._block = _Block(size)
    tensor.data = fresh
    tensor._real, tensor._block = real, fresh._block


def _numbers(seen: Traits, args: Sequence[Any], out: Any) -> None:
    """Tell the number of `x[i] = 0`, which one instruction makes into a tensor and writes, from other tensors."""
    if seen.schema in _NUMBERS:
        if isinstance(out, SimulatedTensor) and not out.dim():
            out._filled = instruction(any=True)
    elif isinstance(number := args[_WRITES[seen.schema]], SimulatedTensor) and number._filled:
        number._of_number = number._filled == instruction(any=True)


def _refuse_mixture(seen: Traits, found: _Arguments) -> None:
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but {seen.name} got a tensor of the host (cpu) beside one on "
        f"{NAME}:0; a GPU refuses it too. Make it there (device=...) or move it once with .to(device)"
    )


def _calm() -> None:
    """Have backward passes of this thread run in it, where the lines that asked for them can be seen."""
    if not getattr(_thread, "calm", False):
        torch._C._set_multithreading_enabled(False)
        _thread.calm = True


def fallback(func: Any, *args: Any, **kwargs: Any) -> Any:
    """For operations that name the device and have no tensor there yet: factories."""
    return run(func, args, kwargs)


def frames_of_the_device() -> list[Callable[..., Any]]:
    """Functions that run inside operations, and that no compiler should look into."""
    return [
        run,
        fallback,
        _wrap,
        _view,
        _refit,
        _refit_all,
        _numbers,
        _calm,
        _left,
        _Arguments.unwrap,
        _Arguments.__init__,
        SimulatedTensor.__torch_dispatch__.__func__,
        SimulatedTensor.__new__,
        is_pinned,
        mark,
        waits,
        work,
        traits,
        _Block.__init__,
        _Block.__del__,
    ]
