"""What trains in a game against others."""

import contextlib

import pytest
import torch
from tests.zoo.test_games import Listed

import denizen as dz
from denizen.rl._rollout import Rollout
from denizen.zoo.leduc import Leduc


@pytest.mark.parametrize("game", [Leduc(), Listed(rows=4, columns=2)], ids=("leduc", "connect_four"))
def test_what_trains_is_the_gradient_of_the_exact_game(game):
    """In either seat: mean of advantage times gradient of the log-probability, against differences of exact values."""
    count, steps, far = 3_000, 5, 0.02
    tree, policy, other = dz.rl.GameTree(game), dz.rl.mlp(game, (8,), seed=1), dz.rl.mlp(game, (8,), seed=2)
    with torch.no_grad():
        for net in (policy, other):
            net.actor.weight.mul_(200)
    for seat in (0, 1):
        worlds = dz.rl.Worlds(dz.rl.Against(game, [other], seat=seat), count, device="cpu", max_resets=0)
        rollout = Rollout(worlds, policy, steps, 0, contextlib.nullcontext)
        rollout.collect()
        fields, none = rollout.fields, torch.zeros(steps, count)
        assert bool(fields["terminated"].any(0).all())
        ended = [fields[name] for name in ("terminated", "truncated", "valid")]
        gained = dz.rl.advantages(fields["reward"], none, none, *ended, 1.0, 1.0).advantage
        seen = {name: fields[name].flatten(0, 1) for name in ("observation", "action_mask", "action")}
        with torch.no_grad():
            judged = policy(seen["observation"], torch.zeros(steps * count, 0), seen["action_mask"])
            probs = judged.actions.log_probs.exp()
        # By a bias the log-probability of a move changes by (1 where it is the move) - its probability.
        ahead = torch.nn.functional.one_hot(seen["action"].long(), probs.shape[1]) - probs
        whole = (ahead.view(steps, count, -1) * gained[..., None] * fields["valid"][..., None]).sum(0).double()
        for choice in range(probs.shape[1]):
            worth = []
            for side in (far, -far):
                with torch.no_grad():
                    policy.actor.bias[choice] += side
                    worth.append(tree.value(policy, other) if seat == 0 else -tree.value(other, policy))
                    policy.actor.bias[choice] -= side
            exact, found = (worth[0] - worth[1]) / (2 * far), whole[:, choice]
            assert abs(float(found.mean()) - exact) < 4 * float(found.std()) / count**0.5 + 1e-3, (seat, choice)
            assert float(found.std()) > 0
