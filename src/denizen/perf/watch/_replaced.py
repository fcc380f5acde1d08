"""Putting something in the place of an attribute of a module or an object for a while, and putting it back exactly."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Generator
from typing import Any

Wrap = Callable[[Any], Any]


@dataclasses.dataclass
class _Place:
    """An attribute that is replaced: what it was, whether the owner itself had it, what wraps it (innermost first)."""

    owner: Any
    before: Any
    own: bool
    wraps: list[tuple[object, Wrap]] = dataclasses.field(default_factory=list)


_lock = threading.RLock()
_places: dict[tuple[int, str], _Place] = {}


@contextlib.contextmanager
def replaced(owner: Any, name: str, wrap: Wrap) -> Generator[None]:
    """Put what `wrap` makes of an attribute in its place within the block.

    Blocks may overlap, in several threads too: whichever ends first, what was there before comes back with the last.
    Not for classes of torch's: their C slots do not come back (a mode, or the objects one by one).

    Args:
        owner: a module, or an object.
        name: of its attribute.
        wrap: makes the new one from what it finds there; called again where another block ends before this one.
    """
    key, layer = (id(owner), name), object()
    with _lock:
        place = _places.get(key)
        if place is None:
            place = _places[key] = _Place(owner, getattr(owner, name), name in vars(owner))
        place.wraps.append((layer, wrap))
        _apply(key, place)
    try:
        yield
    finally:
        with _lock:
            place.wraps = [one for one in place.wraps if one[0] is not layer]
            _apply(key, place)


def _apply(key: tuple[int, str], place: _Place) -> None:
    value, name = place.before, key[1]
    for _, wrap in place.wraps:
        value = wrap(value)
    if place.wraps or place.own:
        setattr(place.owner, name, value)
    else:
        delattr(place.owner, name)
    if not place.wraps:
        del _places[key]
