"""The command line as people use it: what it prints, what it writes, how it fails."""

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.run.played import save_always

import denizen as dz
from denizen import app, population
from denizen.run import load
from denizen.zoo import ModelEntry, entries
from denizen.zoo.sir import SIR
from forked import end_of, fork

PROGRAMS = Path(__file__).with_name("programs")
SMALL = ["sir", "--agents", "300", "--steps", "12", "--replicates", "2"]


def test_run_says_that_its_steps_were_compiled(denizen):
    code, out, err = denizen("run", *SMALL, "--compile", "--out", "r")
    assert (code, err) == (0, "")
    assert re.search(r"^steps       native, ready in \d+\.\d s$", out, re.MULTILINE)


def test_run_prints_a_table_and_writes_a_folder_with_curves(denizen, pictures):
    code, out, err = denizen("run", *SMALL, "--out", "r")
    assert (code, err) == (0, "")
    for words in ("SIR on a random graph", "300 agents", "12 days", "cases", "day of peak", "curves      r/plot.png"):
        assert words in out
    assert out.strip().splitlines()[-1] == "run folder  r"
    assert Path("r/plot.png").stat().st_size > 10_000
    assert {"manifest.json", "metrics", "checkpoints", "log.txt", "plot.png"} <= {
        path.name for path in Path("r").iterdir()
    }


def test_runs_get_folders_of_their_own(denizen):
    names = {denizen("run", *SMALL, "--quiet")[1].strip() for _ in range(2)}
    assert len(names) == 2
    assert all(re.fullmatch(r"runs/sir-\d{8}-\d{6}(-\d+)?", name) and Path(name).is_dir() for name in names)


def test_notes_leave_out_what_is_done(denizen, tmp_path):
    (tmp_path / "town/networks").mkdir(parents=True)
    (tmp_path / "town/people.csv").write_text("age\n1\n2\n3\n")
    words = ("run", "sir", "--population", "town", "--steps", "2", "--replicates", "2")
    for contacts in ("0,1\n1,2\n", "0,1\n1,0\n1,2\n2,0\n"):  # none of them in both directions, and one
        (tmp_path / "town/networks/a.csv").write_text(contacts)
        out = " ".join(denizen(*words)[1].split())
        assert "one way along" in out
        assert "--symmetrize adds the other direction." in out
        assert "one way along" not in denizen(*words, "--symmetrize")[1]


def test_warnings_of_denizen_are_notes(denizen, monkeypatch):
    shutil.copy(PROGRAMS / "warns.py", "warns.py")
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.warns(UserWarning, match="numba is missing"):
        told = denizen("run", "warns.py:SIR", *SMALL[1:], "--quiet", "--out", "r")
    assert told == (0, "r\n", "")
    sys.modules.pop("warns")
    denizen("run", *SMALL, "--quiet", "--out", "s")
    file = Path("s/manifest.json")
    file.write_text(file.read_text().replace(f'"torch": "{torch.__version__}"', '"torch": "[older]"'))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, out, err = denizen("resume", "s", "--steps", "1", "--quiet")
    assert (code, out) == (0, "s\n")
    assert re.fullmatch(r"note: s was begun with .*\[older\].*\n", err)


def test_covid_says_what_a_reader_should_know(denizen):
    code, out, _ = denizen(
        "run", "covid", "--population", "synthetic:astoria:500", "--steps", "25", "--replicates", "2", "--out", "r"
    )
    assert code == 0
    assert "R is given for 3 weeks; from week 4 on the last value holds, 4.75" in out
    assert "nobody enters the stage dead; --set sample_deaths=true draws them" in " ".join(out.split())
    assert "--symmetrize adds the other direction" in " ".join(out.split())
    assert "network '1'" not in out
    row = next(line for line in out.splitlines() if line.split()[:1] == ["dead"])
    assert row.split() == ["dead", "–", "0", "–", "0"]  # no day of peak where there is no peak


