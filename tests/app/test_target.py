"""Models, worlds and steps from a file: every command finds them in one way, and nothing runs that nobody named."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from denizen import zoo
from denizen.run import load

PROGRAMS = Path(__file__).with_name("programs")
FEW = ["--agents", "60", "--steps", "4", "--replicates", "2", "--out"]
TRAINING = ["train", "walk.py", "--steps", "64", "--set", "num_envs=2", "num_steps=8"]


@pytest.fixture
def denizen(denizen, monkeypatch):
    for name in ("city.py", "walk.py"):
        shutil.copy(PROGRAMS / name, name)
    Path("two.py").write_text("from city import Epidemic\nfrom walk import Walk\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield denizen
    for name in [name for name in sys.modules if name.partition(".")[0] in ("city", "walk", "two", "mine")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("word", "pairs"),
    [
        ("city.py:Epidemic", ("infect_rate=0.3", "waves=2")),
        ("city.py:town", ("rate=0.3", "waves=2")),
        ("city:town", ("rate=0.3",)),
        ("./city.py:town", ("infect_rate=0.3",)),
    ],
)
def test_a_model_of_a_file_is_run(denizen, word, pairs):
    code, out, err = denizen("run", word, *FEW, "r", "--set", *pairs)
    assert (code, err) == (0, "")
    assert "Epidemic on a random graph with mean degree 10: 60 agents" in out
    assert load("r").manifest.model["fields"]["infect_rate"] == "float32 number 0.3"
    kept = json.loads(Path("r/manifest.json").read_text())["settings"]["origin"]
    assert (kept["file"], kept["name"]) == (str(Path("city.py").absolute()), word.rpartition(":")[2])


def test_an_object_of_a_file_is_run_with_other_values(denizen):
    code, out, _ = denizen("run", "city.py:ready", "--steps", "3", "--out", "r", "--set", "infect_rate=0.5")
    assert (code, "Epidemic: 3 agents" in out) == (0, True)
    assert load("r").manifest.model["fields"]["infect_rate"] == "float32 number 0.5"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "city.py"], "city.py has Epidemic, ready; say which, such as city.py:Epidemic"),
        (["run", "city.py:Epidemc"], "did you mean 'Epidemic'? valid: Epidemic"),
        (["run", "nowhere.py:Epidemic"], "there is no file nowhere.py"),
        (["run", "walk.py:Walk"], "Walk is the class Walk, expected a dz.Model"),
        (["run", "walk.py"], "walk.py has no model"),
        (["run", "city.py:number"], "number is of type int, expected a dz.Model"),
        (["run", "city.py:nothing"], "city.py:nothing returned int, expected a dz.Model"),
        (["run", "city.py:ready", "--agents", "5"], "--agents 5: city.py:ready takes no contacts"),
        (["run", "city.py:Epidemic", "--set", "infect_rat=1"], "did you mean 'infect_rate'"),
        (["run", "city.py:Epidemic", "--set", "infect_rate=-1"], "at least 0 1/contact/day"),
        (["run", "city.py:Epidemic", "--set", "waves=many"], "--set waves=many: expected a whole number"),
        (["run", "city.py:town", "--set", "rat=1"], "did you mean 'rate'"),
        (["run", "city.py:town", "--set", "rate=much"], "--set rate=much: expected a number"),
        (["train", "city.py:Epidemic"], "expected a dz.Env"),
        (["train", "walk.py", "--world", "sizee=3"], "did you mean 'size'"),
        (["check", "city.py:number"], "expected a dz.Model or dz.Env"),
        (["check", "city.py:ready", "--agents", "5"], "--agents 5: city.py:ready takes no contacts"),
        (["check", "city.py:Epidemic", "--agents", "0"], "--agents 0: expected"),
        (["check", "city.py:Epidemic", "--network", "0"], "give --population too"),
        (["check", "city.py:Epidemic", "--population", ""], "--population is empty"),
        (["check", "city.py:Epidemic", "--agents", "5", "--population", "x"], "give one of the two"),
        (["check", "walk.py", "--agents", "5"], "--agents 5: walk.py is a world"),
        (["check", "walk.py", "--set", "sizee=3"], "--set sizee=3: Walk: unknown option 'sizee'"),
        (["models", "city.py:Epidemc"], "did you mean 'Epidemic'"),
        (["equivalent", "sir", "seir", "--shape", "2"], "compares torch modules"),
        (["equivalent", "city.py:Epidemic", "city.py:Epidemic", "--shape", "2"], "compares torch modules"),
        (["run", "cartpole"], "cartpole is a world, to train in: denizen train cartpole"),
        (["train", "sir"], "sir is a model, to run: denizen run sir"),
        (["runn", "sir"], "there is no command 'runn'; did you mean 'run'?"),
        (["train", "cartpole", "--set", "gamma=2"], "--set gamma=2: expected a number from 0 to 1"),
        (["run", "covid", "--population", "synthetic:astoria:200", "--set", "R=-1"], "--set R=-1: expected at least 0"),
        (["doctor", "sirr"], "or a name of the zoo; did you mean 'sir'"),
    ],
)
def test_mistakes_are_one_line(denizen, words, message):
    code, out, err = denizen(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error ")
    assert err.count("\n") == 1


def test_an_error_of_the_file_is_told_with_its_line(denizen):
    code, _, err = denizen("run", "city.py:raises")
    assert code == 2
    assert err.splitlines()[-1] == "ValueError: no town"
    assert "city.py" in err


def test_a_run_of_a_file_goes_on_only_where_the_file_is_named_and_the_same(denizen):
    assert denizen("run", "city.py:Epidemic", *FEW, "r")[0] == 0
    named = f"{Path('city.py').absolute()}:Epidemic"
    code, _, err = denizen("resume", "r", "--steps", "2")
    assert (code, f"a file runs only where you name it: denizen resume r {named}" in err) == (2, True)
    assert denizen("show", "r")[0] == 0  # which runs nothing
    assert denizen("resume", "r", named, "--steps", "2")[0] == 0
    assert load("r").steps == 6
    denizen("run", "city.py:Epidemic", *FEW, "whole", "--steps", "6")
    assert load("whole")["sick"].equal(load("r")["sick"])
    Path("city.py").write_text((PROGRAMS / "city.py").read_text() + "# a word\n")
    code, _, err = denizen("resume", "r", "city.py:Epidemic", "--steps", "2")
    assert (code, "city.py has changed since r was begun with it" in err) == (2, True)
    assert "bring it back, begin a new run, or go on all the same in Python: denizen.run.resume('r', model)" in err


def test_a_folder_names_no_file_that_would_run(denizen):
    """A manifest that was made up: what it calls a model is looked up in the zoo alone."""
    denizen("run", "sir", *FEW, "r")
    Path("evil.py").write_text("raise SystemExit('ran')\n")
    manifest = json.loads(Path("r/manifest.json").read_text())
    manifest["settings"]["config"]["model"] = "evil.py:Model"
    Path("r/manifest.json").write_text(json.dumps(manifest))
    code, _, err = denizen("resume", "r", "--steps", "1")
    assert (code, "model 'evil.py:Model' does not exist" in err) == (2, True)
    code, _, err = denizen("resume", "r", "evil.py:Model", "--steps", "1")
    assert (code, "leave evil.py:Model out" in err) == (2, True)


def test_a_world_of_a_file_is_trained_evaluated_watched_and_resumed(denizen):
    code, out, err = denizen(*TRAINING, "--out", "r", "--world", "size=3")
    assert (code, err) == (0, "")
    named = f"{Path('walk.py').absolute()}:Walk"
    assert f"next: denizen evaluate r {named}" in out
    code, _, err = denizen("evaluate", "r", "--worlds", "2")
    assert (code, f"denizen evaluate r {named}" in err) == (2, True)
    assert denizen("evaluate", "r", "walk.py", "--worlds", "2")[0] == 0
    assert denizen("watch", "r", "walk.py:Walk", "--steps", "2")[0] == 0
    code, _, err = denizen("resume", "r")
    assert (code, f"denizen resume r {named}" in err) == (2, True)
    assert denizen("resume", "r", "walk.py:Walk")[0] == 0
    code, _, err = denizen("evaluate", "r", "cartpole", "--worlds", "2")
    assert (code, "unknown option 'size'" in err) == (2, True)
    Path("walk.py").write_text((PROGRAMS / "walk.py").read_text() + "# a word\n")
    code, _, err = denizen("resume", "r", "walk.py:Walk")
    assert (code, "walk.py has changed since r was begun with it" in err) == (2, True)
    code, out, _ = denizen("evaluate", "r", "walk.py", "--worlds", "2")
    assert (code, "is not what it was when r was trained with it" in out) == (0, True)


def test_a_copied_folder_of_the_zoo_is_its_own_model(denizen):
    shutil.copytree(Path(zoo.__file__).parent / "sir", "mine", ignore=shutil.ignore_patterns("__pycache__"))
    model = Path("mine/model.py")
    model.write_text(model.read_text().replace("dz.param(0.05,", "dz.param(0.25,"))
    assert denizen("run", "mine", *FEW, "r")[0] == 0
    assert load("r").manifest.model["fields"]["infect_rate"] == "float32 number 0.25"
    assert denizen("run", "mine/model.py:SIR", *FEW, "s")[0] == 0
    code, out, _ = denizen("models", "mine")
    assert (code, "0.25" in out) == (0, True)
    model.write_text(model.read_text() + "# a word\n")
    code, _, err = denizen("resume", "r", "mine", "--steps", "1")
    assert (code, "has changed since r was begun with it" in err) == (2, True)


def test_a_package_with_the_name_of_a_library_is_refused(denizen):
    import json as library

    for name in ("json", "denizen"):
        shutil.copytree(Path(zoo.__file__).parent / "sir", name, ignore=shutil.ignore_patterns("__pycache__"))
        code, _, err = denizen("run", name, *FEW, "r")
        assert (code, f"has the name of a library that is in use, {name}" in " ".join(err.split())) == (2, True)
    assert sys.modules["json"] is library


def test_what_an_editor_leaves_in_a_package_is_no_part_of_it(denizen):
    shutil.copytree(Path(zoo.__file__).parent / "sir", "mine", ignore=shutil.ignore_patterns("__pycache__"))
    Path("mine/.#model.py").symlink_to("somebody@somewhere.1234")  # Emacs' lock
    code, _, err = denizen("run", "mine", *FEW, "r")
    assert (code, err) == (0, "")


def test_checks_and_measures_take_models_and_worlds(denizen):
    code, out, _ = denizen("check", "city.py:town", "--set", "rate=0.2", "--no-gradient")
    assert (code, "check of Epidemic: all rules hold" in out) == (0, True)
    code, out, err = denizen("check", "city.py:ready", "--no-gradient")  # of its own contacts
    assert (code, err, "check of Epidemic: all rules hold" in out) == (0, "", True)
    Path("mine.py").write_text(
        "from __future__ import annotations\nfrom walk import Walk\n\n"
        "def maze(size: int = 3) -> Walk:\n    return Walk(size=size)\n\n"
        "def silent():\n    return Walk()\n"
    )
    code, out, _ = denizen("check", "mine.py:maze", "--steps", "2")  # a world, by an annotation that is a text
    assert (code, "check of Walk" in out) == (0, True)
    code, _, err = denizen("check", "mine.py:silent")
    assert (code, "mine.py:silent returned Walk" in err, "-> Walk" in err) == (2, True, True)
    code, out, _ = denizen("bench", "walk.py", "--batch", "2", "--device", "cpu", "--rounds", "5")
    assert (code, "batch 2" in " ".join(out.split())) == (0, True)
    code, out, _ = denizen("profile", "city.py:ready", "--cpu", "--steps", "1", "--warm-up", "1")
    assert (code, "operator" in out) == (0, True)


def test_every_folder_of_the_zoo_says_what_it_is():
    for kind in (zoo.ModelEntry, zoo.WorldEntry):
        found = zoo.entries(kind)
        assert found
        for name, entry in found.items():
            assert zoo.entry(name) is entry
            assert entry.about, name
    assert zoo.entry("nothing") is None


@pytest.mark.parametrize("name", ["random", "json", "numpy"])
def test_a_file_called_like_a_library_leaves_the_library(denizen, name):
    lines = ["import json, random, numpy", "def make():", "    return lambda: (random.random, json.dumps, numpy.ones)"]
    Path(f"{name}.py").write_text("\n".join(lines))
    for _ in range(2):  # also the second time
        code, _, err = denizen("bench", f"{name}.py:make", "--device", "cpu", "--rounds", "5")
        assert (code, err) == (0, "")
    assert Path(sys.modules[name].__file__).parent != Path.cwd()
