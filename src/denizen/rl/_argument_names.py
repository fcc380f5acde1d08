"""Names of the algorithms' arguments: unknown ones are told with the nearest, former ones with their present name."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from denizen.errors import InputError, nearest

T = TypeVar("T")

FORMER = {  # former name -> present one: run folders of denizen before November 2026 hold the former ones
    "epochs": "update_epochs",
    "minibatches": "num_minibatches",
    "clip": "clip_coef",
    "value_coefficient": "vf_coef",
    "entropy_coefficient": "ent_coef",
    "max_gradient_norm": "max_grad_norm",
}
_FORMER_IN_TEXT = re.compile(rf"\b({'|'.join(FORMER)})(?==)")


def by_name(cls: type[T]) -> type[T]:
    """A dataclass of settings that answers a name which it does not know with an `InputError` that helps."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]  # pyrefly: ignore
    made = cls.__init__

    @functools.wraps(made)
    def init(self: T, *args: Any, **given: Any) -> None:
        for name, value in given.items():
            if name not in names:
                raise InputError(f"{cls.__name__}: {name}={value!r}: {instead(cls, name, repr(value))}")
        made(self, *args, **given)

    cls.__init__ = init  # type: ignore[method-assign]  # pyrefly: ignore
    return cls


def instead(cls: type[Any], name: str, value: Any) -> str:
    """What to write in place of an argument that a class of settings does not take."""
    names = [field.name for field in dataclasses.fields(cls)]
    now = FORMER.get(name)
    return f"renamed; write {now}={value}" if now in names else f"unknown; {nearest(name, names)}"


def present(text: str) -> str:
    """Text of ``NAME=VALUE`` with present names in place of former ones."""
    return _FORMER_IN_TEXT.sub(lambda found: FORMER[found[0]], text)


def with_present_names(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A training's manifest with present names in place of former ones."""
    new = dict(manifest)
    if isinstance(new.get("algorithm"), str):
        new["algorithm"] = present(new["algorithm"])
    settings = new.get("settings")
    if isinstance(settings, dict) and isinstance(settings.get("set"), dict):
        new["settings"] = {
            **settings,
            "set": {FORMER.get(name, name): value for name, value in settings["set"].items()},
        }
    return new