@pytest.mark.real
@pytest.mark.parametrize(("name", "network"), [("astoria", "0"), ("astoria", "1"), ("sample", "0")])
def test_real_populations(denizen, data_root, name, network):
    words = ("--population", data_root / name, "--network", network, "--steps", "8", "--replicates", "2")
    assert denizen("run", "covid", *words, "--out", "r")[0] == 0
    assert load("r")["daily_infected"].sum() > 0


@pytest.mark.parametrize("graph", [("--agents", "1"), ("--agents", "40", "--mean-degree", "0")])
def test_a_graph_without_edges_runs_and_resumes(denizen, graph):
    assert denizen("run", "sir", *graph, "--steps", "3", "--replicates", "2", "--out", "r")[0] == 0
    assert denizen("resume", "r", "--steps", "2")[0] == 0


def test_the_same_words_give_the_same_numbers(denizen):
    for folder in ("a", "b"):
        denizen("run", *SMALL, "--out", folder, "--seed", "5")
    denizen("run", *SMALL, "--out", "c", "--seed", "6")
    assert load("a")["cases"].equal(load("b")["cases"])
    assert not load("a")["cases"].equal(load("c")["cases"])


def test_show_tells_again(denizen, pictures):
    denizen("run", *SMALL, "--out", "r", "--snapshots-every", "5")
    Path("r/plot.png").unlink()
    code, out, _ = denizen("show", "r")
    assert code == 0
    for words in ("denizen.zoo.sir.model.SIR", "finished, 12 of 12 steps", "3, every 5 steps", "cases", "torch"):
        assert words in out
    assert Path("r/plot.png").stat().st_size > 10_000


def test_resume_goes_on_as_if_never_stopped(denizen):
    words = ("seir", "--population", "synthetic:astoria:400", "--replicates", "2", "--set", "latent_days=2")
    denizen("run", *words, "--steps", "9", "--out", "r")
    denizen("run", *words, "--steps", "20", "--out", "whole")
    code, out, _ = denizen("resume", "r")
    assert code == 0
    assert "has all its 9 steps" in out
    code, out, _ = denizen("resume", "r", "--steps", "11")
    assert code == 0
    assert "going on after step 9 with 11 more" in out
    for name in load("whole").series_names:
        assert load("r")[name].equal(load("whole")[name])
    assert load("r").manifest.wanted == 20


def test_resume_refuses_a_population_that_changed(denizen):
    Path("town/networks").mkdir(parents=True)
    Path("town/people.csv").write_text("height\n" + "1.5\n" * 30)
    Path("town/networks/home.csv").write_text("".join(f"{k},{k + 1}\n" for k in range(29)))
    assert denizen("run", "sir", "--population", "town", "--steps", "3", "--out", "r")[0] == 0
    assert denizen("resume", "r", "--steps", "1")[0] == 0
    Path("elsewhere").mkdir()
    with contextlib.chdir("elsewhere"):
        assert denizen("resume", "../r", "--steps", "1")[0] == 0
    Path("town/networks/home.csv").write_text("0,1\n")
    code, _, err = denizen("resume", "r", "--steps", "1")
    assert code == 2
    assert "town has changed since r was begun" in err


def test_resume_of_a_run_from_python_says_how(denizen):
    import denizen as dz
    from denizen.zoo.sir import SIR

    dz.simulate(SIR(dz.Graph.from_edges([0], [1])), 2, out="r")
    code, _, err = denizen("resume", "r", "--steps", "1")
    assert code == 2
    assert "denizen.run.resume('r', model)" in err


