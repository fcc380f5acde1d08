"""`denizen experiment`, small: it trains, evaluates, writes its report, and goes on where it stopped."""

import fcntl
import json
import signal

import pytest

import denizen as dz

SMALL = [
    "experiment",
    "goodhart",
    "--modes",
    "ground_truth",
    "proxy",
    "--steps",
    "256",
    "--seeds",
    "1",
    "--worlds",
    "4",
    "--budget",
    "20",
    "--world",
    "height=16",
    "width=16",
    "food_range=4,6",
    "poison_range=4,6",
    "--set",
    "num_envs=4",
    "num_steps=16",
    "update_epochs=1",
    "--policy",
    "channels=2",
    "hidden=8",
    "critic_hidden=8",
    "--out",
    "exp",
    "--device",
    "cpu",
]


@pytest.mark.slow
def test_an_experiment_goes_from_training_to_report_and_is_resumed(denizen, tmp_path, monkeypatch, pictures):
    plain, seen = dz.PPO.update, []

    def update(algorithm, training):
        metrics = plain(algorithm, training)
        seen.append(metrics)
        if len(seen) == 6:  # in the second training
            signal.raise_signal(signal.SIGINT)
        return metrics

    with monkeypatch.context() as patched:
        patched.setattr(dz.PPO, "update", update)
        code, _, err = denizen(*SMALL)
        assert (code, err.splitlines()[-1]) == (130, "interrupted; go on with the same command")
    code, out, err = denizen(*SMALL, "--quiet")
    assert (code, out) == (0, "exp\n"), err
    report = (tmp_path / "exp/report/report.md").read_text()
    for word in (
        "ground_truth",
        "proxy",
        "uniform moves",
        "omniscient seeker",
        "grid_lifetime",
        "persist",
        "PPO(num_envs=4,",
    ):
        assert word in report
    assert "| proxy | likeliest actions | " in report
    assert "| ground_truth | grid_lifetime=life | " in report
    assert (tmp_path / "exp/report/survival.png").exists()
    stamp = (tmp_path / "exp/proxy/seed-3000/evaluation-42.npz").stat().st_mtime_ns
    assert denizen(*SMALL)[0] == 0  # nothing is done twice
    assert (tmp_path / "exp/proxy/seed-3000/evaluation-42.npz").stat().st_mtime_ns == stamp
    assert json.loads((tmp_path / "exp/experiment.json").read_text())["modes"] == ["ground_truth", "proxy"]
    code, _, err = denizen(*SMALL, "--seeds", "2")
    assert code == 2
    assert "seeds 1, not 2" in err


def test_wrong_words_are_named(denizen, tmp_path):
    code, _, err = denizen("experiment", "goodhart", "--modes", "prox")
    assert code == 2
    assert "did you mean 'proxy'" in err
    assert denizen("experiment", "goodhart", "--worlds", "0")[0] == 2
    code, _, err = denizen("experiment", "goodhart", "--world", "mode=proxy")
    assert code == 2
    assert "choose with --modes" in err
    assert not (tmp_path / "runs").exists()


def test_an_experiment_at_work_is_left_alone(denizen, tmp_path):
    (tmp_path / "exp").mkdir()
    with (tmp_path / "exp/.lock").open("w") as lock:  # as another process holds it
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        code, _, err = denizen(*LEARNERS)
    assert code != 0
    assert "another run is writing to it now" in err
    assert not (tmp_path / "exp/cartpole").exists()


LEARNERS = [
    "experiment",
    "learners",
    "--modes",
    "cartpole",
    "fruits",
    "--steps",
    "300",
    "--seeds",
    "2",
    "--worlds",
    "8",
    "--budget",
    "30",
    "--out",
    "exp",
    "--device",
    "cpu",
    "--quiet",
]


@pytest.mark.slow
def test_learners_are_trained_once_and_stand_side_by_side(denizen, tmp_path, pictures):
    code, out, err = denizen(*LEARNERS)
    assert (code, out) == (0, "exp\n"), err
    report = (tmp_path / "exp/report/report.md").read_text()
    rows = [line.split(" | ")[:2] for line in report.splitlines() if line.startswith(("| cartpole", "| fruits"))]
    assert [(world.strip("| "), arm) for world, arm in rows] == [
        ("cartpole", "PPO"),
        ("cartpole", "GRPO"),
        ("fruits", "PPO"),
        ("fruits", "GRPO"),
        ("fruits", "original objective"),
        ("fruits", "hindsight optimum"),
        ("fruits", "chase the lowest fruit"),
        ("fruits", "at random"),
    ]
    told = json.loads((tmp_path / "exp/report/scores.json").read_text())
    assert [len(arm) for arm in told["fruits"].values()] == [2, 2, 2]
    assert told["fruits"]["PPO"][0]["curve"][-1][0] == told["fruits"]["PPO"][0]["steps"]
    assert (tmp_path / "exp/report/curves.png").stat().st_size > 10_000
    manifest = tmp_path / "exp/fruits/original-objective/seed-1/manifest.json"
    stamp = manifest.stat().st_mtime_ns
    assert denizen(*LEARNERS)[0] == 0
    assert manifest.stat().st_mtime_ns == stamp  # nothing is done twice
    (tmp_path / "exp/fruits/PPO/seed-0/score.json").unlink()
    assert denizen(*LEARNERS)[0] == 0
    assert json.loads((tmp_path / "exp/report/scores.json").read_text()) == told
    assert "steps 300, not 400" in denizen(*LEARNERS, "--steps", "400")[2]


def test_a_report_of_learners_has_means_intervals_and_curves(tmp_path, pictures):
    from denizen.studies.learners import Outcome, write_report

    curve = [(100, 1.0), (200, 2.0)]
    found = {
        "fruits": {"PPO": [Outcome(200, curve, 2.0), Outcome(200, curve, 4.0)], "GRPO": [Outcome(300, curve, 1.0)]}
    }
    page = write_report(tmp_path / "report", found, {"fruits": {"at random": -10.4}}, {"hardware": "CPU"})
    lines = page.read_text().splitlines()
    assert "| fruits | PPO | 200 | 3.00 | -9.71 to 15.71 | 2.00 | 4.00 | 2 |" in lines  # 12.706 = t of one freedom
    assert "| fruits | GRPO | 300 | 1.00 | – | 1.00 | 1.00 | 1 |" in lines
    assert "| fruits | at random |  | -10.40 |  |  |  |  |" in lines
    assert "| hardware | CPU |" in lines
    assert (tmp_path / "report/curves.png").stat().st_size > 10_000


def test_learners_refuse_what_is_not_theirs(denizen):
    code, _, err = denizen("experiment", "learners", "--modes", "proxy")
    assert code == 2
    assert "cartpole" in err
    assert "not for this experiment" in denizen("experiment", "learners", "--set", "num_envs=4")[2]


def test_no_experiment_begins_that_is_not_named(denizen, tmp_path):
    """They last for hours."""
    told = "which experiment? denizen experiment goodhart or denizen experiment learners"
    for words, message in (([], told), (["learnrs"], "EXPERIMENT learnrs: did you mean 'learners'?")):
        code, out, err = denizen("experiment", *words)
        assert (code, out) == (2, "")
        assert message in " ".join(err.split())
    assert not (tmp_path / "runs").exists()
