"""Bounded confidence: the mean is kept to the last bit, squares fall as they must, groups are as many as published."""

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.zoo.opinions import main_clusters, opinions


def test_each_meeting_takes_what_it_must_from_the_sum_of_squares():
    model = opinions(num_agents=2, confidence=0.4, move=0.25)
    start = dz.simulate(model, 1, replicates=200, params={"move": [0.0] * 200}).state.opinion.double()
    after = dz.simulate(model, 1, replicates=200).state.opinion.double()
    distance = (start[:, 0] - start[:, 1]).abs()
    expected = torch.where(distance < 0.4, 2 * 0.25 * 0.75 * distance**2, 0.0)
    torch.testing.assert_close((start**2).sum(1) - (after**2).sum(1), expected, rtol=0, atol=1e-7)
    assert torch.equal(start.sum(1), after.sum(1))


def test_groups_are_as_many_as_published():
    confidences = [0.5, 0.3, 0.2, 0.15]
    run = dz.simulate(opinions(num_agents=600), 80, replicates=4, params={"confidence": confidences}, compile=False)
    assert run["clusters"][:, -1].tolist() == [main_clusters(confidence) for confidence in confidences]
    assert (run["mean"] == run["mean"][:, :1]).all()
    assert (run["spread"][:, -1] < 0.3).all()


def test_meetings_belong_to_identities():
    model, order = opinions(num_agents=31), torch.randperm(31, generator=torch.Generator().manual_seed(0))
    plain, mixed = dz.simulate(model, 10), dz.simulate(model, 10, ids=order)
    assert torch.equal(plain.state.opinion[0][order], mixed.state.opinion[0])
    short = dz.simulate(model, 4, replicates=2)
    short.extend(6)
    assert torch.equal(short["spread"][0], plain["spread"][0])


def test_wrong_arguments():
    for wrong, told in (({"num_agents": 1}, "num_agents=1"), ({"mov": 0.1}, "move"), ({"move": 0.6}, "move")):
        with pytest.raises(InputError, match=told):
            opinions(**wrong)