def test_models_lists_what_can_be_set(denizen):
    code, out, _ = denizen("models")
    assert code == 0
    for words in ("covid", "sir", "seir", "mortality", "4.75,4.75,4.75", "0 to 1", "1/contact/day", "reference"):
        assert words in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], f"which model? {', '.join(entries(ModelEntry))}, or FILE.py:NAME"),
        (["run", "covd"], "did you mean 'covid'"),
        (["run", "covid", "--population", "nowhere"], "does not exist"),
        (["run", "covid", "--population", "synthetic:astoira"], "did you mean 'astoria'"),
        (["run", "covid", "--population", "synthetic:astoria:500", "--network", "2"], "--network 2"),
        (["run", "covid", "--agents", "50"], "needs a population"),
        (["run", "sir", "--agents", "50", "--population", "x"], "one of the two"),
        (["run", "sir", "--agents", "5", "--mean-degree", "7"], "--mean-degree 7: expected a number from 0 to 4"),
        (["run", "sir", "--network", "0"], "give --population too"),
        (["run", "covid", "--population", ""], "--population is empty"),
        (["run", "sir", "--out", ""], "--out is empty"),
        (["run", "sir", "--population", "taken"], "write them, source,target a line, to networks/contacts.csv"),
        (["run", "sir", "--steps", "-1"], "--steps -1"),
        (["run", "sir", "--seed", "4294967296"], "--seed"),
        (["run", "sir", "--replicates", "0"], "--replicates 0"),
        (["run", "sir", "--compile", "--no-compile"], "one of the two"),
        (["run", "sir", "--set", "infect_rat=1"], "did you mean 'infect_rate'"),
        (["run", "sir", "--set", "infect_rate"], "expected NAME=VALUE"),
        (["run", "sir", "--set", "infect_rate=-1"], "at least 0"),
        (["run", "sir", "--set", "infect_rate=nan"], "expected a number"),
        (["run", "sir", "--config", "none.toml"], "none.toml"),
        (["run", "sir", "--out", "taken"], "not empty"),
        (["run", "sir", "--out", "taken/file/r"], "cannot be written"),
        (["show", "nowhere"], "does not exist"),
        (["show", "taken"], "no manifest"),
        (["resume", "taken"], "no manifest"),
    ],
)
def test_mistakes_get_one_message_and_code_2(denizen, words, message):
    Path("taken").mkdir()
    Path("taken/file").write_text("mine")
    Path("taken/people.csv").write_text("age\nU19\n65A\n")
    code, out, err = denizen(*words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert err.startswith("error ")
    assert out == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_cuda(denizen):
    code, _, err = denizen("run", *SMALL, "--device", "cuda")
    assert code == 2
    assert "cpu" in err


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["show", "--help"], ["resume", "--help"], ["models", "--help"], []]
)
def test_help_has_examples(denizen, words):
    code, out, _ = denizen(*words)
    assert code == 0
    assert "denizen" in out
    assert "example" in out or words[0] == "models"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "sir", "--stesp", "3"], "--steps"),
        (["shew"], "show"),
        (["run", "sir", "--steps", "x"], "steps"),
        (["run", "sir", "--config"], "config"),
    ],
)
def test_words_that_mean_nothing(denizen, words, message):
    code, _, err = denizen(*words)
    assert code == 2
    assert message in err


