"""Run folders that earlier versions wrote open, are shown, and go on with the same numbers.

The folders are in `tests/data`. Their numbers were recorded with the code that wrote them.

A model whose methods were rewritten since is refused, with equal results or not: a folder cannot know. `REWRITTEN` are
those with equal results, as the numbers here prove: with the digest of today's method in its copy a folder goes on.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.rl import read_metrics
from denizen.run import load
from denizen.zoo.cartpole import CartPole
from denizen.zoo.seir import SEIR
from denizen.zoo.sir import SIR

STORED = Path(__file__).parents[1] / "data" / "folders_2026_11"
REWRITTEN = {"simulation": (SIR, "step"), "simulation_python": (SEIR, "step")}
RING = torch.arange(40)
SEIR_OF_PYTHON = SEIR(dz.Graph.from_edges(RING, (RING + 1) % 40, 40, directed=False), seed_share=0.1)
CLOSE = 1e-4  # relative; other processors round in another order

pytestmark = pytest.mark.filterwarnings("ignore:.*was begun with:UserWarning")  # another torch than CI's


@pytest.fixture
def stored(tmp_path):
    """`stored(name)`: a copy of a stored folder, to write to."""
    return lambda name: Path(shutil.copytree(STORED / name, tmp_path / name))


@pytest.fixture
def as_today(stored):
    """`as_today(name)`: a copy of a stored folder whose model was rewritten, with today's digest of that one method."""

    def copy(name):
        cls, method = REWRITTEN[name]
        folder = stored(name)
        manifest = json.loads((folder / "manifest.json").read_text())
        dz.simulate(cls(dz.Graph.from_edges([0], [1], 2)), 0, out=folder.with_name("today"), device="cpu")
        today = json.loads((folder.with_name("today") / "manifest.json").read_text())["model"]
        if manifest["model"]["python"] == today["python"]:
            changed = {n for n, digest in manifest["model"]["code"].items() if today["code"][n] != digest}
            assert changed == {method}
            manifest["model"]["code"][method] = today["code"][method]
            (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return copy


def metrics_of(folder, *names):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    return {name: [row[name] for row in rows] for name in names}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("simulation", ("denizen.zoo.sir.model.SIR, 50 agents", "killed, 5 of 12 steps", "denizen resume", "infected")),
        ("simulation_python", ("denizen.zoo.seir.model.SEIR, 40 agents", "finished, 6 of 6 steps", "infectious")),
        ("training_ppo", ("cartpole, 3 updates, seed 5, killed", "PPO(num_envs=4, num_steps=16", "return_mean 21")),
        ("training_ppo_python", ("a world, 2 updates, seed 5, interrupted", "PPO(", "return_mean 23.5")),
        ("training_grpo", ("cartpole, 2 updates, seed 5, interrupted", "GRPO(groups=2", "return_mean 14.38")),
        ("training_seeds", ("seed-0: cartpole, 2 updates, seed 0, finished", "seed-1: cartpole, 1 updates, seed 1")),
        ("dotgat", ("nextrow by 4 agents (fast), 2 of 4 epochs, killed", "8 pairs", "loss 4.2418")),
    ],
)
def test_stored_folder_is_shown(denizen, stored, name, words):
    code, out, errors = denizen("show", stored(name))
    assert (code, errors) == (0, "")
    for word in words:
        assert word in out


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="methods are compared under the Python that wrote them")
def test_stored_simulation_of_a_model_that_was_rewritten_is_refused_and_still_read(denizen, stored):
    folder = stored("simulation")
    code, _, errors = denizen("resume", folder, "--quiet")
    assert code == 2
    assert "method step has other code than it had; what it has is read by dz.run.load" in " ".join(errors.split())
    run = dz.run.load(folder)
    assert (run.status, run.steps, run["cases"].tolist()) == ("killed", 5, [[3, 6, 2, 3, 3], [2, 1, 2, 0, 3]])
    folder = stored("simulation_python")
    with pytest.raises(dz.errors.InputError, match="method step has other code than it had"):
        dz.run.resume(folder, SEIR_OF_PYTHON, 4)
    assert dz.run.load(folder)["cases"].tolist() == [[0, 2, 1, 0, 0, 0], [8, 3, 2, 0, 1, 1], [6, 0, 1, 1, 1, 3]]


