"""Taking a finding out of a step without changing its course, so that the step can be timed without it.

A first run is recorded: what each blamed line read, copied or drew. Replayed, the line gets the recorded value at once.
What listens is in place in all runs, so that its own cost is in both sides of a comparison. It listens by a mode, on
the step's own objects and on functions of modules; no class of torch's is touched.
"""

import builtins
import contextlib
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode, _len_torch_function_stack, _pop_mode, _push_mode

from denizen.perf._doctor.diagnosis import Diagnosis
from denizen.perf._doctor.hooks import each_pass
from denizen.perf.watch._calls import quietly_traced, replaced
from denizen.perf.watch._places import USER, role
from denizen.perf.watch._tf32 import tf32

Line = tuple[str, int]


class AtLines:
    """Has a mode on torch's stack while this thread is at one of some lines, calls from there included."""

    def __init__(self, mode: TorchFunctionMode) -> None:
        self._mode = mode
        self._lines: dict[str, set[int]] = {}
        self._inside: list[FrameType] = []  # frames that are at one of the lines, the outermost first
        self._before: Any = None

    def choose(self, lines: Iterable[Line]) -> None:
        """The lines from now on."""
        self._lines = {}
        for file, line in lines:
            self._lines.setdefault(file, set()).add(line)

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Watch what this thread calls within the block. A debugger or coverage that traces it goes on elsewhere."""
        self._before = sys.gettrace()
        with quietly_traced():
            sys.settrace(self._called)
            try:
                yield
            finally:
                sys.settrace(self._before)
                self._inside.clear()
                self._leave()

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename in self._lines:
            return self._moved
        return self._before(frame, event, arg) if self._before is not None else None

    def _moved(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event in ("line", "return"):
            here = event == "line" and frame.f_lineno in self._lines.get(frame.f_code.co_filename, ())
            was = bool(self._inside) and self._inside[-1] is frame
            if here and not was:
                self._inside.append(frame)
                if len(self._inside) == 1:
                    _push_mode(self._mode)
            elif was and not here:
                self._inside.pop()
                if not self._inside:
                    self._leave()
        return self._moved

    def _leave(self) -> None:
        """Take the mode off the stack, also from below modes that the line has opened."""
        above = []
        while _len_torch_function_stack():
            top = _pop_mode()
            if top is self._mode:
                break
            above.append(top)
        for mode in reversed(above):
            _push_mode(mode)


def tensor_cores() -> contextlib.AbstractContextManager[None]:
    """Products of float32 matrices may use them."""
    return tf32(True, torch.backends.cuda.matmul)


@contextlib.contextmanager
def no_debugging() -> Generator[None]:
    """No detection of anomalies, and none to be switched on; no deterministic algorithms."""
    anomaly, nan = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    switch, deterministic = torch.set_anomaly_enabled, torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    switch(False)
    torch.use_deterministic_algorithms(False)
    try:
        with replaced(torch, "set_anomaly_enabled", lambda _: lambda *_, **__: None):
            yield
    finally:
        switch(anomaly, nan)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


@contextlib.contextmanager
def no_scaler(things: Iterable[Any] = ()) -> Generator[None]:
    """Gradient scalers pass everything on, those among some things."""
    with contextlib.ExitStack() as stack:
        for scaler in things:
            if isinstance(scaler, torch.amp.GradScaler):
                for name, passes in _PASSING.items():
                    stack.enter_context(replaced(scaler, name, lambda _, passes=passes: passes))
        yield


_PASSING: dict[str, Callable[..., Any]] = {
    "scale": lambda outputs: outputs,
    "unscale_": lambda *_, **__: None,
    "step": lambda optimizer, *args, **kwargs: optimizer.step(*args, **kwargs),
    "update": lambda *_, **__: None,
}


# Kinds that a setting takes out, wherever their line is.
SWITCHES: dict[str, Callable[[Iterable[Any]], contextlib.AbstractContextManager[None]]] = {
    "dtype-fp32": lambda _: tensor_cores(),
    "debug-left-on": lambda _: no_debugging(),
    "host-sync-scaler": no_scaler,
}


# Functions and methods of torch by their names, as a mode hears of them.
_READS = {"item", "tolist", "__bool__", "__float__", "__int__", "__index__", "__complex__", "__repr__", "__format__"}
_READS |= {"repeat_interleave", "cpu", "numpy", "__array__", "nonzero", "unique", "unique_consecutive", "bincount"}
_READS |= {"masked_select", "equal", "allclose", "one_hot", "__contains__"}
_COPIES = {"to", "cuda", "tensor", "as_tensor"}
_ON_HOST = {"zeros", "ones", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "eye", "normal"}
_RECORDED = ("host-sync-", "h2d-", "roundtrip", "d2h-accumulate", "loader-pin", "state-copy")
_LOADERS = ("loader-workers", "loader-collate", "loader-persistent")
_OTHERS = ("grad-memset", "optimizer-unfused", "alloc-churn", "no-grad-missing", "compile-overhead", *_LOADERS)
_ANYWHERE = (*SWITCHES, *_LOADERS, "optimizer-unfused")  # taken out wherever they come
LARGE = 64 << 10  # bytes
_ANEW = object()  # in place of a value that a backward pass goes through


def can_be_taken_out(one: Diagnosis) -> bool:
    """Whether there is a way to time the step without a finding."""
    if one.kind == "alloc-churn" and one.op != "aten::clone" and "empty_cache" not in one.op:
        return False
    if one.kind == "graph-retention" and "retain_graph" not in one.code:
        return False
    return one.kind.startswith(_RECORDED) or one.kind in _OTHERS or one.kind in SWITCHES


# Settings are those of the process: of two trials that change them at once, the second would put back the first's.
_SWITCHED = threading.RLock()


class Tape:
    """Which lines are taken out, and what they gave in the recorded run.

    Attributes:
        device: kind of the device, such as ``"cuda"``.
        out: lines that are taken out, with the kinds found there.
        recording: whether values are kept.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._at = AtLines(_Mode(self))
        self.out: dict[Line, set[str]] = {}
        self.kinds: set[str] = set()
        self.recording = False
        self._replaced: set[tuple[Line, str]] = set()
        self._active: set[str] = set()
        self._values: dict[tuple[Line, str], list[Any]] = {}
        self._next: dict[tuple[Line, str], int] = {}
        self._batches: list[Any] = []
        self._batch = 0
        self._thread = 0  # that of the step, once it is listened to
        self._things: list[Any] = []

    def rewind(self) -> None:
        """A run begins."""
        self._next.clear()
        self._batch = 0

    @contextlib.contextmanager
    def without(self, findings: Iterable[Diagnosis], located: Iterable[Diagnosis] = ()) -> Generator[None]:
        """Take findings out of what runs within the block.

        Args:
            findings: these.
            located: others, whose lines are looked for as well and left as they are: looking takes time, which belongs
                to both sides of a comparison.
        """
        lines: dict[Line, set[str]] = {}
        for one in findings:
            lines.setdefault((one.file, one.line), set()).add(one.kind)
        kept = self.out, self.kinds, self._active
        self._active = {kind for kinds in lines.values() for kind in kinds}
        self.kinds = self._active | {one.kind for one in located}
        self.out = {(one.file, one.line): set() for one in located} | lines
        self._at.choose(self.out)
        try:
            with ExitStack() as stack:
                switched = self._active & SWITCHES.keys()
                if switched:
                    stack.enter_context(_SWITCHED)
                for kind in switched:
                    stack.enter_context(SWITCHES[kind](self._things))
                yield
        finally:
            self.out, self.kinds, self._active = kept
            self._at.choose(self.out)

    @contextlib.contextmanager
    def recorded(self, findings: Iterable[Diagnosis]) -> Generator[None]:
        """Keep what the lines of findings give within the block."""
        self.rewind()
        self._values.clear()
        self._batches.clear()
        kept, self.recording = self.out, True
        self.out = {(one.file, one.line): {one.kind} for one in findings}
        self._at.choose(self.out)
        try:
            yield
        finally:
            self.recording, self.out = False, kept
            self._at.choose(self.out)

    def touched(self, one: Diagnosis) -> bool:
        """Whether taking a finding out changes anything: its line called what is wrapped, in the recorded run."""
        if one.kind in ("host-sync-explicit", "host-sync-print") or not one.kind.startswith(_RECORDED[:-1]):
            return True
        return one.kind in SWITCHES or any(line == (one.file, one.line) for line, _ in self._values)

    def took(self, one: Diagnosis) -> bool:
        """Whether anything was left out where a finding was taken out."""
        there = (one.file, one.line)
        return one.kind in _ANYWHERE or any(line == there and by in ("", one.kind) for line, by in self._replaced)

    # --- what calls become --------------------------------------------------------------------------------------------

    def value(self, name: str, call: Callable[[], Any], copied: Callable[[Any], Any]) -> Any:
        """A call at a line that may be taken out: recorded, replayed, or as it is."""
        line = _line(self.out)
        if line is None:
            return call()
        key = (line, name)
        if self.recording:
            result = call()
            graph = isinstance(result, Tensor) and result.grad_fn is not None
            self._values.setdefault(key, []).append(_ANEW if graph else copied(result))
            return result
        index, known = self._next.get(key, 0), self._values.get(key, [])
        self._next[key] = index + 1
        if not self.out[line] or index >= len(known) or known[index] is _ANEW:
            return call()
        self._replaced.add((line, ""))
        return known[index] if _large(known[index]) else copied(known[index])

    def _here(self) -> bool:
        """Whether the user's line of now is recorded or taken out."""
        line = _line(self.out)
        return line is not None and (self.recording or bool(self.out[line]))

    def takes(self, *kinds: str) -> bool:
        """Whether such a finding is taken out at the user's line of now.

        Asks for the line last: looking for it at every call would slow the side that has something taken out.
        """
        if self.recording or self.kinds.isdisjoint(kinds):
            return False
        if threading.get_ident() != self._thread:  # objects are found in the whole process, also those of another trial
            return False
        line = _line(self.out)
        taken = self.out[line].intersection(kinds) if line is not None else set()
        self._replaced.update((line, kind) for kind in taken if line is not None)
        return bool(taken)

    def batch(self, call: Callable[[], Any]) -> Any:
        """A batch of a loader."""
        if self.recording:
            self._batches.append(call())
            return self._batches[-1]
        if self._active.isdisjoint(_LOADERS) or not self._batches:
            return call()
        self._batch += 1
        return self._batches[(self._batch - 1) % len(self._batches)]

    # --- what listens -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def installed(self, things: Iterable[Any] = ()) -> Generator["Tape"]:
        """Listen to what lines call, within the block.

        Args:
            things: that the step uses: its modules, optimizers and events.
        """
        self._thread = threading.get_ident()
        self._things = list(things)
        with ExitStack() as stack:
            for owner, name, wrap in self._wrappers():
                stack.enter_context(replaced(owner, name, wrap))
            stack.enter_context(each_pass(lambda done: replaced(done, "_next_data", self._draw)))
            stack.enter_context(self._at.watching())
            yield self

    def _wrappers(self) -> list[tuple[Any, str, Callable[[Any], Any]]]:
        """Functions of modules, and methods of the step's own objects; not those of their classes."""
        wraps: list[tuple[Any, str, Callable[[Any], Any]]] = []
        wraps += [(torch.cuda, name, self._skip) for name in ("synchronize", "empty_cache")]
        wraps += [(torch.cuda, name, self._patient) for name in ("Event", "Stream")]
        wraps += [(builtins, "print", self._print), (torch, "compile", self._compile)]
        for thing in self._things:
            if isinstance(thing, torch.cuda.Event | torch.cuda.Stream):
                wraps.append((thing, "synchronize", self._skip))
            if isinstance(thing, Optimizer | nn.Module):
                wraps.append((thing, "zero_grad", self._zero_grad))
            if isinstance(thing, nn.Module):
                wraps += [(module, "_call_impl", self._module) for module in thing.modules()]
        seen: set[tuple[int, str]] = set()  # a part of two modules is wrapped once
        return [one for one in wraps if (key := (id(one[0]), one[1])) not in seen and not seen.add(key)]  # type: ignore[func-returns-value]

    def called(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a line that is recorded or taken out calls of torch."""
        name = getattr(call, "__name__", "")
        tensor = args[0] if args and isinstance(args[0], Tensor) else None
        there = tensor is not None and tensor.device.type == self.device

        def plain() -> Any:
            return call(*args, **kwargs)

        if name in _COPIES or (name in _READS and there):
            return self.value(name, plain, _fresh)
        if name in _ON_HOST and self.device != "cpu" and kwargs.get("device") is None:
            return self.value(name, plain, lambda made: made)  # the recorded one, which nobody reads
        if name in ("__getitem__", "__setitem__") and there and _moves(args[1]) and self._here():
            # Masks become the recorded places, indices of the host those on the device.
            places = self.value(name, lambda: _places(args[1], args[0].device), lambda found: found)
            return call(args[0], args[1] if self.recording else places, *args[2:])
        if name == "backward" and kwargs.get("retain_graph") and self.takes("graph-retention"):
            return call(*args, **(kwargs | {"retain_graph": False}))
        if name == "clone" and tensor is not None and self.takes("alloc-churn", "state-copy"):
            return tensor.view_as(tensor)
        return plain()

    def _compile(self, original: Any) -> Any:
        def compiled(*args: Any, **kwargs: Any) -> Any:
            if not self.out:
                return original(*args, **kwargs)
            return self.value("compile", lambda: original(*args, **kwargs), _fresh)

        return compiled

    def _skip(self, original: Any) -> Any:
        def skip(*args: Any, **kwargs: Any) -> Any:
            return None if self.takes("host-sync-explicit", "alloc-churn") else original(*args, **kwargs)

        return skip

    def _patient(self, original: Any) -> Any:
        """Events and streams made meanwhile, whose `synchronize` can be taken out."""
        return type(original.__name__, (original,), {"synchronize": self._skip(original.synchronize)})

    def _print(self, original: Any) -> Any:
        def printed(*args: Any, **kwargs: Any) -> None:
            if not self.takes("host-sync-print"):
                original(*args, **kwargs)

        return printed

    def _zero_grad(self, original: Any) -> Any:
        def zero_grad(set_to_none: bool = True) -> None:
            original(set_to_none or self.takes("grad-memset"))

        return zero_grad

    def _module(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.takes("no-grad-missing"):
                with torch.no_grad():
                    return original(*args, **kwargs)
            return original(*args, **kwargs)

        return call

    def _draw(self, original: Any) -> Any:
        def draw() -> Any:
            return self.batch(original)

        return draw


class _Mode(TorchFunctionMode):
    """Brings a tape what the lines call that it is held at."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._tape.called(func, args, kwargs or {})


def _line(lines: Iterable[Line]) -> Line | None:
    """The user's line of now, if it is one of those."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if role(file) == USER:
            line = (file, frame.f_lineno)
            return line if line in lines else None
        frame = frame.f_back
    return None


def _fresh(value: Any) -> Any:
    """A value that the step may change: tensors of the host and arrays are copied, those of the device cloned."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad and value.is_leaf)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return list(value)
    return tuple(_fresh(part) for part in value) if isinstance(value, tuple) else value


def _large(value: Any) -> bool:
    """Whether to copy a value of the host would take longer than what is taken out; then it is handed out as it is."""
    if isinstance(value, Tensor):
        return value.device.type == "cpu" and value.numel() * value.element_size() >= LARGE
    return isinstance(value, np.ndarray) and value.nbytes >= LARGE


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _moves(index: Any) -> bool:
    """Whether indexing by this waits or copies: a mask, a list, an array, a tensor of the host."""
    return any(
        isinstance(part, list | np.ndarray)
        or (isinstance(part, Tensor) and part.dim() > 0 and (part.dtype == torch.bool or part.device.type == "cpu"))
        for part in _parts(index)
    )


def _places(index: Any, device: torch.device) -> Any:
    made: list[Any] = []
    for part in _parts(index):
        part = torch.as_tensor(part) if isinstance(part, list | np.ndarray) else part
        if isinstance(part, Tensor) and part.dtype == torch.bool and part.dim() > 0:
            made += [places.to(device) for places in torch.where(part)]
        else:
            made.append(part.to(device) if isinstance(part, Tensor) else part)
    return tuple(made)