def test_version(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["denizen", "--version"])
    app.main()
    assert re.fullmatch(r"denizen \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_a_full_disk_is_rescued_elsewhere(denizen, monkeypatch, saves_always, tmp_path):
    real, folder = os.fsync, tmp_path / "r"
    monkeypatch.setenv("TMPDIR", str(tmp_path / "other"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "other").mkdir()

    def full(descriptor):
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if name.startswith(str(folder)) and (folder / "metrics/part-00001.safetensors").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = denizen("run", "sir", "--agents", "300", "--steps", "60", "--out", "r")
    assert code == 2
    assert "No space left" in err
    assert "run.save" not in err
    rescued = re.search(r"denizen resume (\S+)", err).group(1)
    monkeypatch.setattr(os, "fsync", real)
    assert load(rescued).steps > load("r").steps > 0
    assert denizen("resume", rescued)[0] == 0
    denizen("run", "sir", "--agents", "300", "--steps", "60", "--out", "whole")
    assert load(rescued)["cases"].equal(load("whole")["cases"])


def test_a_folder_in_use_is_found_before_the_population_is_read(denizen):
    Path("r").mkdir()
    Path("r/notes.txt").write_text("mine")
    code, _, err = denizen("run", "sir", "--population", "nowhere", "--out", "r")
    assert code == 2
    assert "run folder r is not empty" in err


@pytest.mark.parametrize("words", [("infect_rate=0.1", "infect_rate=0.2"), ("infect_rate=1", "--set", "infect_rate=1")])
def test_a_parameter_set_twice_is_refused(denizen, words):
    code, _, err = denizen("run", *SMALL, "--set", *words)
    assert code == 2
    assert "infect_rate is given twice" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_runs_are_saved(tmp_path, number):
    words = ["denizen", "run", "sir", "--agents", "2000", "--steps", "100000", "--replicates", "4", "--out", "r"]

    def work():
        os.chdir(tmp_path)
        save_always()
        sys.argv = [*words, "--no-compile"]
        app.main()

    child, metrics = fork(work, tmp_path / "told.txt"), tmp_path / "r" / "metrics"
    while not (metrics.exists() and any(metrics.iterdir())):
        assert not os.waitpid(child, os.WNOHANG)[0], (tmp_path / "told.txt").read_text()
        time.sleep(0.05)
    os.kill(child, number)
    code, err = end_of(child), (tmp_path / "told.txt").read_text()
    assert code == 130, err
    assert "Traceback" not in err
    saved = load(tmp_path / "r")
    assert f"{saved.steps} steps are safe, go on with: denizen resume r" in err
    assert (saved.manifest.status, saved.manifest.wanted) == ("interrupted", 100000)


def test_a_device_that_fails(denizen, monkeypatch):
    shutil.copy(PROGRAMS / "device_that_fails.py", "flu.py")
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert denizen("run", "flu.py:Flu", "--steps", "0", "--quiet", "--out", "r")[0] == 0
    Path("broken.txt").write_text("7")
    code, _, err = denizen("resume", "r", "flu.py:Flu", "--steps", "12")
    assert code == 2
    assert "the device failed: CUDA error: an illegal memory access was encountered\n0 steps are safe" in err
    assert "denizen resume r" in err
    assert "Traceback" not in err
    Path("broken.txt").unlink()
    assert denizen("resume", "r", "flu.py:Flu")[0] == 0
    sys.modules.pop("flu")
    assert load("r").steps == 12


def test_chosen_fields_of_snapshots(denizen):
    assert denizen("run", *SMALL, "--out", "r", "--snapshots-every", "4", "--snapshot-fields", "stage:uint8")[0] == 0
    taken = load("r").manifest.snapshots
    assert (taken.fields, taken.forms[0].stored, taken.forms[0].dtype) == (("stage",), "uint8", "int8")
    assert denizen("resume", "r", "--steps", "4", "--device", "cpu")[0] == 0
    assert load("r").snapshots["stage"].shape == (2, 5, 300)
    assert str(load("r").snapshots["stage"].dtype) == "torch.int8"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--snapshot-fields", "stage"], "give --snapshots-every N too"),
        (["--snapshots-every", "2", "--snapshot-fields", "stage:tiny"], "DTYPE one of int8"),
        (["--snapshots-every", "2", "--snapshot-fields", "stage,stage"], "different NAMEs"),
        (["--snapshots-every", "2", "--snapshot-fields", ""], "got ''"),
        (["--snapshots-every", "2", "--snapshot-fields", "stag"], "did you mean 'stage'"),
        (["--snapshots-every", "2", "--snapshot-fields", "stage:float16"], "cannot be stored as torch.float16"),
    ],
)
def test_fields_of_snapshots_that_cannot_be_meant(denizen, words, message):
    code, _, err = denizen("run", *SMALL, *words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_the_environment_names_the_device(denizen, monkeypatch):
    monkeypatch.setenv("DENIZEN_DEVICE", "abacus")
    code, _, err = denizen("run", *SMALL)
    assert (code, "DENIZEN_DEVICE='abacus'" in err) == (2, True)
    monkeypatch.setenv("DENIZEN_DEVICE", "cpu")
    code, out, _ = denizen("run", *SMALL)
    assert (code, "on cpu (DENIZEN_DEVICE says so; ops:" in out) == (0, True)


def test_the_manifest_tells_the_whole_configuration(denizen):
    denizen("run", *SMALL, "--out", "r", "--set", "infect_rate=0.1", "infectious_days=3")
    kept = json.loads(Path("r/manifest.json").read_text())["settings"]
    assert (
        kept["config"] | {"model": "sir", "agents": 300, "steps": 12, "replicates": 2, "device": "cpu"}
        == kept["config"]
    )
    assert kept["config"]["set"] == {"infect_rate": "0.1", "infectious_days": "3"}


def test_a_manifest_with_foolish_settings_is_refused(denizen):
    denizen("run", *SMALL, "--out", "r")
    manifest = json.loads(Path("r/manifest.json").read_text())
    for config in (
        None,
        [],
        {"model": 3},
        {"models": "sir"},
        {"model": "sir", "set": [1]},
        {"model": "sir", "device": "tpu"},
    ):
        broken = manifest | {"settings": {"config": config, "source": {}}}
        Path("r/manifest.json").write_text(json.dumps(broken))
        code, _, err = denizen("resume", "r", "--steps", "1")
        assert code == 2, config
        assert "Traceback" not in err


def test_one_number_may_stand_for_all_weeks_and_groups(denizen):
    words = ("covid", "--population", "synthetic:astoria:500", "--steps", "3", "--replicates", "1")
    assert (
        denizen("run", *words, "--set", "R=3", "reference=true", "isolation=0.5", "interactions=2", "--out", "r")[0]
        == 0
    )
    assert "R': 'float32 [1] 3.0'" in str(load("r").manifest.model["fields"])


def _three_networks(weights: str = "") -> None:
    Path("town/networks").mkdir(parents=True)
    Path("town/people.csv").write_text("id,age\n" + "".join(f"p{k},{20 + k}\n" for k in range(40)))
    for name, reach in (("family", 1), ("work", 5), ("friends", 9)):
        held = weights if name == "work" else ""
        pairs = "".join(f"p{k},p{(k + reach) % 40}{held}\n" for k in range(40))
        Path(f"town/networks/{name}.csv").write_text(f"source,target{',weight' if held else ''}\n{pairs}")


def test_networks_act_together(denizen):
    _three_networks()
    words = ["run", "sir", "--population", "town", "--steps", "6", "--replicates", "2", "--symmetrize"]
    code, out, err = denizen(*words, "--network", "family,work", "--out", "both", "--set", "infect_rate=0.4")
    assert code == 0, err
    assert "160 contacts" in out
    town = population.load("town")
    parts = [town.edges(name, symmetrize=True)[:2] for name in ("family", "work")]
    source, target = (np.concatenate(ends) for ends in zip(*parts, strict=True))
    model = SIR(dz.Graph.from_edges(source, target, town.size)).replace(infect_rate=0.4)
    assert load("both")["cases"].tolist() == dz.simulate(model, steps=6, replicates=2)["cases"].tolist()
    assert denizen("resume", "both", "--steps", "2")[0] == 0
    code, out, err = denizen("check", "sir", "--population", "town", "--network", "family,work")
    assert code == 0, err


@pytest.mark.parametrize(
    ("network", "weights", "message"),
    [
        (None, "", "or several that act together, as in --network family,friends,work"),
        ("family,works", "", "no such network; did you mean 'work'"),
        ("family,family", "", "named twice"),
        ("family,work", ",0.5", "work has weights and family has none; give both a column weight, or neither"),
    ],
)
def test_networks_that_cannot_act_together(denizen, network, weights, message):
    _three_networks(weights)
    code, _, err = denizen("run", "sir", "--population", "town", *(("--network", network) if network else ()))
    assert (code, message in err) == (2, True), err


def test_contacts_in_a_folder_of_another_name(denizen):
    _three_networks()
    Path("town/networks").rename("town/contacts")
    code, _, err = denizen("run", "sir", "--population", "town")
    assert (code, "if folder contacts holds them, rename it to networks" in err) == (2, True), err
