"""The whole state of a training loop: kept and put back in place, or written down to go on from later."""

import contextlib
import random
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from denizen.errors import InputError, nearest
from denizen.perf.state._keeper import IMMUTABLE, Keeper, Restore
from denizen.perf.watch._event_log import allow

VERSION = 1
MEANT = "a state that is kept on the host and put back"  # for budgets


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
