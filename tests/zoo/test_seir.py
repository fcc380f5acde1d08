"""What SEIR has and SIR has not; what they share is in test_sir.py, theory in test_theory.py and test_networks.py."""

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.zoo.seir import seir


def line(num: int, **params) -> dz.Model:
    """Agent k infects agent k + 1 for certain; one step is one day."""
    ids = torch.arange(num)
    return seir(dz.Graph.from_edges(ids[:-1], ids[1:], num), infect_rate=100.0, **params)


@pytest.mark.parametrize(("latent", "sick"), [(1, 1), (3, 2), (5, 7)])
def test_fixed_durations_pass_an_infection_on_like_clockwork(latent, sick):
    model = line(
        40, seed_share=0.05, latent_days=latent, latent_phases=latent, infectious_days=sick, infectious_phases=sick
    )
    run = dz.simulate(model, 30, record={"stage": lambda now: now.stage.value}, seed=3)
    stage = run["stage"][0].long()
    seed = int((stage[0] >= 1 + latent).nonzero()[0])
    assert 0 < seed < 30
    for day in range(30):  # at the end of it the first generation was caught in step 0, the next latent + 1 steps later
        for generation in range(1, 4):
            age = day - (generation - 1) * (latent + 1) + 1
            expected = min(max(age, 0), 1 + latent + sick)
            assert int(stage[day, seed + generation]) == expected


@pytest.mark.parametrize(
    "arguments", [{"latent_phases": 0}, {"latent_days": -1.0}, {"latent_phases": 100, "infectious_phases": 100}]
)
def test_wrong_values_are_refused(arguments):
    with pytest.raises(InputError):
        line(5, **arguments)


def test_stages_advance_as_codes_and_as_shares():
    stage = dz.model.Stage(torch.tensor([0, 1, 2, 2, 3], dtype=torch.int8), ("a", "b", "c", "d"))
    event = torch.tensor([1, 1, 1, 0, 1], dtype=torch.int8)
    hard = stage.advance(event, "b", "c")
    assert hard.value.tolist() == [0, 2, 3, 2, 3]
    assert torch.equal(stage.advance(event.float(), "b", "c").value, hard.relax().value)
    half = stage.advance(0.5 * event.float(), "c").value
    assert half[2].tolist() == [0.0, 0.0, 0.5, 0.5]
    assert torch.equal(half.sum(dim=1), torch.ones(5))
