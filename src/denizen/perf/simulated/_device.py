"""Registering the simulated device with torch, once per process. All use of what torch calls experimental is here.

Tried with torch 2.11 and 2.13: `tests/watch/test_simulated_device.py` fails where a newer torch changes what it needs.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._dynamo import eval_frame
from torch.utils import backend_registration

from denizen.errors import DenizenError, InputError
from denizen.perf.simulated import _pinned
from denizen.perf.simulated._tensor import NAME, SimulatedTensor, fallback, frames_of_the_device, rebuild
from denizen.perf.watch import _compiler

_kept: list[Any] = []  # what torch refers to; libraries end their registrations when they are collected


def simulated_device() -> torch.device:
    """The simulated accelerator; registered with torch at the first call, which takes about a second.

    Raises:
        DenizenError: CUDA is available, the process has another device of torch's kind "private use", or this torch
            lacks what the registration needs.
    """
    _register()
    return torch.device(NAME, 0)


def gpu_or_simulated(device: torch.device | str | None = None) -> torch.device:
    """Where `denizen.perf.doctor` looks at a step that is built for it: the CUDA device, else the simulated one.

    Args:
        device: ``"cuda"``, ``"cpu"`` or ``"simulated"``, as asked for; None: by itself.

    Raises:
        InputError: `device` names no device of this machine.
    """
    if device is None:
        return torch.device("cuda") if torch.cuda.is_available() else simulated_device()
    kind = str(device).partition(":")[0]
    if kind == NAME:
        return simulated_device()
    if kind not in ("cuda", "cpu"):
        raise InputError(f"doctor(device={str(device)!r}): expected 'cuda', 'cpu' or 'simulated'")
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"doctor(device={str(device)!r}): there is no CUDA device here; leave it out to simulate one")
    return torch.device(str(device))


def _keep(made: Any) -> Any:
    _kept.append(made)
    return made


def _record_constants() -> None:
    """Have `make_fx` record what a function does with tensors of the device that are none of its arguments.

    It hands operations on tensors of classes that it does not know to the class, unrecorded: whatever came of a model's
    parameter stayed as it was when it was recorded.
    """
    from torch.fx.experimental import proxy_tensor

    proxy_tensor.HANDLED_TYPES += (SimulatedTensor,)  # type: ignore[assignment]  # pyrefly: ignore[bad-assignment]


def _choose() -> None:
    """Have `torch.cond` in compiled code read its condition, as it does on a GPU."""
    from torch._higher_order_ops.cond import cond_op

    @cond_op.py_impl(SimulatedTensor)
    def _(condition: Tensor, then: Callable[..., Any], otherwise: Callable[..., Any], operands: Any) -> Any:
        return (then if condition else otherwise)(*operands)


@functools.cache
def _register() -> None:
    if torch.cuda.is_available():  # torch would take it for the accelerator: no backward pass on CUDA works any more
        raise DenizenError(
            "the simulated device is for machines without a GPU, and this one has CUDA: use device='cuda', "
            "or hide the card from a process of its own with CUDA_VISIBLE_DEVICES="
        )
    taken = torch._C._get_privateuse1_backend_name()
    if taken != "privateuseone":
        raise DenizenError(
            f"the simulated device needs torch's slot for other devices, which {taken!r} has taken in this process; "
            "run the budget in a process of its own, or on a GPU: dz.budget(device='cuda')"
        )
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        raise DenizenError(f"torch {torch.__version__} cannot register a device from Python; 2.11 to 2.13 can")
    # Step by step as that function does it, without what it adds to torch's classes (`Tensor.is_simulated`).
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _Backend())
    torch._C._acc.register_python_privateuseone_hook(_keep(backend_registration._DummyPrivateUse1Hook()))
    torch._C._acc.register_python_privateuseone_device_guard(_keep(backend_registration._DummyDeviceGuard()))
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(list, device=...) makes it on the host and copies
    every, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    _kept.extend((every, aten))
    every.fallback(fallback, "PrivateUse1")
    every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    _recurrent(aten)
    skip = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
    for function in frames_of_the_device():
        with contextlib.suppress(AttributeError):
            eval_frame.set_code_exec_strategy(function.__code__, skip)
    torch.serialization.add_safe_globals([rebuild])
    _compiler.install()
    _compiler.teach(SimulatedTensor, NAME)
    _record_constants()
    _choose()
    _pinned.install(aten)
    _like_a_gpu()


class _Backend(backend_registration._DummyBackendModule):
    """What torch asks a device's module for."""

    Event = torch.Event
    Stream = torch.Stream

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def set_device(self, device: Any) -> None: ...

    def synchronize(self, device: Any = None) -> None: ...

    def empty_cache(self) -> None: ...


def _recurrent(aten: torch.library.Library) -> None:
    """LSTM and GRU have fused kernels for GPUs only: run them from their parts."""
    from torch._decomp.decompositions import gru_impl, gru_impl_data, lstm_data_impl, lstm_impl

    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        aten.impl("lstm.input", _states(lstm_impl), key)
        aten.impl("gru.input", gru_impl, key)
        aten.impl("lstm.data", _states(lstm_data_impl), key)
        aten.impl("gru.data", gru_impl_data, key)
        aten.impl("lstm_cell", _lstm_cell, key)
        aten.impl("gru_cell", _gru_cell, key)
        aten.impl("ctc_loss.Tensor", _ctc_loss, key)  # torch has a way of its own for subclasses, with mixed devices


def _states(lstm: Callable[..., Any]) -> Callable[..., Any]:
    """An LSTM of its parts; those of torch 2.11 leave a dimension too many in its states."""

    def run(*args: Any) -> Any:
        out, *states = lstm(*args)
        return out, *(state.squeeze(1) if state.dim() == 4 else state for state in states)

    return run


def _lstm_cell(x: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Any:
    h, c = hx
    i, f, g, o = (nn.functional.linear(x, w_ih, b_ih) + nn.functional.linear(h, w_hh, b_hh)).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_cell(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Any:
    xr, xz, xn = nn.functional.linear(x, w_ih, b_ih).chunk(3, 1)
    hr, hz, hn = nn.functional.linear(h, w_hh, b_hh).chunk(3, 1)
    z, n = (xz + hz).sigmoid(), (xn + (xr + hr).sigmoid() * hn).tanh()
    return n + z * (h - n)


def _ctc_loss(scores: Tensor, targets: Tensor, lengths: Tensor, target_lengths: Tensor, *rest: Any) -> Tensor:
    return torch.ops.aten.ctc_loss.IntList(scores, targets, lengths.tolist(), target_lengths.tolist(), *rest)


def _like_a_gpu() -> None:
    """Where Python asks for a type of tensor or device, answer as for a GPU."""
    from torch.optim import optimizer

    optimizer._foreach_supported_types.append(SimulatedTensor)
    torch.Generator = SimulatedGenerator  # type: ignore[misc]


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class SimulatedGenerator(torch._C.Generator, metaclass=_AnyGenerator):
    """torch.Generator, which also draws for the simulated device: from the CPU's numbers."""

    def __new__(cls, device: Any = "cpu") -> Any:
        there = torch.device(device).type == NAME
        return super().__new__(cls, "cpu" if there else device)  # pyrefly: ignore[bad-argument-count]
