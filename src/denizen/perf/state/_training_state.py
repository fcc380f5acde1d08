"""The whole state of a training loop: found, kept and put back in place, or written down to go on from later."""

import contextlib
import copy
import dataclasses
import dis
import inspect
import random
import types
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from denizen.errors import InputError, nearest
from denizen.perf.watch._event_log import allow

VERSION = 1
MEANT = "a state that is kept on the host and put back"  # for budgets
Restore = Callable[[], None]

OPTIMIZERS = torch.optim
# A state that these make in their first step is all zeros before it (NAdam's product of momenta is one), so that it can
# be set back where it lies. What others make is dropped, and made anew.
BEGIN_WITH_ZEROS = (
    OPTIMIZERS.Adam,
    OPTIMIZERS.AdamW,
    OPTIMIZERS.Adamax,
    OPTIMIZERS.NAdam,
    OPTIMIZERS.RAdam,
    OPTIMIZERS.RMSprop,
    OPTIMIZERS.Adadelta,
    OPTIMIZERS.SGD,
)
IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, np.generic, torch.dtype, torch.device, torch.Size)
MODULE_ATTRIBUTES = frozenset(vars(nn.Module())) | {"_compiled_call_impl"}


class Keeper:
    """Walks through things, keeps what they hold, and gathers functions that put it back.

    Tensors are kept in the host's memory, so that a search for a batch size finds the device as it was.

    Attributes:
        restores: to be called in order.
        covered: ids of what was met; nothing is kept twice.
    """

    def __init__(self, drop_fresh: bool = False) -> None:
        """Args:
        drop_fresh: remove what an optimizer makes in its first step, where it could be set back in place.
        """
        self.drop_fresh = drop_fresh
        self.restores: list[Restore] = []
        self.covered: set[int] = set()
        self._alive: list[Any] = []  # an id is only good while its owner lives

    def keep(self, name: str, thing: Any, strict: bool = True) -> None:
        """Keep one thing and what belongs to it.

        Args:
            name: where it is, for messages.
            thing: module, optimizer, scheduler, scaler, loader, generator, tensor, array, container or object with
                ``state_dict`` and ``load_state_dict``.
            strict: refuse what cannot be kept, instead of leaving it alone.

        Raises:
            InputError: `strict`, and there is no way to keep `thing`.
        """
        if isinstance(thing, IMMUTABLE) or id(thing) in self.covered:
            return
        self.covered.add(id(thing))
        self._alive.append(thing)
        if hasattr(type(thing), "_keep_in"):  # of `denizen.tools`: these know what they hold
            return thing._keep_in(self, name)
        for kind, method in self._kinds():
            if isinstance(thing, kind):
                return method(name, thing)
        if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
            self._keep_stateful(thing)
        elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            for field in dataclasses.fields(thing):
                self._keep_attribute(f"{name}.{field.name}", thing, field.name, strict)
        elif isinstance(thing, (MutableMapping, MutableSequence, set, deque, tuple, frozenset)):
            self._keep_container(name, thing, strict)
        elif strict and not callable(thing):
            raise InputError(
                f"{name} is a {type(thing).__name__}, whose state cannot be kept: give it state_dict() and "
                f"load_state_dict(), or pass what it changes, for example vars({name}); an iterator cannot be turned "
                "back, pass its loader and begin a pass of its own inside the step"
            )

    def _kinds(self) -> list[tuple[Any, Callable[[str, Any], None]]]:
        return [
            (Tensor, self._keep_tensor),
            (nn.Module, self._keep_module),
            (torch.optim.Optimizer, self._keep_optimizer),
            (LRScheduler, self._keep_scheduler),
            (torch.amp.GradScaler, self._keep_scaler),
            (DataLoader, self._keep_loader),
            (torch.Generator, self._keep_generator),
            (np.random.Generator, lambda name, thing: self._keep_numpy(thing.bit_generator)),
            (np.random.BitGenerator, lambda name, thing: self._keep_numpy(thing)),
            (np.random.RandomState, self._keep_random_state),
            (random.Random, self._keep_random),
            (np.ndarray, self._keep_array),
        ]

    # --- tensors and modules ------------------------------------------------------------------------------------------

    def _keep_tensor(self, name: str, tensor: Tensor) -> None:
        if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
            raise InputError(f"{name} has no shape yet: run the model once, then keep its state")
        if tensor.grad_fn is None:  # the result of a computation may be needed by its backward pass as it is
            self.restores.append(_putting_back(tensor))
        if not tensor.is_leaf:
            return
        gradient = tensor.grad
        put_back = None if gradient is None else _putting_back(gradient)

        def restore() -> None:
            tensor.grad = gradient
            if put_back is not None:
                put_back()

        self.restores.append(restore)

    def _keep_module(self, name: str, root: nn.Module) -> None:
        for inner, module in root.named_modules():
            self.covered.add(id(module))
            where = f"{name}.{inner}" if inner else name
            self.restores.append(_setting(module, "training", module.training))
            for registered in (module._parameters, module._buffers):
                for key, tensor in registered.items():
                    if tensor is not None:
                        self.restores.append(_setting(tensor, "requires_grad", tensor.requires_grad, tensor.is_leaf))
                        self.keep(f"{where}.{key}", tensor)
                self.restores.append(_refilling(registered))
            if type(module).__module__.partition(".")[0] != "torch":  # torch's own modules keep caches there
                self._keep_plain_attributes(where, module)

    def _keep_plain_attributes(self, name: str, module: nn.Module) -> None:
        """Counters, hidden states and lists that a forward pass changes without registering them."""

        def plain() -> set[str]:
            kinds = (*IMMUTABLE, Tensor, MutableMapping, MutableSequence, tuple)
            return {key for key, value in vars(module).items() if isinstance(value, kinds)} - MODULE_ATTRIBUTES

        kept = plain()
        for key in sorted(kept):
            self._keep_attribute(f"{name}.{key}", module, key, strict=False)

        def restore() -> None:
            for key in plain() - kept:
                delattr(module, key)

        self.restores.append(restore)

    def _keep_attribute(self, name: str, owner: Any, key: str, strict: bool) -> None:
        value = getattr(owner, key)
        self.keep(name, value, strict)

        def restore() -> None:
            if getattr(owner, key, None) is not value:
                object.__setattr__(owner, key, value)  # also of a frozen dataclass

        self.restores.append(restore)

    # --- optimizers and what goes with them ---------------------------------------------------------------------------

    def _keep_optimizer(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        groups = optimizer.param_groups
        for number, group in enumerate(groups):
            for place, parameter in enumerate(group["params"]):
                self.keep(f"{name}.param_groups[{number}]['params'][{place}]", parameter)
            self.keep(f"{name}.param_groups[{number}]", group, strict=False)
        self.restores.append(_refilling(groups))
        for values in optimizer.state.values():
            self.keep(f"{name}.state", values, strict=False)
        kept = dict(optimizer.state)

        def restore() -> None:
            for parameter in [key for key in optimizer.state if key not in kept]:
                if self.drop_fresh or not _set_to_zeros(optimizer, optimizer.state[parameter]):
                    del optimizer.state[parameter]
            optimizer.state.update(kept)

        self.restores.append(restore)

    def _keep_scheduler(self, name: str, scheduler: Any) -> None:
        self._keep_stateful(scheduler)
        self.keep(f"{name}.optimizer", getattr(scheduler, "optimizer", None))

    def _keep_scaler(self, name: str, scaler: Any) -> None:
        if not scaler.is_enabled():
            return
        self._keep_stateful(scaler)
        # An error between unscale_ and update leaves a mark here, and the next unscale_ is refused.
        marks = getattr(scaler, "_per_optimizer_states", None)
        if marks is not None:
            self.restores.append(_refilling(marks))

    def _keep_stateful(self, thing: Any) -> None:
        state = copy.deepcopy(thing.state_dict())
        # First of all: what loading changes elsewhere, such as learning rates, is put right after it.
        self.restores.insert(0, lambda: thing.load_state_dict(copy.deepcopy(state)))

    # --- data and random numbers --------------------------------------------------------------------------------------

    def _keep_loader(self, name: str, loader: Any) -> None:
        if hasattr(loader, "load_state_dict"):
            self._keep_stateful(loader)
        batches = loader.batch_sampler
        for part in (loader, loader.sampler, batches, getattr(batches, "sampler", None)):
            if part is None:
                continue
            self.keep(f"{name}: generator", getattr(part, "generator", None), strict=False)
            if isinstance(epoch := getattr(part, "epoch", None), int):
                self.restores.append(_setting(part, "epoch", epoch))
            if part is not loader and hasattr(part, "load_state_dict"):
                self.keep(f"{name}: sampler", part)
        if getattr(loader, "_iterator", self) is None:  # persistent workers draw a seed when they start
            self.restores.append(_setting(loader, "_iterator", None))

    def _keep_generator(self, name: str, generator: torch.Generator) -> None:
        state = generator.get_state()
        self.restores.append(lambda: _drop(generator.set_state(state)))

    def _keep_numpy(self, bits: Any) -> None:
        self.restores.append(_setting(bits, "state", copy.deepcopy(bits.state)))

    def _keep_random_state(self, name: str, generator: np.random.RandomState) -> None:
        state = generator.get_state()
        self.restores.append(lambda: generator.set_state(state))

    def _keep_random(self, name: str, generator: random.Random) -> None:
        state = generator.getstate()
        self.restores.append(lambda: generator.setstate(state))

    def _keep_array(self, name: str, array: np.ndarray) -> None:
        kept = array.copy()
        self.restores.append(lambda: np.copyto(array, kept))

    def _keep_container(self, name: str, thing: Any, strict: bool) -> None:
        entries = thing.items() if isinstance(thing, MutableMapping) else enumerate(thing)
        for key, value in list(entries):
            self.keep(f"{name}[{key!r}]", value, strict)
        if not isinstance(thing, (tuple, frozenset)):
            self.restores.append(_refilling(thing))


# --- restoring --------------------------------------------------------------------------------------------------------


def _putting_back(tensor: Tensor) -> Restore:
    """Copies the values back to where they lay: captured graphs and compiled guards keep their addresses."""
    original = target = tensor.detach()
    strided = target.layout is torch.strided
    if strided:
        for axis, (size, stride) in enumerate(zip(target.shape, target.stride(), strict=True)):
            if stride == 0 and size > 1:  # expanded: one element of memory under several indices
                target = target.narrow(axis, 0, 1)
    values = target.to("cpu", copy=True)

    def restore() -> None:
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            if strided and (tensor.data_ptr() != original.data_ptr() or tensor.shape != original.shape):
                tensor.data = original  # other memory was put under it
            target.copy_(values)

    return restore


def _setting(owner: Any, key: str, value: Any, applies: bool = True) -> Restore:
    def restore() -> None:
        if applies and getattr(owner, key) is not value:
            setattr(owner, key, value)

    return restore


def _refilling(container: Any) -> Restore:
    """Gives a container the entries it had, if they changed."""
    if isinstance(container, MutableMapping):
        entries = dict(container)

        def restore() -> None:
            for key in [key for key in container if key not in entries]:
                del container[key]
            container.update(entries)

        return restore
    kept = list(container)

    def refill() -> None:
        container.clear()
        if isinstance(container, set):
            container.update(kept)
        else:
            container.extend(kept)

    return refill


def _set_to_zeros(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> bool:
    """Set what a first step has made back to what it was made with; False where that is not known."""
    if type(optimizer) not in BEGIN_WITH_ZEROS:
        return False
    if type(optimizer) is OPTIMIZERS.SGD and any(group["dampening"] for group in optimizer.param_groups):
        return False  # the first step takes the whole gradient, later ones a part of it
    if not all(isinstance(value, Tensor) or value is None for value in state.values()):
        return False
    with torch.no_grad():
        for key, value in state.items():
            if value is not None:
                value.fill_(1.0 if key == "mu_product" else 0.0)
    return True


def _drop(value: Any) -> None:
    del value


class Snapshot:
    """What `TrainingState.snapshot` has kept, in the host's memory; it can be put back any number of times."""

    def __init__(self, restores: list[Restore], covered: Keeper) -> None:
        self._restores, self._keeper = restores, covered

    def restore(self) -> None:
        """Put everything back in place: tensors keep their addresses, so captured graphs stay good."""
        with allow(MEANT):
            for put_back in self._restores:
                put_back()

    def covers(self, thing: object) -> bool:
        """Whether `thing` itself was met when the snapshot was taken."""
        return id(thing) in self._keeper.covered


class TrainingState:
    """Everything that a step of training changes.

    ```python
    state = TrainingState(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
    with state.kept():  # try something: afterwards nothing has happened
        for _ in range(10):
            step()
    torch.save(state.state_dict(), "state.pt")  # stop here, and go on elsewhere with
    state.load_state_dict(torch.load("state.pt"))
    ```

    Parts are modules (with batch-norm statistics, unregistered tensors and counters, train and eval flags, gradients;
    a gradient that is None stays None), optimizers (with their parameters), schedulers (with their optimizer), gradient
    scalers, `Amp`, moving averages, loaders and their samplers, generators of torch, NumPy and Python, tensors, arrays,
    dataclasses, dictionaries and lists of these, and whatever has ``state_dict`` and ``load_state_dict``. The global
    generators of Python, NumPy, torch's CPU and every CUDA device belong to it always.

    The state that an optimizer makes in its first step is set back to what it starts with, in place for Adam and its
    kin. What stays is what does not change a number: compiled code, memory pools, results of autotuning. A pass over a
    loader that is under way cannot be turned back: take the batches of a trial from a pass of its own.
    """

    def __init__(self, *parts: Any, **named: Any) -> None:
        """Args:
        parts: things a step changes; they go by their position in `state_dict`.
        named: the same with names.

        Raises:
            InputError: nothing was given.
        """
        self.parts: dict[str, Any] = {str(number): part for number, part in enumerate(parts)} | named
        if not self.parts:
            raise InputError("TrainingState() has no parts: pass what a step changes, as in model=…, optimizer=…")

    @classmethod
    def of(cls, state: Any) -> "TrainingState":
        """From an argument ``state=``: one of these already, a mapping with names, a sequence, or a single part."""
        if isinstance(state, cls):
            return state
        if isinstance(state, Mapping) and state:
            return cls(**{str(key): part for key, part in state.items()})
        return cls(*state) if isinstance(state, Sequence) and not isinstance(state, nn.Module) else cls(state)

    def snapshot(self, drop_fresh: bool = False) -> Snapshot:
        """Keep all of it, in the host's memory.

        Args:
            drop_fresh: remove what an optimizer made in its first step, instead of setting it back in place: frees its
                memory, but a graph captured meanwhile cannot be replayed.

        Raises:
            InputError: a part is of a kind that cannot be kept.
        """
        keeper = Keeper(drop_fresh)
        for name, part in self.parts.items():
            if part is not None and isinstance(part, IMMUTABLE):
                raise InputError(f"{name}={part!r} cannot be put back: pass the object or dictionary that holds it")
            with allow(MEANT):
                keeper.keep(name, part)
        return Snapshot([*keeper.restores, _global_generators()], keeper)

    @contextlib.contextmanager
    def kept(self, drop_fresh: bool = False) -> Generator[Snapshot]:
        """A snapshot that is put back at the end of the block, also after an error; `drop_fresh` as in `snapshot`."""
        snapshot = self.snapshot(drop_fresh)
        try:
            yield snapshot
        finally:
            snapshot.restore()

    # --- going on later -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers, strings and containers of them, which ``torch.load`` reads without unpickling code.

        Gradients are left out: save between steps. Tensors are those in use; ``torch.save`` them, or copy.

        Raises:
            InputError: a part has no ``state_dict`` and is no generator.
        """
        parts = {name: _written(name, part) for name, part in self.parts.items()}
        modes = {name: part.training for name, part in self.parts.items() if isinstance(part, nn.Module)}
        return {"version": VERSION, "parts": parts, "training": modes, "generators": _global_states()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` has written; the parts have to have the same names.

        Raises:
            InputError: the state is of something else, or has other parts.
        """
        if state.get("version") != VERSION or "parts" not in state:
            raise InputError(f"the state is not from TrainingState.state_dict(), version {VERSION}")
        saved = state["parts"]
        for name in [*saved, *self.parts]:
            if name not in saved or name not in self.parts:
                where = "this TrainingState" if name in saved else "the saved state"
                known = self.parts if name in saved else saved
                raise InputError(f"{where} has no part {name!r}; {nearest(name, known)}")
        for name, part in self.parts.items():
            _take(part, saved[name])
            if isinstance(part, nn.Module) and part.training != state["training"][name]:
                part.train(state["training"][name])
        _set_global_states(state["generators"])


def _written(name: str, part: Any) -> Any:
    if hasattr(part, "state_dict"):
        return part.state_dict()
    if isinstance(part, torch.Generator):
        return part.get_state()
    if isinstance(part, np.random.Generator):
        return _plain(part.bit_generator.state)
    if isinstance(part, random.Random):
        return part.getstate()
    raise InputError(
        f"{name} is a {type(part).__name__} without state_dict() and load_state_dict(): add them, or save it yourself"
    )


def _take(part: Any, state: Any) -> None:
    if hasattr(part, "load_state_dict"):
        part.load_state_dict(state)
    elif isinstance(part, torch.Generator):
        part.set_state(state.cpu())
    elif isinstance(part, np.random.Generator):
        part.bit_generator.state = _arrays(state)
    else:
        part.setstate(_nested_tuple(state))


# --- global generators ------------------------------------------------------------------------------------------------


def _global_generators() -> Restore:
    """Keep the generators that belong to nobody."""
    states = _global_states()
    cuda_in_use = torch.cuda.is_initialized()

    def restore() -> None:
        _set_global_states(states)
        if torch.cuda.is_initialized() and not cuda_in_use:  # it began in the meantime, so nothing was drawn before
            for generator in torch.cuda.default_generators:
                generator.manual_seed(generator.initial_seed())

    return restore


def _global_states() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": _plain(np.random.get_state(legacy=False)),  # noqa: NPY002
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def _set_global_states(states: dict[str, Any]) -> None:
    random.setstate(_nested_tuple(states["python"]))
    np.random.set_state(_arrays(states["numpy"]))  # noqa: NPY002
    torch.set_rng_state(states["torch"].cpu())
    if states["cuda"] and torch.cuda.is_available():
        for device, state in zip(range(torch.cuda.device_count()), states["cuda"], strict=False):
            torch.cuda.set_rng_state(state.cpu(), device)


def _plain(value: Any) -> Any:
    """A NumPy generator's state with arrays as tensors of bytes and integers (up to 128 bits) as text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "bytes": torch.from_numpy(value.view(np.uint8).copy())}
    return f"int {value}" if isinstance(value, int) else value


def _arrays(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"dtype", "bytes"}:
        return value["bytes"].cpu().numpy().view(value["dtype"])
    if isinstance(value, dict):
        return {key: _arrays(item) for key, item in value.items()}
    return int(value[4:]) if isinstance(value, str) and value.startswith("int ") else value


def _nested_tuple(value: Any) -> Any:
    return tuple(_nested_tuple(item) for item in value) if isinstance(value, (list, tuple)) else value


# --- what a step uses from outside ------------------------------------------------------------------------------------


DEPTH = 3  # of functions that a step calls
FOREIGN = ("torch", "numpy", "denizen")


def used(step: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Variables from outside that a function and those it calls use, and attributes of its object if it is a method."""
    owner = getattr(step, "__self__", None)
    if owner is not None and not isinstance(owner, nn.Module):
        yield from ((f"self.{name}", thing) for name, thing in getattr(owner, "__dict__", {}).items())
    function = getattr(step, "__func__", step)
    if not inspect.isfunction(function) or depth > DEPTH or (function.__module__ or "").partition(".")[0] in FOREIGN:
        return
    for name, thing in _outside(function).items():
        yield name, thing
        yield from used(thing, depth + 1)


def _outside(function: types.FunctionType) -> dict[str, Any]:
    """Globals and variables of enclosing functions that a function reads, functions defined inside it included."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not filled yet
            found[name] = cell.cell_contents
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        names = {it.argval for it in dis.get_instructions(code) if it.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        found |= {name: function.__globals__[name] for name in names if name in function.__globals__}
    return found
