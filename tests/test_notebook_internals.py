"""Progress in a notebook and in a log."""

import io
import sys

import rich

import denizen as dz
from denizen._printing import Console, progress
from denizen.zoo.cartpole import CartPole


def test_progress_without_ipywidgets_is_a_line_of_text(monkeypatch, recwarn) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr(rich, "_console", Console(force_jupyter=True, file=io.StringIO()))
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with progress() as bar:
        bar.update(bar.add_task("simulate", total=3, rate=""), advance=3)
    assert "simulate" in out.getvalue()
    assert "\x1b[1A" not in out.getvalue()  # which notebooks do not understand
    assert not recwarn.list


def test_trainings_show_progress_without_ipywidgets(monkeypatch, recwarn) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr(rich, "_console", Console(force_jupyter=True, file=io.StringIO()))
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    env = CartPole()
    dz.train(env, dz.rl.mlp(env, (8,)), dz.PPO(num_envs=4, num_steps=16), 128, device="cpu", compile=False)
    assert "128/128 steps" in out.getvalue()
    assert "\x1b[1A" not in out.getvalue()
    assert not recwarn.list


def test_progress_in_a_log_is_a_line_now_and_then(monkeypatch, inside) -> None:
    out = io.StringIO()
    monkeypatch.setattr(rich, "_console", Console(file=out, force_terminal=False, width=100))
    inside.between_lines(0.0)
    with progress() as bar:
        task = bar.add_task("simulate", total=3, rate="")
        for _ in range(3):
            bar.advance(task)
            bar.update(task, rate="5/s")
        seen = out.getvalue()
    assert [line.split()[0] for line in seen.splitlines()] == ["simulate"] * 3
    assert "2/3" in seen
    inside.between_lines(1e9)
    before = len(out.getvalue())
    with progress() as bar:
        bar.update(bar.add_task("train", total=3, rate=""), advance=1)
        assert len(out.getvalue()) == before
