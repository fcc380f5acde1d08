"""Distributions over actions against torch's, masks, and draws."""

import pytest
import torch

import denizen as dz
from denizen.rl import Draws, Shuffles


def test_categorical_agrees_with_torch():
    logits = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    ours, theirs = dz.rl.Categorical.of(logits), torch.distributions.Categorical(logits=logits)
    action = torch.tensor([0, 1, 2, 3, 4, 0, 1])
    assert torch.allclose(ours.log_prob(action), theirs.log_prob(action))
    assert torch.allclose(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), logits.argmax(1))


def test_closed_choices_are_never_drawn_and_leave_gradients_finite():
    logits = torch.zeros(1000, 4, requires_grad=True)
    open_ = torch.tensor([True, False, True, False]).expand(1000, 4)
    actions = dz.rl.Categorical.of(logits, open_)
    drawn = actions.sample(torch.linspace(1e-7, 1 - 1e-7, 1000)[:, None])
    assert set(drawn.tolist()) == {0, 2}
    assert torch.allclose(actions.entropy(), torch.full((1000,), 2.0).log())
    (actions.entropy().sum() + actions.log_prob(drawn).sum()).backward()
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[:, [1, 3]] == 0).all()


def test_a_probability_of_zero_leaves_the_entropy_gradient_finite():
    logits = torch.tensor([[0.0, -200.0]], requires_grad=True)
    dz.rl.Categorical.of(logits).entropy().sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_draws_follow_the_probabilities():
    probs = torch.tensor([0.1, 0.2, 0.7])
    draws = Draws(3, torch.arange(20_000))
    actions = dz.rl.Categorical.of(probs.log().expand(20_000, 3))
    share = torch.bincount(actions.sample(draws.uniform("action", torch.tensor(5), 1)), minlength=3) / 20_000
    assert torch.allclose(share, probs, atol=4 * 0.5 / 20_000**0.5)


def test_gaussian_agrees_with_torch():
    mean, log_std = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(1))
    ours = dz.rl.Gaussian(mean, log_std[0], (3,))
    theirs = torch.distributions.Independent(torch.distributions.Normal(mean, log_std[0].exp()), 1)
    action = mean + 0.3
    assert torch.allclose(ours.log_prob(action), theirs.log_prob(action))
    assert torch.allclose(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), mean)


def test_gaussian_draws_have_the_right_moments():
    rows = 20_000
    actions = dz.rl.Gaussian(torch.full((rows, 1), 2.0), torch.tensor([0.5]).log(), (1,))
    drawn = actions.sample(Draws(0, torch.arange(rows)).uniform("action", torch.tensor(0), 1))
    assert drawn.mean().item() == pytest.approx(2.0, abs=4 * 0.5 / rows**0.5)
    assert drawn.std().item() == pytest.approx(0.5, rel=0.03)


def test_draws_differ_by_step_replica_and_stream_and_not_by_batch():
    draws, step = Draws(1, torch.arange(8)), torch.tensor(4)
    base = draws.uniform("action", step, 2)
    assert base.unique().numel() == 16
    assert not torch.equal(base, draws.uniform("action", step + 1, 2))
    assert not torch.equal(base, draws.uniform("other", step, 2))
    assert not torch.equal(base, Draws(2, torch.arange(8)).uniform("action", step, 2))
    assert torch.equal(base[[2, 5]], Draws(1, torch.tensor([2, 5])).uniform("action", step, 2))


def test_shuffles_are_permutations_that_differ():
    shuffles = Shuffles(0, torch.device("cpu"))
    first, second = (shuffles.order(torch.tensor(k), 100) for k in (0, 1))
    assert torch.equal(first.sort().values, torch.arange(100))
    assert not torch.equal(first, second)
    assert torch.equal(first, Shuffles(0, torch.device("cpu")).order(torch.tensor(0), 100))


def test_exploring_takes_any_open_choice_with_epsilon_and_else_the_best():
    rows = 30_000
    values = torch.tensor([[1.0, 5.0, 3.0, 9.0]]).expand(rows, 4)
    open_ = torch.tensor([[True, True, True, False]]).expand(rows, 4)
    greedy = dz.rl.Greedy.of(values, open_)
    assert (greedy.mode() == 1).all()
    draws = Draws(2, torch.arange(rows)).uniform("action", torch.tensor(0), 1)
    drawn = torch.bincount(greedy.explored(torch.tensor(0.3)).sample(draws), minlength=4) / rows
    assert torch.allclose(drawn, torch.tensor([0.1, 0.8, 0.1, 0.0]), atol=4 * 0.5 / rows**0.5)
    assert drawn[3] == 0
    assert (greedy.explored(torch.tensor(0.0)).sample(draws) == 1).all()
    assert torch.equal(greedy.sample(draws), greedy.mode())
