"""The tools of `dz.perf` on the reference and the fast network."""

import dataclasses

import pytest
import torch
from torch import nn

import denizen as dz
from denizen.zoo.dotgat import makers

SMALL = dataclasses.replace(makers.CONFIG, num_agents=4, hidden=16, message_steps=2)


def verdict(reference, fast):
    series = torch.randn(2, 6, SMALL.num_features)
    return dz.perf.equivalent(reference, fast, series, weights=fast.state_of_reference, steps=3)


def test_the_pair_is_equivalent():
    assert verdict(*makers.pair(SMALL)).passed


@pytest.mark.parametrize("spoil", ["first layer", "activation"])
def test_what_is_not_the_same_network_is_found(spoil):
    reference, fast = makers.pair(SMALL)
    if spoil == "first layer":
        fast.mlp.inner.forward = lambda u: u + 0 * fast.mlp.inner.weight.sum()
    else:
        fast.mlp.forward = lambda h: fast.mlp.outer(fast.mlp.inner(fast.mlp.norm(h)))
    assert not verdict(reference, fast).passed


def test_makers_make_steps_that_learn(monkeypatch):
    monkeypatch.setattr(makers, "CONFIG", SMALL)
    monkeypatch.setattr(makers.pair, "__defaults__", (SMALL, "cpu"))
    monkeypatch.setattr(makers.batch, "__defaults__", (SMALL, "cpu"))
    slow, quick = makers.reference(2), makers.fast(2)
    losses = [[float(step().detach()) for _ in range(4)] for step in (slow, quick)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][-1] < losses[0][0]
    report = dz.perf.profile(quick, plain=1, warm_up=1, active=1, device="cpu")
    assert "bmm" in str(report)
    assert isinstance(makers.pair(SMALL)[1], nn.Module)
