"""A function of one agent inside a step: through vmap, or in a loop with one warning, with the same bits."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.model import per_agent, per_agent_fallbacks

AGENTS = 17


def smooth(wealth: Tensor, luck: Tensor) -> Tensor:
    return torch.where(luck > 0.5, wealth * 1.1 + luck, wealth * 0.9 - luck)


def branching(wealth: Tensor, luck: Tensor) -> Tensor:
    if luck > 0.5:
        return wealth * 1.1 + luck
    return wealth * 0.9 - luck


def values() -> tuple[Tensor, Tensor]:
    return torch.randn(AGENTS), torch.rand(AGENTS)


def test_loop_and_vmap_give_the_same_bits() -> None:
    wealth, luck = values()
    before = per_agent_fallbacks()
    through_vmap = per_agent(smooth)(wealth, luck)
    assert per_agent_fallbacks() == before
    with pytest.warns(UserWarning, match=r"per_agent\(branching\): vmap cannot run it .* torch.where"):
        looped = per_agent(branching)(wealth, luck)
    assert per_agent_fallbacks() == before + 1
    assert torch.equal(through_vmap, looped)
    assert torch.equal(through_vmap, torch.where(luck > 0.5, wealth * 1.1 + luck, wealth * 0.9 - luck))


def test_one_warning_and_every_call_counted() -> None:
    call, before = per_agent(branching), per_agent_fallbacks()
    with pytest.warns(UserWarning, match="per_agent") as caught:
        call(*values())
    for _ in range(3):
        call(*values())  # a second warning would be an error here
    assert len(caught) == 1
    assert per_agent_fallbacks() == before + 4


def test_several_results_and_dtypes() -> None:
    def pair(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, k + 1

    def branching_pair(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return (x * 2, k + 1) if bool(k >= 0) else (x * 0, k)

    x, k = torch.randn(AGENTS), torch.arange(AGENTS, dtype=torch.int8)
    ours = per_agent(pair)(x, k)
    with pytest.warns(UserWarning, match="per_agent"):
        loop = per_agent(branching_pair)(x, k)
    for a, b in zip(ours, loop, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def test_gradients_flow_both_ways() -> None:
    grads = []
    for function in (smooth, branching):
        torch.manual_seed(3)
        wealth, luck = values()
        wealth.requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            per_agent(function)(wealth, luck).sum().backward()
        grads.append(wealth.grad)
    assert torch.equal(*grads)


def test_an_error_of_the_function_itself_comes_through() -> None:
    def wrong(x: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        per_agent(wrong)(torch.ones(3))


class People(dz.State):
    wealth: Tensor = dz.real("agents")


class Market(dz.Model):
    num_agents: int = AGENTS
    rule: Any = None
    start: Tensor = dz.param(1.0)
    growth: Tensor = dz.param(1.0)

    def init(self, rng: dz.rng.Rng) -> People:
        return People(wealth=self.start * rng.normal("wealth"))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        return now.replace(wealth=self.growth * self.rule(now.wealth, rng.uniform("luck")))

    @dz.series
    def total(self, now: People) -> Tensor:
        return now.wealth.sum()


@pytest.mark.parametrize("replicates", [1, 3])
def test_in_a_model(replicates: int) -> None:
    plain = dz.simulate(Market(rule=smooth), 5, replicates=replicates)
    mapped = dz.simulate(Market(rule=per_agent(smooth)), 5, replicates=replicates)
    assert torch.equal(plain.state.wealth, mapped.state.wealth)
    assert torch.equal(plain["total"], mapped["total"])


def test_a_loop_in_a_model_of_one_world() -> None:
    plain = dz.simulate(Market(rule=smooth), 5)
    before = per_agent_fallbacks()
    with pytest.warns(UserWarning, match="per_agent"):
        looped = dz.simulate(Market(rule=per_agent(branching)), 5)
    assert torch.equal(plain.state.wealth, looped.state.wealth)
    assert looped.stats()["fallback_calls"] == before + 5


def test_a_loop_in_a_batch_of_worlds() -> None:
    """Worlds are then run one after another, each with its own parameters, with the same bits."""
    own = {"start": [1.0, 2.0, 3.0], "growth": [1.0, 0.5, 1.5]}
    plain = dz.simulate(Market(rule=smooth), 5, replicates=3, params=own)
    before = per_agent_fallbacks()
    with pytest.warns(UserWarning, match="per_agent") as caught:
        looped = dz.simulate(Market(rule=per_agent(branching)), 5, replicates=3, params=own)
    assert len(caught) == 1
    assert torch.equal(plain.state.wealth, looped.state.wealth)
    assert torch.equal(plain["total"], looped["total"])
    assert per_agent_fallbacks() == before + 15
