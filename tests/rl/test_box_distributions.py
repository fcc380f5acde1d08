"""Distributions over bounded numbers, against torch's, integrals and draws; and what a policy makes of them."""

import math

import pytest
import torch
from torch.distributions import AffineTransform, Normal, TanhTransform, TransformedDistribution

import denizen as dz
from denizen.errors import InputError
from denizen.rl import Beta, Draws, SquashedGaussian
from denizen.zoo.probes import Continuous

BOX = dz.rl.Box([-1.0, 0.0], [3.0, 0.5], (2,))
MIXED = dz.rl.Box([-1.0, 0.0, -math.inf], [3.0, math.inf, math.inf], (3,))


def squashed(mean, log_std, space=BOX):
    return SquashedGaussian.of(torch.as_tensor(mean), torch.as_tensor(log_std), space)


def beta(rows, seed=0):
    return Beta.of(torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed)) * 2, None, BOX)


def theirs(ours):
    """What torch has in place of it."""
    scale = AffineTransform(ours.low, ours.high - ours.low)
    if isinstance(ours, Beta):
        return TransformedDistribution(torch.distributions.Beta(ours.alpha, ours.beta), [scale])
    half = (ours.high - ours.low) / 2
    normal = Normal(ours.mean, ours.log_std.exp().expand(ours.mean.shape))
    return TransformedDistribution(normal, [TanhTransform(), AffineTransform(ours.low + half, half)])


def some(kind, rows):
    if kind is Beta:
        return beta(rows)
    return squashed(torch.randn(rows, 2, generator=torch.Generator().manual_seed(1)), [0.2, -0.7])


def drawn(ours, rows):
    return ours.sample(Draws(2, torch.arange(rows)).uniform("action", torch.tensor(0), 2 * type(ours).draws))


def alike(ours, rows):
    """Its first row as many times."""
    fields = [f[:1].expand(rows, -1) if isinstance(f, torch.Tensor) and f.dim() == 2 else f for f in ours]
    return type(ours)(*fields)


@pytest.mark.parametrize("kind", [SquashedGaussian, Beta])
def test_densities_are_those_of_torch_and_draws_follow_them(kind):
    ours = some(kind, 200)
    action = drawn(ours, 200)
    assert ((action > ours.low) & (action < ours.high)).all()
    torch.testing.assert_close(ours.log_prob(action), theirs(ours).log_prob(action).sum(1), atol=1e-3, rtol=1e-3)
    points = torch.linspace(0, 1, 20_002)[1:-1]
    for column in (0, 1):  # the density of one number, the other one as it is
        low, high = ours.low[column], ours.high[column]
        actions = action[:1].repeat(20_000, 1)
        actions[:, column] = low + (high - low) * points
        whole = theirs(ours).log_prob(action)[0, 1 - column].exp()
        density = alike(ours, 20_000).log_prob(actions).exp()
        assert (density.mean() * (high - low) / whole).item() == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("kind", [SquashedGaussian, Beta])
def test_entropy_and_kl_are_means_over_draws(kind):
    rows = 40_000
    ours, other = alike(some(kind, 1), rows), alike(some(kind, 3)._replace(low=some(kind, 1).low), rows)
    if kind is SquashedGaussian:
        other = other._replace(mean=other.mean + 0.4, log_std=other.log_std + 0.3)
    else:
        other = other._replace(alpha=other.alpha + 0.5)
    log_prob, its = (one.log_prob(drawn(ours, rows)) for one in (ours, other))
    spread = 4 / rows**0.5
    assert ours.entropy()[0].item() == pytest.approx(-log_prob.mean().item(), abs=spread * log_prob.std().item())
    apart = log_prob - its
    assert ours.kl(other)[0].item() == pytest.approx(apart.mean().item(), abs=spread * apart.std().item())
    assert ours.kl(ours)[0].item() == pytest.approx(0, abs=1e-5)


def test_draws_of_a_beta_have_its_quantiles():
    rows = 100_000
    ours = Beta(
        *[torch.full((rows, 2), value) for value in (1.0001, 4.5)], BOX.spans("cpu")[0], BOX.spans("cpu")[1], (2,)
    )
    share = (drawn(ours, rows) - ours.low) / (ours.high - ours.low)
    exact = 1 - (1 - torch.tensor([0.05, 0.2, 0.5])) ** 4.5  # alpha = 1
    found = (share[..., None] <= torch.tensor([0.05, 0.2, 0.5])).float().mean(0)
    assert torch.allclose(found, exact.expand(2, 3), atol=4 * 0.5 / rows**0.5)


def test_the_entropy_of_a_squashed_normal_is_exact_for_a_wide_one():
    for std in (0.05, 1.0, 3.0):
        mean = torch.tensor([[0.7, -2.0]])
        ours = squashed(mean, [math.log(std)] * 2)
        z = torch.linspace(-9, 9, 200_001, dtype=torch.float64)[:, None]
        free = mean.double() + std * z
        slope = (2 * (ours.high - ours.low).double()).log() - 2 * (free.abs() + (-2 * free.abs()).exp().log1p())
        weight = torch.softmax(-0.5 * z.square(), 0)
        wanted = (0.5 * math.log(2 * math.pi * math.e * std**2) + (slope * weight).sum(0)).sum()
        assert ours.entropy().item() == pytest.approx(wanted.item(), abs=2e-4)


