"""`denizen experiment goodhart`, small: it trains, evaluates, writes its report, and goes on where it stopped."""

import json
import signal

import pytest

SMALL = [
    "experiment", "goodhart", "--modes", "ground_truth", "proxy", "--steps", "256", "--seeds", "1", "--worlds", "4",
    "--budget", "20", "--world", "height=16", "width=16", "food_range=4,6", "poison_range=4,6",
    "--set", "num_envs=4", "num_steps=16", "epochs=1", "--policy", "channels=2", "hidden=8", "critic_hidden=8",
    "--out", "exp", "--device", "cpu",
]  # fmt: skip


@pytest.mark.slow
def test_an_experiment_goes_from_training_to_report_and_is_resumed(denizen, tmp_path, monkeypatch):
    from denizen.rl import _train

    plain, seen = _train.Loop._judge, []

    def judge(self, metrics):
        plain(self, metrics)
        seen.append(self.done)
        if len(seen) == 5:  # in the second training
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(_train.Loop, "_judge", judge)
        assert denizen(*SMALL)[0] == 130
    code, out, err = denizen(*SMALL, "--quiet")
    assert (code, out) == (0, "exp\n"), err
    report = (tmp_path / "exp/report/report.md").read_text()
    for word in ("ground_truth", "proxy", "uniform moves", "omniscient seeker", "grid_lifetime", "persist"):
        assert word in report
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
    assert not (tmp_path / "runs").exists()
