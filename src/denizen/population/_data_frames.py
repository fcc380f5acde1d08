"""`from_frames`: a population from data frames in memory."""

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from denizen.errors import DataError, InputError
from denizen.population._columns import Raw, strings
from denizen.population._edges import Network, network_of
from denizen.population._ids import Ids
from denizen.population._load import assemble, stated, take
from denizen.population._match import Found, Wanted
from denizen.population._population import Population
from denizen.population._tables import Table

KINDS = "integers, real numbers, booleans or strings"
MISSING = ("NAType", "NaTType")  # of pandas, which need not be imported to be known


def from_frames(
    people: Any,
    contacts: Any = None,
    *,
    ids: str | bool = True,
    labels: Mapping[str, Sequence[str]] | None = None,
    name: str = "people",
) -> Population:
    """A population from data frames of pandas or polars, or from mappings of columns.

    What holds for the files of `load` holds for these: strings become codes with labels, missing values are errors, ids
    are matched.

    Args:
        people: a row for each agent, a column for each attribute.
        contacts: a row for each contact, with columns `source` and `target` (also `from` and `to`, and the like) and
            perhaps `weight`; several networks as a mapping of such frames by name; None: no contacts. One frame is the
            network `"contacts"`.
        ids: True maps the ends of contacts by the column `id` of people (also `agent_id` and the like, or an index with
            such a name) where there is one; a name does so by that column; False says that contacts hold the numbers of
            rows, counted from 0.
        labels: attribute -> label of each code, position = code.
        name: of the population.

    Returns:
        The population; `population.report` lists every choice made. Agent k is row k.

    Raises:
        DataError: columns of unequal length or of other kinds, missing values, ids that are missing, unknown, out of
            range or there twice.
        InputError: an argument of the wrong form.

    Examples:
        >>> people = {"id": ["ada", "ben"], "age": ["20-29", "65+"]}
        >>> from_frames(people, {"source": ["ada"], "target": ["ben"]}).networks["contacts"]
        (array([0], dtype=int32), array([1], dtype=int32))
    """
    if not isinstance(ids, str | bool):
        raise InputError(f"from_frames: ids={ids!r}, expected the name of a column, True or False")
    wanted = Wanted(None, None, (), stated("from_frames", {} if labels is None else labels), ids)
    found, table = Found(), _columns(people, "people")
    take(found, Table(table), "people", "people", wanted, wanted.labels)
    readers = {str(key): _reader(frame, str(key)) for key, frame in _networks(contacts).items()}
    return assemble(found, str(name), "people", readers, wanted, wanted.labels, lambda: table)


def _networks(contacts: Any) -> Mapping[str, Any]:
    if contacts is None:
        return {}
    several = isinstance(contacts, Mapping) and all(
        hasattr(one, "columns") or isinstance(one, Mapping) for one in contacts.values()
    )
    return contacts if several else {"contacts": contacts}


def _reader(frame: Any, name: str) -> Callable[[int, Ids | None], Network]:
    held = _columns(frame, name)
    return lambda size, ids: network_of(held, name, name, size, ids)


def _columns(frame: Any, origin: str) -> dict[str, Raw]:
    """The columns of a frame; an index of pandas that has a name is one of them."""
    index = getattr(getattr(frame, "index", None), "name", None)
    if index is not None and index not in frame.columns:
        frame = frame.reset_index()
    lazy = hasattr(type(frame), "collect")
    if lazy or not (hasattr(frame, "columns") or isinstance(frame, Mapping)):
        raise InputError(
            f"from_frames: {origin} is of type {type(frame).__name__}, expected a data frame of pandas or polars, or a "
            f"mapping of columns{'; collect() it' if lazy else ''}"
        )
    names = list(frame.columns) if hasattr(frame, "columns") else list(frame)
    titles = list(map(str, names))
    for one in titles:
        if titles.count(one) > 1:
            raise DataError(f"{origin}: column {one!r} is there {titles.count(one)} times")
    return {str(one): _raw(frame[one], str(one), origin) for one in names}


def _raw(column: Any, name: str, origin: str) -> Raw:
    try:
        values = np.asarray(column)
    except Exception as error:  # rows of unequal length, tensors on a device, numbers that NumPy lacks
        told = getattr(column, "dtype", type(column).__name__)
        raise DataError(f"{origin}: column {name!r} is of type {told}; expected {KINDS}: {error}") from error
    if values.ndim == 1 and values.dtype.kind in "biuf":
        return Raw(values)
    if values.ndim != 1 or values.dtype.kind not in "OUT":
        what = getattr(column, "dtype", values.dtype)
        raise DataError(f"{origin}: column {name!r} is of type {what}, {list(values.shape)}; expected {KINDS}")
    items = [None if _missing(item) else item for item in values.tolist()]
    known = [item for item in items if item is not None]
    if known and all(isinstance(item, numbers.Real) for item in known):
        return Raw(np.array(items if len(known) == len(items) else [np.nan if one is None else one for one in items]))
    if not all(isinstance(item, str) for item in known):
        wrong = next(item for item in known if not isinstance(item, str))
        raise DataError(f"{origin}: column {name!r} holds {wrong!r} ({type(wrong).__name__}); expected {KINDS}")
    return strings(items)


def _missing(item: Any) -> bool:
    return item is None or type(item).__name__ in MISSING or (isinstance(item, float) and item != item)
