"""An attention network learns whom agents listen to, and takes the place of the rule in the engine."""

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.zoo.dotgat.opinions import Learnt, Opinions, influence, learn

HEARS, HEARD = [0, 1, 2, 3, 4, 0], [2, 3, 4, 0, 1, 4]


def contacts():
    return dz.Graph.from_edges(HEARD, HEARS, 5)


@pytest.mark.slow
def test_whom_agents_listen_to_is_learnt():
    run = dz.simulate(Opinions(contacts=contacts()), steps=20, replicates=128, seed=0, device="cpu")
    opinions = run["opinions"]
    assert opinions.shape == (128, 20, 5)
    network = learn(opinions, epochs=40)
    attention = influence(network, opinions[:32])
    true = torch.zeros(5, 5, dtype=torch.bool)
    true[HEARS, HEARD] = True
    others = ~torch.eye(5, dtype=torch.bool)
    pairs = attention[true & others][:, None] > attention[~true & others]
    assert pairs.float().mean() > 0.85

    learnt = dz.simulate(Learnt(network=network, num_agents=5), steps=20, replicates=128, seed=1, device="cpu")
    same = dz.simulate(Opinions(contacts=contacts()), steps=20, replicates=128, seed=1, device="cpu")
    apart = (learnt["opinions"] - same["opinions"]).square().mean()
    stranger = dz.simulate(Opinions(contacts=contacts()), steps=20, replicates=128, seed=2, device="cpu")
    assert apart < 0.5 * (stranger["opinions"] - same["opinions"]).square().mean()
    assert abs(float(learnt["opinions"].std() - same["opinions"].std())) < 0.1


def test_both_are_models():
    for model in (Opinions(contacts=contacts()), Learnt(network=learn(torch.rand(4, 3, 5), epochs=1), num_agents=5)):
        found = dz.check(model)
        assert found.ok, found


def test_wrong_shapes_are_refused():
    with pytest.raises(InputError, match="at least 2 steps"):
        learn(torch.rand(4, 1, 5))
