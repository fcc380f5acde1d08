"""The losses of GRPO and PPO against loops in float64, written term by term, and against closed forms."""

import itertools

import pytest
import torch

from denizen.rl import Categorical, Gaussian
from denizen.rl._grpo import ESTIMATORS, LOSSES, Settings, grpo_loss, weights
from denizen.rl._ppo import Coefficients, ppo_loss

STEPS, LIVES, CHOICES = 5, 6, 3
BETA, ENTROPY, LOW, HIGH = 0.3, 0.05, 0.2, 0.28
LENGTHS = (5, 2, 4, 1, 0, 3)  # one life that never acted


def setting(kl="k3_iw", sequence_ratio=False, beta=BETA, entropy=ENTROPY):
    return Settings(LOW, HIGH, beta, kl, torch.tensor(entropy, dtype=torch.float64), sequence_ratio)


class Case:
    """Tabular policies over random data, in float64."""

    def __init__(self, seed=0, off_policy=0.3):
        generator = torch.Generator().manual_seed(seed)

        def random(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.logits = random(STEPS, LIVES, CHOICES).requires_grad_()
        old = self.logits.detach() + off_policy * random(STEPS, LIVES, CHOICES)
        self.reference = random(STEPS, LIVES, CHOICES).log_softmax(-1)
        self.action = torch.randint(0, CHOICES, (STEPS, LIVES), generator=generator)
        self.old = old.log_softmax(-1).gather(-1, self.action[..., None])[..., 0]
        self.gain = random(STEPS, LIVES)
        self.used = torch.arange(STEPS)[:, None] < torch.tensor(LENGTHS)
        self.judged = self.used & torch.tensor([True, True, False, True, True, True])

    def terms(self, loss, settings, steps=STEPS):
        now = Categorical(self.logits.log_softmax(-1).flatten(0, 1))
        reference = Categorical(self.reference.flatten(0, 1))
        shape, action = self.action.shape, self.action.flatten()
        return grpo_loss(
            now.log_prob(action).view(shape),
            now.entropy().view(shape),
            self.old,
            self.gain,
            weights(self.judged, loss=loss, num_steps=steps).double(),
            weights(self.used, loss=loss, num_steps=steps).double(),
            settings,
            reference.log_prob(action).view(shape),
            now.kl(reference).view(shape),
        )


def by_loops(case, loss, settings):
    """The loss as the sum of its terms, one life and one step at a time."""

    def count(mask):
        lengths = [sum(bool(mask[t, i]) for t in range(STEPS)) for i in range(LIVES)]
        lives = sum(n > 0 for n in lengths)
        return {
            "grpo": lambda i: 1 / (lives * lengths[i]),
            "dapo": lambda i: 1 / sum(lengths),
            "bnpo": lambda i: 1 / sum(lengths),
            "dr_grpo": lambda i: 1 / (lives * STEPS),
        }[loss]

    policy_weight, weight = count(case.judged), count(case.used)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(LIVES):
        steps = [t for t in range(STEPS) if case.used[t, i]]
        probs = {t: torch.softmax(case.logits[t, i], 0) for t in steps}
        rho = {t: probs[t][case.action[t, i]] / case.old[t, i].exp() for t in steps}
        for t in steps:
            ratio = rho[t]
            if settings.sequence_ratio:
                ratio = torch.stack([rho[u].log() for u in steps]).mean().exp()
            if case.judged[t, i]:
                bounded = torch.clamp(ratio, 1 - LOW, 1 + HIGH)
                total = total - policy_weight(i) * torch.min(ratio * case.gain[t, i], bounded * case.gain[t, i])
            ref = case.reference[t, i].exp()
            u = ref[case.action[t, i]] / probs[t][case.action[t, i]]
            kl = u - u.log() - 1
            if settings.estimator == "k3_iw":
                kl = rho[t] * kl
            if settings.estimator == "exact":
                kl = sum(probs[t][k] * (probs[t][k].log() - ref[k].log()) for k in range(CHOICES))
            entropy = -sum(probs[t][k] * probs[t][k].log() for k in range(CHOICES))
            total = total + weight(i) * (BETA * kl - ENTROPY * entropy)
    return total


@pytest.mark.parametrize(("loss", "kl", "sequence"), list(itertools.product(LOSSES, ESTIMATORS, (False, True))))
def test_value_and_gradient_equal_loops(loss, kl, sequence):
    case, settings = Case(), setting(kl, sequence)
    wanted = by_loops(case, loss, settings)
    found = case.terms(loss, settings).total
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)
    (slope,), (right,) = torch.autograd.grad(found, case.logits), torch.autograd.grad(wanted, case.logits)
    torch.testing.assert_close(slope, right, rtol=1e-6, atol=1e-9)
    assert bool((slope[~case.used] == 0).all())


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_masked_and_lives_that_are_padding_change_nothing(loss):
    case = Case()
    value = case.terms(loss, setting()).total
    case.gain[~case.used], case.old[~case.used] = torch.nan, -1e30
    torch.testing.assert_close(case.terms(loss, setting()).total, value, rtol=0, atol=0)
    keep = [i for i, length in enumerate(LENGTHS) if length]  # the life that never acted, left out
    for name in ("action", "old", "gain", "used", "judged", "reference"):
        setattr(case, name, getattr(case, name)[:, keep])
    case.logits = case.logits.detach()[:, keep]
    torch.testing.assert_close(case.terms(loss, setting()).total, value.detach(), rtol=1e-12, atol=0)


