"""Simple play of the fruit catcher, and the best in hindsight."""

from itertools import product

import pytest
import torch

import denizen as dz
from denizen.studies.fruits import Chase, Guess, Lookahead, hindsight, scores
from denizen.zoo.fruits import fruits, fruits_match
from denizen.zoo.fruits.config import ORIGINAL_STARTS
from denizen.zoo.fruits.network import original_policy


def test_scores_are_those_of_the_description():
    """Standard errors of the description's values: about 0.02; of these, 2.4 to 3.3 / sqrt(2,000)."""
    env = fruits(starts=ORIGINAL_STARTS)
    best = hindsight(env, num_envs=2000)
    found = {type(agent): scores(env, agent, num_envs=2000) for agent in (Guess(), Chase(env), Lookahead(env))}
    for score, mean, spread in (
        (found[Guess], -10.41, 2.78),
        (found[Chase], 5.29, 3.31),
        (found[Lookahead], 7.49, 2.66),
        (best, 7.87, 2.43),
    ):
        assert float(score.mean()) == pytest.approx(mean, abs=4 * (0.02**2 + spread**2 / 2000) ** 0.5)
        assert float(score.std()) == pytest.approx(spread, rel=0.08)
    for score in found.values():
        assert bool((score <= best).all())


@pytest.mark.parametrize("options", [{}, {"min_fruits": 2, "max_fruits": 2, "min_interval": 1, "sprite_width": 3}])
def test_hindsight_is_the_best_of_all_plays(options):
    env = fruits(**({"width": 6, "height": 3, "sprite_width": 1, "max_steps": 7} | options))
    plays = torch.tensor(list(product(range(3), repeat=7))).T
    best = hindsight(env, num_envs=4, seed=1)
    for world in range(4):
        worlds = dz.rl.Worlds(env, plays.shape[1], seed=2**31 + 1, worlds=[world] * plays.shape[1], device="cpu")
        worlds.reset()
        total = sum(worlds.step(action).reward for action in plays)
        assert float(total.max()) == float(best[world])


def test_play_reads_raw_observations_alike():
    plain, raw = fruits(max_steps=40), fruits(max_steps=40, raw=True)
    assert torch.equal(scores(plain, Lookahead(plain), num_envs=50), scores(raw, Lookahead(raw), num_envs=50))


def test_matches_are_won_by_lookahead_and_lost_by_guessing():
    env = fruits_match(max_steps=300, win_score=6, fail_score=-6)
    assert float((scores(env, Lookahead(env), num_envs=50) == 6).float().mean()) > 0.9
    assert bool((scores(env, Guess(), num_envs=50) == -6).all())


def test_what_has_no_hindsight_is_named():
    with pytest.raises(dz.errors.InputError, match="stop_at_thresholds=True"):
        hindsight(fruits_match())
    with pytest.raises(dz.errors.InputError, match="give max_steps"):
        scores(fruits(max_steps=None), Guess())


def test_the_original_policy_has_its_size_and_its_formula():
    env = fruits()
    policy = original_policy(env, 64, seed=3)
    seen = torch.randn(5, 10)
    body = policy.body
    with torch.no_grad():
        z0 = seen @ body.enter.weight.T
        z1 = z0 + torch.layer_norm(torch.nn.functional.gelu(z0, approximate="tanh"), (64,))
        z2 = torch.nn.functional.gelu(z1 @ body.deep.weight.T + body.deep.bias, approximate="tanh")
        logits = z2 @ policy.actor.weight.T + policy.actor.bias
        judged = policy(seen, policy.first_memory(5, seen.device))
    torch.testing.assert_close(judged.actions.log_probs, logits.log_softmax(-1))
    acting = sum(p.numel() for part in (body, policy.actor) for p in part.parameters())
    assert acting == 64 * (10 + 64 + 3) + 3 * 64 + 3
    torch.testing.assert_close(policy.actor.weight, original_policy(env, 64, seed=3).actor.weight)
