"""Populations from data frames: what a file with the same content gives, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch

from denizen.errors import DataError, InputError
from denizen.population import Population, from_frames, load

PEOPLE = {"id": ["mia", "ben", "ada"], "age": ["65A", "U19", "20t29"], "height": [1.5, 1.75, 1.625], "well": [1, 0, 1]}
CONTACTS = {"source": ["ben", "ada"], "target": ["ada", "mia"], "weight": [0.5, 2.0]}
FRAMES = [dict, pandas.DataFrame, polars.DataFrame]


def same(one: Population, other: Population) -> bool:
    """Whether two have the same content, wherever they came from."""
    alike = one.columns.keys() == other.columns.keys() and one.labels == other.labels
    values = [(one.columns[name], other.columns[name]) for name in one.columns]
    values += [pair for name in other.networks for pair in zip(one.networks[name], other.networks[name], strict=True)]
    values += [(one.weights[name], other.weights[name]) for name in other.weights]
    return alike and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in values)


@pytest.mark.parametrize("make", FRAMES)
def test_frames_are_read_as_files_are(make: Callable[[Any], Any], tmp_path: Path) -> None:
    (tmp_path / "networks").mkdir()
    polars.DataFrame(PEOPLE).write_parquet(tmp_path / "people.parquet")
    polars.DataFrame(CONTACTS).write_parquet(tmp_path / "networks" / "contacts.parquet")
    people = from_frames(make(PEOPLE), make(CONTACTS))
    assert same(people, load(tmp_path / "people.parquet"))
    assert people.networks["contacts"][0].tolist() == [1, 2]
    assert "Edges map by column 'id' of people." in people.report


def test_several_networks_and_rows_by_number() -> None:
    people = {"age": np.array([3, 4, 5])}
    contacts = {"home": {"from": [0], "to": [2]}, "work": pandas.DataFrame({"i": [1, 2], "j": [0, 1]})}
    found = from_frames(people, contacts, labels={"age": list("abcdef")}, name="village")
    assert {name: [side.tolist() for side in sides] for name, sides in found.networks.items()} == {
        "home": [[0], [2]],
        "work": [[1, 2], [0, 1]],
    }
    assert (found.name, found.labels["age"][4]) == ("village", "e")
    assert from_frames(people).networks == {}


def test_an_index_with_a_name_is_a_column() -> None:
    people = pandas.DataFrame({"age": [1, 2]}, index=pandas.Index([70, 50], name="person_id"))
    found = from_frames(people, {"source": [50], "target": [70]})
    assert [side.tolist() for side in found.networks["contacts"]] == [[1], [0]]
    assert from_frames(people.reset_index(drop=True)).size == 2


def test_columns_of_the_kinds_that_frames_have() -> None:
    frame = pandas.DataFrame({
        "whole": pandas.array([1, 2], dtype="Int64"),
        "text": pandas.array(["a", "b"], dtype="string"),
        "kind": pandas.Categorical(["x", "y"]),
        "flag": [True, False],
    })  # fmt: skip
    found = from_frames(frame)
    assert found.column("whole").tolist() == [1, 2]
    assert (found.labels["text"], found.labels["kind"]) == (["a", "b"], ["x", "y"])
    assert found.column("flag").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("people", "contacts", "message"),
    [
        ({"age": [1, 2]}, {"source": [0], "target": [2]}, "target=2: ids go from 0 to 1"),
        ({"age": [1.0, float("nan")]}, None, "age"),
        (pandas.DataFrame({"age": pandas.array([1, None], dtype="Int64")}), None, "age"),
        ({"age": ["a", None]}, None, "age"),
        ({"age": [1, 2], "job": [1, 2, 3]}, None, "people: column 'job' has 3 rows, but 'age'"),
        ({"id": ["a", "a"], "age": [1, 2]}, {"source": ["a"], "target": ["a"]}, "'a'"),
        ({"id": ["a", "b"], "age": [1, 2]}, {"source": ["a"], "target": ["c"]}, "target=c: no agent has this id"),
        ({"age": [1, 2]}, {"a": [0], "b": [1], "c": [1], "d": [1]}, "expected source, target and perhaps weight"),
        ({"source": [1], "target": [2]}, None, "holds contacts"),
        (pandas.DataFrame({"born": pandas.to_datetime(["2020-01-01"])}), None, "'born' is of type datetime64"),
        ({"age": [[1, 2], [3, 4]]}, None, r"'age' is of type int64, \[2, 2\]; expected integers"),
        ({"age": [{}, {}]}, None, r"'age' holds \{\} \(dict\)"),
        (pandas.DataFrame([[1, 2]], columns=["age", "age"]), None, "column 'age' is there 2 times"),
        (pandas.DataFrame([[1, 2]], columns=[1, "1"]), None, "column '1' is there 2 times"),
        ({"age": [[1], [1, 2]]}, None, "'age' is of type list; expected integers"),
        ({"age": torch.ones(2, requires_grad=True)}, None, "'age' is of type torch.float32; expected integers"),
        ({}, None, "holds no attribute"),
    ],
)
def test_what_cannot_be_a_population_is_told(people: Any, contacts: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_frames(people, contacts)


def test_arguments_of_the_wrong_form_are_told() -> None:
    with pytest.raises(InputError, match="people is of type int, expected a data frame"):
        from_frames(3)
    with pytest.raises(InputError, match=r"people is of type LazyFrame, expected .* collect\(\) it"):
        from_frames(polars.LazyFrame({"age": [1]}))
    with pytest.raises(InputError, match="ids=3, expected the name of a column"):
        from_frames(PEOPLE, ids=3)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="citizen"):
        from_frames(PEOPLE, CONTACTS, ids="citizen")
    with pytest.raises(InputError, match=r"from_frames: labels\['age'\]"):
        from_frames(PEOPLE, labels={"age": "abc"})
