"""Arguments are taken in the types of numpy and Python alike, and told with caller, name and value otherwise."""

import dataclasses
import math
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
import pytest
import torch
from torch import Tensor

from denizen import _arguments as take
from denizen.errors import InputError

GOOD: list[tuple[Callable[..., Any], Any, Any]] = [
    (lambda v: take.whole("f", "n", v, 1), np.int64(3), 3),
    (lambda v: take.whole("f", "n", v, 1), torch.tensor(3), 3),
    (lambda v: take.whole("f", "n", v, 1, 3), 3, 3),
    (lambda v: take.whole("f", "n", v), -5, -5),
    (lambda v: take.number("f", "x", v), np.float32(0.5), 0.5),
    (lambda v: take.number("f", "x", v, above=0), 1, 1.0),
    (lambda v: take.share("f", "x", v), 1, 1.0),
    (lambda v: take.switch("f", "on", v), False, False),
    (lambda v: take.switch("f", "on", v), np.True_, True),
    (lambda v: take.one_of("f", "way", v, ("push", "pull")), "pull", "pull"),
    (lambda v: take.path("f", "to", v), "a/b", Path("a/b")),
    (lambda v: take.folder("f", "to", v), Path("a"), Path("a")),
]
BAD: list[tuple[Callable[..., Any], Any, str]] = [
    (lambda v: take.whole("f", "n", v, 1), 0, "f: n=0, expected a whole number, at least 1"),
    (lambda v: take.whole("f", "n", v, 1, 9), 1.0, "f: n=1.0, expected a whole number from 1 to 9"),
    (lambda v: take.whole("f", "n", v, high=9), 10, "f: n=10, expected a whole number, at most 9"),
    (lambda v: take.whole("f", "n", v), True, "f: n=True, expected a whole number"),
    (
        lambda v: take.whole("f", "n", v, 1, hint=", or None"),
        "3",
        "f: n='3', expected a whole number, at least 1, or None",
    ),
    (lambda v: take.number("f", "x", v), float("nan"), "f: x=nan, expected a number"),
    (lambda v: take.number("f", "x", v), "1", "f: x='1', expected a number"),
    (lambda v: take.number("f", "x", v, above=0), 0, "f: x=0, expected a number above 0"),
    (lambda v: take.number("f", "x", v, 0), False, "f: x=False, expected a number, at least 0"),
    (lambda v: take.share("f", "x", v), 1.5, "f: x=1.5, expected a number from 0 to 1"),
    (lambda v: take.switch("f", "on", v), 1, "f: on=1, expected True or False"),
    (
        lambda v: take.one_of("f", "way", v, ("push", "pull")),
        "pul",
        "f: way='pul', did you mean 'pull'? valid: pull, push",
    ),
    (lambda v: take.one_of("f", "way", v, ("push", "pull")), [], "f: way=[], valid: pull, push"),
    (lambda v: take.path("f", "to", v), None, "f: to=None, expected the path of a file"),
    (lambda v: take.folder("f", "to", v), "a\0b", "f: to='a\\x00b', expected the path of a folder"),
]


@pytest.mark.parametrize(("check", "value", "taken"), GOOD)
def test_what_is_right_comes_back_in_its_plain_type(check: Callable[[Any], Any], value: Any, taken: Any) -> None:
    found = check(value)
    assert found == taken
    assert type(found) is type(taken)


@pytest.mark.parametrize(("check", "value", "message"), BAD)
def test_what_is_wrong_is_told(check: Callable[[Any], Any], value: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        check(value)
    assert str(caught.value) == message


def test_a_number_too_large_for_a_float_is_no_number() -> None:
    with pytest.raises(InputError, match="expected a number"):
        take.number("f", "x", 10**400)


@dataclasses.dataclass(frozen=True)
class Written:
    """Fields of kinds that are checked, written in the ways that people write them."""

    on: bool = False
    maybe: bool | None = None
    most: int | None = 3
    old: Optional[int] = None  # noqa: UP045  # as older code has it
    text: "float | None" = None
    union: "Union[int, None]" = None  # noqa: UP007
    rate: float = 1.0
    unknown: float = float("nan")
    either: int | float = 1
    table: Tensor | None = None
    bare: Tensor = None  # type: ignore[assignment]  # None by its default
    free: str | None = None
    parts: list[int] | None = None

    def __post_init__(self) -> None:
        take.declared(self)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"maybe": "no"}, "Written: maybe='no', expected True or False, or None"),
        ({"most": 2.5}, "Written: most=2.5, expected a whole number, or None"),
        ({"most": True}, "Written: most=True, expected a whole number, or None"),
        ({"old": "3"}, "Written: old='3', expected a whole number, or None"),
        ({"union": "3"}, "Written: union='3', expected a whole number, or None"),
        ({"text": "0.5"}, "Written: text='0.5', expected a number, or None"),
        ({"rate": None}, "Written: rate=None, expected a number"),
        ({"rate": float("nan")}, "Written: rate=nan, expected a number"),
        ({"rate": torch.ones(2)}, "Written: rate=tensor([1., 1.]), expected a number"),
        ({"either": True}, "Written: either=True, expected a number"),
        ({"table": [1, 2]}, "Written: table=[1, 2], expected a torch.Tensor, or None; torch.as_tensor(…) makes one"),
        ({"bare": np.ones(1)}, "Written: bare=array([1.]), expected a torch.Tensor, or None; torch.as_tensor(…)"),
    ],
)
def test_fields_are_of_the_kind_that_they_are_declared_as(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        Written(**given)
    assert str(caught.value).startswith(told)
    nothing = dict.fromkeys(("maybe", "most", "old", "text", "table", "bare", "free", "parts"))
    assert Written(**nothing).most is None
    good = Written(most=np.int64(4), rate=np.float32(0.5), text=float("inf"), either=2, table=torch.ones(2), parts=[1])
    assert (good.most, good.rate, good.text, good.either) == (4, 0.5, float("inf"), 2)
    assert {type(good.most), type(good.rate)} == {int, float}
    assert Written(rate=torch.tensor(0.5)).rate == 0.5
    assert math.isnan(Written().unknown)  # as its author means it


def test_a_class_of_another_library_that_is_called_tensor_is_none_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = types.ModuleType("theirs")
    theirs.Tensor = type("Tensor", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "theirs", theirs)
    made = dataclasses.make_dataclass("Held", [("a", theirs.Tensor), ("b", "Tensor"), ("c", "int"), ("d", Tensor)])
    made.__module__ = "theirs"
    assert set(take.checks_of(made)) == {"c", "d"}
