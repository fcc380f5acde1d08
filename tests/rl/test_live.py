"""The live view of a training."""

import io

import pytest
import rich
from rich.console import Console

import denizen as dz
from denizen.zoo.cartpole import CartPole
from trainings import interrupt_after


def trained(out, **console):
    """What is shown of a training of two updates."""
    env = CartPole()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rich, "_console", Console(file=out, width=100, **console))
        told = dz.train(env, dz.rl.mlp(env, (4,)), dz.PPO(num_envs=4, num_steps=25), 200, device="cpu", compile=False)
    return told["entropy"][-1]


def test_the_view_shows_bar_and_metrics():
    out = io.StringIO()
    entropy = trained(out, force_terminal=True)
    shown = out.getvalue()
    assert "CartPole" in shown
    assert "200/200" in shown
    assert f"{entropy:.4g}" in shown


def test_what_is_told_of_an_interrupt_has_a_line_of_its_own(monkeypatch):
    out = io.StringIO()
    interrupt_after(2, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        trained(out)
    assert "entropy" in out.getvalue()
    assert out.getvalue().endswith("\n")