def test_with_equal_lengths_the_denominators_agree():
    valid = torch.ones(STEPS, LIVES, dtype=torch.bool)
    found = [weights(valid, loss=loss, num_steps=STEPS) for loss in LOSSES]
    for one in found:
        torch.testing.assert_close(one, torch.full((STEPS, LIVES), 1 / (STEPS * LIVES)))


@pytest.mark.parametrize(
    ("loss", "each"), [("grpo", (1 / 2, 1 / 6)), ("dapo", (1 / 4, 1 / 4)), ("dr_grpo", (1 / 10, 1 / 10))]
)
def test_the_gradient_on_a_bandit_has_its_closed_form(loss, each):
    """Lives of 1 and 3 pulls with gains 2 and -1: -sum of w A (1[a] - p), where every ratio is 1."""
    logits = torch.tensor([0.2, -0.4], dtype=torch.float64, requires_grad=True)
    valid = torch.tensor([[True, True], [False, True], [False, True]])
    action = torch.tensor([[0, 1], [0, 1], [1, 0]])
    log_prob = logits.log_softmax(-1)[action]
    gain, zero = torch.tensor([2.0, -1.0]).double().expand(3, 2), torch.zeros(3, 2).double()
    weight = weights(valid, loss=loss, num_steps=5).double()
    terms = grpo_loss(log_prob, zero, log_prob.detach(), gain, weight, weight, setting(beta=0.0, entropy=0.0))
    (slope,) = torch.autograd.grad(terms.total, logits)
    p, one = logits.detach().softmax(0), torch.eye(2).double()
    short, long = each
    wanted = -(short * 2 * (one[0] - p) - long * (2 * (one[1] - p) + (one[0] - p)))
    torch.testing.assert_close(slope, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("gain", "change", "moves"),
    [
        (1.0, 0.5, False),
        (1.0, -0.5, True),
        (-1.0, 0.5, True),
        (-1.0, -0.5, False),
        (1.0, 0.22, True),
        (-1.0, 0.1, True),
    ],
)
def test_clipping_stops_the_gradient_on_the_right_side_only(gain, change, moves):
    log_prob = torch.tensor([[change]], dtype=torch.float64, requires_grad=True)  # 0.22: a ratio of 1.25, below 1.28
    one, zero = torch.ones(1, 1).double(), torch.zeros(1, 1).double()
    terms = grpo_loss(log_prob, zero, zero, gain * one, one, one, setting(beta=0.0))
    (slope,) = torch.autograd.grad(terms.total, log_prob)
    assert (float(slope) != 0) is moves
    assert float(terms.sums[3] + terms.sums[4]) == (not moves)


def slope_of_kl(estimator, logits, reference, old):
    """Expected gradient of an estimator when actions come from `old`, by summing over all actions."""
    logits = logits.clone().requires_grad_()
    now, ref = Categorical(logits.log_softmax(-1)[None]), Categorical(reference.log_softmax(-1)[None])
    action = torch.arange(CHOICES)[:, None]
    rows = Categorical(now.log_probs.expand(CHOICES, -1))
    chance = old.softmax(-1)[:, None]
    zero = torch.zeros_like(chance)
    terms = grpo_loss(
        rows.log_prob(action[:, 0])[:, None],
        zero,
        chance.log(),
        zero,
        zero,
        chance,
        setting(estimator, beta=1.0),
        ref.log_probs[0, action],
        now.kl(ref).expand(CHOICES, 1),
    )
    return torch.autograd.grad(terms.total, logits)[0]


def test_the_gradient_of_each_kl_is_what_it_is_said_to_be():
    now, reference = torch.tensor([0.3, -0.5, 0.9]).double(), torch.tensor([-0.2, 0.4, 0.1]).double()
    right, wrong = torch.tensor([0.00770, -0.18883, 0.18113]), torch.tensor([0.06598, -0.29940, 0.23342])
    for estimator, wanted in (("k3_iw", right), ("exact", right), ("k3", wrong)):
        found = slope_of_kl(estimator, now, reference, now)
        torch.testing.assert_close(found, wanted.double(), rtol=0, atol=1e-5)
    other = torch.tensor([-0.4, 0.3, 0.2]).double()  # off policy the weighted one stays right, the plain one does not
    torch.testing.assert_close(slope_of_kl("k3_iw", now, reference, other), right.double(), rtol=0, atol=1e-5)
    assert float((slope_of_kl("k3", now, reference, other) - wrong).abs().max()) > 1e-2


