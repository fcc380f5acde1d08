"""`denizen watch --window` without a display, and worlds with other options than they were trained in."""

import pytest

pygame = pytest.importorskip("pygame")


@pytest.fixture
def dummy(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.fixture
def trained(denizen):
    small = ["--total-epochs", "1", "--batch-size", "4", "--max-steps", "8", "--out", "run", "--quiet"]
    assert denizen("train", "fruits", "--algo", "grpo", *small)[0] == 0
    return denizen


def test_the_command_plays_and_overrides_options(dummy, trained, monkeypatch):
    code, _, err = trained("watch", "run", "--window", "--steps", "3", "--frames-per-second", "500", "--greedy")
    assert code == 0, err
    code, out, err = trained("watch", "run", "--steps", "4", "--world", "height=4", "win_score=3")
    assert code == 0, err
    assert out.count("|\n") == 4  # rows of the grid
    code, out, _ = trained("evaluate", "run", "--worlds", "8", "--world", "max_steps=10", "spawn_prob=1", "--quiet")
    assert code == 0
    assert abs(float(out)) <= 3
    assert (
        "--world max_fruits=5: the policy was trained for other"
        in trained("watch", "run", "--world", "max_fruits=5")[2]
    )
    assert "give one of the two" in trained("watch", "run", "--window", "--gif", "a.gif")[2]
    monkeypatch.setenv("SDL_VIDEODRIVER", "nothing")
    code, _, err = trained("watch", "run", "--window")
    assert code == 2
    assert "leave it out to watch in the terminal" in err
