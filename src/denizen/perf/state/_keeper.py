"""How each kind of thing in a training loop is kept, and put back in place."""

import copy
import dataclasses
import random
from collections import deque
from collections.abc import Callable, MutableMapping, MutableSequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from denizen.errors import InputError

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