def test_stored_simulation_goes_on(denizen, as_today):
    folder = as_today("simulation")
    code, _, errors = denizen("resume", folder, "--quiet")
    assert code == 0, errors
    run = dz.run.load(folder)
    assert (run.status, run.steps) == ("finished", 12)
    assert run["cases"].tolist() == [[3, 6, 2, 3, 3, 3, 3, 4, 4, 0, 2, 0], [2, 1, 2, 0, 3, 2, 8, 2, 2, 6, 2, 2]]
    assert run["recovered"].tolist() == [
        [0, 0, 3, 10, 13, 16, 20, 22, 25, 27, 31, 31],
        [1, 2, 4, 4, 5, 5, 7, 8, 10, 11, 16, 18],
    ]
    assert run.snapshots["step"].tolist() == [0, 4, 8, 12]
    assert run.snapshots["stage"].long().sum(-1).tolist() == [[9, 33, 58, 73], [5, 14, 33, 55]]


def test_stored_simulation_from_python_goes_on(as_today):
    folder, model = as_today("simulation_python"), SEIR_OF_PYTHON
    assert dz.run.load(folder)["cases"].tolist() == [[0, 2, 1, 0, 0, 0], [8, 3, 2, 0, 1, 1], [6, 0, 1, 1, 1, 3]]
    run = dz.run.resume(folder, model, 4)
    assert run["cases"][:, 6:].tolist() == [[1, 0, 0, 0], [2, 0, 3, 1], [0, 1, 2, 1]]
    assert run["infectious"][:, -1].tolist() == [3, 13, 10]
    assert dz.run.load(folder).snapshots["step"].tolist() == [0, 3, 6, 9]


def test_stored_training_by_ppo_goes_on(denizen, stored):
    folder = stored("training_ppo")
    code, _, errors = denizen("resume", folder, "--quiet")
    assert code == 0, errors
    told = metrics_of(folder, "return_mean", "gradient_norm", "entropy")
    assert told["return_mean"] == pytest.approx([11, 23.5, 21, 71 / 3, 14, 112 / 3], rel=CLOSE)
    assert told["gradient_norm"] == pytest.approx(
        [11.517193, 10.857418, 9.939840, 10.676902, 11.207928, 9.830900], rel=CLOSE
    )
    assert told["entropy"][3:] == pytest.approx([0.6917722, 0.6917520, 0.6914989], rel=CLOSE)
    code, out, errors = denizen("evaluate", folder, "--worlds", 8, "--steps", 50, "--quiet")
    assert (code, errors) == (0, "")
    assert float(out) == pytest.approx(18.5)


def test_stored_training_by_ppo_from_python_goes_on(stored):
    env = CartPole()
    algorithm = dz.PPO(
        num_envs=4,
        num_steps=16,
        update_epochs=3,
        num_minibatches=2,
        clip_coef=0.15,
        ent_coef=dz.rl.Linear(0.02, 0.0),
        vf_coef=0.7,
        max_grad_norm=0.4,
    )
    folder = stored("training_ppo_python")
    result = dz.rl.resume(folder, env, dz.rl.mlp(env, hidden=(8,)), algorithm, progress=False)
    assert result["return_mean"] == pytest.approx([24.5, 13.5], rel=CLOSE)
    assert result["gradient_norm"] == pytest.approx([9.5268154, 10.2286835], rel=CLOSE)


def test_stored_training_by_grpo_goes_on(denizen, stored):
    folder = stored("training_grpo")
    code, _, errors = denizen("resume", folder, "--quiet")
    assert code == 0, errors
    told = metrics_of(folder, "return_mean", "gradient_norm")
    assert told["return_mean"] == pytest.approx([14.25, 14.375, 14.75, 15.125], rel=CLOSE)
    assert told["gradient_norm"] == pytest.approx([0.2165593, 0.1590318, 0.1329337, 0.2713493], rel=CLOSE)


def test_stored_trainings_of_several_seeds_go_on(denizen, stored):
    folder = stored("training_seeds")
    code, _, errors = denizen("resume", folder, "--quiet")
    assert code == 0, errors
    ends = [metrics_of(folder / f"seed-{seed}", "return_mean", "gradient_norm") for seed in range(3)]
    assert [told["return_mean"][-1] for told in ends] == pytest.approx([14.75, 61 / 3, 71 / 3], rel=CLOSE)
    assert [told["gradient_norm"][-1] for told in ends] == pytest.approx([3.3004545, 3.6145668, 3.4757705], rel=CLOSE)


def test_stored_training_of_dotgat_goes_on(denizen, stored):
    folder = stored("dotgat")
    code, _, errors = denizen("resume", folder, "--quiet")
    assert code == 0, errors
    manifest = json.loads((folder / "manifest.json").read_text())
    losses = [row["loss"] for row in manifest["metrics"]]
    assert losses == pytest.approx([5.726926, 4.241757, 5.221968, 5.087058], rel=CLOSE)
    assert manifest["results"]["test"]["mse"] == pytest.approx(17.161461, rel=CLOSE)
    assert (manifest["status"], manifest["reason"]) == ("done", "all 4 epochs are done")


