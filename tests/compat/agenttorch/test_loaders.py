"""Populations and bindings: lazy, shared, read only."""

import types

import pytest
import torch

import denizen as dz
from denizen.compat.agenttorch import DataLoader, LoadPopulation
from denizen.compat.agenttorch.models import covid
from denizen.compat.agenttorch.populations import Place, astoria
from denizen.errors import DataError, InputError


def test_columns_are_members():
    people = LoadPopulation(types.SimpleNamespace(__path__=["synthetic:astoria:500"]))
    assert people._loaded is None  # nothing is read before it is asked for
    assert people.population_size == 500
    assert people.age.dtype == torch.uint8
    assert people.population is people.population
    source, target = people.networks["0"]
    assert source.shape == target.shape
    assert source.dtype == torch.int32
    assert "gender" in dir(people)
    with pytest.raises(AttributeError, match="no column 'agee'"):
        people.agee  # noqa: B018
    assert not hasattr(people, "_anything")


@pytest.mark.real
def test_a_real_folder_is_read_and_left_alone(data_root):
    before = {path: path.stat().st_mtime_ns for path in (data_root / "sample").rglob("*")}
    loader = DataLoader(covid, LoadPopulation(data_root / "sample"))
    assert loader.model is loader.model
    assert loader.model.num_agents == loader.population.population_size
    assert before == {path: path.stat().st_mtime_ns for path in (data_root / "sample").rglob("*")}


def test_astoria_says_which_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("DENIZEN_DATA", raising=False)
    assert astoria.__path__ == "synthetic:astoria"
    assert capsys.readouterr().err == "astoria: the synthetic stand-in (DENIZEN_DATA is not set)\n"
    monkeypatch.setenv("DENIZEN_DATA", str(tmp_path))
    assert Place("astoria").__path__ == "synthetic:astoria"
    assert f"DENIZEN_DATA={tmp_path} has no folder astoria" in capsys.readouterr().err
    (tmp_path / "astoria").mkdir()
    assert astoria.__path__ == str(tmp_path / "astoria")
    assert "read from" in capsys.readouterr().err


def test_wrong_arguments_are_refused():
    with pytest.raises(InputError, match=r"expected one of denizen\.compat\.agenttorch\.models"):
        DataLoader("covid", "synthetic:astoria:500")
    with pytest.raises(DataError, match="does not exist"):
        LoadPopulation("/nowhere").population  # noqa: B018
    with pytest.raises(InputError, match="unknown parameter 'refrence'"):
        DataLoader(covid, "synthetic:astoria:500", refrence=True).model  # noqa: B018


def test_the_options_reach_the_model():
    people = LoadPopulation(dz.population.synthetic(size=500))
    assert DataLoader(covid, people, reference=True).model.R.tolist() == [14.25] * 3
