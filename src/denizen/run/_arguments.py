"""Arguments that several functions take, checked the same way: the error names caller, argument and value."""

from numbers import Real
from typing import Any

from denizen.errors import InputError
from denizen.model import Env, Model


def step_length(caller: str, dt: Any) -> float:
    """`dt`, a positive number."""
    length = float(dt) if isinstance(dt, Real) and not isinstance(dt, bool) else 0.0
    if not 0 < length < float("inf"):
        raise InputError(f"{caller}: dt={dt!r}, expected a positive number")
    return length


def model_to_run(caller: str, model: Any) -> None:
    """A model that takes its steps by itself: an instance, and no environment."""
    if isinstance(model, type) and issubclass(model, Model):
        name = model.__name__
        raise InputError(f"{caller}: model is the class {name}, expected an instance of a dz.Model: {name}(…)")
    if not isinstance(model, Model):
        raise InputError(f"{caller}: model is {type(model).__name__}, expected an instance of a dz.Model")
    if isinstance(model, Env):
        raise InputError(
            f"{caller}: model is {type(model).__name__}, an environment, and its step needs actions; dz.train and "
            "dz.rl.evaluate run it under a policy, dz.rl.Worlds under actions of your own"
        )