def test_values_of_k1_k2_and_k3():
    case = Case(off_policy=0.0)
    sums = case.terms("dapo", setting("k3")).sums
    weight = weights(case.used, loss="dapo", num_steps=STEPS).double()
    log_u = (case.reference - case.logits.detach().log_softmax(-1)).gather(-1, case.action[..., None])[..., 0]
    wanted = [((log_u.exp() - log_u - 1) * weight).sum(), -(log_u * weight).sum(), (0.5 * log_u**2 * weight).sum()]
    torch.testing.assert_close(sums[5:], torch.stack(wanted), rtol=1e-6, atol=1e-9)


def test_a_choice_that_is_closed_leaves_entropy_and_kl_finite():
    logits = torch.tensor([[0.5, 0.1, 2.0]], requires_grad=True)
    open_ = torch.tensor([[True, True, False]])
    now, reference = Categorical.of(logits, open_), Categorical.of(torch.zeros(1, 3), open_)
    (slope,) = torch.autograd.grad((now.entropy() + now.kl(reference)).sum(), logits)
    assert bool(torch.isfinite(slope).all())
    assert float(slope[0, 2]) == 0


def test_kl_between_normal_distributions():
    mean, log_std = torch.tensor([[0.3, -1.0]]), torch.tensor([0.2, -0.3])
    other_mean, other_log_std = torch.tensor([[0.0, 0.5]]), torch.tensor([-0.1, 0.4])
    found = Gaussian(mean, log_std, (2,)).kl(Gaussian(other_mean, other_log_std, (2,)))
    wanted = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, log_std.exp()), torch.distributions.Normal(other_mean, other_log_std.exp())
    ).sum(-1)
    torch.testing.assert_close(found, wanted)


def coefficients(value_clip=0.2, floor=0.0, penalty=0.0):
    clip = value_clip and torch.tensor(value_clip)
    return Coefficients(*map(torch.tensor, (0.2, 0.01, floor, 0.5)), clip, torch.tensor(penalty))


@pytest.mark.parametrize("value_clip", [None, 0.2])
def test_rows_that_do_not_count_change_nothing(value_clip):
    made = torch.Generator().manual_seed(0)
    columns = torch.randn(8, 10, generator=made)
    weight = torch.ones(10)
    weight[6:] = 0
    spoilt = columns.clone()
    spoilt[:, 6:] = torch.tensor([torch.inf, torch.nan, 1e30, -1e30])
    results = []
    for given in (columns, spoilt):
        given = given.clone().requires_grad_()
        log_prob, entropy, value, old, gain, target, old_value, _ = given
        gain = torch.where(weight > 0, gain, 0.0)
        loss = ppo_loss(log_prob, entropy, value, old, gain, target, old_value, weight, coefficients(value_clip))
        (gradient,) = torch.autograd.grad(loss.total, given)
        results.append((loss.total.detach(), gradient[:, :6], gradient[:3, 6:]))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert (results[1][2] == 0).all()
    log_prob, entropy, value, old, gain, target, old_value, _ = columns[:, :6]  # also in no denominator
    alone = ppo_loss(log_prob, entropy, value, old, gain, target, old_value, weight[:6], coefficients(value_clip))
    assert torch.allclose(torch.stack(loss[1:]), torch.stack(alone[1:]), rtol=1e-5)


def test_value_clipping_is_the_larger_error_of_each_element():
    value, old, target = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.5, 0.5]])
    zero, one = torch.zeros(2), torch.ones(2)
    loss = ppo_loss(zero, zero, value, zero, zero, target, old, one, coefficients(0.2))
    assert loss.value.item() == pytest.approx(((1 - 0.5) ** 2 + 0.5**2) / 2)  # 0.5 against (0.2 - 0.5)²: the larger


def test_the_entropy_floor_pulls_only_below_it():
    entropy = torch.full((3,), 0.4, requires_grad=True)
    zero, one = torch.zeros(3), torch.ones(3)
    for floor, wanted in ((0.5, -0.01 - 0.05), (0.3, -0.01)):
        loss = ppo_loss(zero, entropy, zero, zero, zero, zero, zero, one, coefficients(None, floor, 0.05))
        (gradient,) = torch.autograd.grad(loss.total, entropy)
        assert gradient.sum().item() == pytest.approx(wanted)