def test_stored_folders_are_told_apart(denizen, stored):
    with pytest.raises(dz.errors.DataError, match="holds a run of kind 'training', expected 'simulation'"):
        dz.run.load(stored("training_grpo"))
    with pytest.raises(dz.errors.DataError, match="holds a run of kind 'dotgat', expected 'simulation'"):
        dz.run.load(stored("dotgat"))
    code, _, errors = denizen("resume", stored("simulation_python"))
    assert code == 2
    assert "was begun from Python" in errors


def test_new_folders_say_their_kind(denizen, stored, as_today):
    """As do those of before, once something is saved to them again."""
    for name, kind in (("simulation", "simulation"), ("training_grpo", "training"), ("dotgat", "dotgat")):
        folder = as_today(name) if name in REWRITTEN else stored(name)
        assert "kind" not in json.loads((folder / "manifest.json").read_text())
        assert denizen("resume", folder, "--quiet")[0] == 0
        assert json.loads((folder / "manifest.json").read_text())["kind"] == kind


def test_commands_refuse_kinds_that_they_do_not_know(denizen, stored):
    folder = stored("dotgat")
    code, _, errors = denizen("evaluate", folder)
    told = (
        "holds a run of kind dotgat, and denizen evaluate takes one of kind training; for dotgat there is denizen show"
    )
    assert (code, told in errors) == (2, True)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "kind": "trains"}))
    code, _, errors = denizen("show", folder)
    assert (code, "kind 'trains', which is unknown here; did you mean 'training'?" in errors) == (2, True)
    (folder / "manifest.json").write_text("{")
    code, _, errors = denizen("show", folder)
    assert (code, "manifest.json is not valid JSON" in errors) == (2, True)


def test_one_training_is_compared_with_nothing(denizen, stored):
    code, _, err = denizen("compare", str(stored("training_ppo")))
    assert code == 2
    assert "two run folders or more" in err


@pytest.mark.parametrize("name", ["simulation", "training_ppo", "training_seeds"])
def test_a_folder_is_exported(denizen, stored, name):
    import polars

    folder = str(stored(name))
    code, out, _ = denizen("export", folder, "--csv", "--parquet", "--out", "sub/numbers")
    assert (code, out) == (0, "sub/numbers.csv\nsub/numbers.parquet\n")
    table = polars.read_parquet("sub/numbers.parquet")
    assert polars.read_csv("sub/numbers.csv").shape == table.shape
    if name == "simulation":
        assert table.equals(load(folder).to_polars())
    else:
        rows = [row for one in sorted(Path(folder).glob("**/metrics.jsonl")) for row in read_metrics(one.parent)]
        np.testing.assert_equal(table["return_mean"].to_list(), [row.get("return_mean") for row in rows])
        assert ("seed" in table.columns) == (name == "training_seeds")
    again = denizen("export", folder, "--csv", "--out", "sub/numbers")
    assert again[::2] == (
        2, "error export: sub/numbers.csv exists already; remove it, or give another name with --out\n"
    )  # fmt: skip


def test_what_cannot_be_exported_is_told(denizen, stored):
    run = str(stored("simulation"))
    for out in (".", "..", "/"):
        assert denizen("export", run, "--csv", "--out", out)[::2] == (
            2,
            f"error --out {out}: expected the path of a file without its suffix, such as data/covid\n",
        )
    folder = str(stored("training_ppo"))
    told = "error export: give a format or several: --csv, --parquet, --netcdf\n"
    assert denizen("export", folder)[::2] == (2, told)
    assert denizen("export", folder, "--netcdf")[2].startswith("error --netcdf is for simulations and calibrations")


def test_runs_are_listed(denizen, stored):
    assert denizen("list")[:2] == (0, "no runs in runs; denizen hello makes a first one\n")
    for name in ("simulation", "training_seeds", "dotgat"):
        shutil.copytree(STORED / name, f"runs/deep/{name}")
    Path("runs/broken").mkdir()
    Path("runs/broken/manifest.json").write_text("{")
    code, out, _ = denizen("list")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if "runs/" in line}
    assert set(lines) == {"runs/broken", *(f"runs/deep/{name}" for name in ("simulation", "training_seeds", "dotgat"))}
    assert "damaged" in lines["runs/broken"]
    assert "SIR" in lines["runs/deep/simulation"] or "sir" in lines["runs/deep/simulation"]
    told = json.loads(denizen("list", "runs/deep", "--json")[1])
    assert {one["kind"] for one in told} == {"simulation", "training", "dotgat"}
    assert sorted(denizen("list", "--quiet")[1].splitlines()) == sorted(lines)
    assert all(Path(folder).is_dir() for folder in lines)
