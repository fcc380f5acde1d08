"""Configuration: defaults, TOML over them, flags over both, strictly."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from denizen.app import _cli, _run, _settings, _target
from denizen.errors import ConfigError, DenizenError
from denizen.zoo import ModelEntry, entries, entry


def parsed(tmp_path, toml, *words):
    path = tmp_path / "run.toml"
    path.write_text(toml)
    return _cli.parse(["run", *words, "--config", str(path)])


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path):
    toml = 'model = "covid"\nsteps = 30\nseed = 4\nsnapshots-every = 2\n[set]\nR = [3.5, 4.2]\nreference = true\n'
    config = parsed(tmp_path, toml, "--seed", "9", "--set", "R=1", "mortality=0.5")
    assert (config.model, config.steps, config.seed, config.replicates, config.snapshots_every) == (
        "covid",
        30,
        9,
        16,
        2,
    )
    assert config.pairs() == {"R": "1", "reference": "true", "mortality": "0.5"}
    assert parsed(tmp_path, toml, "sir").model == "sir"


def test_equals_sign_and_compile(tmp_path):
    (tmp_path / "a.toml").write_text("compile = false\n")
    config = _cli.parse(["run", "sir", f"--config={tmp_path / 'a.toml'}"])
    assert (config.compile, config.no_compile) == (False, True)
    (tmp_path / "a.toml").write_text("compile = true\n")
    assert _cli.parse(["run", "sir", f"--config={tmp_path / 'a.toml'}"]).compile
    assert _cli.parse(["run", "sir", f"--config={tmp_path / 'a.toml'}", "--no-compile"]).no_compile


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("stpes = 3", "unknown key 'stpes'; did you mean 'steps'"),
        ("mortality = 3", r"parameter of covid: write it under \[set\]"),
        ("config = 'x'", "unknown key 'config'"),
        ("steps = '3'", "steps is '3', expected a whole number"),
        ("steps = 3.0", "expected a whole number"),
        ("steps = true", "expected a whole number"),
        ("symmetrize = 1", "expected true or false"),
        ("device = 'tpu'", "expected 'auto' or 'cpu' or 'cuda'"),
        ("set = 3", "expected a table"),
        ("[set]\nR = {a = 1}", "set.R is"),
        ("[set]\nR = []", "set.R is"),
        ("steps = ", "not valid TOML"),
    ],
)
def test_mistakes_in_a_file(tmp_path, toml, message):
    with pytest.raises(ConfigError, match=message):
        parsed(tmp_path, toml)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="directory"):
        _run.from_file(tmp_path)
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        _run.from_file(tmp_path / "x.toml")


@pytest.mark.parametrize(
    ("model", "pairs", "values"),
    [
        ("covid", {"R": "3.5,4.2,5.6"}, {"R": [3.5, 4.2, 5.6]}),
        ("covid", {"R": "3"}, {"R": 3.0}),
        ("covid", {"mortality": "1e-2"}, {"mortality": 0.01}),
        ("covid", {"reference": "true", "sample_deaths": "false"}, {"reference": True, "sample_deaths": False}),
        ("covid", {"exposed_days": "4"}, {"exposed_days": 4}),
        ("covid", {"age_order": "20-29,65+"}, {"age_order": ["20-29", "65+"]}),
        ("seir", {"latent_days": "2"}, {"latent_days": 2.0}),
    ],
)
def test_values_of_set(model, pairs, values):
    assert _settings.settings(model, entry(model), pairs) == values


@pytest.mark.parametrize(
    ("model", "pairs", "message"),
    [
        ("covid", {"R": "3.5;4"}, "numbers with commas"),
        ("covid", {"R": "3.5,"}, "numbers with commas"),
        ("covid", {"mortality": "0.1,0.2"}, "one number, got 2"),
        ("covid", {"mortality": "inf"}, "a number"),
        ("covid", {"reference": "yes"}, "true or false"),
        ("covid", {"reference": "1"}, "true or false"),
        ("covid", {"exposed_days": "4.0"}, "whole number"),
        ("covid", {"network": "1"}, "no such parameter"),
        ("sir", {"infectious_day": "2"}, "did you mean 'infectious_days'"),
    ],
)
def test_mistakes_of_set(model, pairs, message):
    with pytest.raises(ConfigError, match=message):
        _settings.settings(model, entry(model), pairs)


@pytest.mark.parametrize("name", entries(ModelEntry))
def test_every_parameter_has_a_default_and_is_documented(name):
    model = entry(name)
    for key, spec in _settings.parameters(model).items():
        assert spec.about, key
        text = _settings.shown(model, key)
        assert _settings.settings(name, model, {key: text})
    for key, option in _settings.options(model).items():
        assert _settings.about_option(model, key), key
        if text := _settings.shown(model, key):
            assert _settings.settings(name, model, {key: text}) == {key: option.default}


def test_json_gives_the_configuration_back():
    config = _cli.parse(["run", "sir", "--agents", "5", "--set", "infect_rate=0.1", "--mean-degree", "2", "--compile"])
    assert _run.from_mapping(config.to_json(), "here") == config


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([*_run.RunConfig.__dataclass_fields__, "R"]) | st.text(max_size=8)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_fuzzed_mappings(raw):
    try:
        config = _run.from_mapping(raw, "fuzz")
        model = _target.known(config.model, ModelEntry)
        config.check(model)
        _settings.settings(config.model, model, config.pairs())
    except DenizenError:
        pass


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_fuzzed_files(tmp_path_factory, data):
    path: Path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    path.write_bytes(data)
    try:
        _run.from_file(path)
    except DenizenError:
        pass
    else:
        tomllib.loads(data.decode())
