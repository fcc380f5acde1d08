"""Parts of the command line that no command shows alone: values of flags and of files, pictures."""

import contextlib
import itertools
import os
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from denizen.app import _cli, _run, _settings, _target, _watch
from denizen.app._cli import parse
from denizen.app._curves import draw
from denizen.app._settings import fill, guess, pairs, scales, whole
from denizen.app._target import Origin
from denizen.app._train import _with_file, settings_of
from denizen.app._trained import make_room
from denizen.errors import ConfigError, DenizenError, StorageError
from denizen.model import During
from denizen.rl import PPO, Linear
from denizen.zoo import ModelEntry, entries, entry


def test_values_are_read_by_type():
    read = fill(
        PPO, {"num_envs": "4k", "clip_coef": "0.2:0.1", "value_clip": "none", "normalise_advantages": "false"}, "--set"
    )
    assert (read.num_envs, read.clip_coef, read.value_clip, read.normalise_advantages) == (
        4000,
        Linear(0.2, 0.1),
        None,
        False,
    )
    assert fill(PPO, {"gamma": 0.5, "clip_coef": 0.3}, "--set").gamma == 0.5
    with pytest.raises(ConfigError, match=r"--set clip=0\.3: renamed; write clip_coef=0\.3"):
        fill(PPO, {"clip": "0.3"}, "--set")
    for wrong in (
        {"num_envs": "1.5"},
        {"gamma": "x"},
        {"clip_coef": "0.1:x"},
        {"num_envs": "none"},
        {"num_envs": True},
    ):
        with pytest.raises(ConfigError):
            fill(PPO, wrong, "--set")
    with pytest.raises(ConfigError, match="given twice"):
        pairs([["a=1", "a=2"]], "--set")
    for text in ("1.0", "1.5e0", "1e400", "1e-3", "infk", "nan"):
        with pytest.raises(ConfigError):
            fill(PPO, {"num_envs": text}, "--set")
    assert [guess(text) for text in ("3", "2.5", "true", "none", "proxy", 4)] == [3, 2.5, True, None, "proxy", 4]
    assert [whole(text) for text in ("12", "1_000", "1.5k", "2M", "1e3", "1.5E+3")] == [
        12,
        1000,
        1500,
        2_000_000,
        1000,
        1500,
    ]
    with contextlib.suppress(ValueError):
        whole("1.23456k")
        raise AssertionError


@pytest.mark.parametrize(("size", "step", "wanted"), [(8, 4, 2), (10, 4, 3), (5, 1, 5)])
def test_no_pixel_is_lost_where_a_picture_is_made_smaller(size, step, wanted):
    for y, x in itertools.product(range(size), repeat=2):
        picture = torch.full((size, size, 3), 250, dtype=torch.uint8)
        picture[y, x] = torch.tensor([200, 60, 50], dtype=torch.uint8)
        small = _watch._smaller(picture, step)
        assert small.shape == (wanted, wanted, 3)
        assert small[y // step, x // step].tolist() == [200, 60, 50]
        assert (small == 250).all(-1).sum() == wanted**2 - 1


def test_the_mode_of_a_flag_wins_over_a_file_by_either_name(tmp_path):
    long, short = tmp_path / "long.toml", tmp_path / "short.toml"
    long.write_text('[world]\nmode = "proxy"\n')
    short.write_text('mode = "proxy"\n')
    for file in (long, short):
        for flags in ((), ("--mode", "ground_truth"), ("--world", "mode=ground_truth")):
            command = _with_file(parse(["train", "foraging", "--config", str(file), *flags]))
            assert settings_of(command)["world"] == {"mode": "ground_truth" if flags else "proxy"}
        both = parse(["train", "foraging", "--config", str(file), "--mode", "a", "--world", "mode=b"])
        with pytest.raises(ConfigError, match="give one of the two"):
            settings_of(_with_file(both))


def test_a_picture_whose_folder_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(StorageError, match=r"x\.png could not be written: the folder .*file cannot be made"):
        draw([tmp_path], tmp_path / "file" / "x.png")
    with pytest.raises(ConfigError, match=r"--json .*x cannot be written: .*file is no folder"):
        make_room(tmp_path / "file" / "x", "--json")


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


@pytest.mark.parametrize("text", ["100", "1e2", "0.1k", "1E+2", "1_00"])
def test_whole_numbers_are_read_alike_by_all_commands(text):
    assert _cli.parse(["run", "sir", "--agents", text]).agents == 100
    assert _cli.parse(["train", "cartpole", "--batch-size", text]).batch_size == 100
    assert _cli.parse(["train", "dotgat", "--agents", text]).settings.agents == 100
    assert _cli.parse(["resume", "r", "--steps", text]).steps == 100
    assert _cli.parse(["evaluate", "r", "--worlds", text]).worlds == 100
    assert _cli.parse(["bench", "a", "--rounds", text]).rounds == 100
    assert whole(text) == 100
    assert _cli.parse(["run", "covid", "--population", f"synthetic:astoria:{text}"]).place() == "synthetic:astoria:100"


def test_decimal_fractions_of_millions_are_whole():
    assert [whole(text) for text in ("1.1M", "2.3M", "4.35M", "0.001k")] == [1_100_000, 2_300_000, 4_350_000, 1]


def test_1e3_in_a_file_is_what_it_is_behind_a_flag(tmp_path):
    (tmp_path / "a.toml").write_text("agents = 1e3\nmean_degree = 1e1\n[set]\ninfect_rate = 2.5e-1\n")
    config = _cli.parse(["run", "sir", "--config", str(tmp_path / "a.toml")])
    assert (config.agents, config.mean_degree, config.pairs()) == (1000, 10.0, {"infect_rate": "0.25"})


def test_a_file_that_can_be_read_once(tmp_path):
    """Such as `--config <(…)` of a shell."""
    os.mkfifo(tmp_path / "pipe")
    text = 'world_name = "cartpole"\nquiet = true\ntogether = true\n[set]\nnum_envs = 4\n'
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(text,), daemon=True)
    writer.start()
    command = _with_file(_cli.parse(["train", "--config", str(tmp_path / "pipe"), "--seed", "3"]))
    writer.join()
    assert (command.quiet, command.together, command.seed, command.world_name) == (True, True, 3, "cartpole")


def test_words_are_interventions():
    made = scales({"infect_rate": "0.5@2:4, 0@6", "contacts.school": "0@2020-03-15:2020-04-01", "seed_share": "2"})
    assert [(one.target, one.factor, one.name) for one in made] == [
        ("infect_rate", 0.5, "scale infect_rate"),
        ("infect_rate", 0.0, "scale infect_rate 2"),
        ("contacts.school", 0.0, "scale contacts.school"),
        ("seed_share", 2.0, "scale seed_share"),
    ]
    assert [one.when for one in made] == [
        During(days=(2.0, 4.0)),
        During(days=(6.0,)),
        During(dates=("2020-03-15", "2020-04-01")),
        During(0),
    ]
    assert scales({"dawdle": "0@20:40"}, "step")[0].when == During(20, 40)
    assert scales({"dawdle": "0.5@1e-1:5"})[0].when == During(days=(0.1, 5.0))  # no date


def test_a_file_of_a_model_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        Origin.of(tmp_path / "mine.py", "Mine")


def test_trainings_are_built_without_what_prints():
    """On machines for measurements there is no more than torch: neither rich nor tyro."""
    program = Path(__file__).with_name("programs") / "torch_alone.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.stdout == "500000\n", done.stderr
