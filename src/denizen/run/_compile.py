"""Compiling the step, or saying why it stays eager."""

import warnings
from typing import Any

from denizen.run._engine import Carry, Stepper

AUTO_COMPILE_SECONDS = 180.0  # eager time left from which a compile of 12-90 s on a CPU is worth starting
BACKEND = "inductor"


def try_compile(stepper: Stepper, carry: Carry, answers: dict[str, Any]) -> str:
    """Compile the step and try it on a copy of the state; returns the path taken, ``"compiled"`` or ``"eager"``.

    A machine without a C++ compiler, or one that torch cannot use, gives one warning and the eager path, whose results
    are the same.
    """
    stepper.compile(BACKEND)
    try:
        with warnings.catch_warnings():  # torch's tracing asks a state inside a gradient for its .grad
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
            stepper.advance(carry, answers)
    except Exception as error:  # torch raises many types here; all mean: this machine cannot compile
        stepper.eager()
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        warnings.warn(f"the step could not be compiled and runs eagerly, with equal results: {reason}", stacklevel=2)
        return "eager"
    return "compiled"