def test_numbers_far_out_stay_finite():
    ours = squashed(torch.tensor([[60.0, -60.0], [8.0, -8.0]], requires_grad=True), [0.0, 0.0])
    action = ours.sample(torch.full((2, 2), 0.5))
    assert ((action >= ours.low) & (action <= ours.high)).all()
    log_prob = ours.log_prob(action.detach())
    (log_prob.sum() + ours.entropy().sum()).backward()
    assert torch.isfinite(log_prob).all()
    steep = Beta.of(torch.tensor([[90.0, -90.0, -90.0, 90.0], [5e4, 5e4, 5e4, 5e4]], requires_grad=True), None, BOX)
    action = drawn(steep, 2)
    values = torch.cat([steep.log_prob(action), steep.entropy(), steep.log_prob(steep.mode()), steep.kl(steep)])
    assert torch.isfinite(values).all()


def test_numbers_that_lack_a_bound_are_normal_and_cut_by_the_world():
    ours = squashed(torch.tensor([[0.5, 0.5, 0.5]]), [0.0] * 3, MIXED)
    low = ours.sample(torch.full((1, 3), 0.01))
    assert -1 < low[0, 0] < 3
    assert low[0, 1] < 0
    assert torch.equal(MIXED.nearest(low)[0, 1:], torch.tensor([0.0, low[0, 2]]))
    gaussian = dz.rl.Gaussian(ours.mean[:, 1:], ours.log_std[1:], (2,))
    lone = squashed(ours.mean[:, :1], [0.0], dz.rl.Box(-1.0, 3.0, (1,)))
    torch.testing.assert_close(ours.log_prob(low), lone.log_prob(low[:, :1]) + gaussian.log_prob(low[:, 1:]))
    torch.testing.assert_close(ours.entropy(), lone.entropy() + gaussian.entropy())


@pytest.mark.parametrize("kind", [SquashedGaussian, Beta])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_policy_learns_with_it_from_ratios_of_1(kind, dtype):
    class Low(Continuous):
        action_space = dz.rl.Box([-1.0], [2.0], (1,), dtype)

    policy = dz.rl.mlp(Low(), (16,), distribution=kind)
    algorithm = dz.GRPO(groups=4, group_size=8, max_steps=1, update_epochs=1)
    result = dz.train(Low(), policy, algorithm, algorithm.samples, device="cpu", progress=False, compile=False)
    assert result["ratio_min"] == result["ratio_max"] == [1.0]


@pytest.mark.parametrize("kind", [SquashedGaussian, Beta])
def test_a_bounded_world_is_solved_and_folders_tell_distributions_apart(kind, tmp_path):
    env = Continuous()
    algorithm = dz.PPO(num_envs=32, num_steps=16, learning_rate=dz.rl.Linear(2e-2, 0), ent_coef=0.0)
    policy = dz.rl.mlp(env, (16,), distribution=kind)
    quiet = {"device": "cpu", "progress": False}
    dz.train(env, policy, algorithm, 512 * 8, folder=tmp_path / "run", compile=False, **quiet)
    worst = dz.rl.evaluate(env, dz.rl.mlp(env, (16,), distribution=kind), greedy=True).mean
    assert dz.rl.evaluate(env, policy, greedy=True).mean > worst / 2
    with pytest.raises(InputError, match="the policy differs"):
        dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (16,)), algorithm, steps=1, **quiet)


@pytest.mark.parametrize(
    ("space", "kind", "told"),
    [
        (MIXED, Beta, "Beta is for numbers between two finite bounds"),
        (dz.rl.Box(0, math.inf, (2,)), SquashedGaussian, "squashes numbers between two bounds"),
        (dz.rl.Discrete(2), Beta, "distribution=Beta is over the numbers of a Box"),
        (BOX, "beta", "distribution='beta', expected dz.rl.Gaussian, dz.rl.SquashedGaussian or dz.rl.Beta"),
    ],
)
def test_distributions_that_do_not_fit_are_told(space, kind, told):
    env = type("Other", (Continuous,), {"action_space": space})()
    with pytest.raises(InputError, match=told):
        dz.rl.mlp(env, distribution=kind)


def test_a_draw_comes_with_its_density():
    ours = some(SquashedGaussian, 200)
    uniform = Draws(2, torch.arange(200)).uniform("action", torch.tensor(0), 2)
    action, log_prob = ours.drawn(uniform)
    assert torch.equal(action, ours.sample(uniform))
    torch.testing.assert_close(log_prob, ours.log_prob(action), atol=1e-3, rtol=1e-3)
    free = MIXED.shape[0] - 1  # the last number has no bounds
    mixed = squashed([[0.5, -0.3, 2.0]], [0.0, 0.0, 1.0], MIXED)
    action, log_prob = mixed.drawn(torch.tensor([[0.3, 0.6, 0.9]]))
    assert log_prob.item() == pytest.approx(mixed.log_prob(action).item(), abs=1e-4)
    assert action[0, free] == pytest.approx(2.0 + math.e * 1.2815516, rel=1e-5)


def test_the_density_of_a_draw_is_right_where_it_rounds_to_a_bound():
    mean = torch.tensor([[30.0]], requires_grad=True)
    one = torch.ones(1)
    action, log_prob = SquashedGaussian(mean, 0 * one, -one, one, (1,)).drawn(torch.tensor([[0.5]]))
    assert action.item() == 1.0
    assert log_prob.item() == pytest.approx(-0.9189385 - math.log(4) + 60, rel=1e-6)  # 1 - tanh(30)² = 4 exp(-60)
    (slope,) = torch.autograd.grad(log_prob.sum(), mean)
    assert slope.item() == pytest.approx(2.0)
