"""Draws from tensors that lie elsewhere than the agents: which one, where, and how to move it."""

import pytest
import torch

from denizen.errors import ModelError
from denizen.rng import Rng

CALLS = {
    "event": ("hazard", lambda rng, x: rng.event("a", x)),
    "bernoulli": ("prob", lambda rng, x: rng.bernoulli("a", x)),
    "uniform": ("high", lambda rng, x: rng.uniform("a", 0.0, x)),
    "normal": ("std", lambda rng, x: rng.normal("a", 0.0, x)),
    "exponential": ("rate", lambda rng, x: rng.exponential("a", x)),
    "gamma": ("scale", lambda rng, x: rng.gamma("a", 1.0, x)),
    "poisson": ("mean", lambda rng, x: rng.poisson("a", x)),
    "categorical": ("probs", lambda rng, x: rng.categorical("a", x)),
}


def _rng(device):
    return Rng(torch.tensor([1, 2], device=device), torch.tensor(0, device=device), num=4)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("here", "there"), [("cpu", "meta"), pytest.param("cuda:0", "cpu", marks=pytest.mark.cuda)], ids=["cpu", "cuda"]
)
def test_a_tensor_that_lies_elsewhere_is_named(name, here, there):
    argument, draw = CALLS[name]
    with pytest.raises(
        ModelError, match=rf"rng.{name}\('a'\): {argument} lies on {there}, the agents on {here}; keep "
    ):
        draw(_rng(here), torch.full((4,), 0.5, device=there))


@pytest.mark.parametrize("name", ["event", "bernoulli"])
def test_a_mask_that_lies_elsewhere_is_named(name):
    with pytest.raises(ModelError, match="where lies on meta"):
        getattr(_rng("cpu"), name)("a", 0.5, where=torch.ones(4, dtype=torch.int8, device="meta"))


@pytest.mark.cuda
def test_single_numbers_of_the_cpu_go_where_torch_takes_them():
    assert _rng("cuda:0").normal("a", torch.tensor(1.0), torch.tensor(2.0)).shape == (4,)
    with pytest.raises(ModelError, match="prob lies on cpu"):
        _rng("cuda:0").bernoulli("a", torch.tensor(0.5))


@pytest.mark.parametrize(
    ("guessed", "meant"), [("randint", "integers"), ("randn", "normal"), ("choice", "categorical")]
)
def test_names_of_other_libraries_lead_to_the_draw(guessed, meant):
    with pytest.raises(AttributeError, match=f"rng has no '{guessed}'; did you mean '{meant}'"):
        getattr(_rng("cpu"), guessed)
    assert not hasattr(_rng("cpu"), "_nothing")


def test_what_is_recorded_lies_with_the_agents():
    host, elsewhere = torch.ones(4), torch.ones(4, device="meta")
    with pytest.raises(ModelError, match=r"rng.record\('caught'\): happened lies on meta, the agents on cpu"):
        _rng("cpu").record("caught", elsewhere)
    logged = _rng("cpu")
    logged._logs = ["caught"]  # as in a run with an EventLog
    with pytest.raises(ModelError, match=r"rng.record\('caught'\): where lies on meta, the agents on cpu"):
        logged.record("caught", host, where=elsewhere)
