"""A model that is built anew where what it is built from is swept."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from denizen.errors import InputError
from denizen.model import Model


@dataclasses.dataclass(frozen=True)
class Builder:
    """What `sweep` takes in a model's place, to sweep what a model is built from, such as the day of a lockdown in it.

    Attributes:
        build: a function that returns a model, such as ``lambda day=20: town(day)``.
        takes: names that may be swept, and what each is otherwise; None: the function's arguments and their defaults.
    """

    build: Callable[..., Model]
    takes: Mapping[str, Any] | None = None

    def defaults(self) -> dict[str, Any]:
        """What may be swept, and what it is otherwise.

        Raises:
            InputError: there is no function, or an argument has no default.
        """
        if not callable(self.build):
            raise InputError(f"Builder: build={self.build!r}, expected a function that returns a model")
        if self.takes is not None:
            return dict(self.takes)
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        arguments = [one for one in inspect.signature(self.build).parameters.values() if one.kind not in several]
        for one in arguments:
            if one.default is one.empty:
                raise InputError(
                    f"Builder: build needs {one.name}; give it a default, so that a model can be built where it is not "
                    f"swept"
                )
        return {one.name: one.default for one in arguments}

    def model(self, values: Mapping[str, Any]) -> Model:
        """The model with these values.

        Raises:
            InputError: the function gave none.
        """
        found = self.build(**values)
        if not isinstance(found, Model):
            raise InputError(f"Builder: build returned {type(found).__name__}, expected a dz.Model")
        return found
