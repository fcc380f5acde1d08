"""What a pure step may not change: generators, torch's settings, globals and attributes that the author names."""

import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import torch

from denizen.model._model import Model
from denizen.model._source_lines import Line, whose

Getter = Callable[[], Any]  # a fingerprint of one thing

GENERATORS: dict[str, Getter] = {
    "Python's random": random.getstate,
    "numpy's global generator": lambda: repr(np.random.get_state(legacy=False)["state"]),  # noqa: NPY002
    "torch's global generator": lambda: torch.get_rng_state().numpy().tobytes(),
}
OWN_GENERATOR = " (a generator)"  # ends the name of a generator that the author's module holds
_OWN_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_SETTINGS: dict[str, Getter] = {
    "torch.get_default_dtype()": torch.get_default_dtype,
    "torch.is_grad_enabled()": torch.is_grad_enabled,
    "torch.get_num_threads()": torch.get_num_threads,
}


def watched(model: Model) -> dict[str, Getter]:
    """Everything to watch, by name."""
    getters = dict(_SETTINGS)
    cls = type(model)
    for name in model.__dict__:
        getters[f"self.{name}"] = lambda name=name: _print(model.__dict__.get(name))
    for name in [n for n in vars(cls) if not n.startswith("__")]:
        getters[f"{cls.__name__}.{name}"] = lambda name=name: _print(vars(cls).get(name))
    for function in author_functions(model):
        code, space = function.__code__, function.__globals__
        for name in code.co_names:
            if isinstance(space.get(name), _OWN_GENERATORS):
                getters[f"the global {name}{OWN_GENERATOR}"] = lambda name=name, space=space: _drawn(space[name])
            elif name in space:
                getters[f"the global {name}"] = lambda name=name, space=space: _print(space.get(name))
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name != "__class__":
                getters[f"the captured {name}"] = lambda cell=cell: _print(cell.cell_contents)
    return getters


def author_functions(model: Model) -> list[Any]:
    """The methods of the model that its author wrote."""
    found = []
    for base in type(model).__mro__:
        for value in vars(base).values():
            function = value.fget if isinstance(value, property) else value
            function = inspect.unwrap(function) if callable(function) else function
            code = getattr(function, "__code__", None)
            if code is not None and hasattr(function, "__globals__") and whose(code.co_filename) == "author":
                found.append(function)
    return found


def _drawn(generator: Any) -> str:
    if isinstance(generator, random.Random):
        return repr(generator.getstate())
    if isinstance(generator, np.random.Generator):
        return repr(generator.bit_generator.state)
    return repr(generator.get_state().tolist() if isinstance(generator, torch.Generator) else generator.get_state())


def _print(value: Any) -> Any:
    if isinstance(value, list | dict | set | bytearray):
        return id(value), len(value)
    cls = value if isinstance(value, type) else type(value)
    source = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if source is None or whose(source) != "author" or not hasattr(value, "__dict__"):
        return id(value)
    return id(value), [(name, id(part)) for name, part in vars(value).items()]  # the author's own mutable objects


@contextmanager
def kept() -> Iterator[None]:
    """Leave the global generators and torch's settings as they were."""
    python, numpy, generator = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    dtype, grad, threads = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(generator)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_num_threads(threads)


def line_of_change(getter: Getter, run: Callable[[], Any]) -> Line | None:
    """The author's line after which a fingerprint was another, found by tracing a run."""
    last, before, found = getter(), None, None

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal last, before, found
        if found is not None or whose(frame.f_code.co_filename) != "author":
            return None
        now = getter()
        if now != last and before is not None:
            found = before
        last, before = now, Line(frame.f_code.co_filename, frame.f_lineno)
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    except Exception:  # the run was seen before; only the line is wanted
        return found
    finally:
        sys.settrace(outer)
    return found


def line_of_return(code: Any, run: Callable[[], Any]) -> Line | None:
    """The line at which a function returned last in a run, which may raise afterwards."""
    found = None

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal found
        if event == "return" and frame.f_code is code:
            found = Line(code.co_filename, frame.f_lineno)

    outer = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    except Exception:  # the run was seen before; only the line is wanted
        return found
    finally:
        sys.setprofile(outer)
    return found
